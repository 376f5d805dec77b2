"""The package with compiled code that AddressSanitizer and UBSan watch."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pooltide
from native_build import KERNELS, SETS, compile_objects
from paths import NATIVE

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MODULE = (
    "unpool",
    "regions/regions",
    *(f"python/{path.stem}" for path in sorted((NATIVE / "python").glob("*.cpp"))),
)
FLAGS = ("-Og", "-fPIC", "-fvisibility=hidden", *SANITIZERS)


def kernels(where: Path) -> list[str]:
    """Compiles the kernels for every instruction set; returns the objects."""
    return compile_objects(where, "g++", FLAGS, KERNELS, tuple(SETS))


def environment_with(root: Path, objects: list[str]) -> Path:
    """Makes a virtual environment with the package and the kernels of `objects`; returns its interpreter."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = root / "lib" / version / "site-packages"
    shutil.copytree(
        Path(pooltide.__file__).parent, packages / "pooltide", ignore=shutil.ignore_patterns("*.so")
    )
    home = Path(sys.base_prefix) / "bin"
    (root / "pyvenv.cfg").write_text(f"home = {home}\n")
    (root / "bin").mkdir()
    python = root / "bin" / "python"
    python.symlink_to(sys.executable)
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    include = f"-I{sysconfig.get_path('include')}"
    module = compile_objects(root, "g++", (*FLAGS, include), MODULE)
    library = packages / "pooltide" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    command = ["g++", "-shared", *SANITIZERS, *module, *objects, "-o", str(library), "-lpthread"]
    subprocess.run(command, check=True, timeout=900)
    return python
