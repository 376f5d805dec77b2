"""Verdicts in Chinese: `chinese` translates the sentences that verdicts.py and the commands make of figures.

The English sentence is made in one place, and a pattern here turns it into Chinese, so both have the same
figures. Text that no pattern knows, such as a path or a message about a file, stays as it is.
"""

from __future__ import annotations

import re
from html import escape

from .verdicts import WEAK_THIRD, ZEROS

ENGLISH, CHINESE = LANGUAGES = ("en", "zh")

STANDARDS = {
    "mixed": "99 % 的元素满足 |a - g| <= atol + rtol·|g|，且没有误差同时超过上限和 32 ULP",
    "single": "平均相对误差小于 T，最大相对误差小于 10·T",
    "two": "最大相对误差、平均相对误差和 RMSE 与第三方结果之比，"
    "最多为 10、2、2（L0），5、1.5、1.5（L1）或 2、1.2、1.2（L2）",
    "bits": "所有比特相同；任何 NaN 都视为相同",
    "cosine": "余弦相似度大于 0.99",
    "hundredth": "超过 99 % 的元素相对误差小于 1e-2",
    "thousandth": "超过 99.9 % 的元素相对误差小于 1e-3",
    "tenthousandth": "超过 99.99 % 的元素相对误差小于 1e-4",
    "small": "没有小值的误差超过小值的上限",
    "ulp": "float16、bfloat16：超过 1 ULP 的元素少于 0.1 %；"
    "float32、float64：平均小于 64 ULP，或超过 32 ULP 的元素少于 5 %",
    "infnan": "NaN、Inf 和 -Inf 的位置与标杆相同",
    "msprobe": "余弦相似度大于 0.99；然后或者最大绝对误差小于 1e-3，"
    "或者 hundredth 和 thousandth（float16、bfloat16）、"
    "thousandth 和 tenthousandth（float32、float64）通过",
    "benchmark": "与第三方结果之比：RMSE 和平均相对误差最多 2（L0）、1.5（L1）、1.2（L2），"
    "最大相对误差最多 10、5、2，错误小值最多 2；相对误差只看正常值",
}

# In this order: a longer sentence before a part of it.
_SENTENCES = [
    (r"(\d+) of (\d+) cells have a NaN or Inf out of place", r"\2 个元素中有 \1 个的 NaN 或 Inf 位置不对"),
    (r"(\d+) of (\d+) indices differ", r"\2 个索引中有 \1 个不同"),
    (
        r"(\d+) of (\d+) cells have an error above both (\S+) and (\d+) ULP \(none may\)",
        r"\2 个元素中有 \1 个的误差同时超过 \3 和 \4 ULP（一个也不允许）",
    ),
    (
        r"(\S+%) of the cells are within (.+?) \(at least (\S+%) must\)",
        r"\1 的元素在 \2 以内（至少要 \3）",
    ),
    (r"mean rel (\S+) \((must be below|at most) (\S+)\)", r"平均相对误差 \1（\2 \3）"),
    (r"largest rel (\S+) \((must be below|at most) (\S+)\)", r"最大相对误差 \1（\2 \3）"),
    (r"wrong small values (\S+) \((at most) (\S+)\)", r"错误小值 \1（\2 \3）"),
    (r"RMSE (\S+) \((at most) (\S+)\)", r"RMSE \1（\2 \3）"),
    (r"（must be below ", "（必须小于 "),
    (r"（at most ", "（最多 "),
    (r"(L\d): ratios ", r"\1：比值 "),
    (r"(\d+) of (\d+) cells differ in the sign of zero", r"\2 个元素中有 \1 个只有零的符号不同"),
    (r"(\d+) of (\d+) cells differ", r"\2 个元素中有 \1 个不同"),
    (r", at most (\d+) ULP where both are finite", r"，两边都有限的元素最多相差 \1 ULP"),
    (r", at most (\d+) ULP", r"，最多相差 \1 ULP"),
    (r"cosine similarity (\S+); it must be above (\S+)", r"余弦相似度 \1，必须大于 \2"),
    (r"cosine similarity (\S+), largest abs (\S+) below (\S+)", r"余弦相似度 \1，最大绝对误差 \2 小于 \3"),
    (
        r"(\d+) of (\d+) cells have rel (\S+) or more; it must be below (\S+%)",
        r"\2 个元素中有 \1 个的相对误差不小于 \3，比例必须小于 \4",
    ),
    (
        r"(\d+) of (\d+) small values \(\|g\| below (\S+)\) with an error above (\S+)",
        r"\2 个小值（|g| 小于 \3）中有 \1 个的误差超过 \4",
    ),
    (
        r"(\S+%) of the cells above (\d+) ULP, mean (\S+) ULP, largest (\S+) ULP",
        r"\1 的元素超过 \2 ULP，平均 \3 ULP，最大 \4 ULP",
    ),
    (r"(\d+) NaN and (\d+) Inf, all in place", r"\1 个 NaN 和 \2 个 Inf，位置都对"),
    (r"(\d+) NaN and (\d+) Inf, as golden", r"\1 个 NaN 和 \2 个 Inf，与标杆相同"),
    (
        r"(\d+) NaN \(golden (\d+)\), (\d+) Inf \(golden (\d+)\)",
        r"\1 个 NaN（标杆 \2 个），\3 个 Inf（标杆 \4 个）",
    ),
    (r"no cell is finite in both, so there are no figures", "没有两边都有限的元素，因此没有指标"),
    (r"(\w+) and (\w+) pass\b", r"\1 和 \2 通过"),
    (r"all (\d+) cells and (\d+) indices equal", r"全部 \1 个元素和 \2 个索引相等"),
    (r"all (\d+) cells equal", r"全部 \1 个元素相等"),
    (ZEROS, "全零的结果也会通过"),
    (WEAK_THIRD, "第三方结果自身不满足 mixed"),
    (r"^(\w+) fails: ", r"\1 失败："),
    (r"^(\w+) warns: ", r"\1 警告："),
]
_PATTERNS = [(re.compile(pattern), words) for pattern, words in _SENTENCES]
_MARKS = {", ": "，", "; ": "；"}


def chinese(text: str) -> str:
    """The text with every sentence about a verdict in Chinese."""
    translated = text
    for pattern, words in _PATTERNS:
        translated = pattern.sub(words, translated)
    if translated == text:
        return text
    return re.sub("|".join(_MARKS), lambda mark: _MARKS[mark[0]], translated)


def both(english: str, other: str) -> str:
    """HTML with a text in both languages, of which the page shows one; equal texts are there once."""
    if english == other:
        return english
    return f'<span lang="{ENGLISH}">{english}</span><span lang="{CHINESE}">{other}</span>'


def spoken(text: str) -> str:
    """HTML with a sentence about a verdict in both languages."""
    return both(escape(text), escape(chinese(text)))
