"""Pooling gradients for PyTorch.

The functions `*_backward` take tensors and return gradients. `functional` has differentiable pools.
`patch()` makes PyTorch's own pools use our gradients, `patch(forward=True)` our forwards, too. Importing this
package registers the operators `torch.ops.pooltide.*`.

In: tensors on the CPU or a GPU. Out: tensors there, with PyTorch's dtypes, strides and errors. Nothing here
may choose a kernel (kernels/plan.py does) or check arguments by other rules than the operators' pages.
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

from . import backward, functional
from .backward import *  # noqa: F403
from .dispatch import custom_operators, region_operators, scripting, second_derivatives, sharding
from .gpu import index_errors, wait_for_kernels
from .openmp import use_team
from .patching.handle import Patch, is_patched, patch, unpatch
from .process_status import Status, status
from .training_step import Step
from .tune_problems import Tuned, tune

__all__ = [
    "Patch",
    "Status",
    "Step",
    "Tuned",
    "functional",
    "index_errors",
    "is_patched",
    "patch",
    "status",
    "tune",
    "unpatch",
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
    custom_operators.register(library)
    second_derivatives.register(library)
    region_operators.register(library)
    kept["library"] = library
    sharding.add_rules()
    scripting.script_as_pytorchs(vars(functional))


_register()
use_team()
