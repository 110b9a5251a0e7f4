"""Limits the time for an HTTP response, which a service may send endlessly, byte by byte.

The timeout of a socket only covers the time from one byte to the next. The standard library reads
the head of a response, and the trailer of a chunked response, to the end.
"""

import http.client
import io
import math
import socket
import time
from typing import Any, cast

HEAD_S = 60.0  # from the end of a request to the end of the head
ANSWER_S = 120.0  # from the end of the head to the end of the answer


class PromptResponse(http.client.HTTPResponse):
    """A response that raises a TimeoutError if it takes longer than `HEAD_S` or `ANSWER_S`.

    It is used as the `response_class` of a connection.
    """

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._bytes = _TimedBytes(cast(io.RawIOBase, sock.makefile("rb", buffering=0)))
        self.fp.close()
        self.fp = io.BufferedReader(self._bytes)

    def begin(self) -> None:
        self._bytes.ends = time.monotonic() + HEAD_S
        super().begin()
        self._bytes.ends = time.monotonic() + ANSWER_S


class _TimedBytes(io.RawIOBase):
    """The bytes from a source that arrive before a deadline.

    Attributes:
        ends: the deadline, in the time of `time.monotonic`.
    """

    def __init__(self, source: io.RawIOBase) -> None:
        self._source = source
        self.ends = math.inf

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self.ends:
            raise TimeoutError("the answer does not end")
        return self._source.readinto(buffer)

    def close(self) -> None:
        self._source.close()
        super().close()
