"""Notes which file this process has opened last, and how many bytes it has opened in all.

Threads may note files at the same time: the sum is meant for limits, and not exact.
"""

import os
from typing import IO

last_path = ""
num_bytes = 0


def note(path: str, size: int) -> None:
    """Notes that a file, or a part of it, of so many bytes is read."""
    global last_path, num_bytes  # of the process, as what they count is
    last_path = path
    num_bytes += size


def noting(path: str, file: IO[bytes]) -> IO[bytes]:
    """Notes an opened file, and returns it."""
    note(path, os.fstat(file.fileno()).st_size)
    return file
