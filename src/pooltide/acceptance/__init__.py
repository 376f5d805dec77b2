"""Tools to accept or reject an operator.

In come cases, in the notation or in files of other tools, and files of results; out go golden data, verdicts,
reports and pictures.
Golden values are computed in float64 and rounded once; the kernels under test never take part in that.
Modules of this package print nothing, and write only to the directory or file that the caller names.
"""
