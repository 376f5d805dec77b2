"""Files that pooltide reads, damaged in their structure: the digests in them are right for what they hold.

Every trial gets a folder with golden data, results, summaries, files of other tools, and a folder `precious`.
A command may change its output; a change of anything else is a finding, and so is a traceback.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
from click.testing import CliRunner

from pooltide.cli import main

from .cli_calls import fault
from .mutation import mutated
from .saved import SAVED, saved
from .structure import damaged
from .worker import Tally

_folder = tempfile.TemporaryDirectory(prefix="hostile-files-")
FOLDER = Path(_folder.name)
TRIAL = FOLDER / "a/b/trial"  # what goes up two folders stays in FOLDER, which is watched
CASES = (
    "name,case\na,avg2d:1x2x5x7:k2\nb,max2d_forward:1x2x5x7:k2:i64\nc,adaptive_max2d:1x2x5x7:o2x3:f16:seed3\n"
)
LINES = [
    {"name": "a", "case": "avg2d:1x2x5x7:k2", "seed": 7},
    {"operator": "max2d", "input": [1, 2, 5, 7], "kernel": [2, 3], "padding": 1, "ceil_mode": True, "index_dtype": "i64"},
]  # fmt: skip
_X = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1, 2, 5, 7], "Max": 1.0, "Min": -1.0}
_K = {"type": "int", "value": 2}
DUMP = {
    "task": "tensor", "level": "L1", "dump_data_dir": "x",
    "data": {
        "Functional.avg_pool2d.0.forward": {"input_args": [{**_X, "data_name": "x.npy"}, _K], "input_kwargs": {}, "output": []},
        "Functional.max_pool2d.0.forward": {"input_args": [_X], "input_kwargs": {"kernel_size": [_K, _K]}, "output": [_X]},
        "Functional.adaptive_avg_pool2d.0.forward": {"input_args": [_X, [_K, {"type": "int", "value": None}]], "output": []},
        "Functional.max_pool2d.0.backward": {"input": [{**_X, "shape": [1, 2, 2, 3]}], "output": [_X]},
    },
}  # fmt: skip
_DESC = {"name": "gradOutput", "type": ["float", "float16"], "format": "NCHW", "shape": [1, 2, 2, 3]}
MSOPST = [
    {"case_name": "first", "op": "AvgPool2dBackward", "attr": [{"name": "kernelSize", "type": "list_int", "value": [2, 2]}],
     "input_desc": [{**_DESC, "value_range": [[-1, 1]], "data_distribute": ["uniform"]}, {**_DESC, "name": "self", "shape": [1, 2, 5, 7]}]},
    {"case_name": "second", "op": "avg_pool2d", "attr": [{"name": "kernel_size", "value": 2}],
     "input_desc": [{"type": "float", "format": "ND", "shape": [1, 1, 2, 3], "value": [[[[1, 2.5, 3], [4, 5, 6]]]]}]},
    {"case_name": "fourth", "op": "AdaptiveMaxPool2dBackward", "attr": [], "input_desc": [
        {"name": "gradOutput", "type": "float", "format": "NCHW", "shape": [1, 1, 1, 2], "value": [1, 2]},
        {"name": "self", "type": "float", "format": "NCHW", "shape": [1, 1, 2, 2], "value": [1, 2, 3, 4]},
        {"name": "indices", "type": "int32", "format": "NCHW", "shape": [1, 1, 1, 2], "value": [0, 3]}]},
    {"case_name": "third", "op": "avg_pool2d", "attr": [{"name": "kernel_size", "value": 2}],
     "input_desc": [{"type": "float", "format": "ND", "shape": [1, 2, 5, 7], "value": "x.bin"}]},
]  # fmt: skip
ATK = {
    "cases": [
        {"id": 1, "name": "avg_pool2d", "inputs": [
            {"name": "input", "type": "tensor", "dtype": "fp32", "shape": [1, 2, 5, 7], "range_values": [-1, 1]},
            {"name": "kernel_size", "type": "attr", "range_values": [2, 2]}]},
        {"id": 2, "api": "aclnnAvgPool2dBackward", "inputs": [
            {"name": "gradOutput", "type": "tensor", "dtype": "bf16", "shape": [1, 2, 2, 3], "format": "NCHW"},
            {"name": "self", "type": "tensor", "dtype": "bf16", "shape": [1, 2, 5, 7]},
            {"name": "kernelSize", "type": "attr", "range_values": [2, 2]}]},
    ]
}  # fmt: skip
OUTPUTS = ("out", "r.html", "d.csv")


@dataclass
class FileCall:
    """A command line, the files that are written before it, and the paths that it may change."""

    arguments: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    output: str = "out"

    def __str__(self) -> str:
        made = {name: content[:3000] for name, content in self.files.items()}
        return f"pooltide {self.arguments!r} with files {made!r} and links {self.links!r}"

    def run(self, tally: Tally) -> None:
        _prepare(self)
        before = _watched(self.output)
        tally.add(calls=1)
        result = CliRunner().invoke(main, self.arguments)
        tally.add(results=int(result.exit_code == 0), refusals=int(result.exit_code != 0))
        if wrong := fault(result):
            tally.find("odd error", wrong, str(self))
        after = _watched(self.output)
        if changed := sorted(path for path in before | after if before.get(path) != after.get(path)):
            tally.add(outside=len(changed))
            tally.find("outside", f"changed {', '.join(changed)[:300]}", str(self))


@cache
def fixture() -> Path:
    """Golden data, results, summaries and files of other tools, all of them good."""
    good = FOLDER / "good"
    for name in ("precious", "dump_tensor_data"):
        (good / name).mkdir(parents=True)
    for name in ("grad_input.npy", "grad_output.bin", "claimed", "bashrc", "manifest.jsonl"):
        (good / "precious" / name).write_text("mine\n")
    (good / "cases").write_text(CASES)
    x = np.random.default_rng(5).standard_normal((1, 2, 5, 7)).astype(np.float32)
    np.save(good / "dump_tensor_data/x.npy", x)
    (good / "x.bin").write_bytes(x.tobytes())
    _must("golden", good / "cases", "-o", good / "golden", "--jobs=1", "--float64")
    shutil.copytree(good / "golden", good / "results", ignore=shutil.ignore_patterns("manifest.jsonl"))
    for part in ("1", "2"):
        _must("golden", good / "cases", "-o", good / f"shard{part}", "--jobs=1", f"--shard={part}/2")
        text = _must("compare", good / "results", good / "golden", "--json", f"--shard={part}/2")
        (good / f"summary{part}").write_text(text)
    return good


def _must(*arguments: object) -> str:
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def _prepare(call: FileCall) -> None:
    shutil.rmtree(FOLDER / "a", ignore_errors=True)
    shutil.copytree(fixture(), TRIAL)
    os.chdir(TRIAL)
    for name, content in call.files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)
    for name, target in call.links.items():
        place = Path(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.symlink_to(target)


def _watched(output: str) -> dict[str, str]:
    """What every path holds, but those of the outputs."""
    found = {}
    for folder, _, names in os.walk(FOLDER / "a"):
        inside = os.path.relpath(folder, TRIAL).split(os.sep)[0]
        if inside in (*OUTPUTS, output):
            continue
        found[folder] = "folder"
        for name in names:
            path = os.path.join(folder, name)
            if inside == "." and name in OUTPUTS:
                continue
            link = os.path.islink(path)
            found[path] = os.readlink(path) if link else hashlib.sha256(_bytes(path)).hexdigest()
    return found


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def draw(rng: Random) -> FileCall:
    return rng.choice(KINDS)(rng)


def _paths(rng: Random) -> list[str]:
    """Texts that lead out of a folder, or to what is precious."""
    up = "../" * rng.randint(1, 4)
    return [
        f"{up}precious",
        f"{up}precious/bashrc",
        f"{up}",
        str(TRIAL / "precious/bashrc"),
        "a",
        "b",
        "c",
        "grad_input",
    ]


def _manifest(rng: Random) -> FileCall:
    """A manifest with damaged lines and the right digest."""
    where = rng.choice(("golden", "golden", "shard1"))
    head, *lines = (fixture() / where / "manifest.jsonl").read_text().splitlines()
    which = rng.randrange(-1, len(lines))
    if which >= 0:
        lines[which] = _line_of(lines[which], rng)
    if rng.random() < 0.1:
        lines.append(rng.choice(lines))
    body = b"".join(line.encode() + b"\n" for line in lines)
    about = json.loads(head) | {"sha256": hashlib.sha256(body).hexdigest()}
    if rng.random() < 0.2:
        about["complete"] = False
    text = json.dumps(about) if which >= 0 else damaged(about, rng, _paths(rng))
    files = {f"{where}/manifest.jsonl": text.encode() + b"\n" + body}
    if where == "shard1":
        parts = ["shard1", "shard2"] if rng.random() < 0.7 else ["shard1"]
        return FileCall(["merge", *parts, "-o", "out"], files)
    return rng.choice(
        (
            FileCall(["compare", "results", "golden", *_reports(rng)], files),
            FileCall(["merge", "golden", "-o", "out"], files),
            FileCall(["golden", "cases", "-o", "golden", "--jobs=1", "--float64"], files, output="golden"),
        )
    )


def _line_of(line: str, rng: Random) -> str:
    """A damaged line of a manifest: also one that begins as a good line does."""
    text = damaged(json.loads(line), rng, _paths(rng)).replace("\n", " ")
    if rng.random() < 0.3:
        second = json.dumps({"name": rng.choice(_paths(rng))})[1:]
        text = line[:-1] + ", " + second
    return text


def _reports(rng: Random) -> list[str]:
    return rng.choice(([], [], ["--json"], ["--csv=d.csv"], ["--report=r.html"], ["-v", "--shard=1/2"]))


def _summary(rng: Random) -> FileCall:
    lines = (fixture() / "summary1").read_text().splitlines()
    which = rng.randrange(len(lines))
    lines[which] = damaged(json.loads(lines[which]), rng, _paths(rng)).replace("\n", " ")
    content = b"".join(line.encode() + b"\n" for line in lines)
    return FileCall(["merge", "summary1", "summary2", "-o", "out"], {"summary1": content})


def _cases(rng: Random) -> FileCall:
    lines = [damaged(line, rng, _paths(rng)) if rng.random() < 0.7 else json.dumps(line) for line in LINES]
    content = "\n".join(lines).encode()
    if rng.random() < 0.3:
        name = rng.choice([*_paths(rng), "\0", "x" * 300, "=1"]).encode()
        content = CASES.encode().replace(rng.choice((b"a,", b"name", b"avg2d")), name, 1)
    command = rng.choice(
        (["check", "given"], ["golden", "given", "-o", "out", "--jobs=1"], ["run", "given", "--save=out"])
    )
    return FileCall(command, {"given": content})


def _foreign(rng: Random) -> FileCall:
    document = rng.choice((DUMP, MSOPST, ATK))
    content = damaged(document, rng, _paths(rng)).encode()
    return FileCall(["golden", "--from", "given.json", "-o", "out", "--jobs=1"], {"given.json": content})


def _result(rng: Random) -> FileCall:
    """A result that is damaged, or a tensor of another kind."""
    kind = rng.choice(("npy", "npy", "bin", *(["pt"] * 4 if SAVED else []), "npz"))
    name = rng.choice(("a/grad_input", "b/output", "b/indices", "c/grad_input"))
    good = (fixture() / "results" / f"{name}.{'bin' if kind == 'bin' else 'npy'}").read_bytes()
    if kind == "pt":
        content = saved(rng)
    elif kind == "npy" and rng.random() < 0.7:
        content = _header(rng) + good[128:]
    else:
        content = mutated(good, rng, within=140)
    files = {f"results/{name}.{kind}": content}
    links = (
        {}
        if kind == "npy"
        else {f"results/{name}.{other}": "nowhere" for other in ("npy", "bin") if other != kind}
    )
    if rng.random() < 0.2:
        return FileCall(
            ["compare", f"results/{name}.{kind}", f"golden/{name}.npy", *_reports(rng)[:1]], files
        )
    return FileCall(["compare", "results", "golden", *_reports(rng)], files, links)


def _header(rng: Random) -> bytes:
    """The header of an .npy file with other values; its length is right."""
    fields = {"descr": "'<f4'", "fortran_order": "False", "shape": "(1, 2, 5, 7)"}
    odd = ["None", "-1", "'|O'", "'<f2'", "'V2'", "(70,)", "(2**62,)", f"({2**62}, 0)", "True", "9" * 5000, "(" * 500 + ")" * 500,
           "'<U9999999999'", "[('a', '<f4')]", "(1, 2, 5, 7.0)", "(-1, -2, 5, 7)", "()", "1e999", "'\\0'", "{}", "(1,) * 33"]  # fmt: skip
    fields[rng.choice(list(fields))] = rng.choice(odd)
    if rng.random() < 0.2:
        fields.pop(rng.choice(list(fields)))
    text = "{" + ", ".join(f"'{key}': {value}" for key, value in fields.items()) + ", }\n"
    if rng.random() < 0.1:
        text = text.replace("}", ", 'shape': (3,)}")
    return b"\x93NUMPY\x01\x00" + (len(text) & 0xFFFF).to_bytes(2, "little") + text.encode()


def _links(rng: Random) -> FileCall:
    """Links in a folder that is written to; what they lead to must stay as it is."""
    output = rng.choice(("golden", "out"))
    precious = rng.choice(
        (
            "../precious",
            "../../precious",
            "../precious/bashrc",
            "../../precious/bashrc",
            str(TRIAL / "precious"),
            "nowhere",
        )
    )
    place = rng.choice((".partial", ".partial/a.123", ".partial/b.7.old", ".partial/claimed", "a", "b", "manifest.jsonl", ".partial/x", "a/grad_input.npy", "a/output.bin"))  # fmt: skip
    files = {}
    if rng.random() < 0.5:
        files[f"{output}/.partial/claimed"] = rng.choice(
            (b"a\nb\nprecious\n", b"../precious\n", b"\xff\xfe", b"c\n" * 5)
        )
    if output == "out" and rng.random() < 0.7:
        files["out/manifest.jsonl"] = (fixture() / "golden/manifest.jsonl").read_bytes()
    elif rng.random() < 0.5:  # an unfinished set
        head, _, rest = (fixture() / "golden/manifest.jsonl").read_bytes().partition(b"\n")
        files[f"{output}/manifest.jsonl"] = (
            head.replace(b"true", b"false") + b"\n" + rest.partition(b"\n")[0] + b"\n"
        )
    command = rng.choice(
        (["golden", "cases", "-o", output, "--jobs=1"], ["merge", "shard1", "shard2", "-o", output])
    )
    links = {f"{output}/{place}": precious}
    if rng.random() < 0.3:
        links = {f"shard1/{rng.choice(('a', 'a/grad_input.npy', 'c'))}": precious, **links}
    return FileCall(command, files, links, output)


KINDS: list[Callable[[Random], FileCall]] = [
    _manifest,
    _manifest,
    _summary,
    _cases,
    _foreign,
    _foreign,
    _result,
    _links,
]
