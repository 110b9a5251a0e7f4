"""Limits the responses to Google's client, since a service or proxy may send bytes without end."""

import time
from collections.abc import Iterator
from typing import Any

import urllib3
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectionError as BrokenConnection
from urllib3.connection import HTTPConnection, HTTPSConnection

from beam_tfr.storage.prompt_answers import PromptResponse

MOST_BYTES = 64 << 20  # 64 MiB; a page of names has up to about 2 MB
MOST_MESSAGE_BYTES = 1 << 16  # for an error response
LONGEST_S = 120.0


class BoundedAdapter(HTTPAdapter):
    """An adapter that cuts off responses that are too long or take too long."""

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        pool = super().get_connection_with_tls_context(*arguments, **options)
        is_plain = pool.scheme == "http"
        pool.ConnectionCls = _PromptConnection if is_plain else _PromptTlsConnection
        return pool

    def build_response(self, req: PreparedRequest, resp: urllib3.BaseHTTPResponse) -> Response:
        response = super().build_response(req, resp)
        response.raw = _BoundedBody(resp)
        return response


class _PromptConnection(HTTPConnection):
    response_class = PromptResponse


class _PromptTlsConnection(HTTPSConnection):
    response_class = PromptResponse


class _BoundedBody:
    """The body of a response, limited in length; the body of an error response is cut off.

    Args:
        body: the body from urllib3, which handles all other method calls.
    """

    def __init__(self, body: urllib3.BaseHTTPResponse) -> None:
        self._body = body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def stream(self, amt: int, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yields pieces of at most `amt` bytes; `requests` reads responses through this method.

        Raises:
            ConnectionError: the response does not end.
        """
        is_error = self._body.status >= 400
        until = time.monotonic() + LONGEST_S
        left = MOST_MESSAGE_BYTES if is_error else MOST_BYTES
        while data := self._body.read1(min(amt, left), decode_content=decode_content):
            yield data
            left -= len(data)
            if left and time.monotonic() < until:
                continue
            self._body.close()
            if is_error:
                return
            raise BrokenConnection("the answer does not end")
