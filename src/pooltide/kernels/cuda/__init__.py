"""The GPU backend. These modules run on the host; `device` holds the kernels that Triton compiles."""
