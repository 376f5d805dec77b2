"""Builds the documentation site with MkDocs Material; a warning is an error.

    pip install 'mkdocs-material>=9.5'
    python tools/site.py [FOLDER]                    (build/site)

The site has the READMEs, docs/, CONTRIBUTING.md, CHANGELOG.md, SECURITY.md and the example programs. They are
copied to a folder of their own, because MkDocs takes pages from one folder and links must stay inside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "build" / "site-source"
HEADS = {"README.md": "index.md", "README.zh.md": "index.zh.md"}
OTHERS = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
# Code wraps at the edge of the screen, and tables are narrow, because telephones cut off what is wider.
STYLE = """\
.md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
.md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: 0.5em 0.6em; }
.md-typeset table:not([class]) td:first-child { min-width: 9em; }
"""
CONFIGURATION = """\
site_name: pooltide
docs_dir: {source}/pages
site_dir: {target}
theme:
  name: material
  font: false
  features: [navigation.sections, toc.integrate, content.code.copy]
markdown_extensions: [tables, toc, pymdownx.highlight, pymdownx.superfences]
plugins: [search]
extra_css: [wide.css]
validation: {{omitted_files: warn, absolute_links: warn, unrecognized_links: warn, anchors: warn}}
nav:
- Start: index.md
- 中文: index.zh.md
- Tutorials: [tutorial_pytorch.md, tutorial_ascend.md, tutorial_acceptance.md]
- Use it: [pytorch.md, numpy.md, cann.md, c.md, cli.md, acceptance.md, examples.md]
- Reference: [reference.md, operators.md, glossary.md]
- Behind it: [performance.md, kernels.md, architecture.md, CONTRIBUTING.md, SECURITY.md, CHANGELOG.md]
"""


def linked(text: str) -> str:
    """Returns a page with its links changed to the names that the pages have on the site."""
    text = re.sub(r"\]\((?:docs/|\.\./)", "](", text)
    text = re.sub(r"\]\(examples\)", "](examples.md)", text)
    return re.sub(r"\]\((README(?:\.zh)?\.md)", lambda found: f"]({HEADS[found[1]]}", text)


def examples() -> str:
    """Returns a page with the example programs."""
    parts = ["# Examples"]
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in (".py", ".c", ".cpp", ".h") and path.stem != "__init__":
            parts.append(f"## {path.name}\n\n```{path.suffix[1:]}\n{path.read_text('utf-8').strip()}\n```")
    return "\n\n".join(parts) + "\n"


def build(target: Path) -> None:
    """Builds the site in the folder `target`. Raises CalledProcessError if MkDocs warns."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    pages = SOURCE / "pages"
    shutil.copytree(ROOT / "docs", pages)
    for path in [*pages.glob("*.md"), *(ROOT / name for name in (*HEADS, *OTHERS))]:
        text = linked(path.read_text("utf-8"))
        (pages / HEADS.get(path.name, path.name)).write_text(text, encoding="utf-8")
    (pages / "examples.md").write_text(examples(), encoding="utf-8")
    (pages / "wide.css").write_text(STYLE, encoding="utf-8")
    configuration = SOURCE / "mkdocs.yml"
    configuration.write_text(CONFIGURATION.format(source=SOURCE, target=target), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(configuration)]
    subprocess.run(command, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve())
