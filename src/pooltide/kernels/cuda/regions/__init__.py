"""GPU kernels of pools over regions of interest.

In: a RegionProblem. Out: launches, or kernels that take addresses. Boxes are data, so a program takes
everything but dtypes and the pool as arguments.
"""
