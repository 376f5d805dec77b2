"""`pooltide bench`: times pools and their gradients, ours and PyTorch's, against a copy of memory.

In come problems in the notation, named shapes, or the seed of drawn problems.
Out go tables or JSON, and an exit status; a result is checked before it is timed, and has no time if wrong.
Only public functions are timed, and nothing here chooses a kernel or changes what a kernel computes.

    options.py                 the command: its options, and which of the next four modules it runs
    named_shapes.py            a PROBLEM, or shapes of real models
    drawn_problems.py          problems that sampling.py draws; precompile.py compiles their GPU kernels first
    model_training.py          training steps of networks.py
    instruction_counts.py      instructions in place of times: valgrind runs callgrind_program.py
    cpu_gradients.py, cuda_gradients.py, forward_pools.py, pytorch_gradients.py   what is timed
    cpu_timing.py, cuda_timing.py   how; roofline.py has the least time, measurement.py the times
    printing.py                the results as text and JSON
    overhead.py, pool_overhead.py   a program of its own: what a call costs on tiny tensors
"""

from .options import command as command
