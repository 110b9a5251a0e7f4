"""Converts images in a guarded process, which may crash, or be killed when it exceeds --max_decode_s.

Each thread has its own process, started with its first image and ended with the thread. They exchange:

    guard ◀── None ── serve                                    once, when it is ready
    guard ── (data, options, name) ──▶ serve                   for each image
    guard ◀── bytes ── serve, guard ── None ──▶ serve          when there is memory to decode it
    guard ◀── Image, (reason, …) of a reject, or traceback ── serve
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import select
import signal
import subprocess  # nosec B404  # starts this Python alone
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from beam_tfr.images import limits
from beam_tfr.options import ImageOptions
from beam_tfr.schema import Image, RejectError, RunError

START_S = 300.0  # for the start of a process, on a busy machine with its packages on a network
_CHILD = (
    "import sys; sys.path[:] = sys.argv[2:]; from beam_tfr.images import convert, guard; "
    "guard.serve(int(sys.argv[1]), convert.convert_image)"
)
_own = threading.local()


def convert_guarded(data: bytes, options: ImageOptions, *, name: str) -> Image:
    """Converts an image in a guarded process, in at most `options.max_decode_s` seconds; None for no limit.

    The start of the process does not count, nor does waiting until other images are decoded. If it dies, a second one
    tries again: the first one may have been killed for any reason, as when memory ran out for a moment.

    Raises:
        RejectError: `decode-timeout`, `crashed-decoder`, or what `convert_image` raises.
        RunError: the process does not start, or `convert_image` raises another error.
    """
    try:
        return _own_process().convert(data, options, name)
    except RejectError as error:
        if error.reason != "crashed-decoder":
            raise
    return _own_process().convert(data, options, name)


def _own_process() -> _Process:
    """The guarded process of this thread."""
    process: _Process | None = getattr(_own, "process", None)
    if process is None or not process.is_usable():
        process = _own.process = _Process()
    return process


class _Process:
    """A guarded process, for one thread.

    Raises:
        RunError: it does not start.
    """

    def __init__(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            # In its own session, so that Ctrl-C does not reach it. It prints errors only until it is ready.
            self._process = subprocess.Popen(  # noqa: S603  # nosec B603  # no word of it is an input
                [sys.executable, "-c", _CHILD, str(theirs.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end, self._process, self._connection, self._owner)
        try:
            self._receive(time.monotonic() + START_S)
        except (TimeoutError, EOFError, OSError) as error:
            self._end()
            how = f"hangs for {START_S:g} s" if isinstance(error, TimeoutError) else self._how_it_ended()
            raise RunError(f"the guarded process did not start: it {how}") from error

    def is_usable(self) -> bool:
        """True if it is alive and belongs to this process, not to one that this was forked from."""
        return self._end.alive and self._owner == os.getpid() and self._process.poll() is None

    def convert(self, data: bytes, options: ImageOptions, name: str) -> Image:
        """See `convert_guarded`. After a timeout or a crash the process is gone."""
        try:
            answer = self._exchange(data, options, name)
        except BaseException as error:  # Ctrl-C included: its answer would be taken for that of the next image
            self._end()
            if isinstance(error, TimeoutError) and options.max_decode_s is not None:
                raise RejectError("decode-timeout", f"took more than --max_decode_s {options.max_decode_s:g}") from None
            if isinstance(error, (OSError, EOFError)):
                raise RejectError("crashed-decoder", f"the guarded process {self._how_it_ended()}") from None
            raise
        if isinstance(answer, Image):
            return answer
        if isinstance(answer, str):
            raise RunError(f"in the guarded process: {answer}")
        raise RejectError(*answer[:2], may_pass=answer[2])

    def _exchange(self, data: bytes, options: ImageOptions, name: str) -> Any:
        """The answer for one image.

        Raises:
            TimeoutError: after `options.max_decode_s`.
            OSError, EOFError: the process ended.
        """
        unguarded = dataclasses.replace(options.image_options(), max_decode_s=None)
        deadline = time.monotonic() + (math.inf if options.max_decode_s is None else options.max_decode_s)
        self._connection.send((data, unguarded, name))
        answer = self._receive(deadline)
        if isinstance(answer, int):  # bytes needed
            asked = time.monotonic()
            with limits.BUDGET.hold(answer, options.max_decode_bytes):
                self._connection.send(None)
                return self._receive(deadline + time.monotonic() - asked)
        return answer

    def _receive(self, deadline: float) -> Any:
        left = deadline - time.monotonic()
        if left <= 0 or not self._connection.poll(None if left == math.inf else left):
            raise TimeoutError
        return self._connection.recv()

    def _how_it_ended(self) -> str:
        status = self._process.returncode
        return f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _end(process: subprocess.Popen[bytes], connection: Connection, owner: int) -> None:
    connection.close()
    if owner == os.getpid():
        process.kill()
        process.wait()


def serve(descriptor: int, convert: Callable[..., Image]) -> None:
    """Answers requests, in the guarded process, until the other end closes."""
    parent = Connection(descriptor)
    threading.Thread(target=_end_with, args=(descriptor,), daemon=True).start()
    limits.BUDGET = _ParentsBudget(parent)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # what C libraries print when they crash is not for users
    parent.send(None)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            data, options, name = parent.recv()
            try:
                answer: Any = convert(data, options, name=name)
            except RejectError as error:
                answer = (error.reason, error.detail, error.may_pass)
            except BaseException:
                parent.send(traceback.format_exc()[-10_000:])
                raise
            parent.send(answer)


def _end_with(descriptor: int) -> None:
    """Ends this process when its parent has closed the other end or died."""
    poll = select.poll()
    poll.register(descriptor, 0)  # nothing but a hang-up
    poll.poll()
    os._exit(0)


class _ParentsBudget(limits.MemoryBudget):
    """The budget of the parent, which all its guarded processes share."""

    def __init__(self, parent: Connection) -> None:
        super().__init__()
        self._parent = parent

    @contextlib.contextmanager
    def hold(self, needed: int, limit: int) -> Iterator[None]:
        self._parent.send(needed)
        self._parent.recv()
        yield
