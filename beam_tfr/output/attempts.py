"""Counts attempts that crash, so that the images at fault are decoded in guarded processes.

After two such attempts at a shard, each of its images is decoded in a guarded process.

`OUT/.beam_tfr/SHARD.attempts` holds a byte for each attempt at a shard that started and did not
end, because it is in progress or its process was killed, perhaps by an image. `sample.attempts` is
the same for the plan's sample.
"""

import contextlib
from collections.abc import Iterator

from beam_tfr import storage
from beam_tfr.storage import work_path

CRASHES = 2  # at one shard; a process may die once for any reason
SUFFIX = ".attempts"
SAMPLE_MARK = f"sample{SUFFIX}"


@contextlib.contextmanager
def mark_attempt(path: str) -> Iterator[bool]:
    """Marks an attempt within the block; yields True if two earlier attempts crashed.

    Args:
        path: path of the mark; empty for none.
    """
    if not path:
        yield False
        return
    others = _change_mark(path, 1)
    try:
        yield others >= CRASHES
    finally:
        # Also for a finished shard: a run that crashed twice stays guarded.
        _change_mark(path, -1)


def _change_mark(path: str, change: int) -> int:
    """Changes the number of attempts in a mark; returns the number before.

    The mark is read each time, because other attempts begin and end meanwhile. Errors are ignored,
    because the attempt itself may still succeed.
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
    """Whether earlier runs into the folder crashed at least twice at a shard or at the sample."""
    entries = storage.list_files(work_path(output, ""))
    return any(entry.name.endswith(SUFFIX) and entry.size_bytes >= CRASHES for entry in entries)
