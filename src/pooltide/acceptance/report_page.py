"""Writes the report: one HTML page without other files, whose table can be sorted and filtered.

The page is `report.html` with its {{MARKS}} replaced. The cases are in it as JSON, from which a script draws
the table; each of the worst failing cases gets a section with a map of its errors, which report_section.py
writes, and a link to any other one makes the script write a short section. All text is there in English and
Chinese; the page shows one of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from .. import __version__
from .chinese import ENGLISH, both, chinese
from .report_rows import KINDS, MOST_SECTIONS, STATUSES, Rows
from .report_section import section

_MOST_GROUPS = 40
_MEANINGS = {
    "MERE": (
        "The mean relative error: the mean of |a - g| / (|g| + 1e-7).",
        "平均相对误差：|a - g| / (|g| + 1e-7) 的平均值。",
    ),
    "MARE": ("The largest relative error.", "最大相对误差。"),
    "RMSE": ("The root of the mean of (a - g) squared.", "均方根误差。"),
    "cosine": (
        "The cosine similarity of the result and the golden values.",
        "结果与标杆的余弦相似度。",
    ),
    "max ULP": (
        "The largest distance from a to g, counted in values of the dtype.",
        "a 与 g 之间的最大距离，以该数据类型的数值个数计。",
    ),
    "differing": ("Cells whose bits differ from the golden ones.", "比特与标杆不同的元素个数。"),
    "NaN": (
        "NaN in the result; in brackets those of the golden values, if they are another number.",
        "结果中 NaN 的个数；标杆的个数不同时写在括号中。",
    ),
    "Inf": (
        "Inf and -Inf in the result; in brackets those of the golden values, if they are another number.",
        "结果中 Inf 和 -Inf 的个数；标杆的个数不同时写在括号中。",
    ),
    "backend": ("What computed the result.", "计算结果的后端。"),
    "ms": ("Milliseconds of the computation.", "计算时间（毫秒）。"),
    "dtype": ("The dtype of the result.", "结果的数据类型。"),
    "shape": ("The shape of the result.", "结果的形状。"),
    "seed": ("The seed of the data.", "数据的随机种子。"),
}
_FACTS = {
    "compared": "比较内容",
    "made": "生成内容",
    "label": "标识",
    "passed": "通过",
    "third result": "第三方结果",
    "standard": "标准",
    "product": "产品",
    "golden data": "标杆数据",
    "shard": "分片",
    "date": "日期",
    "machine": "机器",
    "versions": "版本",
    "command": "命令",
}
_KINDS = dict(zip(KINDS, ("算子", "数据类型", "布局", "网络层"), strict=True))
_STATUSES = dict(zip(STATUSES, ("通过", "警告", "失败", "无法比较"), strict=True))
Fact = str | tuple[str, str]  # in both languages, or in English and Chinese


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    facts: Mapping[str, Fact]
    columns: Sequence[str]
    rows: Rows
    files: Sequence[tuple[str, str]] = ()  # path, what is wrong with it
    language: str = ENGLISH  # that the page shows first


def page(report: Report) -> Iterator[str]:
    """The page in parts, which need not be in memory together."""
    rows, worst = report.rows, report.rows.worst
    columns = [(name, *_MEANINGS[name]) for name in report.columns]
    facts = [(name, _FACTS[name], value) for name, value in report.facts.items()]
    legend = [(name, name, meaning) for name, *meaning in columns]
    marks = {
        "LANGUAGE": report.language,
        "TITLE": escape(report.title),
        "VERDICT": _verdict(rows),
        "FACTS": _pairs(facts),
        "FILES": _files(report.files),
        "GROUPS": _groups(rows),
        "LEGEND": _pairs(legend),
        "SECTIONS": "\n".join(section(entry, opened=i == 0) for i, entry in enumerate(worst)) + _left(rows),
        "FOOTER": f"pooltide {escape(__version__)}",
    }
    text = files("pooltide").joinpath("acceptance", "report.html").read_text("utf-8")
    head, *parts = text.split("{{")
    yield head
    for part in parts:
        mark, _, rest = part.partition("}}")
        yield from _data(columns, rows) if mark == "DATA" else [marks[mark]]
        yield rest


def _verdict(rows: Rows) -> str:
    words = {"pass": "pass", "warning": "warn", "fail": "fail", "error": "could not be compared"}
    shown = [(kind, rows.counts[kind]) for kind in STATUSES if rows.counts[kind]]
    english = ", ".join(f'<span class="{kind}"><b>{n}</b> {words[kind]}</span>' for kind, n in shown)
    other = "，".join(f'<span class="{kind}"><b>{n}</b> 个{_STATUSES[kind]}</span>' for kind, n in shown)
    total = len(rows)
    return both(f"Of {total} cases, {english or 'none is here'}.", f"共 {total} 个用例：{other or '无'}。")


def _pairs(pairs: Sequence[tuple[str, str, Fact | Sequence[str]]]) -> str:
    """A list of terms, each in English and Chinese, with their descriptions."""
    items = []
    for english, other, value in pairs:
        first, second = (value, chinese(value)) if isinstance(value, str) else value
        items.append(f"<dt>{both(escape(english), escape(other))}</dt>")
        items.append(f"<dd>{both(escape(first), escape(second))}</dd>")
    return "".join(items)


def _files(files: Sequence[tuple[str, str]]) -> str:
    if not files:
        return ""
    items = "".join(f"<dt><code>{escape(path)}</code></dt><dd>{escape(what)}</dd>" for path, what in files)
    title = both("Missing, unreadable and extra files", "缺失的、无法读取的和多余的文件")
    return f'<section id="files"><h2>{title}</h2><dl>{items}</dl></section>'


def _groups(rows: Rows) -> str:
    """Counts by operator, dtype, layout and layer, those with most failures first."""
    tables = [_table(kind, rows.groups[kind]) for kind in KINDS if any(rows.groups[kind])]
    title = both("Counts by operator, dtype, layout and layer", "按算子、数据类型、布局和网络层统计")
    if not tables:
        return ""
    return f'<details class="counts" open><summary>{title}</summary><div>{"".join(tables)}</div></details>'


def _table(kind: str, groups: Mapping[str, Counter[str]]) -> str:
    named = [(group, counts) for group, counts in groups.items() if group]
    named.sort(key=lambda item: (-item[1].total() + item[1]["pass"], item[0]))
    used = [status for status in STATUSES if any(counts[status] for _, counts in named)]
    heads = [both(kind, _KINDS[kind]), *(both(status, _STATUSES[status]) for status in used)]
    head = f"<th>{heads[0]}</th>" + "".join(f'<th class="number">{text}</th>' for text in heads[1:])
    lines = []
    for group, counts in named[:_MOST_GROUPS]:
        words = escape(f"{kind}={group}")
        numbers = "".join(
            f'<td class="number {status if counts[status] else "faint"}">{counts[status]}</td>'
            for status in used
        )
        name = f'<a class="group" data-words="{words}" href="#cases">{escape(group)}</a>'
        lines.append(f"<tr><td>{name}</td>{numbers}</tr>")
    left = len(named) - _MOST_GROUPS
    more = both(f"{left} more; the filter finds them", f"另有 {left} 个，可用筛选查看")
    rest = f'<caption class="faint">{more}</caption>' if left > 0 else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="long" tabindex="0"><table>{rest}{body}</table></div>'


def _left(rows: Rows) -> str:
    left = rows.failing - MOST_SECTIONS
    if left <= 0:
        return ""
    english = f"The {MOST_SECTIONS} worst failing cases are above, the worst first. "
    english += f"{left} more are in the table; a click on the name of one shows it here."
    other = f"以上是误差最大的 {MOST_SECTIONS} 个失败用例，最差的在前。"
    other += f"另有 {left} 个在表格中，点击名称即可在此查看。"
    return f"<p>{both(english, other)}</p>"


def _data(columns: Sequence[tuple[str, ...]], rows: Rows) -> Iterator[str]:
    """The table as JSON that can't end its script element."""
    known = {"columns": columns, "kinds": KINDS, "groups": rows.names()}
    yield json.dumps(known, ensure_ascii=False)[:-1].replace("<", "\\u003c") + ',"rows":['
    for number, text in enumerate(rows.texts()):
        yield ("," if number else "") + text.replace("<", "\\u003c")
    yield "]}"
