"""The documents' programs in Python: the same inputs, the same calls in the same order."""
