"""Command lines with odd notations, odd options and odd files, through click's test runner."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from click.testing import CliRunner

from pooltide.cli import main

from . import problems
from .mutation import mutated
from .problems import Problem
from .worker import Tally

_folder = tempfile.TemporaryDirectory(prefix="hostile-cli-")
FOLDER = Path(_folder.name)
os.chdir(FOLDER)  # whatever is written to the working directory goes with it
NAMES = {pool: pool.replace("_pool", "") for pool in problems.POOLS}
DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
WORDS = [
    "ceil", "nopad", "div-3", "div0", "cube1", "cube9", "nan", "inf", "anywhere", "cl", "seed7", "seed-1", "i64", "i32",
    "normal", "wide", "integers", "NCHW", "ND", "atlas-a2", "host", "gradOutput.f16", "self.null", "stride.null",
    "self.1x2x3", "k0", "k-1", "s0", "p99", "p1", "d2", "o0", "o2x3x4x5", "k99999999999999999999", "f31", "", "x", ":", "o",
    "k3x", "k\u0663", "d0", "k1e3", "\0", "seed9999999999999999999999", "div9223372036854775808", "out.cl", "self.", ".f16",
    "given", "range0x1", "range1x0.5", "range1e999x2", "uniform", "input.s1x1x1x1", "gradOutput.s0x0x0x0", "self.s-1x2", "gradOutput.off5",
    "input.off99999999999999999999", "gradInput.s9x9x9x9",
]  # fmt: skip
SIZES = [
    "0",
    "-1",
    "1x",
    "",
    "x",
    "3",
    "1x2x3x4x5x6x7",
    "99999999999x99999999999x9x9",
    "1x1x1e9x1",
    "2x3",
    "1x\u0662x3x4",
]
FILES: dict[str, bytes] = {
    "good.csv": b"name,case,seed\na,avg2d:2x3x11x13:k3:s2:f16,7\nb,adaptive_max2d:1x2x5x7:o2x3,1\n",
    "good.jsonl": b'{"name": "a", "case": "avg2d:1x2x5x7:k2"}\n{"operator": "avg2d", "input": [1, 2, 5, 7], "kernel": 2}\n',
    "array.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }".ljust(127) + b"\n" + b"\0" * 12,
    "raw.bin": b"\0" * 64,
    "opst.json": b'[{"case_name": "a", "op": "avg_pool2d", "input_desc": [{"type": "float", "format": "ND", "shape": [1, 2, 5, 7]}], "attr": [{"name": "kernel_size", "value": 2}]}]',
    "atk.json": b'{"cases": [{"id": 1, "name": "avg_pool2d", "inputs": [{"name": "input", "type": "tensor", "dtype": "fp32", "shape": [1, 2, 5, 7]}, {"name": "kernel_size", "type": "attr", "range_values": 2}]}]}',
    "dump.json": b'{"data": {"Functional.avg_pool2d.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1, 2, 5, 7], "Min": -1, "Max": 1}, {"type": "int", "value": 2}], "input_kwargs": {}, "output": []}}, "level": "L1", "dump_data_dir": "x"}',
    "empty": b"",
}  # fmt: skip
OPTIONS = {
    "check": ["--all-products", "--json", "--product=atlas-a3", "--product=host", "--product", "--product=x"],
    "run": ["--plan", "--json", "--backend=reference", "--repeat=2", "--repeat=0", "--verdict=bits", "--save={folder}/saved",
            "--save={file}", "--save=\0", "--report={folder}/r.html", "--report={folder}", "--product=atlas-a2", "--verdict"],
    "golden": ["--shard=1/2", "--shard=0/0", "--json", "--from={file}", "--from={folder}/opst.json", "--from={folder}/atk.json",
               "--from={folder}/dump.json", "--float64", "--jobs=1", "--report={folder}/r.html", "--report={folder}/none/r.html", "--report=\0", "--product=host"],
    "compare": ["--third={file}", "--verdict=two", "--verdict=bits", "--level=L0", "--dtype=f16", "--json", "--case=avg2d:1x1x3x3:k2",
                "--case=avg2d", "--report={folder}/r.html", "--dtype=hf32", "--standard=none", "--standard=msprobe", "--standard=benchmark", "-v",
                "--csv={folder}/d.csv", "--csv={folder}", "--only=a", "--shard=2/3"],
    "merge": ["--json", "-o={folder}/merged", "-o", "{folder}/merged", "{folder}/golden", "{file}"],
    "show": ["--slice=0", "--slice=-1", "--slice=x"],
    "ops": ["--json", "--markdown", "--support", "avg2d", "nothing"],
    "cflags": ["--libs", "--cmake"],
    "bench": ["--rounds=2", "--dtype=f31", "--device=cuda", "--drawn=-1", "--threads=0", "--seed=x"],
}  # fmt: skip


@dataclass
class CommandLine:
    arguments: list[str]
    files: dict[str, bytes]

    def __str__(self) -> str:
        files = {
            name: content for name, content in self.files.items() if any(name in a for a in self.arguments)
        }
        return f"pooltide {self.arguments!r}" + (f" with files {files!r:.400}" if files else "")

    def run(self, tally: Tally) -> None:
        for name, content in self.files.items():
            (FOLDER / name).write_bytes(content)
        tally.add(calls=1)
        result = CliRunner().invoke(main, self.arguments)
        tally.add(results=int(result.exit_code == 0), refusals=int(result.exit_code != 0))
        if wrong := fault(result):
            tally.find("odd error", wrong, str(self))


def fault(result: Any) -> str | None:
    """What is wrong with the end of a command; None: nothing."""
    trouble = result.exception
    if trouble is not None and not isinstance(trouble, SystemExit):
        return f"raised {type(trouble).__name__}: {str(trouble)[:300]}"
    if result.exit_code not in (0, 1, 2):
        return f"exit status {result.exit_code}"
    if "Traceback" in result.output:
        return f"printed a traceback: {result.output[-300:]}"
    return None if result.exit_code == 0 or result.output.strip() else "failed without a word"


def draw(rng: Random) -> CommandLine:
    files = {name: mutated(data, rng) if rng.random() < 0.3 else data for name, data in FILES.items()}
    command = rng.choice(
        (
            "check",
            "check",
            "check",
            "run",
            "run",
            "golden",
            "compare",
            "compare",
            "merge",
            "show",
            "ops",
            "cflags",
            "bench",
        )
    )
    positional = {"compare": 2, "ops": rng.randrange(2), "cflags": 0}.get(command, 1)
    arguments = [_argument(rng, command) for _ in range(positional)]
    if command == "bench":  # a real benchmark takes minutes
        arguments = [rng.choice(("nothing", "avg2d", "avg2d:1x1", "--shape=none", "{file}x"))]
    if command == "golden":
        arguments += [
            "-o",
            rng.choice(("{folder}/golden", "{folder}/golden", "{file}", "{file}/x", "", "\0")),
        ]
    if command == "merge":
        arguments = [
            rng.choice(("{folder}/golden", "{file}", "{folder}", "/dev/null"))
            for _ in range(rng.randint(0, 3))
        ]
        arguments += rng.choice(([], ["-o", "{folder}/merged"], ["-o", "{file}"], ["-o", ""]))
    if command == "show":
        arguments += [
            "-o",
            rng.choice(
                (
                    "{folder}/a.svg",
                    "{folder}/a",
                    "{folder}/none/a.png",
                    "{folder}",
                    "{file}/a.pdf",
                    "{folder}/a.x",
                )
            ),
        ]
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        arguments.insert(rng.randrange(len(arguments) + 1), rng.choice(OPTIONS[command]))
    if command == "golden" and "--jobs=1" not in arguments:
        arguments.append("--jobs=1")
    file = str(FOLDER / rng.choice(list(FILES)))
    filled = [a.replace("{folder}", str(FOLDER)).replace("{file}", file) for a in arguments]
    return CommandLine([command, *filled], files)


def _argument(rng: Random, command: str) -> str:
    if command == "compare":
        return str(
            FOLDER
            / rng.choice(
                ("array.npy", "array.npy", "array.npy", "raw.bin", "empty", "golden", "none.npy", "\0", "")
            )
        )
    if command == "ops":
        return rng.choice(
            ("avg2d", "avg_pool2d_backward", "aclnnAvgPool2dBackward", "AVG2D", "", "avg2d:1x1")
        )
    if rng.random() < 0.25:
        return rng.choice(("{file}", "{folder}", "-", "/dev/null", "", "{folder}/none", "~", "\0"))
    case = notation(rng, problems.draw(rng, rng.choice(problems.POOLS), large=0))
    if rng.random() < 0.5:
        parts = case.split(":")
        for _ in range(rng.choice((1, 1, 2, 3))):
            match rng.randrange(5):
                case 0:
                    parts.insert(rng.randrange(len(parts) + 1), rng.choice(WORDS))
                case 1:
                    parts[rng.randrange(len(parts))] = rng.choice(WORDS)
                case 2 if len(parts) > 1:
                    parts[1] = rng.choice(SIZES)
                case 3:
                    parts.pop(rng.randrange(len(parts)))
                    parts = parts or ["avg2d"]
                case _:
                    parts.append(rng.choice(WORDS))
        case = ":".join(parts)
    return case


def notation(rng: Random, problem: Problem) -> str:
    """A drawn problem in the notation of the command line."""
    words = [NAMES[problem.pool], "x".join(map(str, problem.input)), DTYPES[problem.dtype]]
    if problem.pool.startswith("adaptive"):
        words.append("o" + "x".join(map(str, problem.outputs)))
    letters = {"kernel_size": "k", "stride": "s", "padding": "p", "dilation": "d"}
    for name, letter in letters.items():
        if name in problem.attributes:
            value = problem.attributes[name]
            words.append(
                letter
                + "x".join(str(int(n)) for n in (value if isinstance(value, (tuple, list)) else [value]))
            )
    if problem.attributes.get("ceil_mode"):
        words.append("ceil")
    return ":".join(words)
