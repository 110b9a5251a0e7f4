"""Limits the memory and CPU time of a guarded process, and reads what libraries print in it."""

import contextlib
import ctypes
import errno
import functools
import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from beam_tfr.schema.errors import RejectError

# For decoding one image. An undamaged AVIF of 32 megapixels took 2.5 s, and must not be rejected on
# any processor.
MOST_CPU_S = 30
OUT_OF_MEMORY = 90  # exit status of a process in which a decoder got no memory
_LEAST_BESIDE = 32 << 20  # bytes that a decoder needs for any image, or that malloc keeps
_MOST_PRINTED = 1 << 16  # bytes: a pipe holds no more
_TIFF_PREFIX = re.compile(r"^.*TIFF_(Error|Warning) ")

_limits = {kind: resource.getrlimit(kind) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)}


class HardLimits(NamedTuple):
    """The limits of a guarded process.

    Attributes:
        messages: file descriptor for reading what libraries print.
        used_bytes: memory that this process used before the first image; added to all limits.
    """

    messages: int
    used_bytes: int

    @contextlib.contextmanager
    def enforce(self, format_name: str, file_bytes: int, decode_bytes: int) -> Iterator[None]:
        """Limits the memory and CPU time that a decoder uses.

        The kernel ends this process if it exceeds the time limit, and refuses to give it more
        memory. Decoders that get no memory may report any error. This process then ends with
        `OUT_OF_MEMORY`, so that a new process tries again with memory that no other image has used.

        Args:
            format_name: name of the format, for messages.
            file_bytes: size of the file; decoders make copies of it.
            decode_bytes: --max_decode_bytes; a tenth more is allowed, and at least 32 MiB more.

        Raises:
            RejectError: `damaged-image`: a library printed an error without reporting one, as
                libtiff does.
        """
        read_first_error(self.messages)  # from an earlier reject
        _errno()[0] = 0
        if sys.platform == "linux":
            beside = max(decode_bytes // 10, _LEAST_BESIDE) + 2 * file_bytes
            _limit(resource.RLIMIT_DATA, self.used_bytes + decode_bytes + beside)
        _limit(resource.RLIMIT_CPU, int(time.process_time()) + MOST_CPU_S)
        try:
            yield
        except BaseException as error:
            if _lacks_memory(error):
                os._exit(OUT_OF_MEMORY)
            if not isinstance(error, Exception):  # Rust panicked
                raise RejectError(
                    "damaged-image", f"{format_name.upper()}: the decoder failed"
                ) from error
            raise
        finally:
            for kind, initial in _limits.items():
                resource.setrlimit(kind, initial)
        message = read_first_error(self.messages)
        if message:
            raise RejectError("damaged-image", f"{format_name.upper()}: {message[:200]}")


_of_this_process: HardLimits | None = None


def of_this_process() -> HardLimits | None:
    """Returns the limits of this process; None if it is not guarded."""
    return _of_this_process


def prepare_process(messages: int, target: int) -> None:
    """Turns this process into a guarded one, which captures messages in a pipe.

    Args:
        messages, target: file descriptors of the two ends of the pipe.
    """
    global _of_this_process
    for descriptor in (messages, target):
        os.set_blocking(descriptor, False)  # anything that does not fit is lost
    os.dup2(target, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used_bytes = 0
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[5])
        used_bytes = pages * resource.getpagesize()
    _of_this_process = HardLimits(messages, used_bytes)


def read_first_error(messages: int) -> str:
    """Returns the first printed error that is not only about tags, or an empty string."""
    try:
        printed = os.read(messages, _MOST_PRINTED)
    except BlockingIOError:
        return ""
    for line in printed.decode(errors="replace").splitlines():
        if "TIFF_Warning" not in line or "Fax" in line:
            return _TIFF_PREFIX.sub("", line)
    return ""


def _lacks_memory(error: BaseException) -> bool:
    """Whether a decoder could not allocate memory, regardless of what it reported."""
    return _errno()[0] == errno.ENOMEM or isinstance(error.__cause__ or error, MemoryError)


def _limit(kind: int, value: int) -> None:
    """Sets a limit of this process, unless a lower limit is already set."""
    soft, hard = _limits[kind]
    if soft != resource.RLIM_INFINITY:
        value = min(value, soft)
    resource.setrlimit(kind, (value, hard))


@functools.cache
def _errno() -> Any:
    """Finds where the C library stores the error number of this thread; no other thread decodes."""
    try:
        location = ctypes.CDLL(None).__errno_location
    except AttributeError:  # not Linux
        return [0]
    location.restype = ctypes.POINTER(ctypes.c_int)
    return location()
