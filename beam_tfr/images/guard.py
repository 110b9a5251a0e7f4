"""--max_decode_s: conversion in a process of its own, which is ended when it takes too long.

Each thread has its own process, started with its first image and ended with the thread. They talk over a socket, the
standard input of the process, in messages of a JSON header and a body of bytes:

    guarded_child ── {"is": "ready"} ────────────────────────▶ guard            once
    guard ── {"name": …, "options": {…}}, the file ──▶ guarded_child            for each image
    guarded_child ── {"is": "hold", "pixels": …} ──▶ guard ── {} ──▶ guarded_child      there is room to decode it
    guarded_child ── {"is": "image", …}, the encoded image ──▶ guard            or "reject", or "error"

A hostile file may own the process: what it answers is checked, and never executed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import typing
import weakref
from typing import Any, TypeGuard, TypeVar

from beam_tfr.images import limits
from beam_tfr.images.formats import FORMATS
from beam_tfr.options import ImageOptions
from beam_tfr.schema import ADJUSTMENTS, REJECT_REASONS, Image, RejectError, RunError

START_S = 300.0  # for the start of a process, on a busy machine with its packages on a network
_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from beam_tfr.images import guarded_child; guarded_child.main()"
_PREFIX = struct.Struct(">QQ")  # bytes of the header, of the body
_MOST_HEADER = 1 << 16  # bytes, of an answer
_MOST = 1 << 62
_CHANNELS = {"Gray": 1, "RGB": 3, "CMYK": 4}
_KINDS = typing.get_type_hints(Image)
_Kind = TypeVar("_Kind")
_own = threading.local()


def convert_guarded(data: bytes, options: ImageOptions, name: str) -> Image:
    """`convert_image` in a guarded process, at most `options.max_decode_s` seconds.

    The start of the process does not count, nor does waiting until other images are decoded.

    Raises:
        RejectError: `decode-timeout`, `crashed-decoder`, or what `convert_image` raises.
        RunError: the process does not start, or `convert_image` has an error of its own.
    """
    process: _Process | None = getattr(_own, "process", None)
    if process is None or not process.is_usable():
        process = _own.process = _Process()
    return process.convert(data, options, name)


class _Process:
    """One guarded process, for one thread.

    Raises:
        RunError: it does not start.
    """

    def __init__(self) -> None:
        self._socket, stdin = socket.socketpair()
        with stdin:
            # In a session of its own, since Ctrl-C is not for it. It writes errors until it is ready, and no longer.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", _CHILD, *sys.path],
                stdin=stdin.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._pid = os.getpid()
        self._end = weakref.finalize(self, _end, self._process, self._socket, self._pid)
        try:
            receive(self._socket, time.monotonic() + START_S, _MOST_HEADER, 0)
        except (OSError, EOFError, ValueError) as error:
            self._end()
            how = f"hangs for {START_S:g} s" if isinstance(error, TimeoutError) else self._how_it_ended()
            raise RunError(f"the guarded process of --max_decode_s did not start: it {how}") from error

    def is_usable(self) -> bool:
        """Whether it lives, and is of this process: one that was forked off has the other's."""
        return self._end.alive and self._pid == os.getpid() and self._process.poll() is None

    def convert(self, data: bytes, options: ImageOptions, name: str) -> Image:
        """As `convert_guarded`. After a timeout or a crash the process is gone."""
        try:
            return _read(*self._exchange(data, options, name), data, options)
        except RejectError:
            raise
        except BaseException as error:  # Ctrl-C included: what comes next would be the answer for this image
            self._end()
            if isinstance(error, TimeoutError):
                raise RejectError("decode-timeout", f"took more than --max_decode_s {options.max_decode_s:g}") from None
            if isinstance(error, (OSError, EOFError)):
                raise RejectError("crashed-decoder", f"the guarded process {self._how_it_ended()}") from None
            if isinstance(error, (ValueError, RecursionError)):
                raise RejectError("crashed-decoder", f"the guarded process answered with nonsense: {error}") from None
            raise

    def _exchange(self, data: bytes, options: ImageOptions, name: str) -> tuple[dict[str, Any], bytes]:
        """The answer for one image.

        Raises:
            TimeoutError: after `options.max_decode_s`.
            OSError, EOFError: the process ended.
            ValueError, RecursionError: it answers with nonsense.
        """
        assert options.max_decode_s is not None
        most = 4 * max(options.max_pixels, options.image_size[0] * options.image_size[1]) + len(data) + _MOST_HEADER
        child_options = dataclasses.replace(options.image_options(), max_decode_s=None)
        request = {"name": name, "options": dataclasses.asdict(child_options)}
        deadline = time.monotonic() + options.max_decode_s
        send(self._socket, request, data, deadline)
        header, body = receive(self._socket, deadline, _MOST_HEADER, most)
        if header.get("is") != "hold":
            return header, body
        pixels: object = header.get("pixels")
        if not _is(pixels, int) or not 1 <= pixels <= options.max_pixels:
            raise ValueError(f"{pixels} pixels")
        asked = time.monotonic()
        with limits.BUDGET.hold(pixels, options.max_pixels):
            deadline += time.monotonic() - asked
            send(self._socket, {}, b"", deadline)
            return receive(self._socket, deadline, _MOST_HEADER, most)

    def _how_it_ended(self) -> str:
        status = self._process.returncode
        return f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _end(process: subprocess.Popen[bytes], connection: socket.socket, owner: int) -> None:
    connection.close()
    if owner == os.getpid():
        process.kill()
        process.wait()


def send(connection: socket.socket, header: dict[str, Any], body: bytes = b"", deadline: float | None = None) -> None:
    """
    Args:
        deadline: by `time.monotonic`; None for none.

    Raises:
        TimeoutError: it is over.
        OSError: the other end is gone.
    """
    text = json.dumps(header).encode("ascii")
    for part in (_PREFIX.pack(len(text), len(body)) + text, body):
        _set_timeout(connection, deadline)
        connection.sendall(part)


def receive(
    connection: socket.socket, deadline: float | None = None, most_header: int = _MOST, most_body: int = _MOST
) -> tuple[dict[str, Any], bytes]:
    """A header and a body, of at most so many bytes.

    Raises:
        TimeoutError: the deadline is over.
        OSError, EOFError: the other end is gone.
        ValueError, RecursionError: it is no such message.
    """
    of_header, of_body = _PREFIX.unpack(_receive_bytes(connection, _PREFIX.size, deadline))
    if of_header > most_header or of_body > most_body:
        raise ValueError(f"{of_header} + {of_body} bytes")
    header = json.loads(_receive_bytes(connection, of_header, deadline))
    if not isinstance(header, dict):
        raise ValueError(f"{header!r:.100}")
    return header, bytes(_receive_bytes(connection, of_body, deadline))


def _receive_bytes(connection: socket.socket, count: int, deadline: float | None) -> bytearray:
    data = bytearray(count)
    rest = memoryview(data)
    while rest:
        _set_timeout(connection, deadline)
        received = connection.recv_into(rest)
        if not received:
            raise EOFError
        rest = rest[received:]
    return data


def _set_timeout(connection: socket.socket, deadline: float | None) -> None:
    rest = None if deadline is None else deadline - time.monotonic()
    if rest is not None and rest <= 0:
        raise TimeoutError
    connection.settimeout(rest)


def _read(header: dict[str, Any], body: bytes, data: bytes, options: ImageOptions) -> Image:
    """The image that an answer holds.

    Raises:
        RejectError, RunError: what it says instead.
        ValueError: it cannot be the answer for this file and these options.
    """
    fields = dict(header)
    kind = fields.pop("is", None)
    if kind == "image":
        return _image(fields, body, data, options)
    if kind == "reject" and fields.keys() == {"reason", "detail", "may_pass"}:
        reason, detail, may_pass = fields["reason"], fields["detail"], fields["may_pass"]
        if _is(reason, str) and reason in REJECT_REASONS and _is(detail, str) and _is(may_pass, bool):
            raise RejectError(reason, detail, may_pass=may_pass)
    if kind == "error" and fields.keys() == {"traceback"} and _is(fields["traceback"], str):
        raise RunError(f"in the guarded process of --max_decode_s: {fields['traceback']}")
    raise ValueError(f"{header!r:.200}")


def _image(fields: dict[str, Any], body: bytes, data: bytes, options: ImageOptions) -> Image:
    fields["encoded"] = body
    if fields.keys() != _KINDS.keys():
        raise ValueError(f"fields {sorted(fields)}")
    for name, kind in _KINDS.items():
        items = typing.get_args(kind)
        if items:  # a tuple, which is a list in JSON
            if not _is(fields[name], list) or not all(_is(item, items[0]) for item in fields[name]):
                raise ValueError(f"{name} {fields[name]!r:.100}")
            fields[name] = tuple(fields[name])
        elif not _is(fields[name], kind):
            raise ValueError(f"{name} {fields[name]!r:.100}")
    image = Image(**fields)
    channels = 1 if options.color == "gray" else 3
    right = {
        "encoded": bool(body),
        "format": image.format in FORMATS if options.encoding == "keep" else image.format == options.encoding,
        "channels of colorspace": _CHANNELS.get(image.colorspace) == image.channels,
        "source_format": image.source_format in FORMATS,
        "source_sha256": image.source_sha256 == hashlib.sha256(data).hexdigest(),
        "adjusted": image.adjusted == tuple(sorted({*image.adjusted} & ADJUSTMENTS.keys())),
    }
    for name in ("height", "width", "source_height", "source_width"):
        right[name] = 1 <= fields[name] < 1 << 31
    for name in ("channel_sums", "channel_squares"):
        right[name] = len(fields[name]) == channels and all(0 <= number < 1 << 63 for number in fields[name])
    if not all(right.values()):
        raise ValueError(f"wrong {', '.join(name for name in right if not right[name])}")
    return image


def _is(value: object, kind: type[_Kind]) -> TypeGuard[_Kind]:
    return type(value) is kind  # a bool is no int
