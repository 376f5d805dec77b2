"""What `patch()` puts into PyTorch's dispatcher, and how it comes and goes.

In: calls of aten's pools, of their gradients and of max unpools, as the dispatcher makes them.
Out: tensors of our kernels, in the dtypes, shapes and memory formats of PyTorch's; every call that our
kernels refuse goes to the kernel of PyTorch that was there before.
Nothing here may change what PyTorch does after `remove()`, define an operator, or check what a page checks.
"""
