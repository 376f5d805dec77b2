"""The operators that exist: every page, with code behind each of its rules."""

from __future__ import annotations

from functools import cache

from .pages import HOST, Operator, load_all, operator_files
from .rules import RULES, known
from .toml import PageError, read


def verified(operator: Operator, where: str) -> Operator:
    for rule in operator.rules:
        if not known(rule):
            arguments = ", ".join(rule.arguments) or "no arguments"
            raise PageError(f"{where}: no rule {rule.name} takes {arguments}; known are {', '.join(RULES)}")
    return operator


@cache
def _all() -> tuple[Operator, ...]:
    files = ((name, read(name)) for name in operator_files())
    return tuple(verified(operator, name) for name, page in files for operator in load_all(name, page))


@cache
def operators() -> dict[str, Operator]:
    """The operators that are functions here, by the function's name (`avg_pool2d_backward`), sorted."""
    return {operator.function: operator for operator in _all() if HOST in operator.products}


@cache
def gradients() -> dict[str, Operator]:
    """The gradients of pools."""
    pools = {name: operator for name, operator in operators().items() if not operator.unpool}
    return {name: operator for name, operator in pools.items() if operator.gradient}


@cache
def documented() -> dict[str, Operator]:
    """The operators whose two phases CANN documents and this library has, by CANN's name, sorted."""
    found = {operator.name: operator for operator in _all() if operator.documented}
    return dict(sorted(found.items()))


@cache
def in_cann(function: str) -> Operator | None:
    """CANN's operator that computes what the function does, or None."""
    return next((operator for operator in documented().values() if operator.function == function), None)


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


def operator_named(name: str) -> Operator:
    """By either of its names: aclnnAvgPool2dBackward or avg_pool2d_backward."""
    return documented().get(name) or operators()[name]
