"""What PyTorch's fuzzers crashed these operators with: one type and one text each, and no crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pooltide  # noqa: E402
import pooltide.torch as pt  # noqa: E402

DEVICES = ["cpu", "meta"] + (["cuda"] if torch.cuda.is_available() else [])
G = (2, 3, 5, 7)
X = (2, 3, 11, 13)


def grad(*shape: int, device: str = "cpu", dtype: Any = None) -> Any:
    return torch.ones(shape or G, device=device, dtype=dtype or torch.float32)


def at(*shape: int, device: str = "cpu") -> Any:
    return torch.zeros(shape or G, device=device, dtype=torch.int64)


Call = Callable[[str], Any]
METADATA: list[tuple[str, Call, type[Exception], str]] = [
    ("indices' shape", lambda d: pt.adaptive_max_pool2d_backward(grad(device=d), X, at(2, 3, 5, 6, device=d)),
     ValueError, "adaptive_max_pool2d_backward: indices has shape (2, 3, 5, 6); it must be (2, 3, 5, 7), as grad_output has."),
    ("fewer indices", lambda d: pt.adaptive_max_pool3d_backward(grad(1, *G, device=d), (1, *X[:1], 4, *X[2:]), at(0, device=d)),
     ValueError, "adaptive_max_pool3d_backward: indices has rank 1, shape (0); it must have rank 4 or 5."),
    ("N differs", lambda d: pt.adaptive_avg_pool3d_backward(grad(3, 3, 2, 5, 7, device=d), (2, 3, 4, 11, 13)),
     ValueError, "adaptive_avg_pool3d_backward: grad_output has N, C = 3, 3; they must be 2, 3, as input has."),
    ("C differs", lambda d: pt.avg_pool2d_backward(grad(2, 4, 5, 6, device=d), X, 2),
     ValueError, "avg_pool2d_backward: grad_output has N, C = 2, 4; they must be 2, 3, as input has."),
    ("zero windows", lambda d: pt.adaptive_avg_pool3d_backward(grad(2, 3, 0, 5, 7, device=d), (2, 3, 4, 11, 13)),
     ValueError, "adaptive_avg_pool3d_backward: grad_output has shape (2, 3, 0, 5, 7); every spatial dimension must be greater than 0."),
    ("zero kernel", lambda d: pt.avg_pool2d_backward(grad(device=d), X, 0),
     ValueError, "avg_pool2d_backward: kernel_size has values (0); each must be at least 1."),
    ("zero stride", lambda d: pt.avg_pool2d_backward(grad(device=d), X, 2, (0, 1)),
     ValueError, "avg_pool2d_backward: stride has values (0, 1); each must be at least 1."),
    ("zero divisor", lambda d: pt.avg_pool2d_backward(grad(device=d), X, 2, divisor_override=0),
     ValueError, "avg_pool2d_backward: divisor_override is 0; it must be None or a 64-bit int other than 0."),
    ("size overflow", lambda d: pt.adaptive_avg_pool3d_backward(grad(1, 1, 1, 1, 1, device=d), (1, 1, 2**31, 2**31, 4)),
     ValueError, "adaptive_avg_pool3d_backward: input has shape (1, 1, 2147483648, 2147483648, 4), over 2**63 bytes; it must be smaller."),
    ("negative size", lambda d: pt.adaptive_max_pool2d_backward(grad(device=d), (2, 3, -11, 13), at(device=d)),
     ValueError, "adaptive_max_pool2d_backward: input has shape (2, 3, -11, 13); every dimension must be at least 0."),
    ("rank", lambda d: pt.avg_pool2d_backward(grad(5, 7, device=d), (11, 13), 2),
     ValueError, "avg_pool2d_backward: grad_output has rank 2, shape (5, 7); it must have rank 3 or 4."),
    ("dtype", lambda d: pt.avg_pool2d_backward(grad(device=d, dtype=torch.complex64), X, 2),
     TypeError, "avg_pool2d_backward: grad_output has dtype complex64; it must be a tensor of float32, float64, float16 or bfloat16."),
    ("int dtype", lambda d: pt.avg_pool2d_backward(grad(device=d, dtype=torch.int32), X, 2),
     TypeError, "avg_pool2d_backward: grad_output has dtype int32; it must be float32, float64, float16 or bfloat16."),
    ("float indices", lambda d: pt.adaptive_max_pool2d_backward(grad(device=d), X, grad(device=d)),
     TypeError, "adaptive_max_pool2d_backward: indices has dtype float32; it must be int32 or int64."),
    ("no tensor", lambda d: pt.avg_pool2d_backward([[1.0]], X, 2),
     TypeError, "avg_pool2d_backward: grad_output is a list; it must be a tensor of float32, float64, float16 or bfloat16."),
    ("no indices", lambda d: pt.adaptive_max_pool2d_backward(grad(device=d), X, None),
     TypeError, "adaptive_max_pool2d_backward: indices is None; it must be a tensor of int32 or int64."),
    ("out's dtype", lambda d: pt.avg_pool2d_backward(grad(2, 3, 5, 6, device=d), X, 2, out=grad(*X, device=d, dtype=torch.float64)),
     TypeError, "avg_pool2d_backward: out has dtype float64; it must be float32, as grad_output has."),
    ("out overlaps itself", lambda d: pt.avg_pool2d_backward(grad(2, 3, 5, 6, device=d), X, 2, out=grad(1, device=d).expand(X)),
     ValueError, "avg_pool2d_backward: out has shape (2, 3, 11, 13) and strides (0, 0, 0, 0), which lets cells share memory; each cell must have its own element."),
]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("call", "error", "text"), [row[1:] for row in METADATA], ids=[row[0] for row in METADATA]
)
def test_metadata(device: str, call: Call, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        call(device)
    assert str(raised.value) == text
    assert type(raised.value) is error


@pytest.mark.parametrize("device", [d for d in DEVICES if d != "meta"])
@pytest.mark.parametrize("value", [143, -1, 2**32 + 5, -(2**63), 2**63 - 1], ids=str)
def test_an_index_outside_the_plane(device: str, value: int) -> None:
    indices = at(device=device)
    indices[1, 2, 3, 4] = value
    text = f"adaptive_max_pool2d_backward: indices[1, 2, 3, 4] is {value}; it must be 0 to 142, inside the 11×13 plane."
    with pytest.raises(IndexError) as raised:
        pt.adaptive_max_pool2d_backward(grad(device=device), X, indices)
    assert str(raised.value) == text
    with pytest.raises(IndexError) as raised:
        pooltide.adaptive_max_pool2d_backward(np.ones(G, np.float32), X, indices.cpu().numpy())
    assert str(raised.value) == text
    if device == "cpu":
        with pt.patch(), pytest.raises(IndexError, match="inside the 11×13 plane"):
            torch.ops.aten.adaptive_max_pool2d_backward(grad(), torch.ones(X), indices)


PATCHED: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("average's shape", lambda: torch.ops.aten.avg_pool2d_backward(grad(2, 3, 5, 5), torch.ones(X), [2, 2], [2, 2], [0, 0], False, True, None),
     ValueError, "grad_output has plane"),
    ("kernel", lambda: torch.ops.aten.avg_pool3d_backward(grad(1, *G), torch.ones(1, 2, 3, 11, 13), [0, 2, 2], [], [0, 0, 0], False, True, None),
     ValueError, "kernel_size has values"),
    ("indices' dtype", lambda: torch.ops.aten.adaptive_max_pool2d_backward(grad(), torch.ones(X), at().to(torch.int16)),
     TypeError, "indices has dtype"),
    ("index", lambda: torch.ops.aten.max_pool2d_with_indices_backward(grad(2, 3, 5, 6), torch.ones(X), [2, 2], [2, 2], [0, 0], [1, 1], False, at(2, 3, 5, 6) + 143),
     IndexError, "is 143; it must be 0 to 142"),
    ("out's dtype", lambda: torch.ops.aten.adaptive_max_pool2d_backward.grad_input(grad(), torch.ones(X), at(), grad_input=torch.ones(X).double()),
     TypeError, "out has dtype"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "text"), [row[1:] for row in PATCHED], ids=[row[0] for row in PATCHED]
)
def test_what_is_patched_raises_what_pytorchs_callers_catch(
    call: Callable[[], Any], error: type[Exception], text: str
) -> None:
    """A RuntimeError, as plain PyTorch does, that is our class of error and has our sentence."""
    if error is not IndexError:  # with a bad index plain PyTorch writes to memory that is not the result's
        with pytest.raises(RuntimeError):
            call()
    with pt.patch(), pytest.raises(RuntimeError, match=text) as raised:
        call()
    assert isinstance(raised.value, error)


def test_traced_gradients_raise_it_too() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with pt.patch(), FakeTensorMode(), pytest.raises(RuntimeError, match="grad_output has plane"):
        torch.ops.aten.avg_pool2d_backward(
            torch.ones(2, 3, 5, 5), torch.ones(X), [2, 2], [2, 2], [0, 0], False, True, None
        )


def test_what_is_patched_refuses_as_we_do() -> None:
    with pt.patch():
        with pytest.raises(ValueError, match="indices has shape"):
            torch.ops.aten.adaptive_max_pool2d_backward(grad(), torch.ones(X), at(2, 3, 5, 6))
        with pytest.raises(ValueError, match="grad_output has N, C"):
            torch.ops.aten._adaptive_avg_pool3d_backward(grad(3, 3, 2, 5, 7), torch.ones(2, 3, 4, 11, 13))
        with pytest.raises(ValueError, match="indices has shape"):
            torch.ops.aten.adaptive_max_pool3d_backward(
                grad(1, *G), torch.ones(1, 2, 3, 11, 13), at(1, 2, 3, 5, 8)
            )


def test_other_devices_and_layouts() -> None:
    with pytest.raises(ValueError, match="indices is on meta; it must be on cpu, as grad_output is"):
        pt.adaptive_max_pool2d_backward(grad(), X, at(device="meta"))
    with pytest.raises(ValueError, match="out is on meta; it must be on cpu, as grad_output is"):
        pt.avg_pool2d_backward(grad(2, 3, 5, 6), X, 2, out=grad(*X, device="meta"))
    with pytest.raises(
        TypeError, match=r"grad_output has layout torch\.sparse_coo; it must be a strided tensor"
    ):
        pt.avg_pool2d_backward(grad(2, 3, 5, 6).to_sparse(), X, 2)
    with pytest.raises(
        TypeError, match=r"grad_output has layout torch\._mkldnn; it must be a strided tensor"
    ):
        pt.avg_pool2d_backward(grad(2, 3, 5, 6).to_mkldnn(), X, 2)


def nested(t: Any) -> Any:
    return torch.nested.nested_tensor([t[0], t[1]])


def jagged(t: Any) -> Any:
    return torch.nested.nested_tensor([t[0], t[1]], layout=torch.jagged)


def quantized(t: Any) -> Any:
    return torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8)


KINDS: dict[Callable[[Any], Any], str] = {
    torch.Tensor.to_sparse: r"has layout torch\.sparse_coo; it must be a strided tensor",
    torch.Tensor.to_sparse_csr: r"has layout torch\.sparse_csr; it must be a strided tensor",
    nested: "is a nested tensor; it must be a strided tensor",
    jagged: "is a nested tensor; it must be a strided tensor",
    quantized: "has dtype quint8; it must be a tensor of",
}
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
]


@each_kind
def test_kinds_of_tensors_that_no_kernel_reads(kind: Any) -> None:
    g, x, indices = grad(2, 3, 5, 6), torch.ones(X), at(2, 3, 5, 6)
    for _ in range(2):  # a call that is known by the tensors' strides must not lend its prepared gradient
        pt.max_pool2d_backward(g[:1, :1, :1, :1].expand(g.shape), x, indices, 2)
        with pytest.raises(TypeError, match=f"grad_output {KINDS[kind]}"):
            pt.max_pool2d_backward(kind(g), x, indices, 2)
        with pytest.raises(TypeError, match=f"indices {KINDS[kind]}"):
            pt.max_pool2d_backward(g, x, kind(indices), 2)
        with pytest.raises(TypeError, match=f"out {KINDS[kind]}"):
            pt.max_pool2d_backward(g, x, indices, 2, out=kind(x))
    if kind is quantized:
        assert torch.equal(pt.avg_pool2d_backward(g, kind(x), 2), pt.avg_pool2d_backward(g, x, 2))
    else:
        with pytest.raises(TypeError, match=f"input {KINDS[kind]} or a shape"):
            pt.avg_pool2d_backward(g, kind(x), 2)


def test_the_input_may_be_meta() -> None:
    g, x = grad(2, 3, 5, 6), torch.ones(X)
    assert torch.equal(pt.avg_pool2d_backward(g, x.to("meta"), 2), pt.avg_pool2d_backward(g, x, 2))


@each_kind
@pytest.mark.parametrize("pool", ["avg_pool2d", "max_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"])
def test_our_pools_take_the_kinds_that_pytorchs_take(pool: str, kind: Any) -> None:
    x = kind(torch.arange(1.0, 859.0).view(X))
    try:
        must = getattr(torch.nn.functional, pool)(x, 2)
    except RuntimeError:
        with pytest.raises(TypeError, match=f"{pool}: input (is|has) .*; it must be a strided") as raised:
            getattr(pt.functional, pool)(x, 2)
        assert isinstance(raised.value, RuntimeError)
    else:
        assert torch.equal(getattr(pt.functional, pool)(x, 2), must)


def test_out_may_be_an_inference_tensor_in_inference_mode_only() -> None:
    with torch.inference_mode():
        out = torch.empty(X)
        assert pt.avg_pool2d_backward(grad(2, 3, 5, 6), X, 2, out=out) is out
    with pytest.raises(ValueError, match="out is an inference tensor; outside inference mode"):
        pt.avg_pool2d_backward(grad(2, 3, 5, 6), X, 2, out=out)


def test_out_takes_no_part_in_autograd() -> None:
    with pytest.raises(ValueError, match="requires a gradient; with out= no argument may"):
        pt.avg_pool2d_backward(grad(2, 3, 5, 6).requires_grad_(), X, 2, out=torch.empty(X))
    with pytest.raises(ValueError, match="requires a gradient; with out= no argument may"):
        pt.avg_pool2d_backward(grad(2, 3, 5, 6), X, 2, out=torch.empty(X, requires_grad=True))


def test_cuda_without_kernels_says_why(monkeypatch: Any) -> None:
    from pooltide.kernels import plan
    from pooltide.kernels.cuda import launch
    from pooltide.kernels.cuda.runtime.driver import NoCompiler
    from pooltide.torch import gpu

    def missing() -> Any:
        raise NoCompiler("there is no compiler.")

    monkeypatch.setattr(launch, "check_compiler", missing)
    monkeypatch.setattr(plan, "gpu_backend", plan.gpu_backend.__wrapped__)
    problem: Any = None
    with pytest.raises(plan.NoBackend, match="no CUDA kernels: there is no compiler"):
        plan.plan(problem, (), 0)
    assert gpu.missing(torch.device("cuda")) == "there are no CUDA kernels: there is no compiler."


@pytest.mark.parametrize("check_indices", [True, False])
def test_direct_functions_never_fall_back_to_pytorch(check_indices: bool, monkeypatch: Any) -> None:
    from pooltide.kernels.plan import NoBackend

    monkeypatch.setenv("POOLTIDE_BACKEND", "nobody")
    for function, sizes in ((pt.adaptive_max_pool2d_backward, ()), (pt.max_pool2d_backward, (3, 2))):
        for dispatched in (False, True):  # autograd makes the call go through PyTorch's dispatcher
            g = torch.ones(2, 3, 5, 6, requires_grad=dispatched)
            with pytest.raises(NoBackend, match="backend 'nobody' is unknown"):
                function(g, (2, 3, 11, 13), at(2, 3, 5, 6), *sizes, check_indices=check_indices)


@pytest.mark.parametrize("args", [(3.0, 2, 1), (3, 2, True), (3, 2, 1, 0), ((3.0, 3), 2, 1)], ids=str)
def test_an_argument_equal_to_a_good_one_is_still_judged_by_its_type(args: tuple[Any, ...]) -> None:
    g = torch.randn(2, 3, 4, 6)
    pt.avg_pool2d_backward(g, (2, 3, 7, 11), 3, 2, 1)
    with pytest.raises(TypeError):
        pt.avg_pool2d_backward(g, (2, 3, 7, 11), *args)
    with pytest.raises(TypeError):
        pt.avg_pool2d_backward(g, (2, 3, 7.0, 11), 3, 2, 1)


def test_on_the_cpu_indices_are_always_checked() -> None:
    with pytest.raises(IndexError, match="is 143; it must be 0 to 142"):
        pt.adaptive_max_pool2d_backward(grad(), X, at() + 143, check_indices=False)
    assert pt.index_errors("cpu") == (0, None)


def test_tensors_without_memory() -> None:
    x = (1, 2, 4, 4)
    assert torch.equal(pt.avg_pool2d_backward(torch._efficientzerotensor((1, 2, 2, 2)), x, 2), torch.zeros(x))
    freed = torch.ones(1, 2, 2, 2)
    freed.untyped_storage().resize_(0)
    with pytest.raises(
        ValueError, match="avg_pool2d_backward: grad_output has storage of 0 bytes; it must have 32, "
    ):
        pt.avg_pool2d_backward(freed, x, 2)
