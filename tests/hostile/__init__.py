"""A hostile caller: generated good and bad arguments for every entrance of pooltide.

    python -m tests.hostile --calls 100000 --seed 1

An entrance is a module with `draw(rng)`, which returns a `worker.Trial`. The parent process
(`supervise`) starts worker processes and survives their crashes and hangs. Arrays lie in guarded
memory (`memory`), so that a write or a read outside them is seen.
"""
