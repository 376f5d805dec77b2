"""`pooltide cc`: calls the compiler with the flags for a program written for CANN."""

from __future__ import annotations

import subprocess

import click

from ..c.build import CannotBuild, compiler, install
from .output import NoAnswer

_NO_LINK = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"}


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, required=True, metavar="FILE... [-o PROGRAM]")
@click.pass_context
def command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Compile a C or C++ program written for CANN.

    Arguments are those of the compiler ($CC if all files are C, else $CXX, or the first found).
    """
    sources = [name for name in arguments if name.endswith((".c", ".cc", ".cpp", ".cxx", ".C"))]
    try:
        made = install()
        chosen = compiler(c_only=bool(sources) and all(name.endswith(".c") for name in sources))
    except CannotBuild as error:
        raise NoAnswer(str(error)) from None
    link = [] if _NO_LINK & set(arguments) else made.link_flags
    ctx.exit(subprocess.run([*chosen, *made.compile_flags, *arguments, *link], check=False).returncode)
