"""The other end of `guard`: a process that converts one image after the other. It ends when its parent does."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import socket
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from beam_tfr.images import convert_image, limits
from beam_tfr.images.guard import receive, send
from beam_tfr.options import ImageOptions
from beam_tfr.schema import RejectError


def main() -> None:
    """Answers requests from standard input, a socket, until it closes."""
    parent = socket.socket(fileno=0)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    limits.BUDGET = _ParentsBudget(parent)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # what C libraries print when they crash is not for users
    send(parent, {"is": "ready"})
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            request, data = receive(parent)
            try:
                answer, encoded = _convert(data, request)
            except BaseException:
                send(parent, {"is": "error", "traceback": traceback.format_exc()[-10_000:]})
                raise
            send(parent, answer, encoded)


def _end_with(parent: socket.socket) -> None:
    """Ends the process, whatever it does, when the parent has closed its end or died."""
    poll = select.poll()
    poll.register(parent, 0)  # nothing but a hang-up
    poll.poll()
    os._exit(0)


class _ParentsBudget(limits.PixelBudget):
    """The budget of the parent: one for all its guarded processes."""

    def __init__(self, parent: socket.socket) -> None:
        super().__init__()
        self._parent = parent

    @contextlib.contextmanager
    def hold(self, pixels: int, limit: int) -> Iterator[None]:
        send(self._parent, {"is": "hold", "pixels": pixels})
        receive(self._parent)
        yield


def _convert(data: bytes, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Header and body of the answer."""
    try:
        image = convert_image(data, ImageOptions(**request["options"]), name=request["name"])
    except RejectError as error:
        return {"is": "reject", "reason": error.reason, "detail": error.detail, "may_pass": error.may_pass}, b""
    fields = dataclasses.asdict(image)
    encoded = fields.pop("encoded")
    return {"is": "image", **fields}, encoded
