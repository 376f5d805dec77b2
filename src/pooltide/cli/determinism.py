"""`pooltide determinism`: whether PyTorch's pools give the same bits every time, patched and not."""

from __future__ import annotations

import json
from importlib.util import find_spec

import click

from .output import NoAnswer, aligned, say


@click.command()
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Where it runs.  [default: cuda if there is a GPU]"
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")
def command(device: str | None, as_json: bool) -> None:
    """Run each of PyTorch's pools 20 times under deterministic algorithms, without patch() and with it.

    Gradients of pools, and max unpools, in float32; the results of the runs are compared bit for bit.
    Exit status 1: with patch(), one of them raises or differs between runs.
    """
    if find_spec("torch") is None:
        raise NoAnswer("determinism needs PyTorch, which is not installed: pip install torch")
    import torch

    from ..torch import patch
    from ..torch.determinism import RUNS, SAME, outcomes

    if device == "cuda" and not torch.cuda.is_available():
        raise NoAnswer("--device cuda needs an NVIDIA GPU that PyTorch sees, and there is none")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    plain = outcomes(device)
    with patch():
        patched = outcomes(device)
    machine = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    if as_json:
        facts = {"device": machine, "torch": str(torch.__version__), "runs": RUNS}
        say(json.dumps(facts | {"pytorch": plain, "patched": patched}))
    else:
        rows = [(name, plain[name], patched[name]) for name in plain]
        say(f"{machine}, PyTorch {torch.__version__}, float32, {RUNS} runs\n")
        say(aligned(("under deterministic algorithms", "PyTorch", "with patch()"), rows))
    raise SystemExit(any(outcome != SAME for outcome in patched.values()))
