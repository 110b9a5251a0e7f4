"""XML files of Pascal VOC, and pictures that they describe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

WIDTH = 40
HEIGHT = 30


def write_picture(path: Path, number: int = 0) -> None:
    """Writes a picture; each number has another color."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (WIDTH, HEIGHT), (20 * number, 90, 200)).save(path)


def bndbox(box: Sequence[object]) -> str:
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    return f"<bndbox>{''.join(f'<{side}>{value}</{side}>' for side, value in sides)}</bndbox>"


def voc(name: str | None, *boxes: Sequence[object], label: str = "cat", more: str = "") -> str:
    """The XML of an image with boxes left, top, right, bottom; one if none is given.

    Args:
        name: the content of `filename`; None for no such element.
        boxes: of its objects.
        label: their class.
        more: elements of each object.
    """
    inside = [bndbox(box) for box in boxes or [(6, 7, 25, 21)]]
    objects = "".join(f"<object><name>{label}</name>{box}{more}</object>" for box in inside)
    return f"<annotation>{named(name)}{objects}</annotation>"


SIZE = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"


def named(name: str | None) -> str:
    return "" if name is None else f"<filename>{name}</filename>"
