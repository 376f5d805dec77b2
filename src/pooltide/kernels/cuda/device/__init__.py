"""GPU kernels in CUDA C++, which source.py turns into programs."""
