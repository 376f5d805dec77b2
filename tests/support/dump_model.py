"""Trains a small model with pools for one step, and writes what msprobe dumps of it (level L1).

    python dump_model.py DIR [statistics]

DIR/dump.json has every call with its arguments, DIR/dump_tensor_data the tensors; with `statistics` there are
no tensors. The format is the one that msprobe's documentation describes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as f


class Dump:
    """Calls functions of torch.nn.functional and writes down what they got and gave."""

    def __init__(self, directory: Path, task: str) -> None:
        self.directory, self.task = directory, task
        self.calls: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        (directory / "dump_tensor_data").mkdir(parents=True)

    def __call__(self, function: Callable[..., torch.Tensor], *arguments: Any, **named: Any) -> torch.Tensor:
        name = function.__name__
        number = self.counts[name] = self.counts.get(name, -1) + 1
        prefix = f"Functional.{name}.{number}"
        result = function(*arguments, **named)
        self.calls[f"{prefix}.forward"] = {
            "input_args": [
                self.element(value, f"{prefix}.forward.input.{i}") for i, value in enumerate(arguments)
            ],
            "input_kwargs": {
                key: self.element(value, f"{prefix}.forward.input.{key}") for key, value in named.items()
            },
            "output": [self.element(result, f"{prefix}.forward.output.0")],
        }
        result.retain_grad()
        arguments[0].register_hook(lambda grad: self.backward(prefix, result.grad, grad))
        return result

    def backward(self, prefix: str, grad_output: torch.Tensor | None, grad_input: torch.Tensor) -> None:
        self.calls[f"{prefix}.backward"] = {
            "input": [self.element(grad_output, f"{prefix}.backward.input.0")],
            "output": [self.element(grad_input, f"{prefix}.backward.output.0")],
        }

    def element(self, value: Any, name: str) -> Any:
        if isinstance(value, tuple):
            return [self.element(part, name) for part in value]
        if not isinstance(value, torch.Tensor):
            return {"type": type(value).__name__, "value": value}
        wide = value.detach().double()
        about = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
        about |= {
            "Max": wide.max().item(),
            "Min": wide.min().item(),
            "Mean": wide.mean().item(),
            "Norm": wide.norm().item(),
        }
        about |= {"requires_grad": value.requires_grad}
        if self.task == "tensor":
            torch.save(value.detach().clone(), self.directory / "dump_tensor_data" / f"{name}.pt")
            about["data_name"] = f"{name}.pt"
        return about

    def write(self) -> None:
        head = {"task": self.task, "level": "L1", "framework": "pytorch", "dump_data_dir": "/dump/path"}
        text = json.dumps(head | {"data": self.calls}, indent=2)
        (self.directory / "dump.json").write_text(text)


def dump(directory: Path, task: str = "tensor") -> None:
    values = np.random.default_rng(3).standard_normal((2, 3, 23, 29), np.float32)
    x = torch.from_numpy(values).requires_grad_()
    call = Dump(directory, task)
    y = call(f.relu, x * 1)
    y = call(f.avg_pool2d, y, 3, stride=2, padding=1)
    y = call(f.max_pool2d, y, (2, 3), (2, 2))
    y = call(f.adaptive_avg_pool2d, y, (3, None))
    call(f.max_pool2d, y.to(torch.bfloat16), 2).float().square().sum().backward()
    call.write()


if __name__ == "__main__":
    dump(Path(sys.argv[1]), *sys.argv[2:])
