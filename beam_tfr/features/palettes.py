"""Tells palettes apart in which the same color, or the same index, means different things."""

import io
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

_MOST_PIXELS = 1 << 26  # of a mask that is decoded

Color = tuple[int, ...]


class Palette(NamedTuple):
    """The palette of a mask.

    Attributes:
        name: what messages call its mask.
        colors: index -> RGB.
        used: the indices that its pixels have.
    """

    name: str
    colors: Mapping[int, Color]
    used: frozenset[int]

    @classmethod
    def read(cls, name: str, data: bytes) -> Self | None:
        """The palette of a PNG; None if it has none, or does not decode."""
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
                if image.mode != "P" or image.width * image.height > _MOST_PIXELS:
                    return None
                samples = image.getpalette("RGB") or []
                counts = image.histogram()
        except Exception:  # noqa: BLE001 - Pillow raises many
            return None
        colors = {index: tuple(samples[3 * index :][:3]) for index in range(len(samples) // 3)}
        used = frozenset(index for index, count in enumerate(counts) if count)
        return cls(name, colors, used)

    def find_conflict(self, other: "Palette") -> str:
        """What the pixels of two masks mean by different indices; empty if they agree."""
        for index in sorted(self.used & other.used):
            if self.colors.get(index) != other.colors.get(index):
                colors = f"{self._name_color(index)} and {other._name_color(index)}"
                return f"{index} is {colors}"
        places = {self.colors.get(index): index for index in sorted(self.used)}
        for index in sorted(other.used):
            color = other.colors.get(index)
            place = places.get(color, index)
            if self.colors.get(index) != color and other.colors.get(place) != color:
                return f"{other._name_color(index)} is {place} and {index}"
        return ""

    def _name_color(self, index: int) -> str:
        color = self.colors.get(index)
        if color is None:
            return "no color"
        return f"#{bytes(color).hex()}"


def describe_palettes(palettes: Iterable[Palette]) -> str:
    """Says so if the palettes of masks differ from the first; empty if none does."""
    first: Palette | None = None
    for palette in palettes:
        if first is None:
            first = palette
        conflict = first.find_conflict(palette)
        if conflict:
            return (
                f"the masks {first.name} and {palette.name} have different palettes ({conflict}), "
                "and indices are stored: give each color its value in the brackets behind their "
                "path or type, such as [#ff0000=1], if the colors are what is meant"
            )
    return ""
