"""Writes the modules that are printed, not typed: the public functions on arrays and on tensors.

    python tools/printed_functions.py

Each function has the signature that its operator page says, a docstring of the texts in
operators/pages/help.toml, and one call as its body. `python tools/printed_pages.py` runs this first, because
docs/reference.md prints the docstrings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill, indent
from typing import Any, NamedTuple

from pooltide.operators.catalog import operators, regions
from pooltide.operators.pages import HOST, Operator
from pooltide.operators.pages import Parameter as PageParameter
from pooltide.operators.refusals import either
from pooltide.operators.toml import PageError, read

SOURCE = Path(__file__).parent.parent / "src" / "pooltide"
WORDS = read("help.toml")
WIDTH = 110
FLAT = {1: "w", 2: "h * W + w", 3: "(d * H + h) * W + w"}
MARK = "`python tools/printed_pages.py` prints this module from the operator pages; changes here are lost."
ARRAYS = f'''"""The NumPy functions: PyTorch's names, order and defaults, on arrays of any strides.

{MARK}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..problem.forwards import AdaptiveArguments, StridedArguments
from .array_calls import Array, average, forward, gradient, unpool
from .region_calls import Boxes, region_average, region_gradient, region_pool

Ints = int | Sequence[int]
Sizes = int | Sequence[int | None] | None
Input = Array | Sequence[int]
'''
BACKWARD = f'''"""The gradients on tensors: same names, argument order and defaults as the NumPy functions.

{MARK}
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .gradients import Input, Ints, gradient
from .pools.regions import Boxes
from .pools.unpools import unpool_gradient
from .regions import region_gradient
'''
FUNCTIONAL = f'''"""Differentiable pools: the functions of torch.nn.functional with our gradients.

They take and return what PyTorch's functions do, and save less memory for the backward pass.

{MARK}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

import torch

from ..problem.forwards import AdaptiveArguments, StridedArguments
from .gradients import Ints
from .pools.differentiable_pools import average, average_of, maximum
from .pools.regions import Boxes
from .pools.unpools import unpool
from .regions import region_average, region_pool

Tensor = torch.Tensor
Size = int | None | Sequence[int | None]
Pair = tuple[Tensor, Tensor]  # values and indices
Maxima = Tensor | Pair
'''


@dataclass(frozen=True)
class Entrance:
    name: str  # in help.toml
    header: str
    array: str  # the type of an array
    sizes: str  # the type of output_size where None keeps an axis
    takes: Callable[[Operator], bool]  # which operators are functions there
    errors: tuple[str, ...]
    modules: dict[str, str]  # of the examples
    imports: str  # of the examples
    more: tuple[str, ...] = ()  # names in __all__ that are not printed


_TORCH = {"xp": "torch", "F": "pooltide.torch.functional", "B": "pooltide.torch"}
MODULES = {
    "arrays/functions.py": Entrance(
        "arrays", ARRAYS, "Array", "Sizes", lambda _: True,
        ("TypeError", "ValueError", "IndexError", "MemoryError"),
        {"xp": "np", "F": "pooltide", "B": "pooltide"}, "import numpy as np, pooltide",
    ),
    "torch/backward.py": Entrance(
        "backward", BACKWARD, "Tensor", "Size", lambda operator: operator.gradient,
        ("TypeError", "ValueError", "IndexError"), _TORCH, "import torch, pooltide.torch",
    ),
    "torch/functional.py": Entrance(
        "functional", FUNCTIONAL, "Tensor", "Size", lambda operator: not operator.gradient,
        ("RuntimeError",), _TORCH, "import torch, pooltide.torch", ("average_of",),
    ),
}  # fmt: skip


class Argument(NamedTuple):
    name: str
    type: str  # the annotation
    words: str  # the type, as help says it
    default: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" + (f" = {self.default}" if self.default else "")


def module(entrance: Entrance) -> str:
    """Returns the text of an entrance's module."""
    known = dict(sorted((operators() | regions()).items()))
    functions = [operator for operator in known.values() if entrance.takes(operator)]
    names = sorted([*entrance.more, *(operator.function for operator in functions)])
    listed = "".join(f'    "{name}",\n' for name in names)
    printed = "".join(f"\n\n{_function(operator, entrance)}" for operator in functions)
    return f"{entrance.header}\n# fmt: off\n__all__ = [\n{listed}]\n{printed}"


def _function(operator: Operator, entrance: Entrance) -> str:
    positional, keywords = _arguments(operator, entrance)
    listed = [*map(str, positional), *(["*"] if keywords else []), *map(str, keywords)]
    result, before = entrance.array, ""
    if operator.writes_indices:
        result = "Any" if entrance.name == "arrays" else "Maxima"
        before = "" if entrance.name == "arrays" else _overloads(operator, positional)
    head = _bracketed(f"def {operator.function}(", listed, f") -> {result}:")
    doc = indent(_docstring(operator, entrance, [*positional, *keywords]), "    ", lambda line: line != "\n")
    return f"{before}{head}\n{doc}\n{_body(operator, entrance)}\n"


def _overloads(operator: Operator, arguments: list[Argument]) -> str:
    """Returns what tells type checkers which results a maximum has."""
    *first, flag = arguments
    plain = [argument._replace(default="") for argument in first]
    pairs = [[*map(str, plain), "return_indices: Literal[True]"]]
    if plain != first:
        pairs.insert(0, [*map(str, first), "*", "return_indices: Literal[True]"])
    values = [*map(str, first), "return_indices: Literal[False] = False"]
    either_of = [*map(str, first), str(flag)]
    forms = [(values, "Tensor"), *((pair, "Pair") for pair in pairs), (either_of, "Maxima")]
    heads = (_bracketed(f"def {operator.function}(", form, f") -> {result}: ...") for form, result in forms)
    return "".join(f"@overload\n{head}\n" for head in heads)


def _arguments(operator: Operator, entrance: Entrance) -> tuple[list[Argument], list[Argument]]:
    """Returns the arguments of a function: those by position, and those by keyword only."""
    page = [p for p in operator.parameters if p.role != "cube_math_type" and p.argument != "out[1]"]
    positional = [_argument(operator, entrance, p) for p in page if p.role != "out"]
    keywords = []
    if operator.writes_indices:
        positional.append(Argument("return_indices", "bool", "bool", "False"))
    if entrance.name != "functional" or operator.by_role("divisor_override"):  # PyTorch has `out` for these
        keywords.append(_out(operator, entrance))
    if entrance.name == "backward" and operator.kind == "maximum_gradient":
        keywords.append(Argument("check_indices", "bool", "bool", "True"))
    return positional, keywords


def _out(operator: Operator, entrance: Entrance) -> Argument:
    if operator.writes_indices:
        return Argument("out", "Any", "array or pair of arrays", "None")
    return Argument("out", f"{entrance.array} | None", entrance.array.lower(), "None")


def _argument(operator: Operator, entrance: Entrance, p: PageParameter) -> Argument:
    name, axes = p.argument, len(operator.axes)
    default = WORDS["defaults"].get(name, "")
    match p.type:
        case "tensor" if name == "input" and operator.gradient:
            return Argument(name, "Input", f"{entrance.array.lower()} or tuple of ints")
        case "tensor" if name == "boxes":
            words = f"{entrance.array.lower()} or list of {entrance.array.lower()}s"
            return Argument(name, "Boxes", words)
        case "tensor":
            return Argument(name, entrance.array, entrance.array.lower())
        case "int_array" if p.role == "output_size" and operator.unpool:
            return Argument(name, "Sequence[int] | None", "tuple of ints", "None")
        case "int_array" if operator.regional:
            return Argument(name, "Ints", "int or (int, int)")
        case "int_array" if p.role == "output_size" and axes > 1:
            return Argument(name, entrance.sizes, f"int, None or a tuple of {axes} of them")
        case "int_array":
            words = f"int or ({', '.join(['int'] * axes)}{',' * (axes == 1)})"
            return Argument(name, "Ints | None" if p.nullable else "Ints", words, default)
        case "int64" if p.role == "sampling_ratio":
            return Argument(name, "int", "int", default)
        case "int64":
            return Argument(name, "int | None", "int", default)
    return Argument(name, p.type, p.type, default)


def _body(operator: Operator, entrance: Entrance) -> str:
    arrays = entrance.name == "arrays"
    names = [p.argument for p in operator.parameters if p.type != "tensor" and p.role != "cube_math_type"]
    out = ["out"] if any(a.name == "out" for a in _arguments(operator, entrance)[1]) else []
    if operator.regional:
        inner, passed = "region_pool", ["input", "boxes", _tuple(names), *out]
        if operator.gradient:
            indices = "indices" if operator.by_role("indices") else "None"
            inner, passed = "region_gradient", ["grad_output", "input", "boxes", indices, _tuple(names), *out]
        elif operator.writes_indices:
            passed.append("return_indices")
        else:
            inner = "region_average"
    elif operator.gradient:
        inner = "unpool_gradient" if operator.unpool and not arrays else "gradient"
        indices = "indices" if operator.by_role("indices") else "None"
        check = ["check_indices"] if not arrays and operator.kind == "maximum_gradient" else []
        passed = ["grad_output", "input", indices, _tuple(names), *out, *check]
    elif operator.unpool:
        inner, passed = "unpool", ["input", "indices", _tuple(names), *out]
    else:
        pool = f"AdaptiveArguments({names[0]})"
        if operator.windows == "strided":
            sizes, flags = names[:3], names[3:]
            pool = f"StridedArguments({', '.join([*sizes, *(['1'] if operator.average else []), *flags])})"
        inner = "average" if operator.average else "forward" if arrays else "maximum"
        passed = ["input", pool, *(["return_indices"] if not operator.average else []), *out]
    return _bracketed(f"    return {inner}(", [f'"{operator.function}"', *passed], ")")


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def _bracketed(start: str, items: list[str], end: str) -> str:
    """Returns the items in one line, or in lines of their own; no line ends within an item."""
    inside, margin = ", ".join(items), " " * (len(start) - len(start.lstrip()))
    if len(start + inside + end) <= WIDTH:
        return start + inside + end
    whole = ", ".join(item.replace(" ", "\0") for item in items)
    lines = indent(fill(whole, WIDTH - len(margin) - 4).replace("\0", " "), f"{margin}    ")
    return f"{start}\n{lines}\n{margin}{end}"


def _docstring(operator: Operator, entrance: Entrance, arguments: Iterable[Argument]) -> str:
    if operator.function not in WORDS["examples"]:
        raise PageError(f"help.toml: {operator.function} has no example")
    facts = _facts(operator, entrance)
    note = _by_kind(WORDS["notes"].get(entrance.name, ""), operator).format(**facts)
    listed = [
        f"{a.name} ({a.words}{f', default {a.default}' if a.default else ''}): "
        + _by_kind(WORDS["arguments"][a.name], operator).format(**facts)
        for a in arguments
    ]
    result = _by_kind(WORDS["returns"][entrance.name], operator).format(**facts)
    pair = f" or pair of {facts['array']}s" if operator.writes_indices else ""
    example = WORDS["examples"][operator.function].strip().format(**entrance.modules)
    return "\n".join(
        [
            f'"""{operator.summary}',
            "",
            *([fill(note, WIDTH - 4), ""] if note else []),
            _section("Args", listed),
            _section("Returns", [f"{facts['array']}{pair}: {result}"]),
            _section("Raises", _raises(operator, entrance, facts)),
            "Example:",
            indent(f">>> {entrance.imports}\n{example}", "    "),
            '"""',
        ]
    )


def _section(title: str, items: Iterable[str]) -> str:
    filled = (
        fill(item, WIDTH - 4, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False)
        for item in items
    )
    return "\n".join([f"{title}:", *filled, ""])


def _facts(operator: Operator, entrance: Entrance) -> dict[str, str]:
    """Returns what the texts of help.toml have in braces."""
    plane = ", ".join(operator.axes).upper()
    floats = either(dtype.lower() for dtype in operator.dtypes(operator.parameters[0], HOST))
    if entrance.name == "arrays":
        floats = floats.replace("bfloat16", "ml_dtypes.bfloat16")
    if entrance.name == "functional" and not operator.regional:
        floats += " (tensors of other dtypes go to PyTorch's function)"
    indices = operator.by_role("indices")
    return {
        "array": entrance.array.lower(),
        "shape": f"(N, C, {plane})" + ("" if operator.regional else f" or (C, {plane})"),
        "float": floats,
        "index": either(dtype.lower() for dtype in operator.dtypes(indices, HOST)) if indices else "",
        "flat": FLAT[len(operator.axes)],
        "pool": operator.function.removesuffix("_backward"),
        "name": operator.function,
    }


def _by_kind(text: Any, operator: Operator) -> str:
    if isinstance(text, str):
        return text
    group = "gradient" if operator.gradient else "line" if len(operator.axes) == 1 else "any"
    regional = f"region_{group}" if operator.regional else ""
    return next(str(text[key]) for key in (operator.kind, regional, group, "any") if key in text)


def _raises(operator: Operator, entrance: Entrance, facts: dict[str, str]) -> Iterable[str]:
    arguments = [(p.argument, ()) for p in operator.parameters]
    rules = [(r.name, r.arguments.get("of", ())) for r in operator.rules if HOST not in r.skip]
    own = [(entrance.name, ()), (f"{entrance.name}_{operator.kind}", ())]
    for error in entrance.errors:
        causes = []
        for key, of in [*rules, *arguments, *own]:
            names = [f"`{operator.parameter(name).argument}`" for name in of]
            if key == "same_dtype" and operator.gradient:  # input may be a shape; grad_output has its dtype
                names = list(dict.fromkeys("`grad_output`" if n == "`input`" else n for n in names))
                if len(names) == 1:
                    continue
            text = _by_kind(WORDS["raises"][error].get(key, ""), operator)
            if "{any}" in text and not names:  # a gradient of regions has no array of ints
                continue
            joined = f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
            causes.append(text.format(of=joined, any=either(names) if names else "", **facts))
        texts = list(dict.fromkeys(filter(None, causes)))
        if not any(". " in text for text in texts):  # a text of several sentences stands alone
            texts = ["; ".join(texts)]
        for text in filter(None, texts):
            yield f"{error}: {text[0].upper()}{text[1:]}."


def write() -> bool:
    """Writes the modules; returns whether one changed."""
    changed = False
    for name, entrance in MODULES.items():
        text = module(entrance)
        if (SOURCE / name).read_text("utf-8") != text:
            (SOURCE / name).write_text(text, encoding="utf-8")
            changed = True
    return changed


if __name__ == "__main__":
    write()
