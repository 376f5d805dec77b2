"""The GPU backend. These modules run on the host; `device` holds the kernels, in CUDA C++."""
