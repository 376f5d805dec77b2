"""`pooltide operators`, and the other commands with operators of a user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import own_operator
from commandline import pooltide
from pooltide.operators.pages.user import TYPES

PHASE_ONE = (
    "aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor *other, const aclScalar *alpha, "
    "aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor)"
)


def test_a_declaration_begins_a_page(tmp_path: Path) -> None:
    assert pooltide("operators", "new", "--folder", tmp_path, PHASE_ONE).startswith("wrote ")
    assert "aclnnAdd" in pooltide("operators", "list", tmp_path)
    (record,) = json.loads(pooltide("ops", "aclnnAdd", "--json", POOLTIDE_OPERATORS=str(tmp_path)))
    assert [p["name"] for p in record["parameters"]] == ["self", "other", "alpha", "out"]
    assert {rule["basis"] for rule in record["rules"]} == {"yours"}
    assert "aclnnAdd" in pooltide("ops", POOLTIDE_OPERATORS=str(tmp_path))
    assert "exists already" in pooltide("operators", "new", "--folder", tmp_path, PHASE_ONE, rc=2)


def test_every_type_can_begin_a_page(tmp_path: Path) -> None:
    words = [f"p{number}:{kind}" for number, kind in enumerate(TYPES)]
    pooltide("operators", "new", "--folder", tmp_path, "aclnnAll", *words, "out:output", "ref:in_place")
    assert "aclnnAll" in pooltide("operators", "list", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("aclnnMaxPool",), "operator is aclnnMaxPool, which pooltide has"),
        (("aclnnFoo", "x:matrix"), "the parameter is 'x:matrix'; it must be NAME:TYPE"),
        (("aclnnFoo", "x:tensor"), "no parameter has the role output"),
        (("foo",), "operator is 'foo'; it must be a name of CANN"),
        (("aclnnFooGetWorkspaceSize(aclMatrix *x)",), "has a type that no page has"),
        (("aclnnFooGetWorkspaceSize(aclTensor x)",), "has a type that no page has"),
        (("nonsense(",), "it must be phase one in C"),
        ((PHASE_ONE, "x:tensor"), "the declaration has the parameters already"),
    ],
)
def test_a_bad_beginning_leaves_no_files(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    assert says in pooltide("operators", "new", "--folder", tmp_path / "new", *arguments, rc=2)
    assert not list(tmp_path.glob("new/*"))


def test_calls_of_a_page_are_checked(tmp_path: Path) -> None:
    pooltide("operators", "new", "--folder", tmp_path, PHASE_ONE)
    for words, rc, says in [
        ("self.2x3:other.2x3:out.2x3", 0, "accepted: aclnnAdd on Atlas A2"),
        ("self.2x3:other.2x3:out.2x4", 1, "out has shape (2, 4); it must be (2, 3), as self has."),
        ("self.2x3:other.2x3:other.i64:out.2x3", 1, "other has dtype INT64"),
        ("self.null:other.2x3:out.2x3", 1, "self is null; it must be a tensor."),
        ("self.2x3:nobody.2", 2, "word 'nobody.2' is unknown for aclnnAdd"),
        ("self.two", 2, "self.two is not understood; it must be a shape such as 2x3"),
        ("self.2x3:alpha.much", 2, "alpha is 'much'; it must be of type scalar"),
    ]:
        assert says in pooltide("check", f"aclnnAdd:{words}", rc=rc, POOLTIDE_OPERATORS=str(tmp_path))


WORDS = "selfRef.2x3:alpha.-2:dims.0x1:scales.0.5x-1e-3:flags.1x0:times.4:small.-1:keep.true:eps.0.25:rate.1:mode.sum"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ("", "accepted: aclnnMany on Atlas A2"),
        (":mode.null:mask.2x3:mask.BOOL", "accepted: aclnnMany on Atlas A2"),
        (":times.10", "times is 10; it must be 9 at most."),
        (":dims.1", "dims has 1 values; it must have 2."),
        (":dims.0x-1", "dims has values (0, -1); each must be at least 0."),
        (":dims.0.5", "dims is '0.5'; it must be of type int array"),
        (":flags.yes", "flags is 'yes'; it must be of type bool array"),
        (":keep.1", "keep is '1'; it must be of type bool"),
        (":sums.f16", "sums is null; it must be a tensor."),
    ],
)
def test_words_of_every_type_but_lists(tmp_path: Path, changed: str, says: str) -> None:
    optional = own_operator.PAGE.replace(
        'dtypes = ["FLOAT32"] },', 'dtypes = ["FLOAT32"], nullable = true },'
    )
    (tmp_path / "many.toml").write_text(optional)
    (tmp_path / "many.py").write_text(own_operator.CODE)
    words = f"aclnnMany:{WORDS}{'' if 'sums' in changed else ':sums.3'}{changed}"
    rc = 0 if "accepted" in says else 2 if "it must be of type" in says else 1
    assert says in pooltide("check", words, rc=rc, POOLTIDE_OPERATORS=str(tmp_path))


def test_no_word_describes_a_list(tmp_path: Path) -> None:
    (tmp_path / "many.toml").write_text(own_operator.PAGE)
    (tmp_path / "many.py").write_text(own_operator.CODE)
    says = "others is ''; it must be called from a program: no word describes a list"
    assert says in pooltide("check", "aclnnMany:selfRef.2", rc=2, POOLTIDE_OPERATORS=str(tmp_path))


def test_a_bad_folder_gets_a_sentence(tmp_path: Path) -> None:
    says = f"the folder of operators {tmp_path} has no page"
    assert says in pooltide("ops", rc=2, POOLTIDE_OPERATORS=str(tmp_path))
    assert says in pooltide("check", "aclnnAdd:self.2", rc=2, POOLTIDE_OPERATORS=str(tmp_path))
    assert says in pooltide("cc", "--operators", tmp_path, "x.c", rc=2)
    assert says in pooltide("cflags", "--operators", tmp_path, rc=2)
    assert "it must be phase one in C" in pooltide("cc", "--declare", "aclnnFoo", "x.c", rc=2)
