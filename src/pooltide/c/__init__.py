"""Takes calls of C and C++ programs written for CANN.

Gives them headers and a library, which passes each call to the function of `acl` or `aclnn` that Python
programs call. It must not compute, nor know an operator: the pages list every function (`signatures`), the
headers and the C code are made from them (`generate`), compiled once per environment (`build`), and call
Python (`dispatch`).
"""
