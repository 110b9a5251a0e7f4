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
    before = storage.read_existing(path) or b""
    _write_mark(path, before + b".", replace=bool(before))
    try:
        yield len(before) >= CRASHES
    finally:
        # Also for a finished shard: a run that crashed twice stays guarded.
        _write_mark(path, before, replace=True)


def _write_mark(path: str, mark: bytes, *, replace: bool) -> None:
    """Writes a mark; ignores errors, because the attempt itself may still succeed."""
    with contextlib.suppress(OSError, storage.AlreadyExistsError):
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
