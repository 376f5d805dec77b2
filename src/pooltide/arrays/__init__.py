"""The NumPy entrance: PyTorch's pooling functions and their gradients on arrays."""
