"""Gradients of maxima: each planner stands beside its kernel, a .cu file with the same name.

In comes a `Task`; out goes a candidate, or why the kernel can't compute the problem. Nothing here touches a
device, or decides whether a kernel is fast: cost.py does, from the work that a planner states.
"""
