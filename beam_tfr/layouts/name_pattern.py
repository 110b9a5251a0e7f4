"""Patterns of the names of folders, whose time is bounded."""

import re

MOST_CHARACTERS = 255  # of a name on disks; archives may have longer ones


class NamePattern:
    """A pattern of whole names of folders, which names longer than those of disks do not match.

    The time of a pattern such as `.+(?:mask|class[a-z]*)` grows with the square of the name.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def fullmatch(self, name: str) -> re.Match[str] | None:
        """The match of a whole name; None without, and for names that are too long."""
        if len(name) > MOST_CHARACTERS:
            return None
        return self._pattern.fullmatch(name)
