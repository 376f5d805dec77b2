"""The command line: arguments and files come in; text, JSON, files and an exit status go out.

Each command is a module of this package, or a package (bench), imported only when it runs; golden and compare
have a second module, golden_maker.py and compare_request.py. arguments.py, output.py, verdict_lines.py and
reports.py hold what several commands share.
Commands compute nothing themselves, and change nothing that outlives them but the files that arguments name.

docs/cli.md has the rule of the exit status: 0 good, 1 something was found to be bad, 2 wrong usage or no
answer (golden data that was changed, a full disk); as usual, 130 after Ctrl-C and 141 when the reader of the
output has gone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from .. import __version__
from ..writing import why
from .output import visible

COMMANDS = {
    "ops": "Print which operators run on which products, with their rules.",
    "check": "Say whether a call would be accepted on a product, and why not.",
    "run": "Compute a problem, compare it with the float64 reference, time it.",
    "golden": "Write inputs and golden results for a file of cases.",
    "compare": "Compare results with golden ones, and give verdicts.",
    "mutate": "Count which faults the standards catch, and which right results fail.",
    "merge": "Join golden data, or results, that were made in shards.",
    "show": "Draw a problem's windows, their coverage and the gradient.",
    "bench": "Time our functions, PyTorch's, and a copy of memory.",
    "tune": "Measure the GPU kernels of problems, and use the fastest.",
    "determinism": "Say which of PyTorch's pools differ between runs, or raise.",
    "demo": "Run the documents' programs, in Python, and check their results.",
    "operators": "Begin a page of your own operator, and list your pages.",
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

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run the program. Every error becomes a message and a SystemExit."""
        if sys.stdout is None:
            _end("the standard output is closed", 2)
        with suppress(AttributeError):  # tests replace the stream
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        try:
            status = self._run(args, prog_name, extra)
            sys.stdout.flush()
        except (BrokenPipeError, _NoReader):
            _end("", 141)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else "the output can't be written: "
            _end(f"{where}{why(error)}", 2)
        except UnicodeEncodeError as error:  # of a file system that is not in UTF-8
            _end(f"the name {error.object!r} can't be written in {error.encoding}; it must be", 2)
        except MemoryError:
            _end("there was not enough memory", 2)
        except click.Abort:
            _end("interrupted", 130)
        except click.ClickException as error:
            _end(_about(error), error.exit_code)
        sys.exit(status)

    def _run(self, args: Sequence[str] | None, prog_name: str | None, extra: dict[str, Any]) -> Any:
        try:
            words = list(sys.argv[1:] if args is None else args)  # for the report, which shows the command
            return super().main(args, prog_name, **(extra | {"standalone_mode": False, "obj": words}))
        except SystemExit as end:
            return end.code

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        with _closed_pipe():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: click.Context) -> Any:
        with _closed_pipe():
            return super().invoke(ctx)


class _NoReader(Exception):
    """The reader of the output has gone. Not an OSError, which click would handle itself."""


@contextmanager
def _closed_pipe() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise _NoReader from None


def _about(error: click.ClickException) -> str:
    """The message of an error; for wrong usage, after the usage."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # a group without a command
        return error.format_message()
    text = f"Error: {error.format_message()}"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text = f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n\n{text}"
    return text


def _end(text: str, status: int) -> NoReturn:
    """Print the text to stderr and exit. Output that stdout can't write is dropped."""
    if text:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(visible(text) + "\n")
            sys.stderr.flush()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


@click.command(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pooltide")
def main() -> None:
    """Pooling gradients: exact, deterministic, and as fast as memory allows."""
