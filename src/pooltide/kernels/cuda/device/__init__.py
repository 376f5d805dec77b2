"""Headers that kernels of all rooms include."""
