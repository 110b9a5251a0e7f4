"""Reads the splits and classes of our exported tables from `export.json`.

Splits may have any names. Classes keep their ids, regardless of the order of their names.
"""

import contextlib
import re

from beam_tfr import storage
from beam_tfr.layouts.parsing import is_split_name
from beam_tfr.schema.dataset import EXPORT_FILE, is_class_name
from beam_tfr.schema.untrusted import parse_json

_DEPTH = 3  # levels from the tables' folder up to the export's: NAME/1.0.0
_MAX_MARK_BYTES = 32 << 20  # 32 MiB; a longer file was not written by an export
_NUMBER = "-[0-9]+-of-[0-9]+"
_MARK_FIELDS = {"complete", "dataset_digest", "format"}


def is_export_mark(path: str) -> bool:
    """Whether a file is the `export.json` that describes an export of ours."""
    folder, _, name = path.rpartition("/")
    if name != EXPORT_FILE:
        return False
    with contextlib.suppress(ValueError, TypeError):
        return {*parse_json(_read_mark(folder))} >= _MARK_FIELDS
    return False


def read_export_splits(folder: str) -> frozenset[str]:
    """Returns the splits of the export that contains a folder, or an empty set if no export does.

    Args:
        folder: the folder of tables, with a trailing slash.
    """
    return frozenset(filter(is_split_name, _read_texts(folder, "splits")))


def read_export_classes(folder: str) -> list[str]:
    """Returns the classes, by id, of the export that contains a folder, or an empty list.

    Args:
        folder: see `read_export_splits`.
    """
    names = _read_texts(folder, "classes")
    return names if all(map(is_class_name, names)) else []


def _read_texts(folder: str, field: str) -> list[str]:
    """Returns the strings in a field of `export.json`, or an empty list."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        texts = parse_json(_read_mark(folder))[field]
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return texts
    return []


def _read_mark(folder: str) -> bytes:
    """Returns the content of the `export.json` in or above a folder, or empty bytes."""
    folder = folder.rstrip("/")
    for _ in range(_DEPTH):
        if "/" not in folder.removeprefix(storage.GCS):
            break
        with contextlib.suppress(FileNotFoundError):
            path = storage.join(folder, EXPORT_FILE)
            return storage.read_bytes(path, max_bytes=_MAX_MARK_BYTES)
        folder = folder.rpartition("/")[0]
    return b""


def split_of_export(file: str, splits: frozenset[str]) -> str:
    """Returns the split at the end of the name of an exported table, or an empty string.

    Examples are `instances_fold_1.json` and `d-fold_1-00000-of-00002.tfrecord`.
    """
    names = sorted(splits, key=len, reverse=True)
    pattern = rf"(?:.*[-_])?({'|'.join(map(re.escape, names))})(?:{_NUMBER})?(?:\..*)?"
    match = re.fullmatch(pattern, file) if names else None
    return match[1] if match else ""
