"""What `patch` and compilers must know of each other.

Code that torch.compile makes while a patch is active calls `torch.ops.pooltide`. PyTorch keeps such code on
disk, for other processes, under a key that it computes from the model before autograd. `tag_caches` makes
that key another one while a patch is active. `between_compilations` keeps a patch from coming or going
between the key and the code. `compiled_code` says whether a model was compiled before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from zlib import crc32

from torch.compiler import config  # PyTorch 2.6 does not import it with torch

from ... import __version__
from ..dispatch.custom_operators import FUNCTIONS, schema

# With the schemas: cached code that calls our operators with the arguments of another schema would fail.
CACHE_TAG = f"pooltide.patch {__version__} {crc32(''.join(map(schema, FUNCTIONS)).encode()):x};"


def tag_caches(is_patched: Callable[[], bool]) -> None:
    """Adds CACHE_TAG to `torch.compiler.config.cache_key_tag` while `is_patched()`, in every thread.

    What a program assigns to a config counts in its own thread only; a property counts in all of them, and
    what a program assigns stays as it is.
    """
    if not hasattr(config, "cache_key_tag"):
        return

    def tag(module: Any) -> Any:
        own = module.__getattr__("cache_key_tag")
        if isinstance(own, str):  # an environment variable can make it True
            own = own.replace(CACHE_TAG, "")  # from a program that reads, extends and assigns the tag
        return f"{own}{CACHE_TAG}" if is_patched() else own

    type(config).cache_key_tag = property(tag)


def between_compilations() -> AbstractContextManager[Any]:
    """Returns the lock that torch.compile holds while it compiles, if the program has imported it."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return getattr(frames, "compile_lock", nullcontext())


def compiled_code() -> bool:
    """Whether there is code that torch.compile made, since the last torch.compiler.reset()."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    codes = getattr(frames, "output_codes", None)
    return bool(getattr(codes, "seen_ids", ()))
