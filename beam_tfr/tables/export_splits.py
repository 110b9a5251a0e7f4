"""Splits of tables that are an export of ours: any names, which `export.json` says."""

import contextlib
import re

from beam_tfr import storage
from beam_tfr.layouts.parsing import is_split_name
from beam_tfr.schema.dataset import EXPORT_FILE
from beam_tfr.schema.untrusted import parse_json

_DEPTH = 3  # folders from that of the tables up to that of the export: NAME/1.0.0
_MAX_MARK_BYTES = 1 << 20  # 1 MiB; a longer file was not written by an export
_NUMBER = "-[0-9]+-of-[0-9]+"


def read_export_splits(folder: str) -> frozenset[str]:
    """The splits of the export that a folder is in; none if it is in no export.

    Args:
        folder: the folder of tables, with a trailing slash.
    """
    folder = folder.rstrip("/")
    for _ in range(_DEPTH):
        if "/" not in folder.removeprefix(storage.GCS):
            break
        with contextlib.suppress(FileNotFoundError):
            path = storage.join(folder, EXPORT_FILE)
            return _parse_splits(storage.read_bytes(path, max_bytes=_MAX_MARK_BYTES))
        folder = folder.rpartition("/")[0]
    return frozenset()


def _parse_splits(data: bytes) -> frozenset[str]:
    # It may be somebody else's.
    with contextlib.suppress(ValueError, LookupError, TypeError):
        splits = parse_json(data)["splits"]
        return frozenset(filter(is_split_name, splits))
    return frozenset()


def split_of_export(file: str, splits: frozenset[str]) -> str:
    """The split that the name of a table of an export ends in; empty if there is none.

    For example `instances_fold_1.json`, `d-fold_1-00000-of-00002.tfrecord`.
    """
    names = sorted(splits, key=len, reverse=True)
    pattern = rf"(?:.*[-_])?({'|'.join(map(re.escape, names))})(?:{_NUMBER})?(?:\..*)?"
    match = re.fullmatch(pattern, file) if names else None
    return match[1] if match else ""
