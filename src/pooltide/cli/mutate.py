"""`pooltide mutate`: puts faults into right results, and counts what each standard catches."""

from __future__ import annotations

import json

import click

from ..acceptance.faults import FAULTS
from ..acceptance.mutation import RIGHT, Tally, tables, trials
from ..acceptance.verdicts import STANDARDS
from .output import aligned, markdown, progress, say


@click.command()
@click.option(
    "--faults", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="How many."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of cases and faults.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Tables in Markdown.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per result, and a summary.")
def command(faults: int, seed: int, as_markdown: bool, as_json: bool) -> None:
    """Say which faults the standards catch, and which right results they fail.

    Faults of every kind in turn, such as a wrong divisor or a window that is missed, are put into the right
    results of drawn cases. The right results are sums in other orders, and sums kept in float16 or bfloat16.
    docs/acceptance.md explains the kinds, and why some standards miss some of them.
    """
    if as_markdown and as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    tally = Tally()
    with progress("mutate", faults + faults // 4 * len(RIGHT)) as advance:
        for trial in trials(faults, seed):
            advance()
            tally.add(trial)
            if as_json:
                caught = [name for name in STANDARDS if name not in trial.passed]
                say(json.dumps({"kind": trial.kind, "case": trial.case, "failed_by": caught}))
    if as_json:
        say(json.dumps({"summary": _summary(tally)}))
        return
    standards, kinds = tables(tally)
    printed = markdown if as_markdown else aligned
    rights = [f"false alarms: {right} ({tally.counts[right]})" for right in RIGHT]
    say(printed(["standard", "caught", "missed", *rights], standards))
    say("")
    if as_markdown:
        say(markdown(["kind of fault", "faults", *STANDARDS], kinds))
    else:
        say(aligned(["kind of fault", "faults", "missed by"], [_missing(tally, kind) for kind in FAULTS]))


def _missing(tally: Tally, kind: str) -> list[str]:
    """A kind of fault, how many there were, and which standards missed how many."""
    missed = {name: tally.missed(name, kind) for name in STANDARDS}
    words = ", ".join(f"{name} {count}" for name, count in missed.items() if count)
    return [kind, str(tally.counts[kind]), words or "none"]


def _summary(tally: Tally) -> dict[str, dict[str, int]]:
    return {
        name: {
            "caught": tally.total(tally.caught, name),
            "missed": tally.total(tally.missed, name),
            **{f"false alarms, {right}": tally.caught(name, right) for right in RIGHT},
        }
        for name in STANDARDS
    }
