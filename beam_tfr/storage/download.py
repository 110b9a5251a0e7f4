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
from beam_tfr.storage.base import ChangedError, split_gcs
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
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or where()
    manager.connection_pool_kw["ca_certs"] = bundle
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
    """Writes the bytes of an object, as stored, into an empty file; returns their Content-Encoding.

    With a `part`, as in a Range header, writes only these bytes, for which the service gives no
    checksum.
    """
    bucket, name = split_gcs(path)
    query = f"alt=media&ifGenerationMatch={generation}" if generation else "alt=media"
    payer = gcs_client.user_project()
    if payer:
        query += f"&userProject={urllib.parse.quote(payer, safe='')}"
    deadline = Deadline(DEADLINE_S, THROTTLED_S)
    try:
        with named_errors(path, "get"):
            endpoint = gcs_client.client().api_endpoint
            quoted = urllib.parse.quote(name, safe="")
            url = f"{endpoint}/download/storage/v1/b/{bucket}/o/{quoted}?{query}"
            encoding = retrying(deadline, cancelled=cancelled)(_try)(
                url, sink, max_bytes, part, deadline
            )
    except FileExistsError as error:  # HTTP 412
        raise ChangedError(error.errno, "it was replaced after it was listed", path) from error
    note_served()
    sink.seek(0)
    return str(encoding)


def _try(url: str, sink: IO[bytes], max_bytes: int | None, part: str, deadline: Deadline) -> str:
    import google_crc32c
    from google.api_core.exceptions import from_http_status
    from google.cloud.storage.exceptions import DataCorruption
    from urllib3 import Timeout

    sink.seek(0)
    sink.truncate()
    response = _http().urlopen(
        "GET",
        url,
        # without the first, the service decompresses, and no checksum fits
        headers={"Accept-Encoding": "gzip", **({"Range": part} if part else {})},
        timeout=Timeout(connect=CONNECT_S, read=max(0.1, min(STALL_S, deadline.left_s()))),
        retries=False,
        preload_content=False,
        decode_content=False,
    )
    with contextlib.closing(response):  # which keeps the connection if everything was read
        if response.status != (206 if part else 200):
            raise from_http_status(
                response.status, response.read(1 << 16).decode(errors="replace"), response=response
            )
        checksum = google_crc32c.Checksum()
        while chunk := response.read1(_CHUNK_BYTES):
            sink.write(chunk)
            checksum.update(chunk)
            if max_bytes is not None and sink.tell() > max_bytes:
                break
            if deadline.left_s() < 0:
                raise TimeoutError(f"after {sink.tell()} bytes")
        else:
            expected = re.search(r"crc32c=([\w+/=]+)", response.headers.get("X-Goog-Hash", ""))
            if expected and not part and base64.b64decode(expected[1]) != checksum.digest():
                raise DataCorruption(
                    None, "checksum mismatch: the bytes received are not those stored"
                )
        return str(response.headers.get("Content-Encoding", ""))
