"""Tables that hold images: TFRecords and Parquet files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet as arrow

import beam_tfr as package
from beam_tfr.records import examples
from tests.conftest import Run
from tests.converted import SAMPLE

CLASSES = ("dress", "hat")
JPEG = (SAMPLE / "train/dress").iterdir().__next__().read_bytes()
Convert = Callable[..., Run]


def photos() -> list[tuple[str, str, bytes]]:
    """Name, class and bytes of photos."""
    paths = [path for name in CLASSES for path in sorted((SAMPLE / "train" / name).iterdir())[:5]]
    return [(path.stem, path.parent.name, path.read_bytes()) for path in paths]


def example(name: str, label: str, data: bytes) -> bytes:
    texts = {"image/encoded": data, "image/class/text": label.encode(), "photo/id": name.encode()}
    values = {of: ("bytes", [text]) for of, text in texts.items()}
    return examples.serialize(values | {"image/class/label": ("int64", [CLASSES.index(label) + 1])})


def images_of(folder: Path) -> list[tuple[str, bytes]]:
    """Class and bytes of each record, sorted."""
    names = package.contents(folder, "train").to_table(columns=["class"])["class"].to_pylist()
    records = package.Records(folder, split="train", output="encoded")
    return sorted(
        (name.removeprefix("a "), image) for name, (image, _) in zip(names, records, strict=True)
    )


NAMES = ["hat", "unused", "dress"]  # not in order, as in Fashion-MNIST
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FLAGS = ("--uri_column", "image", "--label_column", "label")


def write(
    path: Path,
    images: Sequence[Any],
    labels: Sequence[Any],
    *,
    kind: pa.DataType = STRUCT,
    names: Any = NAMES,
    **options: Any,
) -> Path:
    """Writes a table with the columns image, label and number."""
    if pa.types.is_struct(kind):
        images = [
            {"bytes": image, "path": "1.jpg"} if isinstance(image, bytes) else image
            for image in images
        ]
    fields = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": fields}})} if names else None
    columns = {
        "image": pa.array(images, kind),
        "label": pa.array(labels),
        "number": pa.array(range(len(images))),
    }
    arrow.write_table(pa.table(columns).replace_schema_metadata(metadata), path, **options)
    return path
