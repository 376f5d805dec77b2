"""What a user reads of an operator in Python: `help`, and the types that editors and checkers know."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import pooltide
from pooltide import aclnn
from pooltide.operators.catalog import documented
from pooltide.operators.describe import stub
from pooltide.operators.pages import PRODUCTS

STUB = Path(pooltide.__file__).with_name("aclnn.pyi")


def test_the_stub_is_what_the_pages_print() -> None:
    assert STUB.read_text("utf-8") == stub(), "pooltide ops --stub > src/pooltide/aclnn.pyi renews it"
    assert STUB.with_name("py.typed").exists()


def test_the_stub_has_the_functions_and_their_parameters() -> None:
    found = {
        node.name: [argument.arg for argument in node.args.args]
        for node in ast.parse(stub()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert found == {name: list(inspect.signature(f).parameters) for name, f in aclnn.FUNCTIONS.items()}
    assert len(found) == 2 * len(documented())


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
