"""The support tables: each function by entrance and device, each entrance by dtype and layout.

Dtypes and CANN's operators come from the operators' pages. This module adds which entrance runs which
operator, and the reason where an entrance does not. `pooltide ops --support` prints the tables and the notes.
"""

from __future__ import annotations

from .catalog import aten_name, documented, gradients, in_cann, operators, regions
from .pages import ASCEND_PRODUCTS, HOST, Operator

Table = tuple[list[str], list[list[str]]]  # a head and rows

ENTRANCES = ("NumPy", "pooltide.torch", "patch()", "CANN, Python and C", "command line")
BOTH = "CPU, CUDA"
NOT_IN_CANN = "not in CANN"

NOTES = (
    "patch() replaces the gradients of PyTorch's 2-D and 3-D pools. PyTorch computes 1-D pools as 2-D pools, "
    "so patch() covers them too. patch() leaves the gradient of an adaptive average to size 1, which PyTorch "
    "computes as a mean, to PyTorch. patch() leaves the forwards to PyTorch; patch(forward=True) replaces "
    "them, too, except that mean.",
    "The differentiable pools of pooltide.torch.functional use pooltide's forward and gradient. Under "
    "compilers and transforms, they and patch(forward=True) use PyTorch's forward and pooltide's gradient.",
    "The command line computes all of them on the CPU; bench measures pools and their gradients, on the CPU "
    "and on CUDA.",
    "patch() replaces PyTorch's max unpools and the gradients of its fractional max pools, too, which raise "
    "under deterministic algorithms without it. On CUDA, PyTorch's operators compute our max unpools, such "
    "that of equal indices the last one counts, as on the CPU.",
    "patch() replaces torchvision's pools over regions of interest, forwards and gradients, if torchvision "
    "is imported first.",
    "CANN documents no 1-D pools. Its operators that are no functions here, such as aclnnMaxPool and "
    "aclnnGlobalAveragePool, are in the table of products.",
)


def by_entrance() -> Table:
    """Each operator by entrance: the devices that it runs on, or the reason why it runs on none."""
    rows = [[name, *_gradient(operator)] for name, operator in gradients().items()]
    forwards = [
        [name, "CPU", BOTH, f"{BOTH} by forward=True", _cann(name), "CPU"]
        for name in (gradient.removesuffix("_backward") for gradient in gradients())
    ]
    unpools = [[name, *_unpool(operator)] for name, operator in operators().items() if operator.unpool]
    of_regions = [[name, "CPU", BOTH, f"{BOTH}: torchvision's", _cann(name), "CPU"] for name in regions()]
    return ["", *ENTRANCES], rows + forwards + unpools + of_regions


def _gradient(operator: Operator) -> list[str]:
    patched = BOTH if aten_name(operator) else f"as {operator.function.replace('1d', '2d')}"
    return ["CPU", BOTH, patched, _cann(operator.function), "CPU"]


def _unpool(operator: Operator) -> list[str]:
    patched = BOTH if len(operator.axes) > 1 else f"as {operator.function.replace('1d', '2d')}"
    patched = "PyTorch's, a gather" if operator.gradient else patched
    return ["CPU", BOTH, patched, _cann(operator.function), "CPU"]


def _cann(function: str) -> str:
    return "CPU" if in_cann(function) else NOT_IN_CANN


def by_layout() -> Table:
    """Each entrance by the devices, dtypes and layouts of its arrays; the plan counts the copied bytes."""
    ours, theirs = _dtypes(HOST), _dtypes(*ASCEND_PRODUCTS)
    indices = _dtypes(HOST, role="indices")
    inside, by = "in place; 1-D copied", "by operator and product"
    rows = [
        ["NumPy", "CPU", ours, indices, "in place", "in place, into such an out=", "copied"],
        ["pooltide.torch", BOTH, ours, indices, "in place", inside, "copied"],
        ["patch()", BOTH, f"{ours}; others by PyTorch", "int64", "in place", inside, "copied"],
        ["CANN, Python and C", "CPU", f"{theirs}, {by}", f"{indices}, {by}", "in place", "in place",
         "copied"],
        ["command line", "CPU", ours, indices, "in place", "in place", "copied"],
    ]  # fmt: skip
    head = ["entrance", "devices", "dtypes", "indices", "contiguous", "channels-last", "other strides"]
    return head, rows


def _dtypes(*products: str, role: str = "grad_output") -> str:
    """The dtypes of a role that any operator takes on any of the products, in the order of the pages."""
    chosen = gradients() if HOST in products else documented()
    found = (
        dtype
        for operator in chosen.values()
        for product in products
        if product in operator.products and (parameter := operator.by_role(role))
        for dtype in operator.dtypes(parameter, product)
    )
    return " ".join(dict.fromkeys(found)).lower()
