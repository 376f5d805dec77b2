"""The NumPy entrance: PyTorch's pooling functions and their gradients on arrays.

In: arrays and plain values, in any layout and at any address.
Out: new arrays or the caller's `out`, or an exception that names the argument.
Nothing here may compute, choose a kernel or know of PyTorch.
"""
