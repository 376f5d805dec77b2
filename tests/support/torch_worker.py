"""One of two processes: pooling gradients of shards (DTensor) against one process; DDP and FSDP2 against plain PyTorch.

python torch_worker.py RANK FILE      FILE is where the two meet
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import pooltide.torch as pt
from pools import EVERY, POOLS, Pool, quiet_patch, sample
from pooltide.torch import functional
from pooltide.torch.releases import can_call_aten


def check_dtensor(pool: Pool) -> None:
    mesh = init_device_mesh("cpu", (2,))
    x = sample(pool)
    x = torch.cat([x, x + 0.5])[: x.shape[0] + 1]
    whole = x.clone().requires_grad_()
    y = pool.forward(whole)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(4))
    (must,) = torch.autograd.grad(y, whole, g)
    for placement, silent in ((Shard(0), True), (Shard(1), True), (Replicate(), True), (Shard(2), False)):
        shard = distribute_tensor(x, mesh, [placement]).requires_grad_()
        y = pool.forward(shard, functional)
        cotangent = distribute_tensor(g, mesh, [placement if silent else Replicate()])
        with CommDebugMode() as traffic:
            (found,) = torch.autograd.grad(y, shard, cotangent)
        assert isinstance(found, DTensor)
        if silent:
            assert traffic.get_total_counts() == 0, (pool, placement)
            assert found.placements == (placement,), (pool, placement, found.placements)
        assert torch.equal(found.full_tensor(), must), (pool, placement)


def check_operators() -> None:
    """Called directly; a spatial shard is redistributed first."""
    mesh = init_device_mesh("cpu", (2,))
    g = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(6))
    must = pt.avg_pool2d_backward(g, (2, 3, 10, 14), 2)
    for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
        found = pt.avg_pool2d_backward(distribute_tensor(g, mesh, [placement]), (2, 3, 10, 14), 2)
        assert torch.equal(found.full_tensor(), must)
        assert found.placements == (Replicate() if placement == Shard(2) else placement,)
    unbatched = pt.avg_pool2d_backward(distribute_tensor(g[0], mesh, [Shard(0)]), (3, 10, 14), 2)
    assert torch.equal(unbatched.full_tensor(), must[0])


def check_patched_dtensor() -> None:
    mesh = init_device_mesh("cpu", (2,))
    for pool in POOLS:
        x = sample(pool)
        whole = x.clone().requires_grad_()
        pool.forward(whole).pow(2).sum().backward()
        for forward in (False, True) if can_call_aten() else (False,):
            with quiet_patch(forward=forward):
                shard = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
                y = pool.forward(shard)
                (found,) = torch.autograd.grad(y, shard, (2 * y).detach())
            assert torch.equal(found.full_tensor(), whole.grad), (pool, forward)


def check_a_gradient_lies_as_the_input() -> None:
    """The cotangent of a sum is replicated; a gradient is sharded as the input all the same."""
    mesh = init_device_mesh("cpu", (2,))
    for pool, module in product(EVERY, (F, functional)):
        x = sample(pool)
        whole = x.clone().requires_grad_()
        pool.forward(whole).sum().backward()
        for placement in (Shard(0), Shard(1)):
            leaf = distribute_tensor(x, mesh, [placement]).requires_grad_()
            with pt.patch() if module is F else nullcontext(), CommDebugMode() as traffic:
                pool.forward(leaf, module).sum().backward()
            assert leaf.grad.placements == (placement,), (pool, placement, leaf.grad.placements)
            assert traffic.get_total_counts() == 0, (pool, placement)
            assert torch.equal(leaf.grad.full_tensor(), whole.grad), (pool, placement)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.flat, self.deep = torch.nn.Conv2d(2, 6, 3), torch.nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool2d(self.flat(x), 3, 2, 1)
        deep = F.adaptive_avg_pool3d(x.unflatten(1, (2, 3)), (2, 3, 2)).flatten(1, 2)
        return self.deep(F.adaptive_max_pool2d(x, 1).flatten(1)) + deep.sum((1, 2, 3))[:, None]


def check_data_parallel(rank: int) -> None:
    """DDP and FSDP2 have the gradients of plain PyTorch, under either patch; each rank has half of the batch."""
    data = torch.randn(2, 3, 2, 13, 11, generator=torch.Generator().manual_seed(8))

    def gradients(wrap: Callable[[Net], torch.nn.Module]) -> list[torch.Tensor]:
        model = wrap(Net())
        model(data[rank]).pow(2).mean().backward()
        found = [p.grad for p in model.parameters()]
        return [g.full_tensor() if isinstance(g, DTensor) else g for g in found]

    for wrap in (torch.nn.parallel.DistributedDataParallel, fully_shard):
        must = gradients(wrap)
        for forward in (False, True) if can_call_aten() else (False,):
            with quiet_patch(forward=forward):
                found = gradients(wrap)
            assert len(found) == len(must) == 4
            assert all(map(torch.equal, found, must)), (wrap, forward)


if __name__ == "__main__":
    rank, meeting = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    for pool in POOLS:
        check_dtensor(pool)
    check_operators()
    check_patched_dtensor()
    check_a_gradient_lies_as_the_input()
    check_data_parallel(rank)
    dist.barrier()
    dist.destroy_process_group()
    print("same gradients")
