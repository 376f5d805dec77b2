"""A user's operator with a parameter of every type: its page, many.toml, and its functions, many.py."""

PAGE = """
operator = "aclnnMany"
summary = "All types."
python = "many.py:many"
workspace = 64
dtypes.any = ["FLOAT32", "INT64"]
parameters = [
    { name = "selfRef", type = "tensor", dtypes = "any", role = "in_place" },
    { name = "others", type = "tensor_list", dtypes = ["FLOAT32"] },
    { name = "mask", type = "tensor", dtypes = ["BOOL"], nullable = true },
    { name = "alpha", type = "scalar" },
    { name = "dims", type = "int_array", lengths = [2], least = 0 },
    { name = "scales", type = "float_array" },
    { name = "flags", type = "bool_array" },
    { name = "times", type = "int64" },
    { name = "small", type = "int32" },
    { name = "keep", type = "bool" },
    { name = "eps", type = "double" },
    { name = "rate", type = "float" },
    { name = "mode", type = "string", nullable = true },
    { name = "sums", type = "tensor", dtypes = ["FLOAT32"], role = "output", shape = "many.py:sums_shape" },
]
rules = [{ rule = "many.py:at_most_nine" }]
"""
CODE = """
def many(selfRef, others, mask, alpha, dims, scales, flags, times, small, keep, eps, rate, mode, sums):
    assert mask is None and dims == (1, 2) and flags == (True, False) and keep is True and mode == "sum"
    selfRef += alpha * others[0] + others[1] * scales[0] * times
    sums[...] = selfRef.sum(0) + eps + rate + small

def sums_shape(selfRef):
    return selfRef.shape[1:]

def at_most_nine(times):
    if times > 9:
        return f"times is {times}; it must be 9 at most."
"""
