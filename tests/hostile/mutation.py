"""Files that were damaged at random."""

from __future__ import annotations

from random import Random


def mutated(content: bytes, rng: Random, within: int | None = None) -> bytes:
    """A few bytes changed, dropped, doubled or cut off; most of them in the first `within` bytes."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(len(data), within or len(data)) or 1)
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randint(1, 9)]
            case 2:
                data[at:at] = data[at : at + rng.randint(1, 20)]
            case 3:
                data = data[: rng.randrange(len(data) + 1)]
            case 4:
                data[at:at] = rng.choice(
                    [b"9" * 30, b"-", b"\0", b'"', b"[" * 5000, b"\xff\xfe", b"x0", b"\n{", b",,"]
                )
            case 5:
                data[at : at + 1] = rng.choice(b"0123456789:,x{}\n'\"").to_bytes()
    return bytes(data)
