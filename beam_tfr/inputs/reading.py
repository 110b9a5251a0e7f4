"""Reads a listed file, or reports why it cannot be read: the first half of ReadImages."""

import errno
from collections.abc import Callable

from beam_tfr import storage
from beam_tfr.inputs.archives import archive_of, read_member
from beam_tfr.inputs.near_names import describe_near_names
from beam_tfr.inputs.parquet import is_in_parquet, read_in_parquet
from beam_tfr.inputs.spellings import describe_oddities
from beam_tfr.schema.errors import RejectError

MAX_FILE_BYTES = 64 << 20  # 64 MiB; a larger file is a reject


class MisnamedError(RejectError):
    """A file is missing, but a file with nearly the same name exists."""


def read_embedded(image: storage.Entry, max_bytes: int, copies: str = "") -> bytes:
    """Reads an image in an archive or a Parquet file.

    For `copies` and errors see `read_in_parquet` and `read_member`.
    """
    if is_in_parquet(image.place):
        return read_in_parquet(image, max_bytes, copies)
    return read_member(image, max_bytes)


def read_image(
    file: storage.Entry,
    *,
    max_bytes: int = MAX_FILE_BYTES,
    cancelled: Callable[[], bool] = lambda: False,
    read_embedded: Callable[[storage.Entry, int], bytes] = read_embedded,
    root: str = "",
) -> bytes:
    """Reads one source file.

    Args:
        file: a listed file; generation 0 stands for any version.
        max_bytes: larger files are rejected; an object with a larger listed size is not fetched at
            all.
        cancelled: returns True once the result is no longer needed, which stops retries.
        read_embedded: reads a file that has a place.
        root: the folder of all files that a table refers to. As long as it exists, a folder that is
            missing below it is considered permanently missing.

    Raises:
        RejectError: `not-found`, `changed-while-reading`, `unusable-file`, `empty-file` or
            `file-too-large`. These may be temporary: `unreadable` (no permission, a failing
            service or disk, no disk), and `changed-while-reading` if the file was listed without a
            version and keeps changing.
    """
    path = archive_of(file.path, file.place) if file.place else file.path
    if file.size_bytes > max_bytes and _has_exact_size(file, path):
        raise _too_large(max_bytes)
    try:
        if file.place:
            data = read_embedded(file, max_bytes)
        else:
            data = storage.read_bytes(
                path, max_bytes=max_bytes, generation=file.generation, cancelled=cancelled
            )
    except OSError as error:
        detail = error.strerror or str(error)
        if file.place:
            detail += f" ({path.rpartition('/')[2]})"
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        if is_missing and root and not file.generation:
            raise _reject_missing(path, detail, root) from error
        raise _reject_for(error, path, detail) from error
    if not data:
        raise RejectError("empty-file", "0 bytes")
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return data


def _has_exact_size(file: storage.Entry, path: str) -> bool:
    """Whether the listed size is exact; a file on disk may have grown or shrunk."""
    if file.place:
        return not is_in_parquet(file.place)
    return storage.is_gcs(path)


def _too_large(max_bytes: int) -> RejectError:
    return RejectError("file-too-large", f"more than {max_bytes} bytes")


def _reject_missing(path: str, detail: str, root: str) -> RejectError:
    """Builds the reject for a file that was never listed and does not exist."""
    if not storage.is_gone(path, root):
        return _unreachable(detail)
    folder = path.rpartition("/")[0]
    if not storage.is_remote(path) and not storage.is_folder(folder):
        detail += f"; there is no folder {folder}"
    near_names = describe_near_names(path)
    hints = [detail, near_names, describe_oddities(path)]
    kind = MisnamedError if near_names else RejectError
    return kind("not-found", "; ".join(filter(None, hints)))


def _unreachable(detail: str) -> RejectError:
    detail += "; its folder is empty or cannot be listed"
    return RejectError("unreadable", detail, may_pass=True)


def _reject_for(error: OSError, path: str, detail: str) -> RejectError:
    """Builds the reject for a file that could not be read; `path` is where its bytes are stored."""
    if isinstance(error, storage.ChangedError):
        may_pass = error.errno == errno.EBUSY  # otherwise the listed version is gone for good
        return RejectError("changed-while-reading", detail, may_pass=may_pass)
    if isinstance(error, FileNotFoundError):
        if storage.is_gone(path):
            return RejectError("not-found", detail)
        return _unreachable(detail)
    if storage.may_pass(error):
        return RejectError("unreadable", detail, may_pass=True)
    return RejectError("unusable-file", detail)
