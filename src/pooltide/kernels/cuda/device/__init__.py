"""GPU kernels in Triton's language."""
