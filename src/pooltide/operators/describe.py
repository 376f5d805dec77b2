"""Operators in words: the text of `help`, the cells of the tables, and the type stub of `pooltide.aclnn`."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from .catalog import documented
from .pages import ASCEND_PRODUCTS, HOST, PRODUCTS, Operator, Parameter, Rule
from .refusals import either

_TYPES = {"tensor": "aclTensor | None", "int_array": "aclIntArray | None", "bool": "bool"}
_TYPES |= {"float": "float", "string": "str | None"}
_STUB = '''"""Printed by `pooltide ops --stub` from the operator pages; changes here are lost."""

from collections.abc import Callable
from typing import Any, Protocol

from .acl import aclIntArray, aclOpExecutor, aclTensor

# fmt: off
Executor = aclOpExecutor | None
PhaseOne = tuple[int, Executor, int]  # status, executor, size of the workspace
FUNCTIONS: dict[str, Callable[..., Any]]

class PhaseTwo(Protocol):
    def __call__(self, workspace: int | None, workspaceSize: int, executor: Executor, stream: Any) -> int: ...

'''


def dtypes_text(operator: Operator, parameter: Parameter) -> str:
    """The dtypes of a tensor on most products, then on those that differ."""
    group = operator.dtype_groups[parameter.dtypes]
    usual = " ".join(group["default"])
    others = (f"; {p}: {' '.join(d)}" for p, d in group.items() if p not in ("default", HOST))
    return usual + "".join(others)


def rule_arguments(arguments: Any) -> str:
    of = " ".join(arguments.get("of", ()))
    rest = {k: v for k, v in arguments.items() if k not in ("of", "spatial_only")}
    more = (f"{k} {' '.join(v) if isinstance(v, tuple) else v}" for k, v in rest.items())
    return " ".join(filter(None, [of, *more]))


def basis(operator: Operator, rule: Rule) -> str:
    """Who made a rule: CANN's documents, or pooltide."""
    if not operator.documented:
        return "pooltide's function"
    if operator.yours and not rule.decided:
        return "yours"
    return "decided" if rule.decided else "documented"


def help_text(operator: Operator) -> str:
    """The documentation of phase one."""
    products = "; ".join(PRODUCTS[p] for p in ASCEND_PRODUCTS if p in operator.products)
    width = max(len(p.name) for p in operator.parameters) + 2
    return "\n".join(
        [
            f"{operator.summary} Phase one: returns (workspaceSize, executor, status).",
            "",
            "Parameters:",
            *(f"    {p.name:<{width}}{_parameter_text(operator, p)}" for p in operator.parameters),
            "",
            fill(f"Products: {products}.", 100),
            "",
            "Rules, the first that is broken gives the status:",
            *(f"    {_rule_text(operator, rule)}" for rule in operator.rules),
        ]
    )


def _parameter_text(operator: Operator, p: Parameter) -> str:
    match p.type:
        case "tensor" | "tensor_list" if operator.yours:
            use = {"input": "", "output": "is written; ", "in_place": "is read and written; "}[p.role]
            null = "; may be null" if p.nullable else ""
            return f"{p.type.replace('_', ' ')}; {use}{dtypes_text(operator, p)}{null}"
        case "tensor":
            use = "is written; " if operator.writes(p) else ""
            shape = "only its shape is read; " if operator.gradient and p.role == "input" else ""
            ranks = either(p.ranks)
            return f"tensor; {use}{shape}{dtypes_text(operator, p)}; {either(p.formats)}; rank {ranks}"
        case "int_array" if not operator.yours:
            null = "; null: as if empty" if p.nullable else ""
            return f"int_array of {either(p.lengths)} values, each at least {p.least}{null}"
    return p.type + ("; may be null" if p.nullable else "")


def _rule_text(operator: Operator, rule: Rule) -> str:
    where = f", not on {' '.join(p for p in rule.skip if p != HOST)}" if set(rule.skip) - {HOST} else ""
    words = filter(None, [rule.name, rule_arguments(rule.arguments)])
    return f"{rule.status} {' '.join(words)}{where} ({basis(operator, rule)})"


def stub() -> str:
    """The text of aclnn.pyi."""
    phases_two = "".join(f"{name}: PhaseTwo\n" for name in documented())
    return f"{_STUB}{''.join(map(_phase_one, documented().values()))}\n{phases_two}"


def _phase_one(operator: Operator) -> str:
    # No line ends within a type.
    parameters = [f"{p.name}: {_TYPES.get(p.type, 'int')}".replace(" ", "\0") for p in operator.parameters]
    line = f"def\0{operator.name}GetWorkspaceSize({', '.join(parameters)})\0->\0PhaseOne:\0..."
    return fill(line, 110, subsequent_indent="    ").replace("\0", " ") + "\n"
