"""The operators that exist: every page, with code behind each of its rules."""

from __future__ import annotations

from functools import cache

from .pages import Operator, load, operator_files
from .rules import RULES, known
from .toml import PageError, read


def verified(operator: Operator, where: str) -> Operator:
    for rule in operator.rules:
        if not known(rule):
            arguments = ", ".join(rule.arguments) or "no arguments"
            raise PageError(f"{where}: no rule {rule.name} takes {arguments}; known are {', '.join(RULES)}")
    return operator


@cache
def operators() -> dict[str, Operator]:
    """Every operator by its function's name (`avg_pool2d_backward`), in alphabetical order."""
    loaded = (verified(load(name, read(name)), name) for name in operator_files())
    return {operator.function: operator for operator in loaded}


@cache
def gradients() -> dict[str, Operator]:
    """The operators that are gradients."""
    return {name: operator for name, operator in operators().items() if operator.gradient}


@cache
def documented() -> dict[str, Operator]:
    """The operators whose two phases CANN documents and this library has."""
    return {name: operator for name, operator in operators().items() if operator.documented}


def aten_name(operator: Operator) -> str | None:
    """PyTorch's own operator for it. None in 1-D: its 1-D pools are 2-D ones of height 1."""
    if len(operator.axes) == 1:
        return None
    match operator.kind, operator.windows:
        case "maximum_gradient", "strided":
            return operator.function.replace("_backward", "_with_indices_backward")
        case "average_gradient", "adaptive":
            return f"_{operator.function}"
    return operator.function


@cache
def operator_named(name: str) -> Operator:
    """By either of its names: aclnnAvgPool2dBackward or avg_pool2d_backward."""
    return next(op for op in operators().values() if name in (op.name, op.function))
