"""The general kernels, which take everything but dtypes as arguments.

They compute a problem while its own kernel is compiled, with the same bits. They must not need a table.
"""
