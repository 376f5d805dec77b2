"""The rules: each is one name, one function, one sentence.

A rule looks at a call and returns None, or a `Fault`: *argument has X; it must be Y*.
`check` walks an operator's rules from top to bottom; the first fault is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from . import region_rules as regions
from . import tensor_rules as tensors
from . import window_rules as windows
from .call import Call, Unusable
from .pages import Rule
from .plain import shown
from .refusals import Fault
from .user_code import UserCodeError, run_user_code


def check(call: Call) -> Fault | None:
    rules = call.operator.rules
    for rule, following in zip(rules, (*rules[1:], None), strict=True):
        if call.product in rule.skip:
            continue
        arguments = rule.arguments
        if "of" in arguments and rule.name != "not_null":  # optional arguments that are not given pass
            arguments = {**arguments, "of": tuple(n for n in arguments["of"] if call.values[n] is not None)}
        fault = _ask(call, rule) if rule.predicate else RULES[rule.name](call, **arguments)
        if fault is None and rule.name == "not_null" and (following is None or following.name != "not_null"):
            fault = _usable(call)
        if fault is not None:
            if fault.status == tensors.INNER:  # code of a user failed, so the rule can't be checked
                return replace(fault, rule=rule.name, row=rule.row, item=rule.item)
            if fault.rule:
                return fault
            return replace(fault, status=rule.status, rule=rule.name, row=rule.row, item=rule.item)
    return None


def _ask(call: Call, rule: Rule) -> Fault | None:
    """What a predicate of a user's page says: None or True for a good call; a sentence, or False."""
    assert rule.predicate is not None
    try:
        result = run_user_code(rule.predicate, dict(call.values))
    except UserCodeError as error:
        return Fault(f"the rule can't be checked: {error}.", status=tensors.INNER)
    if result is None or result is True or (isinstance(result, np.bool_) and result):
        return None
    if isinstance(result, str) and result.strip():
        return Fault(" ".join(result.split()))
    if result is False or isinstance(result, np.bool_):
        return Fault(f"the arguments break the rule {rule.predicate}; they must keep it.")
    text = f"{rule.predicate} returned {shown(result)}; it must return None, a bool or a sentence."
    return Fault(text, status=tensors.INNER)


def _usable(call: Call) -> Fault | None:
    for name, value in call.values.items():
        if isinstance(value, Unusable):
            text = f"{call.spell(name)} {value.what}; it must be {value.must}."
            return Fault(text, value.error, rule="usable")
    return None


RULES: dict[str, Callable[..., Fault | None]] = {
    rule.__name__: rule
    for rule in (
        tensors.not_null, tensors.product_supported, tensors.dtype_supported, tensors.format_supported,
        tensors.same_dtype, tensors.same_format, tensors.rank_supported, tensors.same_rank,
        tensors.rank_format, tensors.positive_dimensions, tensors.positive_plane, tensors.natural_dimensions,
        tensors.same_shape, tensors.same_batch, tensors.array_lengths, tensors.array_values,
        tensors.only_value, tensors.writable_once, tensors.output_shape,
        windows.padding_half_kernel, windows.forward_shape, windows.cube_math_type, windows.divisor_range,
        windows.plane_at_most, windows.multiple_or_plane_at_most, windows.window_fits,
        windows.kernel_within_input, windows.result_fits_memory, windows.result_shape,
        windows.mask_shape, windows.unpooled_shape, windows.unpooled_size, windows.plane_at_least_input,
        regions.boxes_shape, regions.boxes_dtype, regions.sampling_range, regions.bins_divide_channels,
        regions.pooled_shape, regions.image_sizes, regions.image_result, regions.same_rows, regions.at_least,
        regions.positive_number, regions.one_of,
    )
}  # fmt: skip


def known(rule: Rule) -> bool:
    """Whether a page's rule has code behind it that takes the arguments it names."""
    if rule.predicate is not None:
        return True
    if rule.name not in RULES:
        return False
    code, defaults = RULES[rule.name].__code__, RULES[rule.name].__defaults__ or ()
    names = code.co_varnames[1 : code.co_argcount]  # inspect.signature takes longer than reading the page
    required = names[: len(names) - len(defaults)]
    return set(required) <= set(rule.arguments) <= set(names)
