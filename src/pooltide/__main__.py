"""`python -m pooltide`: the command line."""

from .cli import main

main(prog_name="pooltide")
