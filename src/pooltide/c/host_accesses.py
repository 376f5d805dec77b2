"""Takes an address that the host could not access, from the library's handler of SIGSEGV.

Prints what is there: device memory, a handle, the end of host memory, or host memory that a queued copy uses.
It must not end the program.
"""

from __future__ import annotations

import ctypes

from ..acl.call_sites import Site
from ..acl.findings import FINDINGS
from ..acl.host_pages import HOST_PAGES
from ..acl.memory_blocks import HOST_MEMORY, MEMORY, Block, Range
from ..acl.state import STATE
from .handle_table import TABLE


def report_host_access(address: int, writes: int, last_call: str, frames: int, count: int) -> int:
    """Report that the host accessed a guarded address. The library's SIGSEGV handler calls this.

    `writes` is 1 for a write, 0 for a read and -1 for an unknown access. `frames` is the address of `count`
    addresses: of the instruction, and those to which its function and its callers return. Returns 1 when
    the instruction can be run again.
    """
    places = list((ctypes.c_uint64 * count).from_address(frames))
    site = tuple(places[:1] and [places[0] + 1, *places[1:]])  # a site has the addresses behind the calls
    block = HOST_MEMORY.find(address)
    if block is not None and block.pages is not None:
        _report_early_access(address, block, writes, site)
        return 1
    if STATE.checks == "off":
        return 0
    did = {0: "read", 1: "wrote to"}.get(writes, "accessed")
    last = f"the last call of this thread was {last_call or 'none'}"
    text = f"the host {did} {_describe(address)} ({last})."
    FINDINGS.show(FINDINGS.record(text, certain=True, origins=MEMORY.origins(address), at=site))
    FINDINGS.write_report()  # the program may end now
    return 0


def _report_early_access(address: int, block: Block, writes: int, site: Site) -> None:
    """Report that the host used memory of a queued copy, and let the host use the block from now on."""
    assert block.pages is not None
    HOST_PAGES.unwatch(block.pages)
    cells = block.cells(address, 1)
    touched = Range("the memory", block, cells, writes=writes != 0)
    if (use := touched.race(None)) is None or STATE.checks == "off":
        return
    did = "wrote to" if writes > 0 or not use.writes else "read"
    text = (
        f"the host {did} {address:#x}, byte {address - block.address} of a block of {block.size} bytes of "
        f"aclrtMallocHost, which {use.describe()}, and the program has not waited for that; call "
        "aclrtSynchronizeStream first."
    )
    origins = (use.origin, *block.origins)
    FINDINGS.show(FINDINGS.record(text, certain=True, origins=origins, at=site))


def _describe(address: int) -> str:
    if TABLE.contains(address):
        return f"{address:#x}, a handle; handles are opaque and must only be passed to calls"
    must = "only aclrtMemcpy may cross to the host"
    if (text := HOST_PAGES.describe(address)) is not None:
        return text
    if (block := MEMORY.find(address)) is not None:
        at = address - block.address
        size = f"{block.size} bytes at {block.address:#x}"
        return f"device memory at {address:#x}, byte {at} of a block of {size}; {must}"
    return f"device memory at {address:#x}, in no block that is allocated; {must}"
