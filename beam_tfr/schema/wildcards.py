"""Spells paths within patterns, for options and messages."""

import re

WILDCARD = re.compile(r"[*?\[{]")


def escape_pattern(path: str) -> str:
    """Returns the pattern that matches only this path."""
    return WILDCARD.sub(lambda char: f"[{char[0]}]", path)


def pattern_below(path: str, rest: str, start: str = "") -> str:
    """Returns the pattern of files below a path: `a [[]1]/*` for `a [1]`.

    Args:
        path: the path of a folder, or its name.
        rest: the rest of the pattern, such as `/*`.
        start: the beginning of the pattern, such as `**/`.
    """
    return f"{start}{escape_pattern(path)}{rest}"
