"""The notation: every word, the round trip, and errors that teach."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pooltide.acceptance.notation import parse
from pooltide.acceptance.words import DISTRIBUTIONS, NotationError
from pooltide.operators.call import TensorMeta, channels_last_strides
from pooltide.operators.pages import HOST
from pooltide.operators.rules import check
from pooltide.problem.problem import lower

CANONICAL = [
    "avg2d:32x64x112x112:k3:s2:p1:f32",
    "avg2d:1x16x4x4:k4x3:s1:ceil:nopad:div-3:cube1:bf16",
    "avg2d:1x16x4x4:o1x2:k4x3:f16:cl:seed7",
    "adaptive_avg3d:4x64x16x56x56:o5x9x9:bf16",
    "adaptive_max2d:32x256x56x56:o7x7:f32:i64",
    "adaptive_max3d:3x7x11x13:o2x3x5:f64:i32:ND:uniform:nan:inf:anywhere:seed5:atlas-a2",
    "avg2d:3x5x7:k2:f32:gradOutput.3x9x9:self.f16:stride.null",
    "avg2d:-1x0x7:k:p:f32:NHWC",
    "max2d_forward:2x3x11x13:k3:s2:p1:d2:f32",
    "max2d_forward:2x3x11x13:k3:f32:i64:input.cl",
    "adaptive_avg3d_forward:2x3x5x7x11:o2x3x4:bf16:seed3",
    "avg2d:3x5x7:k2:f32:gradInput.off7:gradInput.s99x9x1:gradOutput.s-6x3x1",
    "adaptive_max2d:2x3x5:o2x3:f32:i32:gradInput.cl:gradOutput.null:indices.u8:self.NCL",
    "roi_align:2x256x50x68:o7x7:boxes512:scale0.25:ratio2:aligned:f32",
    "roi_align_forward:2x6x5x7:o2x3:boxes100:f16:boxes.f32:nan:anywhere:seed3",
    "roi_pool:2x6x5x7:o2x3:boxes9:bf16:i32:cl",
    "roi_pool_forward:2x6x5x7:o2x3:boxes9:scale1e-05:f64:i64",
    "ps_roi_align:2x6x5x7:o2x3:boxes0:scale-0.5:ratio-1000:f32:boxes.7x4:input.2x6x5",
]


@pytest.mark.parametrize("text", CANONICAL)
def test_canonical_text_comes_back(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


def test_words_in_any_order_give_one_text() -> None:
    rng = random.Random(3)
    for text in CANONICAL:
        operator, shape, *words = text.split(":")
        for _ in range(20):
            rng.shuffle(words)
            assert str(parse(":".join([operator, shape, *words]))) == text


def test_defaults() -> None:
    case = parse("adaptive_max2d:5x7x11:o3")
    assert str(case) == "adaptive_max2d:5x7x11:o3x3:f32:i32"
    assert case.product is None
    assert case.data.distribution == DISTRIBUTIONS[0]


def test_a_case_becomes_a_call() -> None:
    call = parse("avg2d:2x3x11x13:k3x5:s2:p1:ceil:nopad:div-3:f16").call("atlas-a3")
    assert check(call) is None
    assert call.values["gradOutput"].shape == (2, 3, 6, 6)  # type: ignore[union-attr]
    assert call.tensor("self").format == "NCHW"
    assert (call.kernel, call.stride, call.padding) == ((3, 5), (2, 2), (1, 1))
    problem = lower(call)
    assert (problem.quotient, problem.divisor) == ("override", -3)


def test_a_forward_becomes_a_call() -> None:
    call = parse("max2d_forward:2x3x11x13:k3:s2:i64").call()
    assert call.product == HOST
    assert check(call) is None
    assert call.tensor("out").shape == call.tensor("indices").shape == (2, 3, 5, 6)
    assert parse("max2d_forward:2x3x11x13:k3:s2").call().values["indices"] is None
    assert parse("adaptive_avg2d_forward:2x3x11x13:o4x5").call().values["output_size"] == (4, 5)


def test_a_forward_is_refused_on_a_product_that_does_not_have_it() -> None:
    fault = check(parse("max1d_forward:2x3x11:k3").call("atlas-a2"))
    assert fault is not None
    assert fault.rule == "product_supported"


def test_strides_and_offsets_are_of_one_tensor() -> None:
    case = parse("avg2d:2x3x11x13:k3:gradOutput.s90x30x6x2:gradInput.off7")
    call = case.call(HOST)
    assert call.role("grad_output").strides == (90, 30, 6, 2)
    assert call.role("out").strides is None
    assert (case.offset("out"), case.offset("grad_output")) == (7, 0)


def test_functions_see_no_format() -> None:
    assert parse("adaptive_max2d:5x7x11:o3").call(HOST).tensor("self").format is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("avg2d:2x3x5x7:k3:gradOutput.2x3x4x4", "forward_shape"),
        ("avg2d:2x3x5x7:k9", "forward_shape"),
        ("avg2d:2x3x5x7:k3:s0", "array_values"),
        ("avg2d:2x3x5x7:k3x3x3", "array_lengths"),
        ("avg2d:2x3x5x7:k3:cube7", "cube_math_type"),
        ("avg2d:2x3x5x7:k3:div300:atlas-inference:f16", "divisor_range"),
        ("avg2d:2x3x5x7:k3:self.NHWC", "format_supported"),
        ("avg2d:2x3x5x7:kernelSize.null", "not_null"),
        ("avg2d:5:k1", "rank_supported"),
        ("adaptive_max3d:2x3x5x7:o2:i64", "dtype_supported"),
        ("adaptive_max2d:2x3x5x7:o2:indices.2x3x2x3", "same_shape"),
        ("adaptive_avg3d:2x3x0x7:o2", "positive_dimensions"),
    ],
)
def test_wrong_calls_can_be_said(text: str, rule: str) -> None:
    fault = check(parse(text).call())
    assert fault is not None
    assert fault.rule == rule


def test_channels_last_strides_are_numpys() -> None:
    x = np.empty((2, 5, 7, 11, 3), np.uint8).transpose(0, 4, 1, 2, 3)
    assert channels_last_strides(x.shape, 3) == x.strides
    meta = parse("adaptive_avg3d:2x3x5x7x11:o2:cl").call().values["self"]
    assert isinstance(meta, TensorMeta)
    assert meta.strides == x.strides


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the operator is ''; it must be adaptive_avg1d, adaptive_avg2d, "),
        ("lp2d:1x2x3:k3", "the operator is 'lp2d'"),
        ("avg2d", "self's shape is missing"),
        ("avg2d:k3", "self's shape is 'k3'; it must be sizes joined by x, as in avg2d:2x3x5x7:k3"),
        ("avg2d:1x2x3", "the kernel is missing; add a word such as k3"),
        ("adaptive_avg3d:1x2x3x4", "the output's plane is missing; add a word such as o7x7x7"),
        ("adaptive_avg3d:1x2x3x4:o7x7", "word o7x7 has 2 sizes; it must have 1 or 3"),
        ("adaptive_avg3d:1x2x3x4:o7:k3", "word 'k3' is unknown for adaptive_avg3d; it must be o7x7x7"),
        ("avg2d:1x2x3:k3:k5", "word 'k5' sets kernel again"),
        ("avg2d:1x2x3:k3:f32:bf16", "word 'bf16' sets dtype again"),
        ("avg2d:1x2x3:k3:foo.null", "names 'foo'; it must be gradOutput, self, kernelSize"),
        (
            "avg2d:1x2x3:k3:self.7q",
            "after the dot it must be a shape, a dtype, a format, cl, strides such as s6x2",
        ),
        ("avg2d:1x2x3:k3:self.off-1", "after the dot it must be a shape"),
        (
            "avg2d:1x2x3:k1:self.s2x1",
            "strides 2x1 are for a tensor of shape 1x2x3; there must be one for each",
        ),
        ("avg2d_forward:1x2x3", "the kernel is missing; add a word such as k3"),
        ("max2d_forward:1x2x3:k3:grad_output.f16", "names 'grad_output'; it must be input, kernel_size"),
        ("avg2d:1x2x3:k3:seed-1", "word 'seed-1' is unknown"),
        ("avg2d:99999999999999999999x3:k3", "is too large"),
        ("avg2d:1x2x3:k3::f32", "word '' is unknown"),
    ],
)
def test_errors_teach(text: str, says: str) -> None:
    with pytest.raises(NotationError) as error:
        parse(text)
    assert says in str(error.value)


def test_mutated_text_gives_a_case_or_a_message() -> None:
    rng = random.Random(7)
    alphabet = "avgdxkspoficlb0123456789:-.xNCHW null\n\0é"
    read = 0
    for _ in range(20_000):
        text = list(rng.choice(CANONICAL))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 2)] = rng.choice(alphabet)
        try:
            case = parse("".join(text))
        except NotationError:
            continue
        read += 1
        assert parse(str(case)) == case
        check(case.call())
        check(case.call(HOST))
    assert read > 100
