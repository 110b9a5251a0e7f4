"""Plans saved to a file, to list the input once and convert elsewhere.

A ZIP file with uncompressed entries, in the order of the shards and without times, so that equal plans are equal files:

    plan.json    the call that saved it, the plan, the SHA-256 of each other entry, and of all this
    SHARD.gz     the references of a shard in their order, by `assignment.join`: the length of each, its bytes
"""

from __future__ import annotations

import contextlib
import dataclasses
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
from beam_tfr.planning import assignment
from beam_tfr.schema import FORMAT_VERSION, DataError, Plan, RunError, Shard, UsageError, canonical_json, sha256_hex

_HEADER = "plan.json"
_DAMAGES = (OSError, EOFError, KeyError, ValueError, NotImplementedError, zlib.error, zipfile.BadZipFile)


def pack(refs: Sequence[bytes]) -> bytes:
    """The content of a shard's entry."""
    return gzip.compress(assignment.join(refs), 1, mtime=0)


def write(
    path: str, plan: Plan, packed: Iterable[tuple[str, bytes]], *, call: Mapping[str, Any], replace: bool
) -> None:
    """Writes the file, whole or not at all.

    Args:
        path: local or gs://.
        plan: of the references.
        packed: name of a shard and `pack` of its references, for each planned shard, in any order.
        call: as in `SavedPlan`.
        replace: whether to replace another plan.

    Raises:
        RunError: a shard is missing or came twice, another plan is there, or the file cannot be written.
    """
    places: dict[str, tuple[int, int]] = {}
    digests: dict[str, str] = {}
    names = plan.shards()
    try:
        with tempfile.TemporaryFile(prefix="beam_tfr-") as spool, tempfile.TemporaryFile(prefix="beam_tfr-") as made:
            for name, data in packed:
                if name in places:
                    raise RunError(f"shard {name} came twice: this runner repeated elements. Nothing is written")
                places[name], digests[name] = (spool.tell(), len(data)), sha256_hex(data)
                spool.write(data)
            if missing := [name for name in names if name not in places]:
                raise RunError(f"shard {missing[0]} did not come: this runner lost elements. Nothing is written")
            header = {"format_version": FORMAT_VERSION, "call": call, "plan": plan.fields()}
            header["shards"] = [digests[name] for name in names]
            header["digest"] = sha256_hex(canonical_json(header))
            with zipfile.ZipFile(made, "w") as archive:
                archive.writestr(zipfile.ZipInfo(_HEADER), canonical_json(header))
                for name in names:
                    start, size = places[name]
                    spool.seek(start)
                    archive.writestr(zipfile.ZipInfo(f"{name}.gz"), spool.read(size))
            made.seek(0)
            with storage.create(path, scratch=path.rpartition("/")[0], replace=replace) as file:
                shutil.copyfileobj(made, file, 1 << 20)
                file.commit()
    except storage.AlreadyExistsError:
        raise RunError("another run wrote it meanwhile; call again", option="save_plan", value=path) from None
    except OSError as error:
        raise RunError(f"cannot be written: {error.strerror or error}", option="save_plan", value=path) from error


def check_place(path: str, *, replace: bool) -> None:
    """Checks that a plan can be saved at a path; only another plan is ever replaced.

    Raises:
        UsageError: the path is a folder or a bucket; the file exists and is not a plan, or `replace` is not given; or
            its folder does not exist or is not writable.
    """
    if message := _objection(path, replace):
        raise UsageError(message, option="save_plan", value=path)


def _objection(path: str, replace: bool) -> str:
    folder, _, name = path.rpartition("/")
    if not name or os.path.isdir(path):
        return f"is a folder; give a file, such as {path.rstrip('/')}/plan.zip"
    if storage.is_gcs(path) and path.count("/") < 3:
        return f"is a bucket; give a file, such as {path}/plan.zip"
    try:
        if storage.find(path) is not None:
            if not replace:
                return "exists already; `overwrite=` replaces it, if it is a plan"
            with contextlib.ExitStack() as opened:
                _open(path, opened)
        if storage.is_gcs(path):
            with contextlib.suppress(PermissionError):  # listing is not needed, only whether the bucket exists
                storage.list_folder(folder)
        else:
            storage.create(path, scratch=folder).abort()
    except _NotAPlanError as error:
        return f"`overwrite=` does not replace it, since it {error}"
    except OSError as error:
        return f"cannot be written: {error.strerror or error}"
    return ""


class _NotAPlanError(Exception):
    """A file cannot be read, or is not a saved plan; the message lacks its subject."""


def _open(path: str, opened: contextlib.ExitStack) -> tuple[zipfile.ZipFile, dict[str, Any]]:
    """The archive and its checked header.

    Args:
        path: local or gs://.
        opened: closes the archive and its file.

    Raises:
        _NotAPlanError: it cannot be read, or is not a plan.
    """
    try:
        file = opened.enter_context(storage.open_seekable(path))
    except OSError as error:
        raise _NotAPlanError(f"cannot be read: {error.strerror or error}") from error
    try:
        archive = opened.enter_context(zipfile.ZipFile(file))
        header = json.loads(archive.read(_HEADER))
        if header.get("format_version") != FORMAT_VERSION:
            raise ValueError(
                f"format_version is {header.get('format_version')}, this version reads only {FORMAT_VERSION}"
            )
        if header.pop("digest", "") != sha256_hex(canonical_json(header)):
            raise ValueError("it was edited, or damaged")
    except _DAMAGES as error:
        raise _NotAPlanError(f"is not a plan that `save_plan=` wrote: {error}") from error
    return archive, header


class SavedPlan:
    """A saved plan, open for reading.

    Args:
        path: local or gs://; only the parts that are needed are read.

    Attributes:
        plan: with the codecs of the machine that saved it.
        call: the arguments that decide which references there are, as far as they are not options of the plan.

    Raises:
        UsageError: it cannot be read, or is not a saved plan.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with contextlib.ExitStack() as opened:
            try:
                self._archive, header = _open(path, opened)
            except _NotAPlanError as error:
                raise UsageError(str(error), option="plan", value=path) from error
            self.plan, self.call = Plan.from_fields(header["plan"]), header["call"]
            self._digests = dict(zip(self.plan.shards(), header["shards"], strict=True))
            self._opened = opened.pop_all()

    def plan_here(self, codecs: Mapping[str, str]) -> Plan:
        """The plan with the codecs of this machine: `images.codec_versions`."""
        return dataclasses.replace(self.plan, codecs=dict(codecs))

    def check_call(self, call: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        """Checks that the present call would make the same plan.

        Args:
            call: of the present call.
            plan: name, suffix and options that its plan would have.

        Raises:
            UsageError: another call saved the plan; lists what differs.
        """
        there: dict[str, Any] = {**self.call, **{name: self.plan.fields()[name] for name in plan}}
        if different := diff.describe(there, json.loads(canonical_json({**call, **plan}))):
            message = f"was saved by another call:{different}\nGive the same options, or save another plan"
            raise UsageError(message, option="plan", value=self._path)

    def refs(self, shard: Shard) -> list[bytes]:
        """The encoded references of a shard, in their order.

        Raises:
            DataError: the file is damaged.
        """
        try:
            data = self._archive.read(f"{shard.name}.gz")
            if sha256_hex(data) != self._digests[shard.name]:
                raise ValueError("it was edited")
            found = [*assignment.split(gzip.decompress(data))]
            if len(found) != shard.total:
                raise ValueError(f"{len(found)} references in place of {shard.total}")
        except _DAMAGES as error:
            message = f"shard {shard.name} is damaged: {error}; save the plan again"
            raise DataError(message, option="plan", value=self._path) from error
        return found

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> SavedPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
