"""Finds masks whose palettes disagree about what a color or an index means."""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple, Self


class Palette(NamedTuple):
    """The palette of a mask, or the joined palettes of several masks.

    Attributes:
        name: name of its image in messages.
        colors: 0xRRGGBB of each index.
        used: the indices that its pixels have, in order.
    """

    name: str
    colors: tuple[int, ...]
    used: tuple[int, ...]

    @classmethod
    def of_image(cls, image: Any) -> Self:
        """Returns the palette of an open `PIL.Image` of mode P, without a name."""
        samples = bytes(image.getpalette("RGB") or ())
        used = [index for index, count in enumerate(image.histogram()) if count]
        return cls("", _read_colors(samples), tuple(used))

    def join(self, other: "Palette") -> Self:
        """Returns this palette with the colors of another one that does not conflict with it."""
        if other.colors == self.colors and {*other.used} <= {*self.used}:
            return self
        colors = [*self.colors, *other.colors[len(self.colors) :]]
        for index in other.used:
            if index < len(other.colors):
                colors[index] = other.colors[index]
        used = sorted({*self.used, *other.used})
        return self._replace(colors=tuple(colors), used=tuple(used))

    def find_conflict(self, other: "Palette") -> str:
        """Returns how two masks use a color or index differently, or "" if they do not."""
        if other.colors == self.colors:
            return ""
        for index in sorted({*self.used} & {*other.used}):
            if self._color(index) != other._color(index):
                colors = f"{self._name_color(index)} and {other._name_color(index)}"
                return f"{index} is {colors}"
        places = {self._color(index): index for index in self.used}
        for index in other.used:
            color = other._color(index)
            place = places.get(color, index)
            if self._color(index) != color and other._color(place) != color:
                return f"{other._name_color(index)} is {place} and {index}"
        return ""

    def _color(self, index: int) -> int | None:
        return self.colors[index] if index < len(self.colors) else None

    def _name_color(self, index: int) -> str:
        color = self._color(index)
        if color is None:
            return "no color"
        return f"#{color:06x}"


@functools.lru_cache
def _read_colors(samples: bytes) -> tuple[int, ...]:
    """Returns the colors of a palette from its samples of red, green and blue."""
    starts = range(0, len(samples), 3)
    return tuple(int.from_bytes(samples[start : start + 3]) for start in starts)


def add_palette(kept: list[Palette], palette: Palette) -> None:
    """Adds a palette to the palettes kept for a set of masks.

    At most two are kept: one joined from all masks that agree, and the first one that conflicts
    with it.
    """
    if not kept:
        kept.append(palette)
    elif len(kept) > 1:
        return
    elif kept[0].find_conflict(palette):
        kept.append(palette)
    else:
        kept[0] = kept[0].join(palette)


def describe_palettes(palettes: Iterable[Palette]) -> str:
    """Returns a message about masks whose palettes conflict, or "" if there are none."""
    kept = list[Palette]()
    for palette in palettes:
        add_palette(kept, palette)
    if len(kept) < 2:
        return ""
    first, other = kept
    return (
        f"the masks of {first.name} and {other.name} have different palettes "
        f"({first.find_conflict(other)}), and indices are stored: if the colors matter, assign "
        "each a value in the brackets after the path or type, such as [#ff0000=1]"
    )
