"""`pooltide cflags`: prints the flags to compile or link programs written for CANN."""

from __future__ import annotations

import os
import shlex

import click

from .libraries import installation, operators_option


@click.command()
@click.option("--libs", is_flag=True, help="Print the linker's flags instead of the compiler's.")
@click.option("--cmake", is_flag=True, help="Print the directory of the CMake config, for pooltide_DIR.")
@click.option("--prefix", is_flag=True, help="Print the directory to give to build files instead of CANN's.")
@operators_option
def command(libs: bool, cmake: bool, prefix: bool, operators: tuple[str, ...]) -> None:
    """Print the flags for programs written for CANN.

    Flags are words of a shell, quoted where a path needs it, as make and eval read them. --cmake and --prefix
    print a path as it is, for "$(pooltide cflags --prefix)".
    """
    if libs + cmake + prefix > 1:
        raise click.UsageError("--libs, --cmake and --prefix exclude each other.")
    made = installation(operators)
    flags = shlex.join(made.link_flags if libs else made.compile_flags)
    click.echo(os.fsencode(made.cmake if cmake else made.root if prefix else flags))
