"""--save_plan and --plan: a plan with all its references in one file, so that they are listed once and converted
elsewhere.

A ZIP file whose entries are stored as they are, in the order of the shards and without a time, so that equal plans are
equal files:

    plan.json    the call that it belongs to, the plan, the SHA-256 of each of the other entries, and of all of that
    SHARD.gz     for each shard its references in their order, by `planning.join`: the length of each, its bytes
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from beam_tfr import diff, planning, storage
from beam_tfr.json_check import check_kinds, load_object
from beam_tfr.schema import FORMAT_VERSION, DataError, Plan, RunError, Shard, UsageError, canonical_json, sha256_hex

_HEADER = "plan.json"
_MAX_HEADER_BYTES = 1 << 30  # 1 GiB; a plan of a billion images has 20 MB
_KINDS: Mapping[Any, Any] = {
    "digest": str,
    "call": {...: object},
    "shards": [str],
    "plan": {
        "name": str,
        "suffix": str,
        "options": {"seed": object, "encoding": str, ...: object},
        "input_digest": str,
        "labels": object,
        "splits": {...: {"matched": int, "num_shards": int, "cuts": [str], "class_counts": {...: int}}},
        "codecs": {...: str},
        "generations": str,
    },
    ...: object,
}
_DAMAGES = (OSError, EOFError, KeyError, ValueError, NotImplementedError, zlib.error, zipfile.BadZipFile)


def pack(refs: Sequence[bytes]) -> bytes:
    """The content of a shard's entry."""
    return gzip.compress(planning.join(refs), 1, mtime=0)


def write(
    path: str, plan: Plan, packed: Iterable[tuple[str, bytes]], *, call: Mapping[str, Any], replace: bool
) -> None:
    """Writes the file, whole or not at all.

    Args:
        path: local or gs://.
        plan: of the references.
        packed: name of a shard and `pack` of its references, for each planned shard, in any order.
        call: of `SavedPlan`.
        replace: whether another plan there is replaced.

    Raises:
        RunError: a shard is missing or there twice, another plan is there, or the file cannot be written.
    """
    try:
        _write(path, plan, packed, call=call, replace=replace)
    except storage.AlreadyExistsError:
        raise RunError(f"--save_plan {path}: was written by another run meanwhile; call again") from None
    except OSError as error:
        raise RunError(f"--save_plan {path}: cannot be written: {error.strerror or error}") from error


def _write(
    path: str, plan: Plan, packed: Iterable[tuple[str, bytes]], *, call: Mapping[str, Any], replace: bool
) -> None:
    places: dict[str, tuple[int, int]] = {}
    digests: dict[str, str] = {}
    with tempfile.TemporaryFile(prefix="beam_tfr-") as spool, tempfile.TemporaryFile(prefix="beam_tfr-") as made:
        for name, data in packed:
            if name in places:
                raise RunError(f"shard {name} came twice: this runner repeated elements. Nothing is written")
            places[name], digests[name] = (spool.tell(), len(data)), sha256_hex(data)
            spool.write(data)
        if missing := [name for name in plan.shards() if name not in places]:
            raise RunError(f"shard {missing[0]} did not come: this runner lost elements. Nothing is written")
        header = {"format_version": FORMAT_VERSION, "call": call, "plan": plan.fields()}
        header["shards"] = [digests[name] for name in plan.shards()]
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr(
                zipfile.ZipInfo(_HEADER), canonical_json({**header, "digest": sha256_hex(canonical_json(header))})
            )
            for name in plan.shards():
                start, size = places[name]
                spool.seek(start)
                archive.writestr(zipfile.ZipInfo(f"{name}.gz"), spool.read(size))
        made.seek(0)
        with storage.create(path, scratch=path.rpartition("/")[0], replace=replace) as file:
            while chunk := made.read(1 << 20):
                file.write(chunk)
            file.commit()


def check_place(path: str, *, replace: bool) -> None:
    """Whether a plan can be saved there: nothing else is ever replaced, and what can be known is said before the work.

    Raises:
        UsageError: the file is there and is no plan, or is one and `replace` is not given; or its folder is not there,
            or may not be written to.
    """
    folder, _, name = path.rpartition("/")
    if not name or os.path.isdir(path):
        raise UsageError(f"--save_plan {path}: is a folder; give a file, such as {path.rstrip('/')}/plan.zip")
    if storage.is_gcs(path) and path.count("/") < 3:
        raise UsageError(f"--save_plan {path}: is a bucket; give a file, such as {path}/plan.zip")
    try:
        if storage.find(path) is not None or os.path.lexists(path):
            if not replace:
                raise UsageError(f"--save_plan {path}: is there already; --overwrite replaces it, if it is a plan")
            try:
                SavedPlan(path).close()
            except UsageError as error:
                said = str(error).partition(": ")[2]
                raise UsageError(f"--save_plan {path}: is not replaced by --overwrite, it {said}") from None
        if storage.is_gcs(path):
            storage.list_folder(folder)  # finds out whether the bucket is there
        else:
            storage.create(path, scratch=folder).abort()
    except PermissionError as error:
        if not storage.is_gcs(path):
            raise UsageError(f"--save_plan {path}: cannot be written: {error.strerror}") from error
    except OSError as error:
        raise UsageError(f"--save_plan {path}: cannot be written: {error.strerror or error}") from error


class SavedPlan:
    """An open file of a plan.

    Args:
        path: local or gs://, of which only what is asked for is read.

    Attributes:
        plan: with the codecs of where it was saved.
        call: what of the call decides which references there are, and is not among the plan's options.

    Raises:
        UsageError: it cannot be read, or is no saved plan.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file: IO[bytes] = storage.open_seekable(path)
        except OSError as error:
            raise UsageError(f"--plan {path}: cannot be read: {error.strerror or error}") from error
        with contextlib.ExitStack() as closing:
            closing.callback(self._file.close)
            try:
                self._archive = zipfile.ZipFile(self._file)
                header = load_object(self._read(_HEADER, _MAX_HEADER_BYTES))
                if header.get("format_version") != FORMAT_VERSION:
                    raise ValueError(
                        f"format_version is {header.get('format_version')}, this version reads only {FORMAT_VERSION}"
                    )
                check_kinds(header, _KINDS)
                if header.pop("digest") != sha256_hex(canonical_json(header)):
                    raise ValueError("it was edited, or damaged")
                self.plan, self.call = Plan.from_fields(header["plan"]), header["call"]
                self._digests = dict(zip(self.plan.shards(), header["shards"], strict=True))
            except (*_DAMAGES, TypeError) as error:
                raise UsageError(f"--plan {path}: is no plan that --save_plan wrote: {error}") from error
            closing.pop_all()

    def _read(self, name: str, max_bytes: int) -> bytes:
        if self._archive.getinfo(name).file_size > max_bytes:
            raise ValueError(f"{name} has more than {max_bytes} bytes")
        return self._archive.read(name)

    def plan_here(self, codecs: Mapping[str, str]) -> Plan:
        """The plan with the codecs of where it is converted: `images.codec_versions`."""
        return dataclasses.replace(self.plan, codecs=dict(codecs))

    def check_call(self, call: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        """
        Args:
            call: of the present call.
            plan: name, suffix and options that its plan would have.

        Raises:
            UsageError: another call saved the plan; tells what differs.
        """
        there: dict[str, Any] = {**self.call, **{name: self.plan.fields()[name] for name in plan}}
        if different := diff.describe(there, json.loads(canonical_json({**call, **plan}))):
            raise UsageError(
                f"--plan {self._path}: was saved by another call:{different}\n"
                "Give the same options, or save another plan"
            )

    def refs(self, shard: Shard) -> list[bytes]:
        """The references of a shard, encoded, in their order.

        Raises:
            DataError: the file is damaged.
        """
        try:
            data = self._archive.read(f"{shard.name}.gz")
            if sha256_hex(data) != self._digests[shard.name]:
                raise ValueError("it was edited")
            found = [*planning.split(gzip.decompress(data))]
            if len(found) != shard.total:
                raise ValueError(f"{len(found)} references in place of {shard.total}")
        except _DAMAGES as error:
            raise DataError(
                f"--plan {self._path}: shard {shard.name} is damaged: {error}; save the plan anew"
            ) from error
        return found

    def close(self) -> None:
        self._archive.close()
        self._file.close()

    def __enter__(self) -> SavedPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
