"""python -m tests.hostile --calls N --seed S [--entrance a,b] [--workers W] [--only INDEX]"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .supervise import Report, describe, entrances, run

# How the calls are shared out: what is quick to call gets the most.
WEIGHTS = {
    "numpy": 50,
    "regions": 10,
    "torch": 16,
    "functional": 6,
    "patch": 9,
    "acl": 16,
    "cli": 2,
    "files": 2,
    "c": 1,
}


def main() -> int:
    arguments = _arguments()
    names = arguments.entrance.split(",") if arguments.entrance else list(entrances())
    whole = sum(WEIGHTS.get(name, 1) for name in names)
    calls = {name: max(1, arguments.calls * WEIGHTS.get(name, 1) // whole) for name in names}
    console = Console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is stopped reports, too
    if arguments.only is not None:
        for name in names:
            console.print(describe(name, arguments.seed, arguments.only), markup=False, highlight=False)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("calls", total=sum(calls.values()) if arguments.only is None else None)
        reports = run(
            calls,
            arguments.seed,
            arguments.workers,
            arguments.limit,
            arguments.only,
            lambda reports: bar.update(task, completed=sum(report.counts["calls"] for report in reports)),
        )
    console.print(_table(reports))
    for report in reports:
        for finding in report.findings.values():
            text = f"\n{report.entrance}, {finding.kind}, {finding.count} times: {finding.text}"
            for line in (text, f"  {finding.call}", f"  {finding.reproduce}"):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if any(report.findings for report in reports) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000, help="how many calls, over all entrances")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--entrance", help="names with commas between them; without it all of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds after which a call hangs")
    parser.add_argument("--only", type=int, help="describe and run the trial with this index alone")
    return parser.parse_args()


def _table(reports: list[Report]) -> Table:
    table = Table("entrance")
    columns = ("calls", "results", "refusals", "odd", "crashes", "hangs", "outside")
    for name in columns:
        table.add_column({"odd": "odd errors", "outside": "bytes outside"}.get(name, name), justify="right")
    for report in reports:
        table.add_row(report.entrance, *(f"{report.counts[name]:,}" for name in columns))
    return table


if __name__ == "__main__":
    sys.exit(main())
