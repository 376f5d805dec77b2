"""The command line. A command is a module of this package; only the one that runs is imported.

Exit status: 0 good, 1 a check failed, 2 wrong usage.
"""

from __future__ import annotations

from importlib import import_module

import click

from .. import __version__

COMMANDS = {
    "ops": "Print which operators run on which products, with their rules.",
    "check": "Say whether a call would be accepted on a product, and why not.",
    "run": "Compute a problem, hold it against the float64 reference, time it.",
    "golden": "Write inputs and golden results for a file of cases.",
    "compare": "Give the verdicts on results against golden ones.",
    "show": "Draw a problem's windows, their coverage and the gradient.",
    "bench": "Race our kernels against PyTorch and the memory's limit.",
    "demo": "Run the documents' programs, in Python, and check their results.",
    "cc": "Compile a C or C++ program written for CANN.",
    "cflags": "Print the flags for such programs.",
}


class Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{name}", __package__).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pooltide")
def main() -> None:
    """Pooling gradients: exact, deterministic, and as fast as memory allows."""
