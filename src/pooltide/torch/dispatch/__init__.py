"""What PyTorch's dispatcher, autograd, compilers and DTensor know of our gradients.

In: calls of `torch.ops.pooltide.*`, on tensors, traced tensors, batches of torch.func or shards.
Out: the same gradients that a direct call computes, and their derivatives.
Nothing here may compute a gradient by itself or know of `patch()`.
"""
