"""Takes the texts of `generate`, the C sources of this folder and the user's compiler.

Returns an installation: headers and a library, built once for each environment and again when an input
changes. It must not touch files outside `lib/pooltide` of the virtual environment or, without one, the user's
cache. The library starts its interpreter by absolute path, so it is compiled on the user's machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from ..operators.catalog import user_operators
from ..writing import append_own, why, write_own
from .generate import ALIASES, LIBRARY, cmake_config, entries, headers
from .signatures import CFunction, functions, interface

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

_SOURCES = (
    *("shim.c", "call_stack.h", "native_functions.h", "segv_handler.h", "process_exit.h", "exit_report.h"),
    "early_answers.h",
)
_PARTS = ("runtime", "acllib", "compiler", "fwkacllib")  # folders of older toolkits
_NO_SHARED = (
    f"Python {VERSION} at {sys.base_prefix} has no libpython{VERSION}.so; "
    "install its library, or use a Python that was built with --enable-shared."
)


class CannotBuild(RuntimeError):
    """The library can't be built; the text says what is missing."""


@dataclass(frozen=True)
class Installation:
    root: Path

    @property
    def include(self) -> Path:
        return self.root / "include"

    @property
    def lib(self) -> Path:
        return self.root / "lib"

    @property
    def compile_flags(self) -> list[str]:
        return [f"-I{self.include}"]

    @property
    def link_flags(self) -> list[str]:
        """The linker's flags. The run path is DT_RPATH, which LD_LIBRARY_PATH can't override."""
        words = ("--disable-new-dtags", "-rpath", str(self.lib))  # a comma in the path would end -Wl
        run_path = [word for each in words for word in ("-Xlinker", each)]
        return [f"-L{self.lib}", *run_path, "-lpooltide_acl"]

    @property
    def cmake(self) -> Path:
        return self.lib / "cmake" / "pooltide"


@dataclass(frozen=True)
class BuildInputs:
    """All inputs of the library."""

    python: str = sys.executable
    libpython: str = ""  # its path; empty: search for it
    flags: tuple[str, ...] = ()  # additional flags of the compiler, such as a sanitizer
    folders: tuple[str, ...] = ()  # of users' operators

    @cached_property
    def table(self) -> tuple[CFunction, ...]:
        return functions(tuple(user_operators(self.folders).values()))

    @cached_property
    def texts(self) -> dict[str, str]:
        here = files("pooltide").joinpath("c")
        return {
            **{f"include/{path}": text for path, text in headers(self.table).items()},
            "lib/cmake/pooltide/pooltide-config.cmake": cmake_config(),
            "source/entries.h": entries(self.table),
            **{f"source/{name}": here.joinpath(name).read_text("utf-8") for name in _SOURCES},
        }

    def arguments(self, root: Path, output: Path) -> list[str]:
        """The compiler's arguments."""
        interpreter, linker_arguments = libpython(root / "lib" / LIBRARY)
        return [
            *("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", *self.flags),
            *(f"-I{root / 'include'}", f"-I{python_headers()}"),
            f"-DPOOLTIDE_PYTHON={_c_text(self.python)}",
            f"-DPOOLTIDE_LIBPYTHON={_c_text(self.libpython or str(interpreter))}",
            f"-DPOOLTIDE_VERSION={_c_text(VERSION)}",
            f"-DPOOLTIDE_FOLDERS={_c_text(os.pathsep.join(self.folders))}",
            f"-DPOOLTIDE_INTERFACE={_c_text(interface(self.table))}",
            f"-Wl,-soname,{LIBRARY},-z,nodelete,-z,defs",
            *(str(root / "source" / "shim.c"), "-o", str(output)),
            *linker_arguments,
            "-ldl",
        ]


def install(inputs: BuildInputs | None = None, root: Path | None = None) -> Installation:
    """Build whatever is missing or outdated. Several processes may call this at the same time."""
    inputs = inputs or BuildInputs()
    root = root or _root(inputs.folders)
    library = root / "lib" / LIBRARY
    fresh = library.with_suffix(".new")
    with _locked(root):
        arguments = inputs.arguments(root, fresh)
        stamp = hashlib.sha256(repr((inputs.texts, arguments)).encode()).hexdigest()
        record = root / "stamp"
        if library.exists() and record.exists() and record.read_text() == stamp:
            return Installation(root)
        for name, text in inputs.texts.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            write_own(root / name, [text.encode()])
        fresh.unlink(missing_ok=True)  # a compiler would write through a link
        command = [*compiler(c_only=True), *arguments]
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if run.returncode:
            text = f"the library can't be compiled:\n{shlex.join(command)}\n{run.stderr}"
            raise CannotBuild(f"{text}{_NO_SHARED if '-Wl,--whole-archive' in command else ''}")
        os.replace(fresh, library)
        for alias in ALIASES:
            _link(library.with_name(alias), LIBRARY)
        _make_other_layouts(root)
        write_own(record, [stamp.encode()])
    return Installation(root)


def _make_other_layouts(root: Path) -> None:
    """Make the folders where build files written for CANN search: lib64, and DDK_PATH of older toolkits."""
    _link(root / "lib64", "lib")
    stub = root / "lib" / "stub"
    stub.mkdir(exist_ok=True)
    for name in (LIBRARY, *ALIASES):
        _link(stub / name, f"../{LIBRARY}")
    for part in _PARTS:
        (root / part).mkdir(exist_ok=True)
        _link(root / part / "include", "../include")
        _link(root / part / "lib64", "../lib")


def _c_text(text: str) -> str:
    """The text as a string of C."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _link(link: Path, target: str) -> None:
    """Make a symbolic link. A copy of the directory may have turned the link into a file or a directory."""
    if link.is_symlink():
        return
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _root(folders: tuple[str, ...]) -> Path:
    """The folder of the library; a library with users' operators has its own."""
    root = plain_root()
    if not folders:
        return root
    name = hashlib.sha256(os.pathsep.join(folders).encode(errors="surrogateescape")).hexdigest()[:16]
    return root / "operators" / name


def plain_root() -> Path:
    environment = Path(sys.prefix) / "lib"
    if sys.prefix != sys.base_prefix and os.access(environment, os.W_OK):
        return environment / "pooltide"
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # neither $HOME nor the system's list of users has one
        text = "this user has no home directory; set $XDG_CACHE_HOME to a directory for the library."
        raise CannotBuild(text) from None
    name = hashlib.sha256(f"{sys.executable} {VERSION}".encode()).hexdigest()[:16]
    return cache / "pooltide" / name


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Holds the lock of the folder. An OSError of the block, such as a full disk, becomes a CannotBuild."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with append_own(root / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise CannotBuild(f"{error.filename or root}: can't be written: {why(error)}") from None


def compiler(*, c_only: bool) -> list[str]:
    """The command of $CC or $CXX, else of the first compiler found. `c_only`: all sources are C."""
    variable, names = ("CC", ("cc", "gcc", "clang")) if c_only else ("CXX", ("c++", "g++", "clang++"))
    if chosen := os.environ.get(variable, "").strip():
        try:
            words = shlex.split(chosen)
        except ValueError as error:
            raise CannotBuild(f"${variable} is {chosen!r}; it must be a command: {error}.") from None
        if shutil.which(words[0]) is None:
            raise CannotBuild(f"${variable} is {chosen!r}; it must be a command that can be run.")
        return words
    for name in names:
        if path := shutil.which(name):
            return [path]
    raise CannotBuild(f"no compiler was found: neither ${variable} nor {', '.join(names)}; install one.")


def python_headers() -> Path:
    path = Path(sysconfig.get_path("include"))
    if not (path / "Python.h").exists():
        raise CannotBuild(f"{path} has no Python.h; install the development files of Python {VERSION}.")
    return path


def libpython(library: Path) -> tuple[Path, list[str]]:
    """The file that contains the interpreter, and additional linker arguments.

    Where Python has only a static library, `library` (ours) links it and so contains the interpreter.
    """
    config = sysconfig.get_config_vars()
    places = [config.get("LIBDIR"), config.get("LIBPL"), f"{sys.base_prefix}/lib"]
    places += [f"{place}/{config['MULTIARCH']}" for place in places if place and config.get("MULTIARCH")]
    for ending in (".so.1.0", ".so", "-pic.a", ".a"):
        for place in filter(None, places):
            path = Path(place) / f"libpython{VERSION}{sys.abiflags}{ending}"
            if path.exists() and ending.startswith(".so"):
                return path, []
            if path.exists():
                needed = " ".join(config.get(name) or "" for name in ("MODLIBS", "LIBS", "SYSLIBS")).split()
                return library, ["-Wl,--whole-archive", str(path), "-Wl,--no-whole-archive", *needed]
    raise CannotBuild(_NO_SHARED)
