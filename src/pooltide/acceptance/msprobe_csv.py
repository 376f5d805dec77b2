"""Writes comparisons as msprobe writes its accuracy_checking_details: the same columns and statuses.

Status is that of msprobe's pre-check, whichever standard decides the exit status: pass, warning or error, and
SKIP for a case that could not be compared. A figure that the documentation does not define for pools is a
space, as msprobe writes figures that it does not compute.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

from .comparison import Comparison
from .measures import Measures
from .tensorfile import TensorFile
from .verdicts import FAIL, PASS, WARNING

HEADER = (
    "API Name", "Bench Dtype", "DEVICE Dtype", "Shape", "余弦相似度", "最大绝对误差", "双百指标", "双千指标",
    "双万指标", "二进制一致错误率", "误差均衡性", "均方根误差", "小值域错误占比", "相对误差最大值",
    "相对误差平均值", "inf/nan错误率", "相对误差错误率", "绝对误差错误率", "ULP误差最大值", "ULP误差平均值",
    "ULP误差大于阈值占比", "Status", "Message",
)  # fmt: skip
_STATUS = {PASS: "pass", WARNING: "warning", FAIL: "error"}
_NONE = " "
_IN_MEMORY = 1 << 24  # bytes
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class Details:
    """The table, kept in a temporary file while it grows. `add` may raise OSError: the disk is full.

    It begins with the mark of UTF-8, as msprobe's do, so that spreadsheets show the names of columns.
    """

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", newline="")  # noqa: SIM115
        self._file.write("\ufeff")
        self._writer = csv.writer(self._file)
        self._writer.writerow(HEADER)

    def add(self, name: str, outcome: Comparison | str) -> None:
        """Add a case: its comparison, or why there is none."""
        self._writer.writerows(map(_safe, row) for row in _rows(name, outcome))

    def parts(self) -> Iterator[bytes]:
        self._file.seek(0)
        for line in self._file:
            yield line.encode()


def _safe(cell: Any) -> Any:
    """The cell; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def _rows(name: str, outcome: Comparison | str) -> list[list[Any]]:
    api = f"{name}.output.0" if name.endswith((".forward", ".backward")) else name
    if isinstance(outcome, str):
        return [[api, *[_NONE] * (len(HEADER) - 3), "SKIP", outcome]]
    verdict, pair, m = outcome.verdict("msprobe"), outcome.pair, outcome.measures
    message = "" if verdict.passed else verdict.text
    about = [api, _dtype(pair.golden), _dtype(pair.actual), list(pair.actual.shape)]
    rows = [[*about, *_figures(m), _STATUS[verdict.status], message]]
    if pair.indices is not None:
        actual, golden = pair.indices
        error_rate = m.wrong_indices / m.indices if m.indices else 0.0
        about = [f"{name}.output.1", _dtype(golden), _dtype(actual), list(actual.shape)]
        figures = [error_rate if column == "二进制一致错误率" else _NONE for column in HEADER[4:-2]]
        status = "error" if m.wrong_indices else "pass"
        rows.append(
            [*about, *figures, status, f"{m.wrong_indices} indices differ" if m.wrong_indices else ""]
        )
    return rows


def _dtype(file: TensorFile) -> str:
    return f"torch.{file.dtype.name.lower()}"


def _figures(m: Measures) -> list[Any]:
    """The columns after Shape and before Status; without a finite cell, there are no figures of errors."""
    wrong = m.differing / m.count if m.count else 0.0
    if not m.finite:
        known = {"二进制一致错误率": wrong, "inf/nan错误率": m.misplaced_ratio}
        return [known.get(column, "") for column in HEADER[4:-2]]
    return [
        m.cosine, m.max_abs, *m.shares, wrong, m.balance, m.rmse, m.small_ratio, m.mare, m.mere,
        m.misplaced_ratio, _NONE, m.small_ratio, m.max_ulp, m.mean_ulp, m.ulp_share,
    ]  # fmt: skip
