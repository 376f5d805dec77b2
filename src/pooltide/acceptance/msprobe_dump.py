"""Reads an API dump of msprobe (level L1): dump.json, and dump_tensor_data/*.pt or *.npy beside it.

A training on several devices gives a dump for each step and rank: DIR/step0/rank1/dump.json. The names of
their cases begin with the names of these folders: step0.rank1.Functional.avg_pool2d.0.forward.

Each call of a pool becomes a forward case, and its backward pass a gradient case, with the dumped tensors. A
dump of statistics has no tensors: then values are drawn between the dumped minimum and maximum. msprobe dumps
no indices, so those of a gradient are the maxima of the dumped input of the forward.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..arrays import functions
from ..operators.catalog import operators
from ..operators.pages import Operator
from .case_names import file_name
from .cases import CasesError, Line
from .foreign import Foreign, Tensor, line_of, range_words, shape_of, text_of
from .supplied_values import SuppliedValues

DUMP = "dump.json"
TENSORS = "dump_tensor_data"
_FOLDER = re.compile(r"(step|rank|proc)([0-9]*)")  # rank alone: a training on one device
_TENSOR_TYPES = ("torch.Tensor", "mindspore.Tensor")


def dumps(directory: Path) -> list[tuple[str, Path]]:
    """The dumps of a directory, by step and rank: what the names of their cases begin with, and dump.json."""
    below = ("", "*/", "*/*/")
    paths = [path.relative_to(directory) for start in below for path in directory.glob(f"{start}{DUMP}")]
    chosen = [path for path in paths if all(map(_FOLDER.fullmatch, path.parts[:-1]))]
    return [
        ("".join(f"{part}." for part in path.parts[:-1]), directory / path)
        for path in sorted(chosen, key=_place)
    ]


def _place(path: Path) -> list[tuple[str, int]]:
    """What orders folders by their numbers: step2 comes before step10."""
    matches = [match for part in path.parts[:-1] if (match := _FOLDER.fullmatch(part))]
    return [(match[1], int(match[2] or 0)) for match in matches]


def tensor_path(directory: Path, name: str) -> Path:
    """Where a dump, or the dump of a step and rank, has the tensors of a case, without `.output.0.pt`."""
    first, _, rest = name.partition(".")
    if rest and _FOLDER.fullmatch(first):
        return tensor_path(directory / first, rest)
    return directory / TENSORS / name


def lines(path: Path, dump: Any) -> Iterator[Line] | None:
    """The pools of a dump; None: the file is no dump."""
    if not isinstance(dump, dict) or not isinstance(dump.get("data"), dict) or "dump_data_dir" not in dump:
        return None
    if dump.get("level") not in ("L1", "mix"):
        raise CasesError(
            f"{path}: level is {str(dump.get('level'))[:60]!r}; it must be L1 or mix, which have calls"
        )
    return _pools(path.parent / TENSORS, dump["data"])


def _pools(folder: Path, calls: Mapping[str, Any]) -> Iterator[Line]:
    number = 0
    for name, call in calls.items():
        parts = name.split(".")  # Functional.avg_pool2d.0.forward
        if len(parts) < 4 or parts[-1] not in ("forward", "backward"):
            continue
        function = parts[-3].removesuffix("_with_indices")
        operator = operators().get(function)
        if operator is None or operator.gradient or operator.unpool:
            if "pool" in function:
                number += 1
                text = (
                    f"{function} is not read from dumps" if operator else f"pooltide has no {function}"[:80]
                )
                yield Line(number, file_name(name), None, text, skipped=True)
            continue
        number += 1
        if parts[-1] == "forward":
            line = line_of(number, name, partial(_forward, operator, call, folder))
        else:
            before = calls.get(".".join([*parts[:-1], "forward"]))
            gradient = operators()[f"{function}_backward"]
            line = line_of(number, name, partial(_gradient, operator, gradient, before, call, folder))
        yield replace(line, outputs=_outputs(call, folder))


def _outputs(call: Any, folder: Path) -> tuple[str, ...]:
    """The files of the tensors that a call gave; "" for one that has no file."""
    outputs = call.get("output") if isinstance(call, dict) else None
    elements = outputs if isinstance(outputs, list) else []
    names = [element.get("data_name") if isinstance(element, dict) else None for element in elements]
    return tuple(
        str(folder / name) if isinstance(name, str) and name and Path(name).name == name else ""
        for name in names
    )


def _forward(operator: Operator, call: Any, folder: Path) -> Foreign:
    arguments = _arguments(operator.function, call)
    element = arguments.pop("input", None)
    tensor = _tensor(element, "input")
    foreign = Foreign(operator, {"input": tensor})
    _set_attributes(foreign, arguments, tensor)
    outputs = call.get("output")
    if operator.by_role("indices") and isinstance(outputs, list) and len(outputs) == 2:
        foreign.tensors["indices"] = _tensor(outputs[1], "output[1]")
    _set_values(foreign, element, folder)
    return foreign


def _gradient(operator: Operator, gradient: Operator, before: Any, call: Any, folder: Path) -> Foreign:
    if not isinstance(before, dict):
        raise CasesError("the dump has no forward of this backward pass; it must have it")
    forward = _forward(operator, before, folder)
    if not isinstance(call, dict) or not isinstance(call.get("input"), list) or not call["input"]:
        raise CasesError("input is missing; it must be a list with the gradient of the output")
    grad = call["input"][0]
    foreign = Foreign(
        gradient, {**forward.tensors, "grad_output": _tensor(grad, "input[0]")}, forward.attributes
    )
    if gradient.by_role("indices"):
        foreign.tensors["indices"] = Tensor(foreign.tensors["grad_output"].shape, "int64")
    _set_values(foreign, grad, folder)
    if foreign.supplied is not None and forward.supplied is not None:
        foreign.supplied = SuppliedValues(foreign.supplied.source, forward_input=forward.supplied.source)
    return foreign


def _arguments(function: str, call: Any) -> dict[str, Any]:
    """The arguments of a call by name."""
    if not isinstance(call, dict):
        raise CasesError("the call is no object; it must have input_args and input_kwargs")
    positional, named = call.get("input_args", []), call.get("input_kwargs", {})
    if not isinstance(positional, list) or not isinstance(named, dict):
        raise CasesError("input_args must be a list, and input_kwargs an object")
    names = list(inspect.signature(getattr(functions, function)).parameters)
    if len(positional) > len(names):
        raise CasesError(f"the call has {len(positional)} arguments; {function} has {len(names)}")
    arguments = dict(zip(names, positional, strict=False))
    for name in named:
        if name not in names:
            raise CasesError(f"the call has the argument {name[:60]!r}, which {function} does not have")
        if name in arguments:
            raise CasesError(f"the call has the argument {name!r} twice, by place and by name")
    return arguments | named


def _set_attributes(foreign: Foreign, arguments: Mapping[str, Any], x: Tensor) -> None:
    axes = len(foreign.operator.axes)
    for parameter in foreign.operator.parameters:
        if parameter.type == "tensor" or parameter.argument not in arguments:
            continue
        value = _value(arguments[parameter.argument])
        if parameter.role == "output_size":  # None keeps the size of an axis
            sizes = value if isinstance(value, list) else [value] * axes
            value = [n if o is None else o for n, o in zip(x.shape[-axes:], sizes, strict=False)]
        foreign.attributes[parameter.role] = value


def _value(element: Any) -> Any:
    """A number, a flag, None or a list of them, as msprobe writes it: {"type": "int", "value": 3}."""
    if isinstance(element, list):
        return [_value(part) for part in element]
    if isinstance(element, dict):
        if "value" not in element:
            raise CasesError(f"an argument is {str(element)[:60]}; it must have a value")
        return _value(element["value"])
    if element is not None and not isinstance(element, (bool, int)):
        raise CasesError(f"an argument is {str(element)[:60]}; it must be a whole number or a flag")
    return element


def _tensor(element: Any, what: str) -> Tensor:
    if not isinstance(element, dict) or element.get("type") not in _TENSOR_TYPES:
        raise CasesError(f"{what} is {str(element)[:60]}; it must be a tensor")
    return Tensor(shape_of(element.get("shape")), text_of(element, "dtype"))


def _set_values(foreign: Foreign, element: Mapping[str, Any], folder: Path) -> None:
    """The dumped values, or a range from which values are drawn."""
    if "data_name" in element:
        name = text_of(element, "data_name")
        if Path(name).name != name:
            raise CasesError(f"data_name is {name[:60]!r}; it must be the name of a file")
        foreign.supplied = SuppliedValues(str(folder / name))
    elif "Min" in element:
        foreign.words = range_words("uniform", [element.get("Min"), element.get("Max")])
