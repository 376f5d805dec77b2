"""Pages are loaded strictly: a copy with one mistake is refused, and the sentence names it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import pooltide
from geometries import FUNCTIONS
from pooltide.operators.catalog import documented, gradients, in_cann, operators, verified
from pooltide.operators.pages import load_all
from pooltide.operators.toml import PageError, read

NAME = "avg_pool2d_backward.toml"
CANN = [
    *("AdaptiveAvgPool2d", "AdaptiveAvgPool2dBackward", "AdaptiveAvgPool3d", "AdaptiveAvgPool3dBackward"),
    *("AdaptiveMaxPool2d", "AdaptiveMaxPool2dBackward", "AdaptiveMaxPool3d", "AdaptiveMaxPool3dBackward"),
    *("AvgPool2d", "AvgPool2dBackward", "AvgPool3d", "AvgPool3dBackward", "GlobalAveragePool"),
    *("GlobalMaxPool", "MaxPool", "MaxPool2dWithIndices", "MaxPool2dWithIndicesBackward"),
    *("MaxPool2dWithMask", "MaxPool2dWithMaskBackward"),
    *("MaxPool3dWithArgmax", "MaxPool3dWithArgmaxBackward", "MaxUnpool2d", "MaxUnpool2dBackward"),
    *("MaxUnpool3d", "MaxUnpool3dBackward", "RoiAlign", "RoiAlignV2", "RoiAlignV2Backward"),
]
Page = dict[str, Any]


def _rule(page: Page, name: str) -> Page:
    return next(rule for rule in page["rules"] if rule["rule"] == name)


def _load(page: Page) -> None:
    for operator in load_all("page", page):
        verified(operator, "page")


def test_the_pages_load() -> None:
    assert list(gradients()) == FUNCTIONS
    functions = [*FUNCTIONS, *(f"max_unpool{n}d_backward" for n in (1, 2, 3))]
    assert sorted(operators()) == sorted([*functions, *(f.removesuffix("_backward") for f in functions)])
    assert [name.removeprefix("aclnn") for name in documented()] == CANN
    without = {name for name in FUNCTIONS if in_cann(name) is None}
    assert all("1d" in name for name in without)
    assert all(operators()[name].products == ("host",) for name in without)
    _load(read(NAME))


def test_functions_take_the_arguments_of_their_pages() -> None:
    for name, operator in operators().items():
        taken = list(inspect.signature(getattr(pooltide, name)).parameters)
        arguments = [p.argument for p in operator.parameters if p.role != "cube_math_type"]
        if operator.kind == "maximum":  # results come as a pair, by return_indices
            taken.remove("return_indices")
            arguments.remove("out[1]")
        assert taken == arguments


MISTAKES: dict[str, tuple[Callable[[Page], object], str]] = {
    "unknown key": (lambda p: p.update(colour="red"), "colour is unknown"),
    "missing key": (lambda p: p.pop("kind"), "kind is missing"),
    "unknown kind": (lambda p: p.update(kind="median"), "kind names 'median'"),
    "unknown product": (lambda p: p["products"].append("atlas-b7"), "names 'atlas-b7'"),
    "unknown dtype": (lambda p: p["dtypes"]["float"]["default"].append("FLOAT8"), "names 'FLOAT8'"),
    "dtypes for no product": (lambda p: p["dtypes"]["float"].update(b7=[]), "b7 is unknown"),
    "unknown dtype group": (lambda p: p["parameters"][0].update(dtypes="complex"), "names 'complex'"),
    "unknown format": (lambda p: p["parameters"][0]["formats"].append("NWHC"), "names 'NWHC'"),
    "unknown type": (lambda p: p["parameters"][0].update(type="blob"), "names 'blob'"),
    "unknown role": (lambda p: p["parameters"][0].update(role="extra"), "names 'extra'"),
    "parameter key": (lambda p: p["parameters"][0].update(rank=4), "rank is unknown"),
    "unknown rule": (lambda p: p["rules"][1].update(rule="lucky"), "no rule lucky"),
    "rule without a name": (lambda p: p["rules"][1].pop("rule"), "has no name"),
    "rule argument": (lambda p: p["rules"][1].update(depth=3), "takes depth"),
    "rule of no parameter": (lambda p: p["rules"][0]["of"].append("bias"), "names 'bias'"),
    "unknown status": (lambda p: p["rules"][0].update(status="OOPS"), "names 'OOPS'"),
    "unknown skip": (lambda p: p["rules"][0].update(skip=["b7"]), "names 'b7'"),
    "cube action": (lambda p: p["cube_math_type"]["default"]["FLOAT32"].__setitem__(0, "hope"), "'hope'"),
    "cube length": (lambda p: p["cube_math_type"]["default"]["FLOAT32"].append("keep"), "5 actions"),
    "rank": (lambda p: p["parameters"][0].update(ranks=["x"]), "ranks names 'x'"),
    "nullable": (lambda p: p["parameters"][3].update(nullable="maybe"), "nullable is 'maybe'"),
    "one name twice": (lambda p: p["parameters"][1].update(name="gradOutput"), "share a name or a role"),
    "cube without a dtype": (lambda p: p["cube_math_type"]["default"].pop("BFLOAT16"), "names 'BFLOAT16'"),
    "empty range": (
        lambda p: p["divisor_override"].update({"atlas-training": [255, -255]}),
        "which is empty",
    ),
    "rule's format": (lambda p: _rule(p, "rank_format").update(format="XYZ"), "names 'XYZ'"),
    "rule's product": (
        lambda p: _rule(p, "positive_dimensions").update(spatial_only=["hostt"]),
        "names 'hostt'",
    ),
    "row": (lambda p: p["rules"][0].update(row="x"), "row is 'x'"),
    "no rules": (lambda p: p.update(rules=[]), "rules is empty"),
    "divisor product": (lambda p: p["divisor_override"].update(b7=[0, 1]), "names 'b7'"),
}


FAMILY_MISTAKES: dict[str, tuple[Callable[[Page], object], str]] = {
    "unknown argument": (lambda p: p["arguments"].append("bias"), "arguments names 'bias'"),
    "an operator's name": (lambda p: p.update(operator="aclnnMaxPool"), "operator is unknown"),
    "missing key": (lambda p: p.pop("kind"), "kind is missing"),
    "unknown windows": (lambda p: p.update(windows="round"), "windows names 'round'"),
    "one name twice": (lambda p: p["arguments"].append("stride"), "share a name or a role"),
}


@pytest.mark.parametrize("mistake", FAMILY_MISTAKES)
def test_a_short_page_with_a_mistake_is_refused(mistake: str) -> None:
    change, sentence = FAMILY_MISTAKES[mistake]
    page = copy.deepcopy(read("max_pool1d_backward.toml"))
    _load(copy.deepcopy(page))
    change(page)
    with pytest.raises(PageError, match=sentence):
        _load(page)


CANN_MISTAKES: dict[str, tuple[Callable[[Page], object], str]] = {
    "unknown key": (lambda p: p["cann"].update(colour="red"), "cann: colour is unknown"),
    "missing key": (lambda p: p["cann"].pop("header"), "header is missing"),
    "unknown rule": (lambda p: p["cann"]["rules"][1].update(rule="lucky"), "no rule lucky"),
    "a mark": (lambda p: p["cann"]["rules"][1].update(decided="yes"), "decided is 'yes'"),
    "a function without its keys": (lambda p: p.pop("arguments"), "dtypes.* is missing"),
}


@pytest.mark.parametrize("mistake", CANN_MISTAKES)
def test_a_table_of_cann_with_a_mistake_is_refused(mistake: str) -> None:
    change, sentence = CANN_MISTAKES[mistake]
    page = copy.deepcopy(read("max_pool2d.toml"))
    change(page)
    with pytest.raises(PageError, match=sentence):
        _load(page)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_page_with_a_mistake_is_refused(mistake: str) -> None:
    change, sentence = MISTAKES[mistake]
    page = copy.deepcopy(read(NAME))
    change(page)
    with pytest.raises(PageError, match=sentence):
        _load(page)
