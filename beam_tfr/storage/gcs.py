"""Lists, uploads and deletes objects in Cloud Storage.

`download` reads objects, and `gcs_client` retries requests.
"""

import base64
import contextlib
import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from beam_tfr.storage import download
from beam_tfr.storage.backend import (
    GCS,
    AlreadyExistsError,
    Backend,
    ChangedError,
    Entry,
    PendingFile,
    split_gcs,
)
from beam_tfr.storage.gcs_client import blob, bucket, client, named_errors, retrying, user_project
from beam_tfr.storage.names import NameRules, rules_of_gcs

PAGE_SIZE = 1000  # names in a page of a listing; the service gives no more
UPLOAD_CHUNK_BYTES = 16 << 20  # 16 MiB of a large file are in memory at once


def connect() -> None:
    """Looks for credentials now, instead of on the first request.

    Raises:
        OSError: there are no credentials.
    """
    with named_errors(GCS, "get"):
        client()


class GcsBackend(Backend):
    """The backend for objects in Cloud Storage; see `Backend`."""

    is_remote = True

    def join(self, folder: str, name: str) -> str:
        return f"{folder.rstrip('/')}/{name}"

    def complete_path(self, path: str) -> str:
        if not split_gcs(path)[0]:
            raise ValueError("has no bucket; write gs://BUCKET/FOLDER")
        return path

    def real_path(self, path: str) -> str:
        return path

    def walk(
        self,
        folder: str,
        descend: Callable[[str], bool],
        *,
        prefix: str,
        deep: bool,
        start: str,
        end: str,
        note_repeat: Callable[[str], object],
    ) -> Iterator[Entry]:
        bucket_name, below = split_gcs(f"{folder.rstrip('/')}/")
        pages = _list_pages(
            folder,
            prefix=below + prefix,
            delimiter=None if deep else "/",
            start_offset=start or None,
            end_offset=end or None,
            fields="items(name,size,generation,crc32c),nextPageToken",
        )
        for page in pages:
            with _checked_answer(folder):
                entries = [_entry_of(f"{GCS}{bucket_name}/{item['name']}", item) for item in page]
            for entry in entries:
                if entry.size_bytes or not entry.path.endswith("/"):
                    yield entry

    def list_names(self, folder: str) -> Iterator[str]:
        _, below = split_gcs(f"{folder.rstrip('/')}/")
        pages = _list_pages(
            folder, prefix=below, delimiter="/", fields="items(name),prefixes,nextPageToken"
        )
        for page in pages:
            with _checked_answer(folder):
                paths = [*page.prefixes, *(item["name"] for item in page)]
            for path in paths:
                if path != below:  # the object of the folder itself
                    yield path[len(below) :]

    def find(self, path: str) -> Entry | None:
        bucket_name, name = split_gcs(path)
        if not name:
            return None
        with _checked_answer(path), named_errors(path, "get"):
            blob = bucket(bucket_name).get_blob(name, retry=retrying())
            return None if blob is None else _entry_of(path, blob._properties)

    def is_gone(self, path: str, root: str) -> bool:
        bucket_name, name = split_gcs(path)
        with contextlib.suppress(OSError), _checked_answer(path), named_errors(path, "list"):
            options = {"max_results": 1, "fields": "items(name)", "retry": retrying()}
            first = client().list_blobs(bucket(bucket_name), prefix=name, **options)
            return name not in [blob.name for blob in first]
        return False

    def read_bytes(
        self,
        path: str,
        *,
        max_bytes: int | None,
        generation: int,
        cancelled: Callable[[], bool],
    ) -> bytes:
        return download.read_bytes(
            path, max_bytes=max_bytes, generation=generation, cancelled=cancelled
        )

    def read_part(self, path: str, begin: int, num_bytes: int, generation: int) -> bytes:
        return download.read_part(path, begin, num_bytes, generation)

    def open_binary(self, path: str, max_bytes: int | None) -> IO[bytes]:
        file = tempfile.TemporaryFile(prefix="beam_tfr-")  # noqa: SIM115 - the caller closes it
        download.fetch(path, file, max_bytes=max_bytes)
        return file

    def create(self, path: str, scratch: str, replace: bool) -> PendingFile:
        replaced = self.find(path) if replace else None
        return GcsPendingFile(path, replaced.generation if replaced else 0)

    def touch(self, path: str, deadline_s: float) -> None:
        """Avoids `Blob.patch`, which also requests the ACL and so requires another permission."""
        query = {"projection": "noAcl"}
        payer = user_project()
        if payer:
            query["userProject"] = payer
        with named_errors(path, "update"):
            client()._connection.api_request(
                method="PATCH",
                path=blob(path).path,
                query_params=query,
                data={"metadata": {"touched": str(time.time())}},
                timeout=deadline_s,
                retry=retrying(deadline_s),
            )

    def modified(self, path: str) -> float:
        target = blob(path)
        with _checked_answer(path), named_errors(path, "get"):
            target.reload(retry=retrying())
            return float(target.updated.timestamp())

    def move(self, source: str, target: str, generation: int) -> None:
        """Moves an object with one atomic request, which copies no bytes and keeps no old copy."""
        from google.api_core.exceptions import MethodNotImplemented

        bucket_name, name = split_gcs(target)
        condition = {"if_source_generation_match": generation or None}
        try:
            with named_errors(source, "delete"):
                try:
                    bucket(bucket_name).move_blob(blob(source), name, **condition, retry=retrying())
                except MethodNotImplemented:  # an emulator
                    bucket(bucket_name).copy_blob(
                        blob(source), bucket(bucket_name), name, **condition, retry=retrying()
                    )
                    _delete_blob(source, generation)
        except FileExistsError as error:  # 412: the precondition failed
            message = "it was changed after it was written"
            raise ChangedError(errno.ESTALE, message, source) from error

    def delete(self, path: str, generation: int) -> None:
        with contextlib.suppress(FileNotFoundError, FileExistsError), named_errors(path, "delete"):
            _delete_blob(path, generation)

    def name_rules(self, folder: str) -> NameRules:
        return rules_of_gcs(split_gcs(folder)[0])


def _delete_blob(path: str, generation: int) -> None:
    blob(path).delete(if_generation_match=generation or None, retry=retrying())


@contextlib.contextmanager
def _checked_answer(path: str) -> Iterator[None]:
    """Turns errors from responses that are not in Cloud Storage's format into an OSError."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        problem = f"{type(error).__name__}: {str(error)[:100]}"
        message = f"the response is not from Cloud Storage ({problem}); check the proxy or emulator"
        raise OSError(errno.EPROTO, message, path) from error


def _list_pages(folder: str, **options: Any) -> Iterator[Any]:
    """Yields the pages of a listing; their items are properties, named as in the service's API.

    Args:
        options: arguments of `Client.list_blobs`.

    Raises:
        OSError: the request fails, or the service keeps listing the same names.
    """
    with named_errors(folder, "list"):
        bucket_name = split_gcs(folder)[0]
        listed = client().list_blobs(
            bucket(bucket_name), page_size=PAGE_SIZE, retry=retrying(), **options
        )
    listed.item_to_value = lambda _, item: item  # making a Blob would double the time
    pages = listed.pages
    tokens = set[str]()
    while True:
        with _checked_answer(folder), named_errors(folder, "list"):
            page = next(pages, None)
        if page is None:
            return
        yield page
        token = listed.next_page_token
        if token in tokens:
            message = "the service lists the same names again and again; check the proxy"
            raise OSError(errno.EPROTO, message, folder)
        tokens.add(token)


def _entry_of(path: str, properties: Mapping[str, Any]) -> Entry:
    """Builds an entry from an object's properties in the service's API; missing properties are 0.

    Raises:
        TypeError, ValueError, OverflowError: the properties are not in the service's format.
    """
    path.encode()  # a lone surrogate, which JSON can escape, would fail later
    crc32c = base64.b64decode(properties.get("crc32c", ""))
    return Entry(
        path,
        int(properties.get("size", 0)),
        int(properties.get("generation", 0)),
        int.from_bytes(crc32c, "big"),
    )


class GcsPendingFile(PendingFile):
    """A local file that is uploaded once it is finished.

    A streaming writer would publish a partial object when it is garbage collected. With a
    precondition on the generation, the upload replaces only the object that existed when this
    writer was created, so a superseded writer replaces nothing. If the object has equal bytes
    already, this counts as success: they are from an earlier attempt whose response was lost.

    Args:
        path: path of the object.
        replaced: generation of the object to replace; 0 if there is none.
    """

    def __init__(self, path: str, replaced: int) -> None:
        self._path = path
        self._replaced = replaced
        # The file has no name, and vanishes with the process.
        self._file = tempfile.TemporaryFile(prefix="beam_tfr-")  # noqa: SIM115

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
                    if_generation_match=self._replaced,
                    content_type="application/octet-stream",
                    retry=retrying(),
                )
        except FileExistsError:
            if not self._is_uploaded(target):
                raise AlreadyExistsError(self._path) from None
        self._file.close()
        with _checked_answer(self._path):
            return int(target.generation or 0)

    def _is_uploaded(self, target: Any) -> bool:
        """Whether the object has the bytes of this file; also stores its generation in `target`."""
        import google_crc32c

        with contextlib.suppress(FileNotFoundError), named_errors(self._path, "get"):
            target.reload(retry=retrying())
        checksum = google_crc32c.Checksum()
        self._file.seek(0)
        while chunk := self._file.read(1 << 20):
            checksum.update(chunk)
        return bool(target.crc32c == base64.b64encode(checksum.digest()).decode())
