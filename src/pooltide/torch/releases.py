"""The releases of PyTorch that pooltide works with, and what a release must have.

pooltide uses names of PyTorch that are not public, and takes the places of aten operators. A release that
pooltide was not tested with may have changed them; it is then refused with a sentence, before anything fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

import torch
from torch.torch_version import TorchVersion

OLDEST = "2.6"
# The table of docs/pytorch.md has their tests.
TESTED = ("2.6", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")
# Those whose aten.cpp was tested: it relies on more than names.
COMPILED = ("2.10", "2.11", "2.12", "2.13", "2.14", "2.15")
# Names that are not public, without which this package cannot be imported.
PRIVATE = (
    "_C.DispatchKey",
    "_C.DispatchKey.AutocastCPU",
    "_C.DispatchKey.AutocastCUDA",
    "_C.DispatchKey.CPU",
    "_C.DispatchKey.PythonDispatcher",
    "_C.DispatchKeySet",
    "_C._ExcludeDispatchKeyGuard",
    "_C._aoti",
    "_C._are_functorch_transforms_active",
    "_C._dispatch_has_kernel_for_dispatch_key",
    "_C._dispatch_key_parse",
    "_C._dispatch_keys",
    "_C._dispatch_tls_is_dispatch_key_included",
    "_C._dispatch_tls_local_exclude_set",
    "_C._dispatch_tls_local_include_set",
    "_C._functorch",
    "_C._functorch.TransformType.Functionalize",
    "_C._functorch.get_unwrapped",
    "_C._functorch.is_functorch_wrapped_tensor",
    "_C._get_deterministic_algorithms",
    "_C._get_tracing_state",
    "_C._has_storage",
    "_C._is_tracing",
    "_C._len_torch_dispatch_stack",
    "_C._nn",
    "_C._set_tracing_state",
    "_guards.TracingContext.try_get",
    "_prims_common.suggest_memory_format",
    "_prims_common.wrappers._maybe_resize_out",
    "autograd.forward_ad._current_level",
)


def is_tested(releases: Sequence[str] = TESTED) -> bool:
    """Whether this release is one of those that pooltide, or a part of it, was tested with."""
    return ".".join(torch.__version__.split(".")[:2]) in releases


def can_call_aten() -> bool:
    """Whether this release can call a kernel of aten that is overridden (2.9 and newer)."""
    return hasattr(torch.library, "get_kernel")


def check_names() -> None:
    """Raises ImportError if this release is too old, or lacks a name that the package needs."""
    if TorchVersion(torch.__version__) < OLDEST:
        raise ImportError(f"pooltide.torch: PyTorch is {torch.__version__}; it must be {OLDEST} or newer.")
    if missing := [f"torch.{name}" for name in PRIVATE if not _exists(name)]:
        raise ImportError(
            f"pooltide.torch: PyTorch {torch.__version__} has no {', '.join(missing)}; it must be a release "
            f"that has, as {', '.join(TESTED)}."
        )


def _exists(name: str) -> bool:
    try:
        resolve_name(f"torch.{name}")
    except (ImportError, AttributeError):
        return False
    return True


def check_operators(arguments: Mapping[str, Sequence[str]], library: Any = torch.ops.aten) -> None:
    """Raises NotImplementedError if an operator is missing, or has other arguments than these."""
    for overload, names in arguments.items():
        name, _, form = overload.partition(".")
        try:
            theirs = getattr(getattr(library, name), form or "default")._schema.arguments
        except AttributeError:
            actual = "is missing"
        else:
            if [argument.name for argument in theirs] == list(names):
                continue
            actual = f"takes ({', '.join(argument.name for argument in theirs)})"
        raise NotImplementedError(
            f"patch: {library.name}::{overload} {actual} in PyTorch {torch.__version__}; "
            f"it must take ({', '.join(names)}), as in PyTorch {', '.join(TESTED)}. Nothing is patched."
        )
