"""Builds the site of the documentation: `python docs/make_site.py` writes build/site/index.html.

Its pages are those of the repository at their own places, so that links between them hold, and an
API reference from docstrings (docs/site). README.md is the first page, and its table of the
documentation is the navigation. A broken link or any other warning of Sphinx is an error. Needs
docs/requirements.txt.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
SOURCE = BUILD / "site-source"
SITE = BUILD / "site"
COPIED = (
    "*.md",
    "benchmarks/README.md",
    "beam_tfr/dataset/manifest.schema.json",
    "docs/**/*",
    "examples/*",
    "templates/README.md",
)
REFERENCE = tuple(
    f"docs/site/{name}.md" for name in ("functions", "results", "readers", "steps", "errors")
)
PROJECT = ("SECURITY.md", "CODE_OF_CONDUCT.md", "benchmarks/README.md")
TREE = """
```{{toctree}}
:caption: {caption}
:hidden:

{pages}
```
"""


def main() -> int:
    """Builds the site; returns the exit code."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for pattern in COPIED:
        for path in ROOT.glob(pattern):
            if path.is_file():
                _copy(path)
    readme = SOURCE / "README.md"
    (SOURCE / "index.md").write_text(make_index(readme.read_text("utf-8")), "utf-8")
    readme.unlink()
    config = SOURCE / "docs" / "site"
    return build_main(["-W", "--keep-going", "-q", "-c", str(config), str(SOURCE), str(SITE)])


def _copy(path: Path) -> None:
    target = SOURCE / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def make_index(readme: str) -> str:
    """README as the first page, with a section of the navigation for each row of its table."""
    sections = [*_rows(readme), ("API", REFERENCE), ("Project", PROJECT)]
    trees = [TREE.format(caption=name, pages="\n".join(pages)) for name, pages in sections]
    return readme + "".join(trees)


def _rows(readme: str) -> Iterator[tuple[str, list[str]]]:
    """The name of each row of the table of the documentation, and its pages, each once."""
    seen = set()
    _, _, table = readme.partition("\n## Documentation\n")
    for caption, cell in re.findall(r"^\| (\w[^|]*) \| (.*) \|$", table, re.MULTILINE):
        pages = []
        for page in re.findall(r"\]\(([^)#]+\.md)", cell):
            if page not in seen:
                seen.add(page)
                pages.append(page)
        yield caption, pages


if __name__ == "__main__":
    sys.exit(main())
