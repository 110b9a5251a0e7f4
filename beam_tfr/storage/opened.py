"""Records which files this process opens, and how many bytes it has opened in all."""

import os
import threading
from typing import IO

_MOST_LARGEST = 2
num_bytes = 0
_last_path = ""
_size_of = dict[str, int]()  # path -> size of the largest files
_lock = threading.Lock()


def note(path: str, size: int) -> None:
    """Records that a file, or a part of a file, with this number of bytes is read."""
    global num_bytes  # counted for the whole process
    with _lock:
        num_bytes += size
    note_path(path, size)


def note_path(path: str, size: int) -> None:
    """Records that a file of this size is read, in parts that are recorded separately."""
    global _last_path
    with _lock:
        _last_path = path
        _size_of[path] = max(size, _size_of.get(path, 0))
        if len(_size_of) > _MOST_LARGEST:
            del _size_of[min(_size_of, key=_size_of.__getitem__)]


def noting(path: str, file: IO[bytes]) -> IO[bytes]:
    """Records an opened file, and returns it."""
    note(path, os.fstat(file.fileno()).st_size)
    return file


def forget_paths() -> None:
    """Forgets which files have been opened so far."""
    global _last_path
    with _lock:
        _last_path = ""
        _size_of.clear()


def list_paths() -> list[str]:
    """Lists at most three opened files: the two largest, the larger one first, and the latest."""
    with _lock:
        paths = sorted(_size_of, key=_size_of.__getitem__, reverse=True)
        return [*dict.fromkeys(filter(None, [*paths, _last_path]))]
