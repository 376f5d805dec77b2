"""`python -m pooltide.torch.overhead`: runs cli/bench/overhead.py, which measures what a call costs."""

from runpy import run_module

if __name__ == "__main__":
    run_module("pooltide.cli.bench.overhead", run_name="__main__")
