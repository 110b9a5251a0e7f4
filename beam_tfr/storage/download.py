"""Downloads objects with one request each, and verifies their checksums.

Google's client takes many times the CPU time, and shares ten connections among all threads, so only
its credentials are used here. A failed attempt starts over, because the service has checksums for
whole objects only.
"""

from __future__ import annotations

import base64
import errno
import functools
import gzip
import io
import os
import re
import threading
import urllib.parse
import zlib
from collections.abc import Callable
from http.client import HTTPMessage
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from beam_tfr.storage import gcs_client, transfer
from beam_tfr.storage.backend import ChangedError, split_gcs
from beam_tfr.storage.gcs_client import DEADLINE_S, named_errors, retrying
from beam_tfr.storage.waits import THROTTLED_S, Deadline, note_served

if TYPE_CHECKING:
    from google.cloud.storage import Client

_LOCK = threading.Lock()


class _Service(NamedTuple):
    """A client's access to its service, with credentials from google.auth."""

    credentials: Any
    refresh: Any
    route: transfer.Route

    def authorize(self, place: str, headers: dict[str, str]) -> None:
        """Adds a valid token to the headers."""
        url = self.route.endpoint + place
        self.credentials.before_request(self.refresh, "GET", url, headers)


def _service() -> _Service:
    client = gcs_client.client()
    with _LOCK:  # only one thread requests a token
        return _make_service(client)


@functools.lru_cache(maxsize=1)
def _make_service(client: Client) -> _Service:
    from certifi import where
    from google.auth.transport.requests import Request
    from requests.utils import get_environ_proxies, select_proxy

    endpoint = client.api_endpoint
    proxy = select_proxy(endpoint, get_environ_proxies(endpoint)) or ""
    certificates = (
        os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or where()
    )
    refresh = Request()
    credentials = client._credentials
    if not credentials.valid:
        credentials.refresh(refresh)
    return _Service(credentials, refresh, transfer.Route(endpoint, proxy, certificates))


def read_bytes(
    path: str, *, generation: int, max_bytes: int | None, cancelled: Callable[[], bool]
) -> bytes:
    """Reads an object; see `storage.read_bytes`."""
    buffer = io.BytesIO()
    encoding = fetch(path, buffer, generation=generation, max_bytes=max_bytes, cancelled=cancelled)
    size = -1 if max_bytes is None else max_bytes + 1
    if encoding != "gzip":
        return buffer.read(size)
    try:
        with gzip.open(buffer) as file:
            return file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise OSError(
            errno.EINVAL, f"its Content-Encoding is gzip, but its bytes are not: {error}", path
        ) from None


def read_part(path: str, begin: int, num_bytes: int, generation: int) -> bytes:
    """Reads a part of an object; see `storage.read_part`."""
    buffer = io.BytesIO()
    if num_bytes:
        part = f"bytes={begin}-{begin + num_bytes - 1}"
        fetch(path, buffer, generation=generation, max_bytes=num_bytes, part=part)
    data = buffer.getvalue()
    if len(data) > num_bytes:
        message = f"the service sent more than the {num_bytes:,} bytes requested; check the proxy"
        raise OSError(errno.EPROTO, message, path)
    return data


def fetch(
    path: str,
    sink: IO[bytes],
    *,
    generation: int = 0,
    max_bytes: int | None = None,
    part: str = "",
    cancelled: Callable[[], bool] = lambda: False,
) -> str:
    """Writes the stored bytes of an object to an empty file; returns their Content-Encoding.

    With a `part`, as in a Range header, writes only the bytes in the part, for which the service
    sends no checksum.
    """
    deadline = Deadline(DEADLINE_S, THROTTLED_S)

    def attempt() -> str:
        answer = _request(place, part, sink, max_bytes, deadline)
        if answer.is_whole and not part:
            _check_crc32c(answer.headers, answer.crc32c)
        return answer.headers.get("content-encoding", "")

    try:
        with named_errors(path, "get"):
            place = _place_of(path, generation)
            encoding = retrying(deadline, cancelled=cancelled)(attempt)()
    except FileExistsError as error:  # HTTP 412
        raise ChangedError(error.errno, "it was replaced after it was listed", path) from error
    note_served()
    sink.seek(0)
    return str(encoding)


def _place_of(path: str, generation: int) -> str:
    """Returns the path and query of the request for an object."""
    bucket, name = split_gcs(path)
    query = {"alt": "media"}
    if generation:
        query["ifGenerationMatch"] = str(generation)
    payer = gcs_client.user_project()
    if payer:
        query["userProject"] = payer
    place = f"/download/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}"
    return f"{place}?{urllib.parse.urlencode(query)}"


def _request(
    place: str, part: str, sink: IO[bytes], max_bytes: int | None, deadline: Deadline
) -> transfer.Answer:
    """Writes the body of a successful response to a file.

    Raises:
        GoogleAPIError: the service refuses.
        ConnectionError, TimeoutError: the service could not be reached, or the connection broke.
    """
    from google.api_core.exceptions import from_http_status

    service = _service()
    # otherwise the service decompresses, and no checksum matches
    headers = {"Accept-Encoding": "gzip"}
    if part:
        headers["Range"] = part

    def send() -> transfer.Answer:
        service.authorize(place, headers)
        return transfer.get(
            service.route, place, headers, sink, max_bytes=max_bytes, left_s=deadline.left_s
        )

    answer = send()
    if answer.status_code == 401:  # a token may expire early
        service.credentials.refresh(service.refresh)
        answer = send()
    if answer.status_code != (206 if part else 200):
        raise from_http_status(answer.status_code, answer.text, response=answer)
    return answer


def _check_crc32c(headers: HTTPMessage, received: bytes) -> None:
    """Compares the checksum of the received bytes with that of the object."""
    from google.cloud.storage.exceptions import DataCorruption

    hashes = ",".join(headers.get_all("x-goog-hash", []))
    stored = re.search(r"crc32c=([\w+/=]+)", hashes)
    if stored and base64.b64encode(received).decode() != stored[1]:
        raise DataCorruption(None, "checksum mismatch: the bytes received are not those stored")
