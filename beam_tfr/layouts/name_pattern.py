"""Matches folder names in bounded time."""

import re

MOST_CHARACTERS = 255  # in a name on disk; archives may have longer names


class NamePattern:
    """A pattern for whole folder names; names that are too long for disks do not match.

    A pattern such as `.+(?:mask|class[a-z]*)` takes time quadratic in the length of the name.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def fullmatch(self, name: str) -> re.Match[str] | None:
        """Returns the match of a whole name; None if it does not match or is too long."""
        if len(name) > MOST_CHARACTERS:
            return None
        return self._pattern.fullmatch(name)


# Names of image folders.
IMAGES = NamePattern(
    r"(?i)(?:.*[-_ ])?(?:(?:images?|imgs?|photos?|pictures?|(?:jpe?g|png)images|rgb|leftimg8bit"
    r"|stillsraw(?:_full)?)(?:[-_ ]?(?:[0-9]+|png|jpe?g|left|right|dir))?"
    r"|(?:part|batch|chunk)[-_ ]?[0-9]+)"
)
