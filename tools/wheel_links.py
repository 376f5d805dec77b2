"""Gives a wheel links that work outside the repository.

    python tools/wheel_links.py WHEEL [URL]

The long description of the wheel is the README, whose links lead to files of the repository. With the URL of
the repository they become links to its files, and the wheel gets the URL; without it they become plain text.
Needs the package `wheel`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def absolute(text: str, url: str) -> str:
    """Returns the text with links to the files of the repository, or with their names if `url` is empty."""

    def link(found: re.Match[str]) -> str:
        image, label, path = found.groups()
        if not url:
            return label if label == path else f"{label} ({path})"
        return f"{image}[{label}]({url.rstrip('/')}/{'raw' if image else 'blob'}/HEAD/{path})"

    return LINK.sub(link, text)


def with_links(metadata: str, url: str) -> str:
    """Returns the metadata of a wheel, a header and the long description, with absolute links."""
    header, _, description = metadata.partition("\n\n")
    if url:
        pages = {"Repository": "", "Documentation": "/tree/HEAD/docs", "Changelog": "/blob/HEAD/CHANGELOG.md"}
        header += "".join(f"\nProject-URL: {name}, {url.rstrip('/')}{path}" for name, path in pages.items())
    return f"{header}\n\n{absolute(description, url)}"


def main(wheel: Path, url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tool = [sys.executable, "-m", "wheel"]
        subprocess.run([*tool, "unpack", "--dest", folder, wheel], check=True)
        (unpacked,) = Path(folder).iterdir()
        (metadata,) = unpacked.glob("*.dist-info/METADATA")
        metadata.write_text(with_links(metadata.read_text("utf-8"), url), "utf-8")
        subprocess.run([*tool, "pack", "--dest-dir", wheel.parent, unpacked], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
