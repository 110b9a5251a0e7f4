"""Looks for security advisories about the packages that setup.py names.

The versions are those of requirements.txt.

    python -m tests.advisories

PyPI tells them of each release. A mirror may tell them of the newest release alone; pins that are
older are then named as unanswered, and `uvx pip-audit -r requirements.txt --no-deps --disable-pip`
asks PyPI itself, also about what these packages require.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
EXCEPTIONS: dict[str, str] = {}  # id of an advisory -> why it does not concern us


def pins() -> dict[str, str]:
    """Name -> version, of what is named in setup.py and pinned for this Python."""
    named = {
        canonicalize_name(Requirement(line).name)
        for line in importlib.metadata.requires("beam_tfr") or ()
    }
    pinned = {}
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) in named and (
            not requirement.marker or requirement.marker.evaluate()
        ):
            pinned[requirement.name] = next(iter(requirement.specifier)).version
    return pinned


def advisories(name: str, version: str) -> list[dict[str, Any]] | None:
    """Those about a release that were not withdrawn; None if the index does not tell."""
    for path in (f"{name}/{version}", name):
        try:
            with urllib.request.urlopen(f"https://pypi.org/pypi/{path}/json", timeout=60) as answer:
                told = json.load(answer)
        except urllib.error.URLError:
            continue
        if told["info"]["version"] == version:
            return [one for one in told["vulnerabilities"] if not one.get("withdrawn")]
    return None


def main() -> int:
    pinned = pins()
    found = {name: advisories(name, version) for name, version in pinned.items()}
    for name, told in found.items():
        for one in told or ():
            excepted = EXCEPTIONS.get(one["id"])
            print(
                f"{name} {pinned[name]}: {one['id']}: "
                f"{excepted or one.get('summary') or one.get('details')}"
            )
    unanswered = [f"{name} {pinned[name]}" for name, told in found.items() if told is None]
    print(
        f"advisories: asked about {len(found)} packages; unanswered: "
        f"{', '.join(unanswered) or 'none'}"
    )
    return int(any(one["id"] not in EXCEPTIONS for told in found.values() for one in told or ()))


if __name__ == "__main__":
    sys.exit(main())
