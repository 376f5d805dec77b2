"""torch.jit.script of a model that calls our pools: it compiles PyTorch's pools in their place.

TorchScript can compile neither our annotations nor our kernels. The private tables of PyTorch that say what
TorchScript compiles for a function are those by which PyTorch scripts its own pools. A release without
them cannot script our pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.nn.functional as F

from ..pools.unpools import PYTORCH

_AXES = (1, 2, 3)


def script_as_pytorchs(functions: Mapping[str, Any]) -> None:
    """Registers the pools and unpools in `functions`, by their names."""
    for name, theirs in PYTORCH.items():
        # Dynamo, too, takes PyTorch's function for one with these attributes of torch.jit.script_if_tracing.
        vars(functions[name]).update(__script_if_tracing_wrapper=True, __original_fn=theirs)
    boolean_dispatched = getattr(getattr(torch, "_jit_internal", None), "boolean_dispatched", None)
    register_builtin = getattr(getattr(torch.jit, "_builtins", None), "_register_builtin", None)
    if boolean_dispatched is None or register_builtin is None:
        return
    averages = [f"{kind}avg_pool{axes}d" for kind in ("", "adaptive_") for axes in _AXES]
    for name in averages:
        register_builtin(functions[name], f"aten::{name}")
    # PyTorch's table has the functions' addresses only. As long as it has them, no function may take them.
    vars(torch.ops.pooltide).setdefault("scripted", []).extend(functions[name] for name in averages)
    for kind, flag in (("max_pool", 6), ("adaptive_max_pool", 2)):
        for name in (f"{kind}{axes}d" for axes in _AXES):
            boolean_dispatched[functions[name]] = {
                "if_true": getattr(F, f"{name}_with_indices"),
                "if_false": _as_it_is_now(getattr(F, f"_{name}")),
                "index": flag,  # the place of return_indices among the arguments
                "default": False,
                "arg_name": "return_indices",
            }


def _as_it_is_now(function: Any) -> Any:
    """Returns a copy of PyTorch's function that still calls torch's functions of today.

    A script looks them up by name when it is compiled. By then ours may be there, and call this one.
    """
    names = ModuleType("torch")
    vars(names).update(vars(torch))
    code, defaults = function.__code__, function.__defaults__
    return FunctionType(code, vars(F) | {"torch": names}, function.__name__, defaults)
