"""The C entrance: headers and a library for programs written for CANN.

The pages name every function (`signatures`); headers and entry points are printed from them
(`generate`) and compiled once per environment (`build`). At run time the library hands each call
to `entry`, which calls the same functions of `acl` and `aclnn` that Python programs call.
"""
