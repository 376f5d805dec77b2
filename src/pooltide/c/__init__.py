"""The C entrance: headers and a library for programs written for CANN.

The pages list every function (`signatures`). The headers and the C code of the library are made from
them (`generate`) and compiled once per environment (`build`). At run time the library passes each call
to `entry`, which calls the same functions of `acl` and `aclnn` that Python programs call.
"""
