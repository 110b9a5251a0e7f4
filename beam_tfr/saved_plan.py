"""--save_plan and --plan: a plan with all its references in one file, so that they are listed once and converted
elsewhere.

A ZIP file whose entries are stored as they are, in the order of the shards and without a time, so that equal plans are
equal files:

    plan.json    the call that it belongs to, the plan, and the plan's digest
    SHARD.gz     for each shard its references in their order, by `planning.join`: the length of each, its bytes
"""

from __future__ import annotations

import contextlib
import gzip
import json
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from beam_tfr import planning, storage
from beam_tfr.claim import describe_difference
from beam_tfr.json_check import check_kinds, load_object
from beam_tfr.schema import FORMAT_VERSION, DataError, Plan, RunError, Shard, UsageError, canonical_json

_HEADER = "plan.json"
_MAX_HEADER_BYTES = 1 << 30  # 1 GiB; a plan of a billion images has 10 MB
_KINDS: Mapping[Any, Any] = {
    "digest": str,
    "call": {...: object},
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
    header = {"format_version": FORMAT_VERSION, "digest": plan.digest, "call": call, "plan": plan.fields()}
    places: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryFile(prefix="beam_tfr-") as spool, tempfile.TemporaryFile(prefix="beam_tfr-") as made:
        for name, data in packed:
            if name in places:
                raise RunError(f"shard {name} came twice: this runner repeated elements. Nothing is written")
            places[name] = spool.tell(), len(data)
            spool.write(data)
        if missing := [name for name in plan.shards() if name not in places]:
            raise RunError(f"shard {missing[0]} did not come: this runner lost elements. Nothing is written")
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr(zipfile.ZipInfo(_HEADER), canonical_json(header))
            for name in plan.shards():
                start, size = places[name]
                spool.seek(start)
                archive.writestr(zipfile.ZipInfo(f"{name}.gz"), spool.read(size))
        made.seek(0)
        with storage.create(path, scratch=path.rpartition("/")[0], replace=replace) as file:
            while chunk := made.read(1 << 20):
                file.write(chunk)
            file.commit()


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
                    raise ValueError(f"format_version is {header.get('format_version')}, this version reads only 1")
                check_kinds(header, _KINDS)
                self.plan, self.call = Plan.from_fields(header["plan"]), header["call"]
                if self.plan.digest != header["digest"]:
                    raise ValueError("it was edited, or damaged")
            except (*_DAMAGES, TypeError) as error:
                raise UsageError(f"--plan {path}: is no plan that --save_plan wrote: {error}") from error
            closing.pop_all()

    def _read(self, name: str, max_bytes: int) -> bytes:
        if self._archive.getinfo(name).file_size > max_bytes:
            raise ValueError(f"{name} has more than {max_bytes} bytes")
        return self._archive.read(name)

    def check_call(self, call: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        """
        Args:
            call: of the present call.
            plan: name, suffix and options that its plan would have.

        Raises:
            UsageError: another call saved the plan; tells what differs.
        """
        there: dict[str, Any] = {**self.call, **{name: self.plan.fields()[name] for name in plan}}
        if lines := describe_difference(there, json.loads(canonical_json({**call, **plan}))):
            shown = "".join(f"\n  {line}" for line in lines[:10])
            raise UsageError(
                f"--plan {self._path}: was saved by another call:{shown}\nGive the same options, or save another plan"
            )

    def refs(self, shard: Shard) -> list[bytes]:
        """The references of a shard, encoded, in their order.

        Raises:
            DataError: the file is damaged.
        """
        try:
            found = [*planning.split(gzip.decompress(self._archive.read(f"{shard.name}.gz")))]
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
