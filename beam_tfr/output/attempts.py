"""Counts attempts that did not end.

After two, each image is decoded in a guarded process.

`OUT/.beam_tfr/SHARD.attempts` holds a byte for each attempt at a shard that started and did not
end, because it is in progress or its process was killed, perhaps by an image. `sample.attempts` is
the same for the plan's sample.
"""

import contextlib
from collections.abc import Iterator

from beam_tfr import storage
from beam_tfr.storage import work_path

CRASHES = 2  # of one shard; a process may die once for any reason
SUFFIX = ".attempts"
SAMPLE_MARK = f"sample{SUFFIX}"


@contextlib.contextmanager
def mark_attempt(path: str) -> Iterator[bool]:
    """Marks an attempt within the block.

    Yields True if earlier attempts crashed twice.

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
    """Changes how many attempts a mark counts; returns how many it counted before.

    It is read each time, because other attempts begin and end meanwhile. Errors are ignored,
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
        # Not synced to the disk, which takes longer than all the rest.
        with open(path, "wb") as file:
            file.write(mark)


def has_crashed(output: str) -> bool:
    """Whether a shard or the sample crashed earlier runs into the folder.

    Two attempts at it must have crashed.
    """
    entries = storage.list_files(work_path(output, ""))
    return any(entry.name.endswith(SUFFIX) and entry.size_bytes >= CRASHES for entry in entries)
