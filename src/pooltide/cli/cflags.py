"""`pooltide cflags`: prints the flags to compile or link programs written for CANN."""

from __future__ import annotations

import shlex

import click

from ..c.build import CannotBuild, install


@click.command()
@click.option("--libs", is_flag=True, help="Print the linker's flags instead of the compiler's.")
@click.option("--cmake", is_flag=True, help="Print the directory of the CMake config, for pooltide_DIR.")
def command(libs: bool, cmake: bool) -> None:
    """Print the flags for programs written for CANN."""
    if libs and cmake:
        raise click.UsageError("--libs and --cmake exclude each other.")
    try:
        made = install()
    except CannotBuild as error:
        raise click.ClickException(str(error)) from None
    flags = [str(made.cmake)] if cmake else made.link_flags if libs else made.compile_flags
    click.echo(shlex.join(flags))
