"""Imports programs of tools/, which are in no package."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from paths import TOOLS


def load_tool(name: str) -> Any:
    """Returns the module in the file `name` of tools/, which may have no suffix."""
    module_name = f"tool_{Path(name).stem}"
    spec = spec_from_loader(module_name, SourceFileLoader(module_name, str(TOOLS / name)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module
