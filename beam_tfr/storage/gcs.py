"""Lists, uploads and deletes objects of Cloud Storage; `download` reads them, `gcs_client` retries
requests."""

import base64
import contextlib
import errno
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from beam_tfr.storage.base import (
    GCS,
    AlreadyExistsError,
    ChangedError,
    Entry,
    PendingFile,
    split_gcs,
)
from beam_tfr.storage.gcs_client import blob, bucket, client, named_errors, retrying, user_project

PAGE_SIZE = 1000  # names in a page of a listing; the service gives no more
UPLOAD_CHUNK_BYTES = 16 << 20  # 16 MiB of a large file in memory at a time


def connect() -> None:
    """Looks for credentials now instead of on the first request.

    Raises:
        OSError: there are no credentials.
    """
    with named_errors(GCS, "get"):
        client()


def walk(
    folder: str, *, prefix: str = "", deep: bool = True, start: str = "", end: str = ""
) -> Iterator[Entry]:
    """`storage.walk` on gs://."""
    name, below = split_gcs(f"{folder.rstrip('/')}/")
    with named_errors(folder, "list"):
        listed = client().list_blobs(
            bucket(name),
            prefix=below + prefix,
            delimiter=None if deep else "/",
            start_offset=start or None,
            end_offset=end or None,
            fields="items(name,size,generation,crc32c),nextPageToken",
            page_size=PAGE_SIZE,
            retry=retrying(),
        )
        listed.item_to_value = lambda _, item: item  # a Blob takes as long as all the rest
        for item in listed:
            key = item["name"]
            size = int(item.get("size", 0))
            if size or not key.endswith("/"):
                yield Entry(
                    f"{GCS}{name}/{key}",
                    size,
                    int(item.get("generation", 0)),
                    _crc32c(item.get("crc32c")),
                )


def _crc32c(encoded: str | None) -> int:
    return int.from_bytes(base64.b64decode(encoded or ""), "big")


def find(path: str) -> Entry | None:
    """`storage.find` on gs://."""
    bucket_name, name = split_gcs(path)
    if not name:
        return None
    with named_errors(path, "get"):
        found = bucket(bucket_name).get_blob(name, retry=retrying())
    return found and Entry(
        path, int(found.size or 0), int(found.generation or 0), _crc32c(found.crc32c)
    )


def is_gone(path: str) -> bool:
    """`storage.is_gone` on gs://."""
    bucket_name, name = split_gcs(path)
    with contextlib.suppress(OSError), named_errors(path, "list"):
        options = {"prefix": name, "max_results": 1, "fields": "items(name)", "retry": retrying()}
        return all(
            found.name != name for found in client().list_blobs(bucket(bucket_name), **options)
        )
    return False


def touch(path: str, deadline_s: float) -> None:
    """`storage.touch` on gs://, without `Blob.patch`: that asks for the ACL too, which takes
    another permission."""
    payer = user_project()
    with named_errors(path, "update"):
        client()._connection.api_request(
            method="PATCH",
            path=blob(path).path,
            query_params={"projection": "noAcl", **({"userProject": payer} if payer else {})},
            data={"metadata": {"touched": str(time.time())}},
            timeout=deadline_s,
            retry=retrying(deadline_s),
        )


def modified(path: str) -> float:
    """`storage.modified` on gs://."""
    target = blob(path)
    with named_errors(path, "get"):
        target.reload(retry=retrying())
    return float(target.updated.timestamp())


def move(source: str, target: str, generation: int) -> None:
    """`storage.move` on gs://: one atomic request, for which the service copies no byte and keeps
    no deleted copy."""
    from google.api_core.exceptions import MethodNotImplemented

    bucket_name, name = split_gcs(target)
    try:
        with named_errors(source, "delete"):
            conditions = {"if_source_generation_match": generation or None, "retry": retrying()}
            try:
                bucket(bucket_name).move_blob(blob(source), name, **conditions)
            except MethodNotImplemented:  # an emulator
                bucket(bucket_name).copy_blob(blob(source), bucket(bucket_name), name, **conditions)
                blob(source).delete(if_generation_match=generation or None, retry=retrying())
    except FileExistsError as error:  # 412: the precondition failed
        raise ChangedError(errno.ESTALE, "it was changed after it was written", source) from error


def delete(path: str, generation: int) -> None:
    """`storage.delete` on gs://."""
    with contextlib.suppress(FileNotFoundError, FileExistsError), named_errors(path, "delete"):
        blob(path).delete(if_generation_match=generation or None, retry=retrying())


class GcsPendingFile(PendingFile):
    """Uploads a finished local file.

    A streaming writer would publish a partial object when it is garbage collected. With a
    precondition on the generation, it replaces only the object that existed when it was created, so
    a writer that was superseded replaces nothing. Equal bytes are success: they are from an earlier
    attempt whose response was lost.
    """

    def __init__(self, path: str, replace: bool) -> None:
        found = find(path) if replace else None
        self._path = path
        self._generation = found.generation if found else 0
        self._file = tempfile.TemporaryFile(prefix="beam_tfr-")  # noqa: SIM115 - has no name, goes with the process

    def commit(self) -> int:
        target = blob(self._path)
        size = self._file.seek(0, os.SEEK_END)
        target.chunk_size = UPLOAD_CHUNK_BYTES
        try:
            with named_errors(self._path, "create"):
                target.upload_from_file(
                    self._file,
                    rewind=True,
                    size=size,
                    checksum="crc32c",
                    if_generation_match=self._generation,
                    content_type="application/octet-stream",
                    retry=retrying(),
                )
        except FileExistsError:
            if not self._is_uploaded(target):
                raise AlreadyExistsError(self._path) from None
        self._file.close()
        return int(target.generation or 0)

    def _is_uploaded(self, target: Any) -> bool:
        import google_crc32c

        with contextlib.suppress(FileNotFoundError), named_errors(self._path, "get"):
            target.reload(retry=retrying())
        checksum = google_crc32c.Checksum()
        self._file.seek(0)
        while chunk := self._file.read(1 << 20):
            checksum.update(chunk)
        return bool(target.crc32c == base64.b64encode(checksum.digest()).decode())
