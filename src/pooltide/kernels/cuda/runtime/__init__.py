"""What turns a source into a loaded kernel: compilers, caches and CUDA's driver.

Sources come in; functions that launch go out. Nothing here knows what a kernel computes.
"""
