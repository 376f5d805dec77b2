"""What a user reads of an operator in Python: `help`, and the types that editors and checkers know."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pooltide
from paths import TOOLS
from pooltide import aclnn
from pooltide.operators.catalog import documented, operators, regions
from pooltide.operators.describe import stub
from pooltide.operators.pages import PRODUCTS, Operator
from tool_modules import load_tool

STUB = Path(pooltide.__file__).with_name("aclnn.pyi")
SECTIONS = ["Args", "Returns", "Raises", "Example"]


def test_the_stub_is_what_the_pages_print() -> None:
    assert STUB.read_text("utf-8") == stub(), "pooltide ops --stub > src/pooltide/aclnn.pyi renews it"
    assert STUB.with_name("py.typed").exists()


def test_the_stub_has_the_functions_and_their_parameters() -> None:
    stated, phase_two = {}, []
    for node in ast.walk(ast.parse(stub())):
        if isinstance(node, ast.FunctionDef):
            stated[node.name] = [argument.arg for argument in node.args.args]
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "PhaseTwo":
            phase_two.append(ast.unparse(node.target))
    signature = stated.pop("__call__")[1:]
    stated |= dict.fromkeys(phase_two, signature)
    assert stated == {name: list(inspect.signature(f).parameters) for name, f in aclnn.FUNCTIONS.items()}
    assert len(stated) == 2 * len(documented())


@pytest.mark.parametrize("name", documented())
def test_help_names_parameters_products_and_rules(name: str) -> None:
    page = documented()[name]
    text = inspect.getdoc(getattr(aclnn, f"{name}GetWorkspaceSize")) or ""
    assert text.startswith(page.summary)
    lines = text.splitlines()
    for parameter in page.parameters:
        (line,) = (line for line in lines if line.split()[:1] == [parameter.name])
        if parameter.type == "tensor":
            assert page.dtypes(parameter, "atlas-a2")[0] in line
            assert ("is written" in line) == (parameter.role in page.results)
    rules = [line for line in lines if line.endswith(("(documented)", "(decided)"))]
    assert [line.split()[0] for line in rules] == [str(rule.status) for rule in page.rules]
    for product, spelled in PRODUCTS.items():
        joined = " ".join(text.split())
        assert (spelled in joined.partition("Products:")[2].partition("Rules")[0]) == (
            product in page.products and product != "host"
        )
    assert "Phase two: returns the status." in (inspect.getdoc(getattr(aclnn, name)) or "")


@pytest.mark.skipif(not TOOLS.exists(), reason="NO TOOLS: the tests run outside the source tree")
@pytest.mark.parametrize("name", ["arrays/functions.py", "torch/backward.py", "torch/functional.py"])
def test_the_functions_are_what_the_pages_print(name: str) -> None:
    tool = load_tool("printed_functions.py")
    printed = tool.module(tool.MODULES[name])
    assert (STUB.parent / name).read_text("utf-8") == printed, "run: python tools/printed_pages.py"
    assert len(tool.MODULES) == 3


def _module(entrance: str, name: str) -> ModuleType:
    if entrance == "numpy":
        return pooltide
    torch = pytest.importorskip("pooltide.torch")
    return torch if operators()[name].gradient else torch.functional


@pytest.mark.parametrize("entrance", ["numpy", "torch"])
@pytest.mark.parametrize("name", operators())
def test_help_teaches_a_function(name: str, entrance: str) -> None:
    """Every argument with its default, the result, the errors, and an example that prints what it says."""
    _check_help(getattr(_module(entrance, name), name), operators()[name])


@pytest.mark.parametrize("name", regions())
def test_help_teaches_a_pool_over_regions(name: str) -> None:
    _check_help(getattr(pooltide, name), regions()[name])


def _check_help(function: Callable[..., Any], operator: Operator) -> None:
    name, text = operator.function, inspect.getdoc(function) or ""
    assert text.startswith(operator.summary)
    sections = dict(re.findall(r"^(\w+):\n((?:    .+\n?)+)", text, re.M))
    assert list(sections) == SECTIONS
    taken = inspect.signature(function).parameters.values()
    defaults = ["" if p.default is p.empty else f", default {p.default}" for p in taken]
    told = re.findall(r"^    (\w+) \(\w.*?(, default [\w.-]+)?\): \w", sections["Args"], re.M)
    assert told == list(zip([p.name for p in taken], defaults, strict=True))
    assert set(re.findall(r"^    (\w+): ", sections["Raises"], re.M)) & {"TypeError", "RuntimeError"}
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert f".{name}(" in sections["Example"]
    assert doctest.DocTestRunner().run(example).failed == 0
    assert len(example.examples) >= 3
