"""Google's client for Cloud Storage, its credentials, retries and errors.

Transient failures (408, 429, 5xx, broken connections) are retried with exponential, random waits,
or after the time that the service asks for. Others become the OSError that a disk would raise; for
401 and 403 it names the account, the permission and the bucket.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from beam_tfr.storage import waits
from beam_tfr.storage.base import GCS, split_gcs

if TYPE_CHECKING:
    from google.api_core.retry import Retry
    from google.cloud.storage import Blob, Bucket, Client

DEADLINE_S = 120.0  # for one request with all its retries
REQUESTS = 64  # for many small changes, at a time
CONNECTIONS = 256  # kept at most
FIRST_WAIT_S = 0.25  # at most, before the first retry; doubled each time
LONGEST_WAIT_S = 16.0
_CLIENT_LOCK = threading.Lock()


class Access(NamedTuple):
    """The account and the project for requests to gs://.

    Attributes:
        project: project of the client; empty for that of the credentials.
        user_project: project billed for requests to requester-pays buckets; empty for none.
        impersonate: service accounts, each impersonating the next; the last one makes the requests.
    """

    project: str = ""
    user_project: str = ""
    impersonate: tuple[str, ...] = ()


_access = Access()


def client() -> Client:
    """The client of this process, shared by its threads."""
    with _CLIENT_LOCK:
        return make_client()


@functools.cache
def make_client() -> Client:
    """The client of this process, which keeps a connection for each of `CONNECTIONS` threads."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage
    from requests.adapters import HTTPAdapter

    if os.environ.get("STORAGE_EMULATOR_HOST"):
        new_client = storage.Client(
            credentials=AnonymousCredentials(), project=_access.project or "emulator"
        )
    else:
        credentials = _impersonated() if _access.impersonate else None
        new_client = storage.Client(project=_access.project or None, credentials=credentials)
    for scheme in ("https://", "http://"):
        new_client._http.mount(scheme, HTTPAdapter(pool_maxsize=CONNECTIONS))
    return new_client


os.register_at_fork(after_in_child=make_client.cache_clear)  # a connection belongs to one process


def _impersonated() -> Any:
    import google.auth
    from google.auth.impersonated_credentials import Credentials

    scopes = ["https://www.googleapis.com/auth/devstorage.full_control"]
    source, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    *delegates, target = _access.impersonate
    return Credentials(source, target, scopes, delegates=delegates)


def use_access(access: Access) -> None:
    """Sets the account and the project for all later requests of this process."""
    global _access
    if access != _access:
        _access = access
        make_client.cache_clear()


def user_project() -> str | None:
    """The project billed for requests to requester-pays buckets."""
    return _access.user_project or None


def account() -> str:
    """The account that makes the requests, for a message about permissions."""
    credentials = client()._credentials
    names = (
        getattr(credentials, name, None)
        for name in ("service_account_email", "signer_email", "account")
    )
    return next((name for name in names if name and name != "default"), "the account of this run")


def bucket(name: str) -> Bucket:
    return client().bucket(name, user_project=user_project())


def blob(path: str) -> Blob:
    bucket_name, name = split_gcs(path)
    return bucket(bucket_name).blob(name)


def retrying(
    deadline: float | waits.Deadline = DEADLINE_S, *, cancelled: Callable[[], bool] = lambda: False
) -> Retry:
    """Retries transient failures with exponential backoff, and after Retry-After.

    Args:
        deadline: when to give up; a number is seconds from now.
        cancelled: returns True once the result is no longer needed.
    """
    from google.api_core.exceptions import RetryError
    from google.api_core.retry import Retry

    backoff_s = FIRST_WAIT_S
    until = deadline if isinstance(deadline, waits.Deadline) else waits.Deadline(deadline)

    def wait(error: Exception) -> None:
        nonlocal backoff_s
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        wait_s = random.uniform(0.0, backoff_s)  # noqa: S311  # nosec B311  # no secret
        left_s = until.left_s(_code(error))
        with contextlib.suppress(ValueError):  # Retry-After may be a date
            wait_s += max(0.0, float(headers.get("Retry-After", 0)))
        if wait_s > left_s:
            raise RetryError("", error)
        waits.note(_code(error), wait_s)
        backoff_s = min(2 * backoff_s, LONGEST_WAIT_S)
        time.sleep(wait_s)

    return Retry(
        predicate=lambda error: is_transient(error) and not cancelled(),
        initial=0.0,
        timeout=None,
        on_error=wait,
    )


def is_transient(error: Exception) -> bool:
    """True if the same request may succeed later."""
    from google.auth.exceptions import TransportError
    from google.cloud.storage.exceptions import DataCorruption
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    code = _code(error)
    if code:
        return code in (408, 429) or (code >= 500 and code != 501)  # which no repetition implements
    kinds = (
        TransportError,
        DataCorruption,
        RequestException,
        HTTPError,
        ConnectionError,
        TimeoutError,
    )
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


# Text of an answer that means something else than a missing permission -> the cure.
_CURES = {
    "retention policy|under active .*hold": "a run deletes and replaces its own files; write to a bucket without "
    "retention policies and holds, and copy the dataset from there",
    "Cloud KMS": "Cloud Storage's own account of the bucket's project needs the role Cloud KMS CryptoKey "
    "Encrypter/Decrypter on the bucket's key",
    "requester pays|serviceusage": "`gcs_project=` names the project that pays; the account needs the role "
    "Service Usage Consumer on it",
    "organization's policy": "call from within the service perimeter of VPC Service Controls",
}


@contextlib.contextmanager
def named_errors(path: str, permission: str) -> Iterator[None]:
    """Turns errors of Google's libraries into the OSError that a disk would raise.

    Args:
        path: path of the object, for the error.
        permission: permission for the request: `get`, `list`, `create` or `delete` of
            storage.objects.
    """
    from google.api_core.exceptions import GoogleAPIError, RetryError
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (
        GoogleAPIError,
        GoogleAuthError,
        RequestException,
        HTTPError,
        DataCorruption,
        InvalidResponse,
    ) as error:
        text = ""
        cause = error
        if isinstance(error, RetryError) and error.cause:
            text = "retried until the deadline; the last error: "
            cause = error.cause
        code = _code(cause)
        number, meaning = _CODES.get(code, (errno.EAGAIN, "the service failed"))
        answer = _answer(cause) if code else ""
        cure = next((cure for cause, cure in _CURES.items() if re.search(cause, answer)), "")
        if code:
            number, meaning = (errno.EACCES, "refused") if cure else (number, meaning)
            text += f"{meaning} (HTTP {code}){answer}"
        elif isinstance(cause, GoogleAuthError) and not is_transient(cause):
            number = errno.EACCES
            text += f"no credentials: {str(cause).rstrip('.')}"
        else:
            text += f"{type(cause).__name__}: {cause}"
        if cure:
            text += f"; {cure}"
        elif code in (401, 403):
            text += f"; {account()} needs storage.objects.{permission} on {GCS}{split_gcs(path)[0]}"
        elif isinstance(cause, DefaultCredentialsError):
            text += "; `gcloud auth application-default login` creates some"
        raise OSError(
            number, text, path
        ) from error  # of the subclass that fits, such as FileNotFoundError


def _answer(error: Exception) -> str:
    """The answer of the service, without the request and the expectations that the client wraps
    around it."""
    answer = str(
        getattr(error, "message", None) or getattr(getattr(error, "response", None), "text", error)
    )
    answer = re.sub(r"^[A-Z]+ \S+: ", "", answer)
    answer = re.sub(
        r"(: )?\('Request failed with status code'.*", "", answer, flags=re.DOTALL
    ).strip()
    with contextlib.suppress(ValueError, KeyError, TypeError):
        answer = json.loads(answer)["error"]["message"]
    return f": {answer[:300]}" if answer not in ("", "unknown error") else ""
