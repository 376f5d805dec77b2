"""What runs where: every gradient and forward by entrance and device, every entrance by dtype and layout.

The facts come from the operators' pages; what stands here is which entrance has what, and why not.
"""

from __future__ import annotations

from .catalog import aten_name, documented, gradients
from .pages import ASCEND_PRODUCTS, HOST, Operator

Table = tuple[list[str], list[list[str]]]  # a head and rows

ENTRANCES = ("NumPy", "pooltide.torch", "patch()", "CANN, Python and C", "command line")
BOTH = "CPU, CUDA"
UNDOCUMENTED = "not in its documents"

NOTES = (
    "patch() replaces PyTorch's gradients; its 1-D pools take those of its 2-D ones. "
    "It leaves forwards to PyTorch, and adaptive averages to size 1, which PyTorch takes for means.",
    "The differentiable pools of pooltide.torch.functional have our forwards on the CPU; on CUDA, and under "
    "compilers and transforms, they have PyTorch's forward and our gradient.",
    "The command line makes, checks and compares gradients; of them, bench measures on CUDA too.",
)


def by_entrance() -> Table:
    """Each operator by entrance: the devices it runs on, or why on none."""
    rows = [[name, *_gradient(operator)] for name, operator in gradients().items()]
    forwards = [
        [name.removesuffix("_backward"), "CPU", BOTH, "PyTorch's own", UNDOCUMENTED, "gradients only"]
        for name in gradients()
    ]
    return ["", *ENTRANCES], rows + forwards


def _gradient(operator: Operator) -> list[str]:
    patched = BOTH if aten_name(operator) else f"as {operator.function.replace('1d', '2d')}"
    return ["CPU", BOTH, patched, "CPU" if operator.documented else UNDOCUMENTED, "CPU"]


def by_layout() -> Table:
    """Each entrance by what its arrays may be. Copied: into scratch that the plan knows of."""
    ours, theirs = _dtypes(HOST), _dtypes(*ASCEND_PRODUCTS)
    indices = _dtypes(HOST, role="indices")
    inside = "in place; 1-D copied"
    rows = [
        ["NumPy", "CPU", ours, indices, "in place", "in place, into such an out=", "copied"],
        ["pooltide.torch", BOTH, ours, indices, "in place", inside, "copied"],
        ["patch()", BOTH, f"{ours}; others by PyTorch", "int64", "in place", inside, "copied"],
        ["CANN, Python and C", "CPU", f"{theirs}, by product", f"{indices}, by product", "in place",
         "in place", "copied"],
        ["command line", "CPU", ours, indices, "in place", "never: cases are contiguous", "never"],
    ]  # fmt: skip
    head = ["entrance", "devices", "dtypes", "indices", "contiguous", "channels-last", "other strides"]
    return head, rows


def _dtypes(*products: str, role: str = "grad_output") -> str:
    """Those of any operator on any of the products, in the order of the pages."""
    chosen = gradients() if HOST in products else documented()
    found = (
        dtype
        for operator in chosen.values()
        for product in products
        if product in operator.products and (parameter := operator.by_role(role))
        for dtype in operator.dtypes(parameter, product)
    )
    return " ".join(dict.fromkeys(found)).lower()
