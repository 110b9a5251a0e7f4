"""Plans saved to a file, to list the input once and convert elsewhere.

A ZIP file with uncompressed entries, in the order of the shards and without times, so that equal plans are equal files:

    plan.json    the call that saved it, the plan, and the SHA-256 of both
    SHARD.gz     the references of a shard in their order, by `packing.join`: the length of each, its bytes
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beam_tfr import diff, storage
from beam_tfr.planning import packing
from beam_tfr.schema import FORMAT_VERSION, DataError, Plan, RunError, Shard, UsageError, canonical_json, sha256_hex

_HEADER = "plan.json"
_DAMAGES = (OSError, EOFError, KeyError, ValueError, NotImplementedError, zlib.error, zipfile.BadZipFile)


def pack(refs: Sequence[bytes]) -> bytes:
    """The content of a shard's entry."""
    return gzip.compress(packing.join(refs), 1, mtime=0)


def write(
    path: str, plan: Plan, packed: Iterable[tuple[str, bytes]], *, call: Mapping[str, Any], replace: bool
) -> None:
    """Writes the file, whole or not at all.

    Args:
        path: local or gs://.
        plan: the plan of the references.
        packed: name of a shard and `pack` of its references, for each planned shard, in any order.
        call: as in `SavedPlan`.
        replace: whether to replace another plan.

    Raises:
        RunError: a shard is missing or came twice, the plan is provisional, another one is there, or the file cannot be
            written.
    """
    if plan.provisional:
        raise RunError(
            "some of the files from which the number of shards is estimated cannot be read now. "
            "Nothing is written; run the same command again"
        )
    try:
        with (
            tempfile.TemporaryFile(prefix="beam_tfr-") as spool,
            tempfile.TemporaryFile(prefix="beam_tfr-") as made,
            zipfile.ZipFile(spool, "w") as came,
        ):
            for name, data in packed:
                if name in came.NameToInfo:
                    raise RunError(f"shard {name} arrived twice: this runner repeated elements. Nothing is written")
                came.writestr(name, data)
            if missing := [name for name in plan.shards() if name not in came.NameToInfo]:
                raise RunError(f"shard {missing[0]} did not arrive: this runner lost elements. Nothing is written")
            header = {"format_version": FORMAT_VERSION, "call": call, "plan": plan.fields()}
            header["digest"] = sha256_hex(canonical_json(header))
            with zipfile.ZipFile(made, "w") as archive:
                archive.writestr(zipfile.ZipInfo(_HEADER), canonical_json(header))
                for name in plan.shards():
                    archive.writestr(zipfile.ZipInfo(f"{name}.gz"), came.read(name))
            made.seek(0)
            with storage.create(path, scratch=path.rpartition("/")[0], replace=replace) as file:
                shutil.copyfileobj(made, file, 1 << 20)
                file.commit()
    except storage.AlreadyExistsError:
        raise RunError(
            "another run wrote it at the same time; run the command again", option="save_plan", value=path
        ) from None
    except OSError as error:
        raise RunError(f"cannot be written: {error.strerror or error}", option="save_plan", value=path) from error


def check_place(path: str, *, replace: bool) -> None:
    """Checks that a plan can be saved at a path; only another plan is ever replaced.

    Raises:
        UsageError: the path is a folder or a bucket; the file exists and is not a plan, or `replace` is not given; or
            its folder does not exist or is not writable.
    """
    folder, _, name = path.rpartition("/")
    fail = functools.partial(UsageError, option="save_plan", value=path)
    try:
        if not name or os.path.isdir(path):
            raise fail(f"is a folder; give a file, such as {path.rstrip('/')}/plan.zip")
        if storage.is_gcs(path) and path.count("/") < 3:
            raise fail(f"is a bucket; give a file, such as {path}/plan.zip")
        if storage.find(path) is not None:
            if not replace:
                raise fail("exists already; `overwrite=` replaces it, if it is a plan")
            SavedPlan(path, option="save_plan", problem="`overwrite=` does not replace it, since it ").close()
        if storage.is_gcs(path):
            with contextlib.suppress(PermissionError):  # listing is not needed, only whether the bucket exists
                storage.list_folder(folder)
        else:
            storage.create(path, scratch=folder).abort()
    except OSError as error:
        raise fail(f"cannot be written: {error.strerror or error}") from error


class SavedPlan(contextlib.AbstractContextManager["SavedPlan"]):
    """A saved plan, open for reading.

    Args:
        path: local or gs://; only the parts that are needed are read.
        option: option with the path, for messages.
        problem: beginning of the message about a file that is not a plan.

    Attributes:
        plan: the plan, with the codecs of the machine that saved it.
        call: the arguments that select the references and are not options of the plan.

    Raises:
        UsageError: it cannot be read, or is not a saved plan.
    """

    def __init__(self, path: str, *, option: str = "plan", problem: str = "") -> None:
        self._path = path
        try:
            self._file = storage.open_seekable(path)
        except OSError as error:
            message = f"{problem}cannot be read: {error.strerror or error}"
            raise UsageError(message, option=option, value=path) from error
        try:
            self._archive = zipfile.ZipFile(self._file)
            header = json.loads(self._archive.read(_HEADER))
            if (version := header.get("format_version")) != FORMAT_VERSION:
                raise ValueError(f"format_version is {version}, this version reads only {FORMAT_VERSION}")
            if header.pop("digest", "") != sha256_hex(canonical_json(header)):
                raise ValueError("it was edited, or damaged")
        except _DAMAGES as error:
            self._file.close()
            message = f"{problem}is not a plan that `save_plan=` wrote: {error}"
            raise UsageError(message, option=option, value=path) from error
        self.plan, self.call = Plan.from_fields(header["plan"]), header["call"]

    def check_call(self, call: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        """Checks that the present call would make the same plan.

        Args:
            call: the current call.
            plan: name, suffix and options that its plan would have.

        Raises:
            UsageError: another call saved the plan; lists the differences.
        """
        there: dict[str, Any] = {**self.call, **{name: self.plan.fields()[name] for name in plan}}
        if different := diff.describe(there, json.loads(canonical_json({**call, **plan}))):
            message = f"was saved with other options:{different}\nUse the same options, or save another plan"
            raise UsageError(message, option="plan", value=self._path)

    def refs(self, shard: Shard) -> list[bytes]:
        """The encoded references of a shard, in their order.

        Raises:
            DataError: the file is damaged.
        """
        try:
            found = [*packing.split(gzip.decompress(self._archive.read(f"{shard.name}.gz")))]
            if len(found) != shard.total:
                raise ValueError(f"{len(found)} references instead of {shard.total}")
        except _DAMAGES as error:
            message = f"shard {shard.name} is damaged: {error}; save the plan again"
            raise DataError(message, option="plan", value=self._path) from error
        return found

    def close(self) -> None:
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()
