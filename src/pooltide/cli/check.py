"""`pooltide check`: says whether a product accepts a call, and if not, why."""

from __future__ import annotations

import json
from typing import Any, cast

import click

from ..acceptance.cases import Line
from ..acceptance.notation import Case
from ..acceptance.user_cases import parse_user_case
from ..operators.pages import ASCEND_PRODUCTS, PRODUCTS
from ..operators.refusals import Fault
from ..operators.rules import check
from ..operators.toml import PageError
from .arguments import NOTATION, Problems, failed, product_option
from .output import NoAnswer, aligned, reproduce, say


class _Calls(Problems):
    """As Problems, and a call of an operator of the user's own."""

    def read(self, value: str) -> Any:
        try:
            case = parse_user_case(value)
        except PageError as error:
            raise NoAnswer(str(error)) from None
        return super().read(value) if case is None else [Line(1, "case", cast(Case, case))]


@click.command(epilog=NOTATION)
@click.argument("problems", metavar="PROBLEM", type=_Calls())
@product_option
@click.option("--all-products", is_flag=True, help="Check on every Ascend product family.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per case and product, and a summary.")
def command(problems: list[Line], product: str | None, all_products: bool, as_json: bool) -> None:
    """Say whether a call would be accepted, or the status, the rule and the reason.

    PROBLEM may also be a call of your own operator (POOLTIDE_OPERATORS): aclnnRelu:self.2x3:out.2x3:out.f16

    Exit status 1 when any case is refused; with --all-products, when no product accepts it.
    """
    if product and all_products:
        raise click.UsageError("--product and --all-products exclude each other")
    alone = len(problems) == 1
    counts = {"accepted": 0, "refused": 0, "unreadable": 0}
    for line in problems:
        if line.case is None:
            counts["unreadable"] += 1
            if as_json:
                record = {"line": line.number, "name": line.name, "case": "", "error": line.error}
                say(json.dumps(record, ensure_ascii=False))
            else:
                say(failed(line, line.error), err=True)
            continue
        products = ASCEND_PRODUCTS if all_products else (product or line.case.checked_product,)
        faults = {name: check(line.case.call(name)) for name in products}
        counts["accepted" if None in faults.values() else "refused"] += 1
        if as_json:
            for name, fault in faults.items():
                say(json.dumps(_record(line, name, fault), ensure_ascii=False))
        elif all_products:
            say(_table(line.case, faults))
        else:
            say(_sentence(line, products[0], faults[products[0]], alone=alone))
    if not alone:
        say(json.dumps({"summary": counts}) if as_json else _summary(counts, all_products))
    raise SystemExit(0 if counts["accepted"] == len(problems) else 1)


def _summary(counts: dict[str, int], all_products: bool) -> str:
    where = " on a product at least" if all_products else ""
    rest = [f"{counts['refused']} refused"] if counts["refused"] else []
    rest += [f"{counts['unreadable']} can't be read"] if counts["unreadable"] else []
    return ", ".join([f"{counts['accepted']} of {sum(counts.values())} accepted{where}", *rest])


def _sentence(line: Line, product: str, fault: Fault | None, alone: bool) -> str:
    assert line.case is not None
    call = line.case.call(product)
    name = PRODUCTS[product]
    start = "" if alone else f"line {line.number} ({line.name}): "
    if fault is None:
        return f"{start}accepted: {call.title} on {name}: {line.case}"
    item = f", item {fault.item} of {fault.status} in the document's error table" if fault.item else ""
    rule = f"rule {fault.rule}{item}"
    again = reproduce("check", line.case, "--product", product)
    return f"{start}refused on {name}: {fault.message(call.title)}\n{rule}\n{again}"


def _table(case: Case, faults: dict[str, Fault | None]) -> str:
    rows = [
        [PRODUCTS[p], "accepted", "", ""]
        if fault is None
        else [PRODUCTS[p], str(fault.status), fault.rule, fault.text]
        for p, fault in faults.items()
    ]
    return f"{case.operator.name} {case}\n" + aligned(["product", "answer", "rule", "reason"], rows)


def _record(line: Line, product: str, fault: Fault | None) -> dict[str, Any]:
    record = {"line": line.number, "name": line.name, "case": str(line.case), "product": product}
    if fault is None:
        return record | {"accepted": True, "status": 0}
    why = {"rule": fault.rule, "item": fault.item, "reason": fault.text}
    return record | {"accepted": False, "status": fault.status} | why
