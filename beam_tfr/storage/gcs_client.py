"""Google's client for Cloud Storage: one per process, with its credentials."""

from __future__ import annotations

import functools
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from beam_tfr.storage.base import Access
from beam_tfr.storage.paths import split_gcs

if TYPE_CHECKING:
    from google.cloud.storage import Blob, Bucket, Client

SILENCE_S = 3.0  # before a message says that the search for credentials goes on
_CLIENT_LOCK = threading.Lock()
_access = Access()


def client() -> Client:
    """The client of this process, shared by its threads."""
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
        "still looking for Google Cloud credentials: in GOOGLE_APPLICATION_CREDENTIALS, then gcloud's, then the "
        "machine's, which takes long outside Google Cloud"
    )
    timer = threading.Timer(SILENCE_S, logging.getLogger(__name__).warning, [said])
    timer.daemon = True
    timer.start()
    try:
        return storage.Client(project=project, credentials=_impersonated() if _access.impersonate else None)
    finally:
        timer.cancel()


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
    names = (getattr(credentials, name, None) for name in ("service_account_email", "signer_email", "account"))
    return next((name for name in names if name and name != "default"), "the account of this run")


def bucket(name: str) -> Bucket:
    return client().bucket(name, user_project=user_project())


def blob(path: str) -> Blob:
    of, name = split_gcs(path)
    return bucket(of).blob(name)
