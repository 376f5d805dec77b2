"""What the forwards share: windows as kernels read them, walks down columns, tiles in shared memory.

Axes of a problem come in; tables, tiles and walks go out, each with the header that reads it beside it.
Nothing here knows whether a window is averaged or compared.
"""
