"""Paths: local ones and gs://bucket/name."""

from __future__ import annotations

import os

from beam_tfr.schema import WORK_FOLDER, UsageError

GCS = "gs://"


def is_gcs(path: str) -> bool:
    return path.startswith(GCS)


def split_gcs(path: str) -> tuple[str, str]:
    """(bucket, name) of an object."""
    bucket, _, name = path[len(GCS) :].partition("/")
    return bucket, name


def join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if is_gcs(folder) else os.path.join(folder, name)


def work_path(output: str, name: str) -> str:
    """A file in the work folder of an output; the folder itself for an empty name."""
    return join(join(output, WORK_FOLDER), name)


def check_path(path: str, *, option: str = "") -> str:
    """Checks the path that an option gives; returns it, absolute if local.

    Raises:
        UsageError: another scheme than gs://, no bucket, or a relative path while the current folder is gone.
    """
    if is_gcs(path):
        if split_gcs(path)[0]:
            return path
        message = "names no bucket; write gs://BUCKET/FOLDER"
    elif "://" in path:
        message = "only local paths and gs:// are supported"
    else:
        try:
            return os.path.abspath(path) if path else path
        except FileNotFoundError:
            message = "the current folder is gone; give a path that begins with /"
    raise UsageError(message if option else f"{path}: {message}", option=option, value=path)
