"""The differentiable pools and unpools of `functional`.

In: a tensor and the arguments of a pool of torch.nn.functional.
Out: its result, with an autograd node of ours where autograd follows; PyTorch's own pool computes the rest.
Nothing here may register an operator or an override: `functional` works without `patch()`.
"""
