"""`pooltide bench`: times pools and their gradients, ours and PyTorch's, against a copy of memory.

In come problems in the notation, named shapes, or the seed of drawn problems; out go tables, JSON, an exit
status.
A result is compared with the reference before it is timed, and a wrong one has no time.
Modules of this package call kernels through the public functions alone, and change no setting but the number
of threads and POOLTIDE_COMPILE.

    options.py                 the command: its options, and which of the next four modules runs
    named_shapes.py            a PROBLEM, or shapes of real models
    drawn_problems.py          problems that sampling.py draws; precompile.py compiles their GPU kernels first
    model_training.py          training steps of models.py
    instruction_counts.py      instructions in place of times: valgrind runs callgrind_program.py
    cpu_gradients.py, cuda_gradients.py, forward_pools.py, pytorch_gradients.py   what is timed
    cpu_timing.py, cuda_timing.py   how; roofline.py has the least time, measurement.py the times
    tables.py                  the results as text and JSON
    overhead.py                a program of its own: what a call costs on tiny tensors
"""

from .options import command as command
