"""The package with compiled code that AddressSanitizer and UBSan watch."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pooltide
from paths import NATIVE

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_SOURCES = ("kernels", "prepared", "unpool", "threads/thread_pool", "python/module", "python/shortcuts")
_FLAGS = ("-std=c++17", "-g1", "-O1", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi")


def environment_with(root: Path, compiler: str = "g++") -> Path:
    """Makes a virtual environment with the package, for one instruction set; returns its interpreter."""
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
    sources = [str(NATIVE / f"{name}.cpp") for name in _SOURCES]
    include = (f"-I{NATIVE}", f"-I{sysconfig.get_path('include')}")
    defines = ("-DPOOLTIDE_ISA=baseline", "-DPOOLTIDE_ONLY_BASELINE", "-fvisibility=hidden", "-shared")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    output = ("-o", str(packages / "pooltide" / f"_native{suffix}"), "-lpthread")
    command = [compiler, *_FLAGS, *SANITIZERS, *include, *defines, *sources, *output]
    subprocess.run(command, check=True, timeout=900)
    return python
