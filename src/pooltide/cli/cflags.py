"""`pooltide cflags`: prints the flags to compile or link programs written for CANN."""

from __future__ import annotations

import shlex

import click

from ..c.build import CannotBuild, install
from .output import NoAnswer


@click.command()
@click.option("--libs", is_flag=True, help="Print the linker's flags instead of the compiler's.")
@click.option("--cmake", is_flag=True, help="Print the directory of the CMake config, for pooltide_DIR.")
@click.option("--prefix", is_flag=True, help="Print the directory to give to build files instead of CANN's.")
def command(libs: bool, cmake: bool, prefix: bool) -> None:
    """Print the flags for programs written for CANN."""
    if libs + cmake + prefix > 1:
        raise click.UsageError("--libs, --cmake and --prefix exclude each other.")
    try:
        made = install()
    except CannotBuild as error:
        raise NoAnswer(str(error)) from None
    directory = made.cmake if cmake else made.root if prefix else None
    flags = [str(directory)] if directory else made.link_flags if libs else made.compile_flags
    click.echo(shlex.join(flags))
