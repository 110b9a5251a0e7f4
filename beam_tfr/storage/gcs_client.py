"""Creates Google's client for Cloud Storage, and handles its credentials, retries and errors.

Transient failures (408, 429, 5xx, broken connections) are retried after exponential random waits,
or after the time that the service asks for. Other failures become the OSError that a disk would
raise; for 401 and 403, the error mentions the account, the permission and the bucket.
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
from beam_tfr.storage.backend import GCS, split_gcs

if TYPE_CHECKING:
    from google.api_core.retry import Retry
    from google.cloud.storage import Blob, Bucket, Client

DEADLINE_S = 120.0  # for one request with all its retries
REQUESTS = 64  # sent in parallel for many small changes
CONNECTIONS = 256  # at most this many are kept open
FIRST_WAIT_S = 0.25  # maximum before the first retry; doubled each time
LONGEST_WAIT_S = 16.0
_CLIENT_LOCK = threading.Lock()


class Access(NamedTuple):
    """The account and the project for requests to gs://.

    Attributes:
        project: project of the client; None for the project of the credentials.
        user_project: project billed for requests to requester-pays buckets; None to bill none.
        impersonate: service accounts, each of which impersonates the next; the last one makes the
            requests.
    """

    project: str | None = None
    user_project: str | None = None
    impersonate: tuple[str, ...] = ()


_access = Access()


def client() -> Client:
    """Returns the client of this process, which all its threads share."""
    with _CLIENT_LOCK:
        return make_client()


@functools.cache
def make_client() -> Client:
    """Creates the client of this process, with a connection for each of `CONNECTIONS` threads."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    from beam_tfr.storage.bounded_answers import BoundedAdapter

    if os.environ.get("STORAGE_EMULATOR_HOST"):
        new_client = storage.Client(
            credentials=AnonymousCredentials(), project=_access.project or "emulator"
        )
    else:
        credentials = _impersonated() if _access.impersonate else None
        new_client = storage.Client(project=_access.project, credentials=credentials)
    for scheme in ("https://", "http://"):
        new_client._http.mount(scheme, BoundedAdapter(pool_maxsize=CONNECTIONS))
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
    """Sets the account and the project for all later requests in this process."""
    global _access
    if access != _access:
        _access = access
        make_client.cache_clear()


def user_project() -> str | None:
    """Returns the project billed for requests to requester-pays buckets."""
    return _access.user_project


def account() -> str:
    """Returns a name for the account that makes the requests, for messages about permissions."""
    credentials = client()._credentials
    for attribute in ("service_account_email", "signer_email", "account"):
        name = getattr(credentials, attribute, None)
        if name and name != "default":
            return str(name)
    return "the account of this run"


def bucket(name: str) -> Bucket:
    return client().bucket(name, user_project=user_project())


def blob(path: str) -> Blob:
    bucket_name, name = split_gcs(path)
    return bucket(bucket_name).blob(name)


def retrying(
    deadline: float | waits.Deadline = DEADLINE_S, *, cancelled: Callable[[], bool] = lambda: False
) -> Retry:
    """Retries after transient failures, with exponential backoff or after the time in Retry-After.

    Args:
        deadline: when to give up; a number is in seconds from now.
        cancelled: returns True once the result is no longer needed.
    """
    from google.api_core.exceptions import RetryError
    from google.api_core.retry import Retry

    backoff_s = FIRST_WAIT_S
    until = deadline if isinstance(deadline, waits.Deadline) else waits.Deadline(deadline)

    def wait(error: Exception) -> None:
        nonlocal backoff_s
        jitter_s = random.uniform(0.0, backoff_s)  # noqa: S311  # nosec B311  # no secret
        wait_s = _retry_after_s(error) + jitter_s
        if wait_s > until.left_s(_status_of(error)):
            raise RetryError("", error)
        waits.note_retry(_status_of(error), wait_s)
        backoff_s = min(2 * backoff_s, LONGEST_WAIT_S)
        time.sleep(wait_s)

    return Retry(
        predicate=lambda error: is_transient(error) and not cancelled(),
        initial=0.0,
        timeout=None,
        on_error=wait,
    )


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    from google.auth.exceptions import TransportError
    from google.cloud.storage.exceptions import DataCorruption
    from requests.exceptions import InvalidJSONError, RequestException

    if isinstance(error, InvalidJSONError):  # such as the page of a proxy that wants a login
        return False
    status = _status_of(error)
    if status:
        return status in (408, 429) or (status >= 500 and status != 501)  # 501: not implemented
    kinds = (
        TransportError,
        DataCorruption,
        RequestException,
        ConnectionError,
        TimeoutError,
    )
    return isinstance(error, kinds) or bool(getattr(error, "retryable", False))


def _status_of(error: Exception) -> int:
    """Returns the HTTP status of the response; 0 if there was none."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return int(getattr(error, "code", None) or status or 0)


def _retry_after_s(error: Exception) -> float:
    """Returns the number of seconds that the service asks to wait; 0 if it asks for none."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("retry-after", 0)))
    except ValueError:  # a date
        return 0.0


_STATUSES = {
    401: (errno.EACCES, "not signed in"),
    403: (errno.EACCES, "no permission"),
    404: (errno.ENOENT, "no such bucket or object"),
    412: (errno.EEXIST, "it exists already"),
}


# Response text with a cause other than a missing permission -> the fix.
_CURES = {
    "retention policy|under active .*hold": "a run deletes and replaces its own files; write to a "
    "bucket without retention policies and holds, and copy the dataset from there",
    "Cloud KMS": "the Cloud Storage service agent of the bucket's project needs the role Cloud KMS "
    "CryptoKey Encrypter/Decrypter on the bucket's key",
    "requester pays|serviceusage": "`gcs_project=` names the project that pays; the account needs "
    "the role Service Usage Consumer on it",
    "organization's policy": "call from within the service perimeter of VPC Service Controls",
}


@contextlib.contextmanager
def named_errors(path: str, permission: str) -> Iterator[None]:
    """Turns errors from Google's libraries into the OSError that a disk would raise.

    Args:
        path: path of the object, for the error.
        permission: permission for the request: `get`, `list`, `create` or `delete` of
            storage.objects.
    """
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests.exceptions import RequestException

    try:
        yield
    except (
        GoogleAPIError,
        GoogleAuthError,
        RequestException,
        DataCorruption,
        InvalidResponse,
    ) as error:
        raise _as_os_error(error, path, permission) from error


def _as_os_error(error: Exception, path: str, permission: str) -> OSError:
    """Builds the error that a disk would raise, of a subclass such as FileNotFoundError."""
    from google.api_core.exceptions import RetryError

    retried = ""
    if isinstance(error, RetryError) and error.cause:
        retried = "retried until the deadline; the last error: "
        error = error.cause
    if _status_of(error):
        number, text = _describe_answer(error, path, permission)
    else:
        number, text = _describe_failure(error)
    return OSError(number, f"{retried}{text}", path)


def _describe_answer(error: Exception, path: str, permission: str) -> tuple[int, str]:
    """Returns (errno, text) for an error response from the service, with a fix."""
    status = _status_of(error)
    answer = _answer_of(error)
    for text, cure in _CURES.items():
        if re.search(text, answer):
            return errno.EACCES, f"refused (HTTP {status}){answer}; {cure}"
    number, meaning = _STATUSES.get(status, (errno.EAGAIN, "the service failed"))
    described = f"{meaning} (HTTP {status}){answer}"
    if status in (401, 403):
        bucket_name = split_gcs(path)[0]
        described += f"; {account()} needs storage.objects.{permission} on {GCS}{bucket_name}"
    return number, described


def _describe_failure(error: Exception) -> tuple[int, str]:
    """Returns (errno, text) for an error without a response from the service."""
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from requests.exceptions import InvalidJSONError

    message = str(error)
    if isinstance(error, InvalidJSONError):
        return errno.EPROTO, f"the response is not from Cloud Storage ({message}); check the proxy"
    if isinstance(error, DefaultCredentialsError):
        cure = "create some with `gcloud auth application-default login`"
        return errno.EACCES, f"no credentials: {message.rstrip('.')}; {cure}"
    if isinstance(error, GoogleAuthError) and not is_transient(error):
        return errno.EACCES, f"no credentials: {message.rstrip('.')}"
    return errno.EAGAIN, f"{type(error).__name__}: {message}"


def _answer_of(error: Exception) -> str:
    """Returns the text of the service's response, without the text that the client adds."""
    response = getattr(error, "response", None)
    message = getattr(error, "message", None) or getattr(response, "text", error)
    answer = re.sub(r"^[A-Z]+ \S+: ", "", str(message))
    client_adds = r"(: )?\('Request failed with status code'.*"
    answer = re.sub(client_adds, "", answer, flags=re.DOTALL).strip()
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        answer = json.loads(answer)["error"]["message"]
    return f": {answer[:300]}" if answer not in ("", "unknown error") else ""
