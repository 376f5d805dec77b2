"""The operators that exist: every page, with code behind each of its rules."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from .pages import HOST, Operator, load_all, operator_files
from .pages.user import load_folder
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
    functions = (operator for operator in _all() if HOST in operator.products)
    return {operator.function: operator for operator in functions if not operator.regional}


@cache
def regions() -> dict[str, Operator]:
    """The pools over regions of interest and their gradients that are functions here, by name, sorted."""
    functions = (operator for operator in _all() if HOST in operator.products)
    return {operator.function: operator for operator in functions if operator.regional}


@cache
def gradients() -> dict[str, Operator]:
    """The gradients of pools."""
    pools = {name: operator for name, operator in operators().items() if not operator.unpool}
    return {name: operator for name, operator in pools.items() if operator.gradient}


@cache
def documented() -> dict[str, Operator]:
    """The operators whose two phases CANN documents and this library has, by CANN's name, sorted."""
    by_name = {operator.name: operator for operator in _all() if operator.documented}
    return dict(sorted(by_name.items()))


FOLDERS = "POOLTIDE_OPERATORS"


def folders(text: str | None = None) -> tuple[str, ...]:
    """The folders of users' operators: of a list with colons, or of the environment. Paths are absolute."""
    words = (os.environ.get(FOLDERS, "") if text is None else text).split(os.pathsep)
    return tuple(dict.fromkeys(os.path.abspath(word) for word in words if word.strip()))


def user_operators(where: tuple[str, ...]) -> dict[str, Operator]:
    """The operators of these folders by name, sorted. Raises PageError."""
    by_name: dict[str, Operator] = {}
    for folder in where:
        for operator in load_folder(Path(folder)):
            if operator.name in documented():
                must = "a page must describe another operator"
                raise PageError(f"{operator.page}: operator is {operator.name}, which pooltide has; {must}")
            if (other := by_name.get(operator.name)) is not None:
                must = "one of the pages must go"
                raise PageError(f"{operator.page}: operator is {operator.name}, as in {other.page}; {must}")
            by_name[operator.name] = verified(operator, operator.page)
    headers: dict[str, str] = {operator.header: name for name, operator in documented().items()}
    for name, operator in by_name.items():
        if (other_name := headers.setdefault(operator.header, name)) != name:
            must = "it must be another"
            raise PageError(f"{operator.page}: header is {operator.header}, which {other_name} has; {must}")
    return dict(sorted(by_name.items()))


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
