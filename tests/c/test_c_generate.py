"""Headers, entry points and Python signatures follow the pages, and the pages are read strictly."""

from __future__ import annotations

import copy
import inspect
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paths import DOCS
from pooltide import acl, aclnn
from pooltide.c import generate, signatures
from pooltide.c.build import BuildInputs, install
from pooltide.c.signatures import functions, operator_functions, runtime_function
from pooltide.operators.catalog import operators
from pooltide.operators.dtypes import RUNTIME
from pooltide.operators.toml import PageError

DOCS = DOCS / "c.md"


@pytest.mark.parametrize(
    "function", [f for f in functions() if not f.prototype], ids=lambda function: function.name
)
def test_python_signature_is_the_page_s(function: signatures.CFunction) -> None:
    target = aclnn.FUNCTIONS.get(function.name) or getattr(acl, function.name)
    names = tuple(inspect.signature(target).parameters)
    assert names[: len(function.python_names)] == function.python_names
    assert (len(names) > len(function.python_names)) == function.variadic


def test_python_has_no_function_beyond_the_page() -> None:
    spelled_as_in_c = {name for name in acl.__all__ if re.match(r"[aA]cl\w+", name)}
    types = {*signatures.HANDLES, *signatures.VOID_HANDLES, "aclrtExceptionInfo"} - {"aclrtStream"}
    assert spelled_as_in_c == set(RUNTIME["functions"]) | types


@pytest.mark.parametrize("function", list(signatures.missing_functions()), ids=lambda function: function.name)
def test_a_function_that_is_only_declared_says_so(function: signatures.CFunction) -> None:
    result = getattr(acl, function.name)()
    if function.harmless:
        assert result == 0 or (function.returns.endswith("*") and result is not None)
        return
    assert result in {"aclError": (207000,)}.get(function.returns, (None, 0))
    assert (message := acl.aclGetRecentErrMsg()) is not None
    assert re.match(rf"{function.name}: it belongs to .*, which pooltide does not have; .*\[207000", message)


def test_library_exports_the_table_and_nothing_else() -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed: the library's symbols are NOT tested")
    library = install().lib / generate.LIBRARY
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert exported == {function.name for function in functions()}


def test_a_page_that_changes_changes_headers_and_entries() -> None:
    operator = operators()["adaptive_avg_pool3d_backward"]
    first, *rest = operator.parameters
    changed = replace(operator, parameters=(replace(first, name="renamed"), *rest))
    before, after = operator_functions(operator), operator_functions(changed)
    path = operator.header
    assert "const aclTensor *gradOutput" in generate.headers(before)[path]
    assert "const aclTensor *renamed" in generate.headers(after)[path]
    assert "(Word)(renamed)" in generate.entries(after)
    assert generate.coverage(before) != generate.coverage(after)


@pytest.mark.slow
def test_a_text_that_changes_makes_the_library_again(tmp_path: Path) -> None:
    made = install(root=tmp_path)
    library = made.lib / generate.LIBRARY
    first = library.stat().st_ino
    install(root=tmp_path)
    assert library.stat().st_ino == first, "nothing changed, so nothing is made"
    inputs = BuildInputs()
    inputs.texts["include/acl/acl.h"] += "/* changed */\n"
    install(inputs, tmp_path)
    assert library.stat().st_ino != first
    assert "/* changed */" in (made.include / "acl" / "acl.h").read_text()


@pytest.mark.slow
def test_an_alias_that_became_a_file_becomes_a_link_again(tmp_path: Path) -> None:
    """Some ways to copy a directory make files of links."""
    lib = install(root=tmp_path).lib
    alias = lib / generate.ALIASES[0]
    alias.unlink()
    alias.write_bytes(b"old")
    (tmp_path / "stamp").unlink()
    install(root=tmp_path)
    assert alias.readlink() == Path(generate.LIBRARY)


def test_headers_declare_every_function_once() -> None:
    text = "".join(
        line for line in "".join(generate.headers().values()).splitlines() if "POOLTIDE_API" in line
    )
    for function in functions():
        assert len(re.findall(rf"[ *]{function.name}\(", text)) == 1, function.name


def test_documentation_has_the_table() -> None:
    assert generate.coverage() in DOCS.read_text("utf-8")
    assert generate.only_declared() in DOCS.read_text("utf-8")


def _table() -> dict[str, Any]:
    return copy.deepcopy(RUNTIME["functions"]["aclCreateIntArray"])


def test_a_runtime_function_is_read_strictly() -> None:
    assert runtime_function("aclCreateIntArray", _table()).python_names == ("value",)
    for spoil in (
        lambda table: table.update(note="?"),
        lambda table: table.pop("returns"),
        lambda table: table.update(returns="long double"),
        lambda table: table["c"].__setitem__(1, ["long double", "size"]),
        lambda table: table["c"].__setitem__(1, ["uint64_t", "count"]),
        lambda table: table["c"].__setitem__(0, ["const int64_t *", "value"]),
        lambda table: table["c"].__setitem__(0, ["const int64_t *", "value", "scalar:size"]),
    ):
        table = _table()
        spoil(table)
        with pytest.raises(PageError, match=r"runtime\.toml function aclCreateIntArray"):
            runtime_function("aclCreateIntArray", table)
