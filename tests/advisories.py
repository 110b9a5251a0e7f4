"""Looks for security advisories about the packages that setup.py names, and those of the site.

The versions are those of requirements.txt and docs/requirements.txt.

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
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
EXCEPTIONS: dict[str, str] = {}  # id of an advisory -> why it does not concern us


class Pin(NamedTuple):
    """A package, and the version of it that is installed."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def read_pins(file: Path) -> list[Pin]:
    """The pins of a file for this Python."""
    pinned = []
    for line in file.read_text().splitlines():
        requirement = Requirement(line)
        if not requirement.marker or requirement.marker.evaluate():
            version = next(iter(requirement.specifier)).version
            pinned.append(Pin(canonicalize_name(requirement.name), version))
    return pinned


def all_pins() -> set[Pin]:
    """What setup.py names, and all that the site is made with."""
    required = importlib.metadata.requires("beam_tfr") or ()
    named = {canonicalize_name(Requirement(line).name) for line in required}
    of_package = [pin for pin in read_pins(ROOT / "requirements.txt") if pin.name in named]
    of_site = read_pins(ROOT / "docs" / "requirements.txt")
    return {*of_package, *of_site}


def find_advisories(pin: Pin) -> list[dict[str, Any]] | None:
    """Those about a release that were not withdrawn; None if the index does not tell."""
    for path in (f"{pin.name}/{pin.version}", pin.name):
        try:
            with urllib.request.urlopen(f"https://pypi.org/pypi/{path}/json", timeout=60) as answer:
                release = json.load(answer)
        except urllib.error.URLError:
            continue
        if release["info"]["version"] == pin.version:
            return [entry for entry in release["vulnerabilities"] if not entry.get("withdrawn")]
    return None


def main() -> int:
    """Prints the advisories; returns whether one of them is no exception."""
    has_failed = False
    unanswered = []
    pins = sorted(all_pins())
    for pin in pins:
        entries = find_advisories(pin)
        if entries is None:
            unanswered.append(str(pin))
            continue
        for entry in entries:
            reason = EXCEPTIONS.get(entry["id"])
            print(f"{pin}: {entry['id']}: {reason or entry.get('summary') or entry.get('details')}")
            has_failed |= reason is None
    named = ", ".join(unanswered) or "none"
    print(f"advisories: asked about {len(pins)} packages; unanswered: {named}")
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
