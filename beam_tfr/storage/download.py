"""Downloads objects with one request each, and verifies their checksums.

Google's client takes three times the CPU and shares ten connections between all threads, so this
uses its credentials with urllib3 alone. A failed attempt starts over: the service gives checksums
of whole objects only.
"""

from __future__ import annotations

import base64
import contextlib
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
from typing import IO, TYPE_CHECKING, Any

from beam_tfr.storage import gcs_client
from beam_tfr.storage.backend import ChangedError, split_gcs
from beam_tfr.storage.gcs_client import DEADLINE_S, named_errors, retrying
from beam_tfr.storage.waits import THROTTLED_S, Deadline, note_served

if TYPE_CHECKING:
    from google.cloud.storage import Client

CONNECT_S = 10.0
STALL_S = 20.0  # without a byte
_CHUNK_BYTES = 1 << 18  # 256 KiB
_HTTP_LOCK = threading.Lock()


def _http() -> Any:
    """One pool of connections per client."""
    client = gcs_client.client()
    with _HTTP_LOCK:
        return _make_http(client)


@functools.lru_cache(maxsize=1)
def _make_http(client: Client) -> Any:
    from certifi import where
    from google.auth.transport.requests import Request
    from google.auth.transport.urllib3 import AuthorizedHttp
    from requests.utils import get_environ_proxies, select_proxy

    adapter = client._http.get_adapter(client.api_endpoint)
    proxy = select_proxy(client.api_endpoint, get_environ_proxies(client.api_endpoint))
    manager = adapter.proxy_manager_for(proxy) if proxy else adapter.poolmanager
    certificates = (
        os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or where()
    )
    manager.connection_pool_kw["ca_certs"] = certificates
    credentials = client._credentials
    if not credentials.valid:
        credentials.refresh(Request())  # once, not in every thread
    return AuthorizedHttp(credentials, http=manager)


def read_bytes(
    path: str, *, generation: int, max_bytes: int | None, cancelled: Callable[[], bool]
) -> bytes:
    """`storage.read_bytes` on gs://."""
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
    """`storage.read_part` on gs://."""
    buffer = io.BytesIO()
    if num_bytes:
        fetch(path, buffer, generation=generation, part=f"bytes={begin}-{begin + num_bytes - 1}")
    return buffer.getvalue()


def fetch(
    path: str,
    sink: IO[bytes],
    *,
    generation: int = 0,
    max_bytes: int | None = None,
    part: str = "",
    cancelled: Callable[[], bool] = lambda: False,
) -> str:
    """Writes the bytes of an object, as stored, into an empty file.

    Returns their Content-Encoding.

    With a `part`, as in a Range header, writes only these bytes, for which the service gives no
    checksum.
    """
    deadline = Deadline(DEADLINE_S, THROTTLED_S)

    def attempt() -> str:
        response = _request(url, part, deadline)
        with contextlib.closing(response):  # which keeps the connection if everything was read
            received = _receive(response, sink, max_bytes, deadline)
            if received is not None and not part:
                _check_crc32c(response.headers, received)
            return str(response.headers.get("Content-Encoding", ""))

    try:
        with named_errors(path, "get"):
            url = _url(path, generation)
            encoding = retrying(deadline, cancelled=cancelled)(attempt)()
    except FileExistsError as error:  # HTTP 412
        raise ChangedError(error.errno, "it was replaced after it was listed", path) from error
    note_served()
    sink.seek(0)
    return str(encoding)


def _url(path: str, generation: int) -> str:
    bucket, name = split_gcs(path)
    query = {"alt": "media"}
    if generation:
        query["ifGenerationMatch"] = str(generation)
    payer = gcs_client.user_project()
    if payer:
        query["userProject"] = payer
    endpoint = gcs_client.client().api_endpoint
    place = f"/download/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}"
    return f"{endpoint}{place}?{urllib.parse.urlencode(query)}"


def _request(url: str, part: str, deadline: Deadline) -> Any:
    """A response whose bytes are still to be read.

    Raises:
        GoogleAPIError: the service refuses.
    """
    from google.api_core.exceptions import from_http_status
    from urllib3 import Timeout

    headers = {"Accept-Encoding": "gzip"}  # else the service decompresses, and no checksum fits
    if part:
        headers["Range"] = part
    response = _http().urlopen(
        "GET",
        url,
        headers=headers,
        timeout=Timeout(connect=CONNECT_S, read=max(0.1, min(STALL_S, deadline.left_s()))),
        retries=False,
        preload_content=False,
        decode_content=False,
    )
    if response.status == (206 if part else 200):
        return response
    with contextlib.closing(response):
        message = response.read(1 << 16).decode(errors="replace")
        raise from_http_status(response.status, message, response=response)


def _receive(
    response: Any, sink: IO[bytes], max_bytes: int | None, deadline: Deadline
) -> bytes | None:
    """Writes the bytes of a response into a file, in place of an earlier attempt's.

    Returns:
        Their CRC-32C; None if it stopped after `max_bytes`.
    """
    import google_crc32c

    sink.seek(0)
    sink.truncate()
    checksum = google_crc32c.Checksum()
    while chunk := response.read1(_CHUNK_BYTES):
        sink.write(chunk)
        checksum.update(chunk)
        if max_bytes is not None and sink.tell() > max_bytes:
            return None
        if deadline.left_s() < 0:
            raise TimeoutError(f"after {sink.tell()} bytes")
    digest: bytes = checksum.digest()
    return digest


def _check_crc32c(headers: Any, received: bytes) -> None:
    """Compares the checksum of the bytes that were received with that of the object."""
    from google.cloud.storage.exceptions import DataCorruption

    stored = re.search(r"crc32c=([\w+/=]+)", headers.get("X-Goog-Hash", ""))
    if stored and base64.b64decode(stored[1]) != received:
        raise DataCorruption(None, "checksum mismatch: the bytes received are not those stored")
