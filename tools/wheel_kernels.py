"""Puts compiled general GPU kernels into a wheel.

    python -m pooltide.kernels.cuda.runtime.shipped FILE
    python tools/wheel_kernels.py WHEEL FILE

The package finds them beside its module `kernels/cuda/runtime/shipped.py`.
"""

from __future__ import annotations

import hashlib
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

PLACE = "pooltide/kernels/cuda/runtime/general.zip"


def main(wheel: Path, kernels: Path) -> None:
    data = kernels.read_bytes()
    digest = urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    new = wheel.with_suffix(".new")
    with ZipFile(wheel) as old, ZipFile(new, "w", ZIP_DEFLATED) as archive:
        if PLACE in old.namelist():
            sys.exit(f"wheel_kernels: {wheel} has {PLACE}; it must be a wheel without it.")
        for item in old.infolist():
            content = old.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                content += f"{PLACE},sha256={digest},{len(data)}\n".encode()
            archive.writestr(item, content)
        archive.writestr(PLACE, data)
    new.replace(wheel)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
