"""Draws samples of files for measurements."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections.abc import Sequence

from beam_tfr import storage
from beam_tfr.inputs.listing import list_all
from beam_tfr.inputs.patterns import name_folders, order_patterns

MAX_LISTED = 10_000  # files from which a sample is drawn
MAX_SAMPLE_BYTES = 256 << 20  # 256 MiB


def sample_files(patterns: Sequence[str], most: int) -> tuple[list[str], int]:
    """Draws files at random, the same in every call; returns them, and how many files there are, up to `MAX_LISTED`.

    Args:
        patterns: local or gs://.
        most: files to draw.

    Raises:
        UsageError: a pattern is wrong, or matches nothing.
    """
    checked = [storage.check_path(pattern, option="input") for pattern in patterns]
    listed = sorted(itertools.islice(list_all(order_patterns(name_folders(checked))), MAX_LISTED))
    drawn = random.Random(0).sample(listed, min(most, len(listed)))  # noqa: S311  # nosec B311  # no secret
    sizes = itertools.accumulate(entry.size_bytes for entry in drawn)
    within = [entry.path for entry, size in zip(drawn, sizes, strict=True) if size <= MAX_SAMPLE_BYTES]
    return within or [drawn[0].path], len(listed)


def forget(path: str) -> None:
    """Asks the system to drop a local file from memory, so that the next read comes from the disk."""
    if not storage.is_gcs(path) and hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError), open(path, "rb", opener=_without_waiting) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for whoever writes into it
