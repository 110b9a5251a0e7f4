"""Counts attempts that crash, so that guarded processes can decode the images at fault.

After two such attempts at a shard, a guarded process decodes each image of the shard.

`OUT/.beam_tfr/SHARD.attempts` holds a byte for each attempt at a shard that started and has not
ended, either because it is in progress or because its process was killed, perhaps by an image.
`sample.attempts` counts the attempts at the sample for the plan.
"""

import contextlib
from collections.abc import Iterator

from beam_tfr import storage
from beam_tfr.storage import work_path

CRASHES = 2  # on one shard; a single crash may have any cause
SUFFIX = ".attempts"
SAMPLE_MARK = f"sample{SUFFIX}"


@contextlib.contextmanager
def mark_attempt(path: str) -> Iterator[bool]:
    """Marks an attempt while the block runs; yields True if two earlier attempts crashed.

    Args:
        path: path of the mark; an empty string to make no mark.
    """
    if not path:
        yield False
        return
    others = _change_mark(path, 1)
    try:
        yield others >= CRASHES
    finally:
        # Marks finished shards too: a run that crashed twice stays guarded.
        _change_mark(path, -1)


def _change_mark(path: str, change: int) -> int:
    """Changes the number of attempts in a mark; returns the previous number.

    The mark is read each time, because other attempts may begin or end in the meantime. Errors are
    ignored, because the attempt itself may still succeed.
    """
    count = 0
    with contextlib.suppress(OSError, storage.AlreadyExistsError):
        mark = storage.find(path)
        count = mark.size_bytes if mark else 0
        _write_mark(path, b"." * (count + change), replace=mark is not None)
    return count


def _write_mark(path: str, mark: bytes, *, replace: bool) -> None:
    if not mark:
        storage.delete(path)
    elif storage.is_gcs(path):
        storage.write_bytes(path, mark, scratch="", replace=replace)
    else:
        # Not synced to the disk, which would take longer than everything else.
        with open(path, "wb") as file:
            file.write(mark)


def has_crashed(output: str) -> bool:
    """Whether earlier runs into the folder crashed at least twice on a shard or on the sample."""
    entries = storage.list_files(work_path(output, ""))
    return any(entry.name.endswith(SUFFIX) and entry.size_bytes >= CRASHES for entry in entries)
