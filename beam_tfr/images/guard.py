"""Converts images in a guarded process, which may crash or be killed when it exceeds a hard limit.

Formats whose headers do not bound the memory and time of their decoders are always decoded here,
under `hard_limits`. Each thread has its own process, which starts with the thread's first image and
ends with the thread. The two processes exchange:

    guard ◀── None ── serve                                    once, when it is ready
    guard ── (options, name, statistics, bytes) ──▶ serve      for each image
    guard ◀── bytes needed ── serve                            before it decodes
    guard ── None ──▶ serve                                    when these bytes are reserved
    guard ◀── Image, (reason, …) of a reject, or traceback ── serve
    guard ◀── encoded ── serve                                 after an Image, sent without it

A guarded process answers in MessagePack with these types. It never answers with a pickle, which
could run any code: a malicious file may take over its decoder.
"""

import contextlib
import dataclasses
import os
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

from beam_tfr.guarded import GuardedProcess
from beam_tfr.images import hard_limits, limits
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError, RunError
from beam_tfr.schema.items import Image

_CHILD = (
    "from beam_tfr.images import convert, guard; "
    "guard.serve(*descriptors, convert=convert.convert_image)"
)
_thread = threading.local()  # its `process`
_MOST_ANSWER_BYTES = 1 << 20  # 1 MiB, without the encoded image


class _Rejected(NamedTuple):
    """The fields of a `RejectError`."""

    reason: str
    detail: str
    may_pass: bool


# Types of a guarded process's answers: bytes needed, an image, a reject, a traceback.
_Answer = int | Image | _Rejected | str
_ANSWERS: dict[str, type] = {"needs": int, "image": Image, "reject": _Rejected, "error": str}


def convert_guarded(
    data: bytes, options: ImageOptions, *, name: str, statistics: bool = True
) -> Image:
    """Converts an image in a guarded process.

    If the process dies, a second one tries again: the first may have been killed for any reason,
    such as a momentary lack of memory.

    Raises:
        RejectError: `decode-timeout`, `too-much-memory`, `crashed-decoder`, or whatever
            `convert_image` raises.
        RunError: the process does not start, or `convert_image` raises another error.
    """
    try:
        return _process_of_thread().convert(data, options, name, statistics)
    except _EndedError as error:
        if error.reason == "decode-timeout":
            raise
    return _process_of_thread().convert(data, options, name, statistics)


class _EndedError(RejectError):
    """A reject because the guarded process ended."""


def _process_of_thread() -> "_Process":
    """Returns the guarded process of this thread; starts one if there is none."""
    process: _Process | None = getattr(_thread, "process", None)
    if process is None or not process.is_usable():
        process = _Process()
        _thread.process = process
    return process


class _Process(GuardedProcess):
    """A guarded process, for one thread.

    Raises:
        RunError: the process does not start.
    """

    def __init__(self) -> None:
        messages, target = os.pipe()
        self._messages = open(messages, "rb")  # noqa: SIM115 - closed with the process
        with open(target, "wb"):
            super().__init__(_CHILD, descriptors=(messages, target), opened=[self._messages])

    def convert(self, data: bytes, options: ImageOptions, name: str, statistics: bool) -> Image:
        """Converts an image like `convert_guarded`. After a crash, the process is gone."""
        try:
            self.connection.send((options, name, statistics))
            self.connection.send_bytes(data)
            answer = _receive_answer(self.connection)
            while isinstance(answer, int):  # bytes needed
                with limits.BUDGET.hold(answer, options.max_decode_bytes):
                    self.connection.send(None)
                    answer = _receive_answer(self.connection)
            if isinstance(answer, Image):
                answer = dataclasses.replace(answer, encoded=self.connection.recv_bytes())
        except (OSError, EOFError, ValueError):  # not an answer
            message = self._stop()
            raise self._to_reject(options, message) from None
        except BaseException:  # Ctrl-C: the answer would be taken for that of the next image
            self._stop()
            raise
        if isinstance(answer, Image):
            return answer
        if isinstance(answer, str):
            raise RunError(f"in the guarded process: {answer}")
        raise RejectError(answer.reason, answer.detail, may_pass=answer.may_pass)

    def _stop(self) -> str:
        """Ends the process; returns the last error that it printed."""
        self.kill()
        try:
            return hard_limits.read_first_error(self._messages.fileno())
        finally:
            self.close()

    def _to_reject(self, options: ImageOptions, message: str) -> _EndedError:
        """Creates the reject for an image that ended the process while the image was decoded.

        Args:
            message: what the decoder printed before the process ended.
        """
        status = self.process.returncode
        if status == -signal.SIGXCPU:
            return _EndedError(
                "decode-timeout", f"took more than {hard_limits.MOST_CPU_S} s of CPU time"
            )
        failed_to_allocate = status == -signal.SIGABRT and "alloc" in message
        if failed_to_allocate or status == hard_limits.OUT_OF_MEMORY:
            return _EndedError(
                "too-much-memory",
                "the decoder takes more than "
                f"--max_decode_bytes {options.max_decode_bytes}, whatever the header says",
            )
        return _EndedError("crashed-decoder", f"the guarded process {self.describe_end()}")


def serve(descriptor: int, messages: int, target: int, *, convert: Callable[..., Image]) -> None:
    """Answers requests, in the guarded process, until the other end closes."""
    parent = Connection(descriptor)

    def reserve(needed: int, limit: int) -> None:
        _send_answer(parent, "needs", needed)
        parent.recv()

    limits.BUDGET.delegate(reserve)
    hard_limits.prepare_process(messages, target)
    parent.send_bytes(b"ready")
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            options, name, statistics = parent.recv()
            data = parent.recv_bytes()
            try:
                image = convert(data, options, name=name, statistics=statistics)
            except RejectError as error:
                reject = _Rejected(error.reason, _to_utf8(error.detail), error.may_pass)
                _send_answer(parent, "reject", reject)
            except BaseException:
                _send_answer(parent, "error", _to_utf8(traceback.format_exc()[-10_000:]))
                raise
            else:
                _send_answer(parent, "image", dataclasses.replace(image, encoded=b""))
                parent.send_bytes(image.encoded)  # separately, without a copy


def _to_utf8(text: str) -> str:
    """Escapes characters that UTF-8 cannot represent, such as the bytes of odd file names."""
    return text.encode("utf-8", "backslashreplace").decode()


def _send_answer(parent: Connection, kind: str, answer: _Answer) -> None:
    from msgspec import msgpack

    parent.send_bytes(msgpack.encode((kind, answer)))


def _receive_answer(child: Connection) -> _Answer:
    """Receives an answer from a guarded process, which may send anything.

    Raises:
        OSError, EOFError: there is no answer, or it is too long.
        ValueError: the answer is not one of `_ANSWERS`.
    """
    import msgspec

    data = child.recv_bytes(_MOST_ANSWER_BYTES)
    try:
        kind, value = msgspec.msgpack.decode(data, type=tuple[str, msgspec.Raw])
        answer: _Answer = msgspec.msgpack.decode(value, type=_ANSWERS[kind])
    except (msgspec.MsgspecError, LookupError) as error:
        raise ValueError(str(error)) from error
    return answer
