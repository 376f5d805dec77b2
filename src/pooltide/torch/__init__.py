"""Pooling gradients for PyTorch.

The functions `*_backward` take tensors and return gradients. `functional` has differentiable pools.
`patch()` makes PyTorch's own pools use our gradients, `patch(forward=True)` our forwards, too. Importing this
package registers the operators `torch.ops.pooltide.*`.
"""

try:
    import torch

    from .releases import check_names

    check_names()  # before the modules below use these names
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    raise ModuleNotFoundError(
        "pooltide.torch: PyTorch is not installed; it must be, in version 2.6 or newer. "
        "Install it with: pip install 'pooltide[torch]', or: pip install 'torch>=2.6'.",
        name="torch",
    ) from None

from . import autograd, backward, functional, operators, scripting, sharding
from .backward import *  # noqa: F403
from .devices import index_errors, wait_for_kernels
from .patching import Patch, is_patched, patch
from .status import Status, status
from .team import use_team
from .training_step import Step

__all__ = [
    "Patch",
    "Status",
    "Step",
    "functional",
    "index_errors",
    "is_patched",
    "patch",
    "status",
    "wait_for_kernels",
]
__all__ += backward.__all__


def _register() -> None:
    # A second import, after a reload or after our modules were removed from sys.modules, must not define the
    # operators twice. So the library is kept in PyTorch's namespace, which outlives our modules.
    kept = vars(torch.ops.pooltide)
    if "library" in kept:
        kept.pop("library")._destroy()
    library = torch.library.Library("pooltide", "DEF")  # type: ignore[no-untyped-call]
    operators.register(library)
    autograd.register(library)
    kept["library"] = library
    sharding.add_rules()
    scripting.script_as_pytorchs(vars(functional))


_register()
use_team()
