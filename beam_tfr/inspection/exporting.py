"""Writes records as files: images as they are stored, arrays as .npy, all other values as JSON."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from beam_tfr.inspection.pictures import png
from beam_tfr.inspection.records import Record
from beam_tfr.inspection.values import image_format, tensor_of
from beam_tfr.schema import UsageError
from beam_tfr.schema.features import ARRAY_RAW, RAW

_EXTENSIONS = {"jpeg": "jpg", "jpeg2000": "jp2"}  # of other formats: their name
_LONG = 1000  # bytes of a text that goes into a file of its own


def export(records: Sequence[Record], folder: str) -> None:
    """Writes files named by the number of the record, `000012.json` and `000012-image_encoded.jpg`, to a new folder.

    Raises:
        UsageError: the folder is there and not empty, or cannot be written.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        if os.listdir(folder):
            raise UsageError("is not empty; give a new folder", option="export", value=folder)
        for record in records:
            for name, data in _files(record):
                with open(os.path.join(folder, name), "xb") as file:
                    file.write(data)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror or error}", option="export", value=folder) from error


def _files(record: Record) -> Iterator[tuple[str, bytes]]:
    """Yields name and content of each file of a record."""
    stem = f"{record.number:06d}"
    if not record.values:
        yield f"{stem}.bin", record.data
        return
    fields: dict[str, Any] = {}
    names = {stem}
    for feature, values in record.values.items():
        shown = []
        for place, value in enumerate(values):
            found = _file_of(feature, value) if isinstance(value, bytes) else None
            if found is None:
                shown.append(value.decode() if isinstance(value, bytes) else value)
                continue
            base = f"{stem}-{re.sub('[^A-Za-z0-9]+', '_', feature)[:80]}{f'-{place}' if len(values) > 1 else ''}"
            while base in names:  # features whose names differ in other characters only
                base += "_"
            names.add(base)
            yield f"{base}.{found[0]}", found[1]
            shown.append(f"{base}.{found[0]}")
        fields[feature] = shown[0] if len(shown) == 1 else shown
    yield f"{stem}.json", (json.dumps(fields, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _file_of(feature: str, value: bytes) -> tuple[str, bytes] | None:
    """Extension and content of the file for some bytes; None for a short text."""
    array = tensor_of(value) if feature in (RAW, ARRAY_RAW) else None
    if array is not None:
        if feature == RAW and array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3):
            return "png", png(PillowImage.fromarray(array if array.shape[2] == 3 else array[:, :, 0]))
        file = io.BytesIO()
        np.save(file, array)
        return "npy", file.getvalue()
    if image := image_format(value):
        return _EXTENSIONS.get(image[0], image[0]), value
    try:
        value.decode()
    except UnicodeDecodeError:
        return "bin", value
    return ("txt", value) if len(value) > _LONG else None
