"""Names of files that a layout reads in several ways."""

from collections.abc import Iterator

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.parsing import Layout


class Ambiguities:
    """Counts the keys that fit a layout in several ways."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._total, self._number, self._example = layout, 0, 0, ""

    def add(self, key: str) -> None:
        """Counts a key."""
        self._total += 1
        if self._layout.longer(key):
            self._number += 1
            self._example = min(self._example or key, key)

    def tell(self) -> Iterator[str]:
        """A message with their number and an example; empty without any."""
        if longer := self._layout.longer(self._example):
            name, taken, other = longer
            yield (
                f"{self._number:,} of {counted(self._total, 'file')} fit the layout in more than one way, such as "
                f"{self._example}: {{{name}}} takes {taken!r}, not {other!r}; if that is wrong, use {{number}} for "
                "digits, as in `layout='{label}_{number}.*'`, rename the files, or give their classes in a `table=`"
            )
