"""Writes records as files: images as they are stored, arrays as .npy, all other values as JSON."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_tfr import storage
from beam_tfr.inspection.pictures import picture, png
from beam_tfr.inspection.records import StoredRecord, text_of
from beam_tfr.inspection.values import image_format, pixels_of, tensor_of
from beam_tfr.schema import UsageError
from beam_tfr.schema.features import ARRAY_RAW, FILE_NAME, FILENAME, RAW, ROW_KEY

_EXTENSIONS = {"jpeg": "jpg", "jpeg2000": "jp2"}  # of other formats: their name
KEYS = (FILENAME, FILE_NAME, ROW_KEY)


def export(records: Sequence[StoredRecord], folder: str) -> None:
    """Writes files to a new folder, named by number and key: `000012-cat.json` and `000012-cat-image_encoded.jpg`.

    Raises:
        UsageError: the folder is there and not empty, or cannot be written.
    """
    if storage.is_gcs(folder):
        raise UsageError("must be a local folder", option="export", value=folder)
    try:
        os.makedirs(folder, exist_ok=True)
        if os.listdir(folder):
            raise UsageError("is not empty; give a new folder", option="export", value=folder)
        for record in records:
            for name, data in _files(record).items():
                with open(os.path.join(folder, name), "xb") as file:
                    file.write(data)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror or error}", option="export", value=folder) from error


def _files(record: StoredRecord) -> dict[str, bytes]:
    """Name -> content of each file of a record."""
    stem = "-".join([f"{record.number:06d}", *_name_of(record)])
    if not record.values:
        return {f"{stem}.bin": record.data}
    files: dict[str, bytes] = {}
    fields: dict[str, Any] = {}
    for feature, values in record.values.items():
        shown = []
        for number, value in enumerate(values):
            found = _file_of(feature, value) if isinstance(value, bytes) else None
            if found is None:
                shown.append(value.decode() if isinstance(value, bytes) else value)
                continue
            extension, content = found
            parts = [stem, re.sub("[^A-Za-z0-9]+", "_", feature)[:80], *([str(number)] if len(values) > 1 else [])]
            name = f"{'-'.join(parts)}.{extension}"
            while name in files:  # of a feature whose name differs in other characters only
                name = f"_{name}"
            files[name] = content
            shown.append(name)
        fields[feature] = shown[0] if len(shown) == 1 else shown
    text = json.dumps(fields, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return files | {f"{stem}.json": text.encode()}


def _name_of(record: StoredRecord) -> list[str]:
    """The file name in the key of a record, without its extension and in letters that any disk takes."""
    keys = (text_of(value) for name in KEYS for value in record.values.get(name, [])[:1])
    return [re.sub(r"[^\w-]+", "_", os.path.splitext(os.path.basename(key))[0])[:40] for key in keys][:1]


def _file_of(feature: str, value: bytes) -> tuple[str, bytes] | None:
    """Extension and content of the file for some bytes; None for a text."""
    pixels = pixels_of(feature, value)
    if pixels is not None:
        return "png", png(picture(pixels))
    array = tensor_of(value) if feature in (RAW, ARRAY_RAW) else None
    if array is not None:
        file = io.BytesIO()
        np.save(file, array)
        return "npy", file.getvalue()
    if image := image_format(value):
        return _EXTENSIONS.get(image[0], image[0]), value
    try:
        value.decode()
    except UnicodeDecodeError:
        return "bin", value
    return None
