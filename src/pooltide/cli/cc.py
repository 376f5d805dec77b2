"""`pooltide cc`: calls the compiler with the flags for a program written for CANN."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ..c.build import CannotBuild, compiler
from ..c.signatures import functions
from .libraries import installation, operators_option
from .output import NoAnswer, say

_HEADER = re.compile(
    r"(?:fatal error: |')((?:aclnnop|aclnn|acl)/[\w/]+\.h)(?:: No such file|' file not found)"
)
_QUOTED = r"[‘'`\"](acl\w+)(?:\([^’'\n]*\))?[’'\"]"
_BEFORE = (
    r"undefined reference to|undefined symbol:|implicit declaration of function|unknown type name|"
    r"undeclared (?:identifier|function)"
)
_AFTER = r"was not declared|undeclared|does not name a type|has not been declared"
_NAME = re.compile(rf"(?:{_BEFORE}) ?{_QUOTED}|{_QUOTED} (?:{_AFTER})")
_NO_LINK = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"}


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@operators_option
@click.option(
    "--declare",
    multiple=True,
    metavar="PHASE_ONE",
    help="An operator that nothing computes, as its document declares phase one; outputs count as written.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, required=True, metavar="FILE... [-o PROGRAM]")
@click.pass_context
def command(
    ctx: click.Context, operators: tuple[str, ...], declare: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    """Compile a C or C++ program written for CANN.

    Arguments are those of the compiler ($CC if all files are C, else $CXX, or the first found).
    """
    sources = [name for name in arguments if name.endswith((".c", ".cc", ".cpp", ".cxx", ".C"))]
    made = installation(operators, declare)
    try:
        chosen = compiler(c_only=bool(sources) and all(name.endswith(".c") for name in sources))
    except CannotBuild as error:
        raise NoAnswer(str(error)) from None
    link = [] if _NO_LINK & set(arguments) else made.link_flags
    ctx.exit(_compile([*chosen, *made.compile_flags, *arguments, *link]))


def _compile(command: list[str]) -> int:
    """Run the compiler, and explain names of CANN that it does not find. Returns its exit status."""
    color = ["-fdiagnostics-color=always"] if sys.stderr is not None and sys.stderr.isatty() else []
    with subprocess.Popen([command[0], *color, *command[1:]], stderr=subprocess.PIPE) as compiler_:
        assert compiler_.stderr is not None
        text = ""
        for line in compiler_.stderr:
            text += line.decode(errors="replace")
            if sys.stderr is not None:
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()
    if compiler_.returncode:
        for sentence in explain(text):
            say(f"pooltide: {sentence}", err=True)
    return compiler_.returncode


def explain(errors: str) -> Iterator[str]:
    """What to do about the headers and names of CANN that a compiler or linker did not find."""
    plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", errors)
    listed = "`pooltide ops` lists the operators, docs/c.md the other functions"
    for header in dict.fromkeys(_HEADER.findall(plain)):
        name = "".join(word.title() for word in Path(header).stem.removeprefix("aclnn_").split("_"))
        begins = (
            f"; `pooltide operators new aclnn{name}` begins one of your own" if "aclnnop" in header else ""
        )
        yield f"{header} is no header that pooltide has; {listed}{begins}."
    for name in dict.fromkeys(first or second for first, second in _NAME.findall(plain)):
        known = next((function for function in functions() if function.name == name), None)
        if known is not None:
            yield f"{name} is in {known.header}; include that header."
        elif name.startswith("aclnn"):
            own = name.removesuffix("GetWorkspaceSize")
            begins = f"`pooltide operators new {own}` begins one"
            yield f"{name} is no function that pooltide has; {listed}; {begins}."
        else:
            yield f"{name} is no name that pooltide has; {listed}."
