"""Objects of Cloud Storage, by Google's client: what is there, and uploads. `download` reads them.

One client serves the whole process. What passes (408, 429, 5xx, broken connections) is tried again, with growing,
random waits or as long as the service says; see `retrying`. What does not is an OSError like that of a disk, which for
401 and 403 names the account, the permission and the bucket.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import json
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

from beam_tfr.storage.base import GCS, Access, AlreadyExistsError, Entry, PendingFile

if TYPE_CHECKING:
    from google.api_core.retry import Retry
    from google.cloud.storage import Blob, Bucket, Client

DEADLINE_S = 120.0  # for one request with all its repetitions
FIRST_WAIT_S = 0.25  # before the first repetition, at most; doubled each time
LONGEST_WAIT_S = 16.0
SILENCE_S = 3.0  # after which it is said that credentials are being looked for
PAGE_SIZE = 5000  # names in a page of a listing; the service gives what it likes, up to that
PART_BYTES = 1 << 20  # 1 MiB of an object of which parts are read
UPLOAD_CHUNK_BYTES = 16 << 20  # 16 MiB of a large file are in memory at a time
_CLIENT_LOCK = threading.Lock()
_access = Access()


def client() -> Client:
    """One client per process, also for threads that begin together: kept-alive connections, credentials once."""
    with _CLIENT_LOCK:
        return make_client()


@functools.cache
def make_client() -> Client:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    project = _access.project or None
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return storage.Client(credentials=AnonymousCredentials(), project=project or "emulator")
    said = (
        "still looking for credentials of Google Cloud: in GOOGLE_APPLICATION_CREDENTIALS, then those of gcloud, then "
        "of the machine, which takes long outside of Google Cloud"
    )
    timer = threading.Timer(SILENCE_S, logging.getLogger(__name__).warning, [said])
    timer.daemon = True
    timer.start()
    try:
        return storage.Client(project=project, credentials=_impersonated() if _access.impersonate else None)
    finally:
        timer.cancel()


def _impersonated() -> Any:
    import google.auth
    from google.auth.impersonated_credentials import Credentials

    scopes = ["https://www.googleapis.com/auth/devstorage.full_control"]
    source, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    *delegates, target = _access.impersonate
    return Credentials(source, target, scopes, delegates=delegates)


def use_access(access: Access) -> None:
    """From now on this process asks like that."""
    global _access
    if access != _access:
        _access = access
        make_client.cache_clear()


def connect() -> None:
    """Looks for credentials now, not when they are first needed.

    Raises:
        OSError: there are none.
    """
    with named_errors(GCS, "get"):
        client()


os.register_at_fork(after_in_child=make_client.cache_clear)  # connections belong to one process


def account() -> str:
    """Who needs a permission."""
    credentials = client()._credentials
    names = (getattr(credentials, name, None) for name in ("service_account_email", "signer_email", "account"))
    return next((name for name in names if name and name != "default"), "the account of this run")


def split_path(path: str) -> tuple[str, str]:
    """(bucket, name) of an object."""
    bucket, _, name = path[len(GCS) :].partition("/")
    return bucket, name


def _bucket(name: str) -> Bucket:
    return client().bucket(name, user_project=user_project())


def user_project() -> str | None:
    """Who pays for requests to buckets whose requesters pay."""
    return _access.user_project or None


def _blob(path: str) -> Blob:
    bucket, name = split_path(path)
    return _bucket(bucket).blob(name)


def retrying(deadline_s: float = DEADLINE_S, *, cancelled: Callable[[], bool] = lambda: False) -> Retry:
    """Repeats what fails for a reason that passes: exponential backoff with full jitter, and no sooner than the
    service says (Retry-After), until the deadline.

    Args:
        deadline_s: from now on, in seconds.
        cancelled: whether nobody waits for it any more.
    """
    from google.api_core.retry import Retry

    end = time.monotonic() + deadline_s

    def wait(error: Exception) -> None:
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        with contextlib.suppress(ValueError):  # it may be a date, too
            time.sleep(max(0.0, min(float(headers.get("Retry-After", 0)), end - time.monotonic())))

    return Retry(
        predicate=lambda error: passes(error) and not cancelled(),
        initial=FIRST_WAIT_S,
        maximum=LONGEST_WAIT_S,
        multiplier=2.0,
        timeout=deadline_s,
        on_error=wait,
    )


def passes(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    from google.auth.exceptions import TransportError
    from google.cloud.storage.exceptions import DataCorruption
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    if code := _code(error):
        return code in (408, 429) or code >= 500
    kinds = (TransportError, DataCorruption, RequestException, HTTPError, ConnectionError, TimeoutError)
    return isinstance(error, kinds) or bool(getattr(error, "retryable", False))


def _code(error: object) -> int:
    """The HTTP status, or 0."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return int(getattr(error, "code", None) or status or 0)


_CODES = {
    401: (errno.EACCES, "not signed in"),
    403: (errno.EACCES, "no permission"),
    404: (errno.ENOENT, "no such bucket or object"),
    412: (errno.EEXIST, "it exists already"),
}


@contextlib.contextmanager
def named_errors(path: str, permission: str) -> Iterator[None]:
    """Turns what Google's libraries raise into the OSError that a disk would raise.

    Args:
        path: what it is about.
        permission: what is needed for it: `get`, `list`, `create` or `delete` of storage.objects.
    """
    from google.api_core.exceptions import GoogleAPIError, RetryError
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (GoogleAPIError, GoogleAuthError, RequestException, HTTPError, DataCorruption, InvalidResponse) as error:
        text, cause = "", error
        if isinstance(error, RetryError) and error.cause:
            text, cause = "tried again until the deadline; at last: ", error.cause
        code = _code(cause)
        number, meaning = _CODES.get(code, (errno.EAGAIN, "the service failed"))
        if code:
            text += f"{meaning} (HTTP {code}){_said(cause)}"
        elif isinstance(cause, GoogleAuthError) and not passes(cause):
            number = errno.EACCES
            text += f"no credentials: {str(cause).rstrip('.')}"
        else:
            text += _describe(cause)
        if code in (401, 403):
            text += f"; {account()} needs storage.objects.{permission} on {GCS}{split_path(path)[0]}"
        elif isinstance(cause, DefaultCredentialsError):
            text += "; `gcloud auth application-default login` makes some"
        raise OSError(number, text, path) from error  # of the subclass that fits, such as FileNotFoundError


def _said(error: Exception) -> str:
    """What the service said; the client puts the request before it, and its own expectations behind."""
    said = str(getattr(error, "message", None) or getattr(getattr(error, "response", None), "text", error))
    said = re.sub(r"^[A-Z]+ \S+: ", "", said)
    said = re.sub(r"(: )?\('Request failed with status code'.*", "", said, flags=re.DOTALL).strip()
    with contextlib.suppress(ValueError, KeyError, TypeError):
        said = json.loads(said)["error"]["message"]
    return f": {said[:300]}" if said not in ("", "unknown error") else ""


def _describe(error: Exception) -> str:
    from requests.exceptions import ConnectionError as RequestsConnectionError
    from requests.exceptions import Timeout
    from urllib3.exceptions import NewConnectionError, ProtocolError, ReadTimeoutError

    if isinstance(error, (ReadTimeoutError, Timeout)):
        return "the stream stalled"
    if isinstance(error, NewConnectionError):
        return "no connection to the service"
    if isinstance(error, (ProtocolError, ConnectionError, RequestsConnectionError)):
        return f"the connection broke: {error}"
    return f"{type(error).__name__}: {error}"


def walk(folder: str, *, prefix: str = "", deep: bool = True) -> Iterator[Entry]:
    """Every object below a folder, page by page; folder objects (a trailing slash, no bytes) are left out.

    Args:
        folder: gs://.
        prefix: only names that go on like that, behind the folder's slash.
        deep: also below further slashes.
    """
    bucket, start = _split_folder(folder)
    with named_errors(folder, "list"):
        for blob in client().list_blobs(
            _bucket(bucket),
            prefix=start + prefix,
            delimiter=None if deep else "/",
            fields="items(name,size,generation),nextPageToken",
            page_size=PAGE_SIZE,
            retry=retrying(),
        ):
            if not (blob.name.endswith("/") and not blob.size):
                yield Entry(f"{GCS}{bucket}/{blob.name}", int(blob.size or 0), int(blob.generation or 0))


def _split_folder(folder: str) -> tuple[str, str]:
    """(bucket, prefix of the names below the folder)."""
    bucket, prefix = split_path(folder)
    return bucket, prefix.rstrip("/") + "/" if prefix.rstrip("/") else ""


def list_folder(folder: str) -> list[str]:
    start = _split_folder(folder)[1]
    names = (split_path(entry.path)[1][len(start) :] for entry in walk(folder, deep=False))
    return sorted(name for name in names if name)


def find(path: str) -> Entry | None:
    bucket, name = split_path(path)
    if not name:
        return None
    with named_errors(path, "get"):
        blob = _bucket(bucket).get_blob(name, retry=retrying())
    return None if blob is None else Entry(path, int(blob.size or 0), int(blob.generation or 0))


def open_seekable(path: str) -> IO[bytes]:
    from google.cloud.storage.fileio import BlobReader

    class Reader(BlobReader):
        def read(self, size: int = -1) -> bytes:
            with named_errors(path, "get"):
                return super().read(size)  # type: ignore[no-any-return]

    found = find(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return Reader(_blob(path), chunk_size=PART_BYTES, retry=retrying(), if_generation_match=found.generation)


def delete(path: str) -> None:
    with contextlib.suppress(FileNotFoundError), named_errors(path, "delete"):
        _blob(path).delete(retry=retrying())


def delete_folder(folder: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(delete, [entry.path for entry in walk(folder)]))


class GcsPendingFile(PendingFile):
    """Uploads a finished local file: a writer that streams would finalize what it has when it is garbage collected.

    It appears only where there is still what was there when it was created, by a precondition on the generation: a
    writer that lost its place to another one replaces nothing. Equal bytes there are success: they are its own, of a
    try whose answer was lost.
    """

    def __init__(self, path: str, replace: bool) -> None:
        found = find(path) if replace else None
        self._path, self._generation = path, found.generation if found else 0
        self._file = tempfile.TemporaryFile(prefix="beam_tfr-")  # noqa: SIM115 - has no name, goes with the process

    def commit(self) -> None:
        blob = _blob(self._path)
        size = self._file.seek(0, os.SEEK_END)
        blob.chunk_size = UPLOAD_CHUNK_BYTES
        try:
            with named_errors(self._path, "create"):
                blob.upload_from_file(
                    self._file,
                    rewind=True,
                    size=size,
                    checksum="crc32c",
                    if_generation_match=self._generation,
                    content_type="application/octet-stream",
                    retry=retrying(),
                )
        except FileExistsError:
            if not self._same_object(blob):
                raise AlreadyExistsError(self._path) from None
        self._file.close()

    def _same_object(self, blob: Any) -> bool:
        import google_crc32c

        try:
            with named_errors(self._path, "get"):
                blob.reload(retry=retrying())
        except FileNotFoundError:
            return False
        checksum = google_crc32c.Checksum()
        self._file.seek(0)
        while chunk := self._file.read(1 << 20):
            checksum.update(chunk)
        return bool(blob.crc32c == base64.b64encode(checksum.digest()).decode())

    def abort(self) -> None:
        self._file.close()
