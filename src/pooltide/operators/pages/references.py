"""Python functions that a user's page names as `file.py:function`, in a file beside the page.

Reading a page must not run code of its user: `reference` only parses the file. `PythonFunction.load` runs it,
when the first call needs the function.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ..toml import PageError

_lock = threading.Lock()


@dataclass(frozen=True)
class PythonFunction:
    file: Path
    name: str
    parameters: tuple[str, ...] | None  # those of the operator that it takes; None: all

    def __str__(self) -> str:
        return f"{self.file.name}:{self.name}"

    def load(self) -> Callable[..., Any]:
        """The function. Raises what its file raises."""
        with _lock:
            found: Callable[..., Any] = getattr(_module(self.file), self.name)
        return found

    def choose(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments that the function takes."""
        if self.parameters is None:
            return arguments
        return {name: arguments[name] for name in self.parameters}


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the file at each start: compiled code on disk may be that of an edit in the same second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


@cache
def _module(file: Path) -> ModuleType:
    name = f"pooltide_operators_{abs(hash(file)):x}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_Loader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def reference(where: str, folder: Path, text: Any, known: Collection[str]) -> PythonFunction:
    """The function that a page names. Raises PageError when the file does not define it.

    `known` are the names that its parameters may have.
    """
    file_name, _, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    if Path(file_name).name != file_name or not file_name.endswith(".py") or not name.isidentifier():
        raise PageError(f"{where} is {text!r}; it must be FILE.py:FUNCTION, with a file beside the page")
    file = folder / file_name
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except OSError as error:
        raise PageError(f"{where} is {text}, but {file} can't be read: {error.strerror}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        why = error.msg if isinstance(error, SyntaxError) else error
        raise PageError(f"{where} is {text}, but {file}{at} is no Python: {why}") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return PythonFunction(file, name, _parameters(where, text, node.args, known))
    targets = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    if name in {target.id for target in targets if isinstance(target, ast.Name)}:
        return PythonFunction(file, name, None)
    functions = ", ".join(node.name for node in tree.body if isinstance(node, ast.FunctionDef)) or "none"
    raise PageError(f"{where} is {text}, but {file} does not define {name}; its functions are {functions}")


def _parameters(
    where: str, text: str, arguments: ast.arguments, known: Collection[str]
) -> tuple[str, ...] | None:
    names = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
    if arguments.posonlyargs or arguments.vararg:
        raise PageError(f"{where} is {text}, which takes arguments by position; it must take them by name")
    if unknown := [name for name in names if name not in known]:
        must = f"it must take some of {', '.join(known)}"
        raise PageError(f"{where} is {text}, which takes {unknown[0]}; {must}")
    return None if arguments.kwarg else tuple(names)
