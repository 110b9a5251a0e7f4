"""Tables that name images, these images, and the tables as a conversion opens them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import PIL.Image

from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.schema.items import ImageRef
from beam_tfr.sources import open_source
from beam_tfr.tables.rows import Tables

OPTIONS = {"uri_column": "image", "label_column": "label"}  # of tables of `write_csv`


def write_images(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("RGB", (4, 4)).save(root / name)


def write_csv(path: Path, *images: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(["image,label\n", *(f"{image},a\n" for image in images)]))


def open_input(**options: Any) -> Tables:
    """The opened tables of a conversion."""
    given = from_values({"output": "/nowhere/out", **options}, ConvertOptions)
    tables = open_source(given).origin
    assert isinstance(tables, Tables)
    return tables


def references(tables: Tables) -> list[ImageRef]:
    return [ref for file in tables.files for ref in tables.read(file)]


def keys_of(tables: Tables) -> list[str]:
    return [ref.key for ref in references(tables)]
