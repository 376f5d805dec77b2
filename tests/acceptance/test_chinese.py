"""Sentences about verdicts in Chinese: each has a pattern, and the figures stay."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pooltide.acceptance import chinese
from pooltide.acceptance.measures import index_measures, measure_all, precision_of
from pooltide.acceptance.verdicts import STANDARDS, judge
from pooltide.cli.verdict_lines import case_line, differences
from pooltide.operators.dtypes import DTYPES

WORDS = {*STANDARDS, "ULP", "NaN", "Inf", "RMSE", "L0", "L1", "L2", "g", "e", "inf", "nan"}
GOLDEN = np.linspace(-2, 2, 400).astype(np.float32)


def english_words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z][A-Za-z0-9]*", text)) - WORDS


@pytest.mark.parametrize("factor", [1, 1.0003, 1.2, -1, np.nan])
@pytest.mark.parametrize("dtype", ["FLOAT32", "FLOAT16"])
def test_every_verdict_has_a_chinese_sentence_with_the_same_figures(factor: float, dtype: str) -> None:
    precision = precision_of(DTYPES[dtype], "keep")
    golden = GOLDEN.astype(precision_numpy(dtype))
    for part in (slice(None), slice(0, 3)):
        actual = golden.copy()
        actual[part] = actual[part] * factor
        m = measure_all([(actual, golden)], precision)
        for measures in (m, m + index_measures(np.array([1, 2]), np.array([1, 3]))):
            verdicts = judge(measures, precision, m, "L2")
            texts = [v.text for v in verdicts] + [differences(measures)]
            texts += [case_line("x", v, measures).partition(": ")[2] for v in verdicts]
            for text in texts:
                translated = chinese.chinese(text)
                assert english_words(translated) == set(), (text, translated)
                assert sorted(re.findall(r"\d+", translated)) == sorted(re.findall(r"\d+", text))
                assert ", " not in translated, translated
                assert "; " not in translated, translated


def precision_numpy(dtype: str) -> np.dtype[np.floating]:
    return np.dtype(dtype.lower())


def test_every_standard_has_one_too() -> None:
    assert chinese.STANDARDS.keys() == STANDARDS.keys()
    for name, text in STANDARDS.items():
        numbers = [sorted(re.findall(r"\d[\d.e-]*", words)) for words in (text, chinese.STANDARDS[name])]
        assert numbers[0] == numbers[1], name


def test_other_text_stays() -> None:
    text = "golden/stem/grad_input.npy: can't be read: No such file or directory"
    assert chinese.chinese(text) == text
