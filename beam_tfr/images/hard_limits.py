"""Hard limits of a guarded process on memory and CPU time, and the messages that libraries print
while they decode."""

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
from typing import Any

from beam_tfr.schema.errors import RejectError

# For decoding one image. A sound AVIF of 32 megapixels took 2.5, and must not be a reject on any
# processor.
MOST_CPU_S = 30
OUT_OF_MEMORY = 90  # exit status of a process in which a decoder got no memory
_LEAST_BESIDE = 32 << 20  # bytes, of what a decoder takes for any image, and what malloc keeps
_MOST_PRINTED = 1 << 16  # bytes, which a pipe holds

_messages = -1  # descriptor of what was printed; -1 outside of a guarded process
_used_bytes = 0  # memory of this process before the first image
_limits = {kind: resource.getrlimit(kind) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)}


def is_guarded_process() -> bool:
    """True in a guarded process."""
    return _messages >= 0


def prepare(messages: int, target: int) -> None:
    """Begins to capture messages in a pipe, and measures the memory of this process, whose limits
    come on top of it."""
    global _messages, _used_bytes
    for descriptor in (messages, target):
        os.set_blocking(descriptor, False)  # what does not fit in is lost
    os.dup2(target, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _messages = messages
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            _used_bytes = int(file.read().split()[5]) * resource.getpagesize()


@contextlib.contextmanager
def enforce(name: str, file_bytes: int, decode_bytes: int) -> Iterator[None]:
    """Limits what a decoder takes: the kernel ends a process that takes longer, and gives no more
    memory.

    Decoders that get no memory report almost any error. This process then ends with
    `OUT_OF_MEMORY`, so that a new one tries again, whose memory no other image has used.

    Args:
        name: of the format.
        file_bytes: size of the file, of which decoders make copies.
        decode_bytes: --max_decode_bytes, of which a tenth more is allowed, and 32 MiB at least.

    Raises:
        RejectError: `damaged-image`: a library printed an error but reported none, as libtiff does.
    """
    first_error(_messages)  # of what was rejected before
    _errno()[0] = 0
    if sys.platform == "linux":
        beside = max(decode_bytes // 10, _LEAST_BESIDE) + 2 * file_bytes
        _limit(resource.RLIMIT_DATA, _used_bytes + decode_bytes + beside)
    _limit(resource.RLIMIT_CPU, int(time.process_time()) + MOST_CPU_S)
    try:
        yield
    except BaseException as error:
        no_memory = _errno()[0] == errno.ENOMEM or isinstance(error.__cause__ or error, MemoryError)
        if no_memory and getattr(error, "reason", "damaged-image") == "damaged-image":
            os._exit(OUT_OF_MEMORY)
        if not isinstance(error, Exception):  # a panic of Rust
            raise RejectError("damaged-image", f"{name.upper()}: the decoder failed") from error
        raise
    finally:
        for kind, initial in _limits.items():
            resource.setrlimit(kind, initial)
    message = first_error(_messages)
    if message:
        raise RejectError("damaged-image", f"{name.upper()}: {message[:200]}")


def first_error(messages: int) -> str:
    """The first error that was printed, without those about tags only; empty without one."""
    try:
        lines = os.read(messages, _MOST_PRINTED).decode(errors="replace").splitlines()
    except BlockingIOError:
        return ""
    errors = (line for line in lines if "TIFF_Warning" not in line or "Fax" in line)
    return re.sub(r".*TIFF_(Error|Warning) ", "", next(errors, ""))


def _limit(kind: int, value: int) -> None:
    soft, hard = _limits[kind]
    resource.setrlimit(kind, (value if soft == resource.RLIM_INFINITY else min(value, soft), hard))


@functools.cache
def _errno() -> Any:
    """Where the C library keeps the error number of this thread, the only one that decodes here."""
    try:
        place = ctypes.CDLL(None).__errno_location
    except AttributeError:  # not Linux
        return [0]
    place.restype = ctypes.POINTER(ctypes.c_int)
    return place()
