"""`pooltide ops`: prints the operator pages as text, Markdown or JSON."""

from __future__ import annotations

import json
from textwrap import fill
from typing import Any

import click

from ..operators.catalog import documented, folders, gradients, in_cann, operators, regions, user_operators
from ..operators.describe import basis, dtypes_text, rule_arguments, stub
from ..operators.dtypes import FORMATS, status_name
from ..operators.pages import ASCEND_PRODUCTS, HOST, PRODUCTS, Operator, Parameter
from ..operators.support import NOT_IN_CANN, NOTES, by_entrance, by_layout
from ..operators.toml import PageError
from .output import NoAnswer, aligned, markdown, say, screen_width


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [op.short for op in _functions_here() if op.short.startswith(incomplete)]


def _functions_here() -> list[Operator]:
    """Every function of this library that a page describes; pools over regions of interest last."""
    return [*operators().values(), *regions().values()]


@click.command()
@click.argument("operator", required=False, shell_complete=_complete)
@click.option("--all", "every", is_flag=True, help="The parameters and rules of all operators.")
@click.option("--json", "as_json", is_flag=True, help="The pages as one JSON object.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Tables in Markdown.")
@click.option("--stub", "as_stub", is_flag=True, help="The type stub of pooltide.aclnn.")
@click.option("--support", is_flag=True, help="What runs where: by entrance, device, dtype and layout.")
def command(operator: str | None, every: bool, support: bool, **forms: bool) -> None:
    """Print which operators run on which products, and for one OPERATOR its parameters and rules.

    OPERATOR is any of its names: avg2d, avg_pool2d_backward or aclnnAvgPool2dBackward. A rule is documented
    if CANN's documents have it, decided if pooltide chose it because no document that was found has it, and
    yours if a page of your own has it (POOLTIDE_OPERATORS).
    """
    form = _form(operator, every, support, forms)
    if form == "stub":
        say(stub().rstrip("\n"))
        return
    if support:
        tables = [(markdown if form else aligned)(*table) for table in (by_entrance(), by_layout())]
        notes = NOTES if form else (fill(note, screen_width()) for note in NOTES)
        say("\n\n".join([*tables, *notes]))
        return
    chosen = list(dict.fromkeys([*gradients().values(), *documented().values(), *_yours()]))
    if operator is not None:
        chosen = [op for op in [*chosen, *_functions_here()] if operator in (op.short, op.function, op.name)]
        chosen = list(dict.fromkeys(chosen))
        if not chosen:
            raise click.UsageError(_unknown(operator))
    if form == "json":
        say(json.dumps([_record(op) for op in chosen], indent=2, ensure_ascii=False))
        return
    if operator is None and form is None and not every:
        say(_brief())
        return
    table = markdown if form == "markdown" else aligned
    parts = []
    if operator is None:
        parts = [_support(table), _functions(table)] if form else [*_brief_tables()]
    for op in chosen:
        parts += [_title(op, form), _parameters(op, table)]
        parts += [_cube(op, table)] if op.cube else []
        parts += [_rules(op, table)]
        parts += [_notes(op, form)] if op.notes else []
    say("\n\n".join(parts))


def _unknown(name: str) -> str:
    from ..acceptance.words import did_you_mean

    known = [op.short for op in _functions_here()] + [*documented(), *(op.name for op in _yours())]
    functions = {op.function: op.function for op in _functions_here()}
    spellings = {name.removeprefix("aclnn"): name for name in known} | {name: name for name in known}
    hint = did_you_mean(name, spellings | functions)
    return f"operator {name[:60]!r} is unknown{hint}; known are {', '.join(known)}"


def _form(operator: str | None, every: bool, support: bool, forms: dict[str, bool]) -> str | None:
    """Returns json, markdown, stub, or None for text. Raises for options that do not belong together."""
    chosen = [name.removeprefix("as_") for name, chosen in forms.items() if chosen]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other; give one of them")
    for option, used in (("--all", every), ("--support", support), ("--stub", chosen == ["stub"])):
        if used and operator is not None:
            raise click.UsageError(f"{option} is of all operators; give OPERATOR or {option}")
    if support and (every or chosen in (["json"], ["stub"])):
        raise click.UsageError("--support is of all operators, as text or Markdown")
    return chosen[0] if chosen else None


def _brief() -> str:
    """Returns what fits a screen of 80 columns: the functions, and the operators of each product."""
    more = (
        "`pooltide ops OPERATOR` prints the parameters and rules of an operator,\n"
        "`pooltide ops --all` of all, `pooltide ops --support` what runs where."
    )
    return "\n\n".join([*_brief_tables(), more])


def _cann_name(op: Operator) -> str:
    page = in_cann(op.function)
    return page.name if page else NOT_IN_CANN


def _brief_tables() -> list[str]:
    functions = [
        [
            op.function.removesuffix("_backward"),
            op.function,
            op.short,
            "yes" if in_cann(op.function) else "no",
        ]
        for op in _functions_here()
        if op.gradient
    ]
    numbers = [str(number) for number, _ in enumerate(ASCEND_PRODUCTS, 1)]
    products = [
        f"{number} {PRODUCTS[product]}" for number, product in zip(numbers, ASCEND_PRODUCTS, strict=True)
    ]
    return [
        aligned(["pool", "its gradient", "in cases", "in CANN"], functions),
        "In cases, avg2d is the gradient and avg2d_forward the pool.",
        aligned(["operator on product", *numbers], _by_product()),
        "\n".join(products),
    ]


def _yours() -> list[Operator]:
    """The operators of the user's pages."""
    try:
        return list(user_operators(folders()).values())
    except PageError as error:
        raise NoAnswer(str(error)) from None


def _by_product() -> list[list[str]]:
    return [
        [op.name, *("yes" if p in op.products else "no" for p in ASCEND_PRODUCTS)]
        for op in (*documented().values(), *_yours())
    ]


def _title(op: Operator, form: str | None) -> str:
    others = ", ".join(name for name in (op.short, op.function) if name not in ("", op.name))
    if op.yours:
        others = f"yours: {op.page}, computed by {op.python}" if op.python else f"only declared: {op.page}"
    title = f"{op.name} ({others})" if others else op.name
    if form == "markdown":
        return f"## {title}\n\n{op.summary}"
    return f"{fill(title, screen_width())}\n{fill(op.summary, screen_width())}"


def _support(table: Any) -> str:
    head = ["operator", *(PRODUCTS[p] for p in ASCEND_PRODUCTS)]
    return str(table(head, _by_product()))


def _functions(table: Any) -> str:
    head = ["function", "in cases", "dtypes", "indices", "CANN"]
    rows = []
    for op in _functions_here():
        index = op.by_role("indices")
        dtypes, indices = (
            " ".join(op.dtypes(p, HOST)).lower() if p else "none" for p in (op.parameters[0], index)
        )
        rows.append([op.function, op.short, dtypes, indices, _cann_name(op)])
    return str(table(head, rows))


def _parameters(op: Operator, table: Any) -> str:
    head = ["parameter", "type", "dtypes", "formats", "ranks or lengths"]
    rows = [
        [
            p.name,
            p.type,
            dtypes_text(op, p) if p.is_tensor else "",
            "" if not p.is_tensor else "any" if len(p.formats) == len(FORMATS) else " ".join(p.formats),
            " ".join(map(str, p.ranks if p.is_tensor else p.lengths)),
        ]
        for p in op.parameters
    ]
    return str(table(head, rows))


def _cube(op: Operator, table: Any) -> str:
    assert op.cube is not None
    rows = []
    for product in op.products:
        actions = op.cube.actions.get(product, op.cube.actions["default"])
        note = " (global pooling only)" if product in op.cube.global_only else ""
        for dtype, row in actions.items():
            if product != HOST and dtype in op.dtypes(op.parameters[0], product):
                rows.append([PRODUCTS[product] + note, dtype, *row])
    heads = [f"{value} {name}" for value, name in enumerate(op.cube.names)]
    return str(table(["cubeMathType on", "dtype", *heads], rows))


def _rules(op: Operator, table: Any) -> str:
    rows = [
        [
            rule.name,
            rule_arguments(rule.arguments),
            f"{rule.status} {status_name(rule.status)}",
            str(rule.item or ""),
            basis(op, rule),
        ]
        for rule in op.rules
    ]
    return str(table(["rule, in this order", "of", "status", "item", "basis"], rows))


def _notes(op: Operator, form: str | None) -> str:
    """The document's own errors, and where the rules take more than it says."""
    if form == "markdown":
        return "\n".join("- " + note.replace("*", r"\*") for note in op.notes)
    return "\n".join(fill(note, screen_width(), subsequent_indent="  ") for note in op.notes)


def _record(op: Operator) -> dict[str, Any]:
    return {
        "operator": op.name,
        "function": op.function,
        "short": op.short,
        "header": op.header,
        **({"page": op.page, "python": str(op.python or "")} if op.yours else {}),
        "summary": op.summary,
        "products": {p: p in op.products for p in ASCEND_PRODUCTS},
        "parameters": [_parameter_record(op, p) for p in op.parameters],
        "cube_math_type": op.cube and {"names": op.cube.names, "actions": op.cube.actions},
        "divisor_override": op.divisor_ranges,
        "notes": op.notes,
        "rules": [
            {
                "item": r.item,
                "rule": r.name,
                "arguments": r.arguments,
                "status": r.status,
                "skip": r.skip,
                "basis": basis(op, r),
            }
            for r in op.rules
        ],
    }


def _parameter_record(op: Operator, p: Parameter) -> dict[str, Any]:
    record: dict[str, Any] = {"name": p.name, "argument": p.argument, "type": p.type}
    if p.is_tensor:
        by_product = {product: op.dtypes(p, product) for product in op.products}
        record |= {"dtypes": by_product, "formats": p.formats, "ranks": p.ranks}
    if p.type == "int_array":
        record |= {"lengths": p.lengths, "least": p.least}
    return record
