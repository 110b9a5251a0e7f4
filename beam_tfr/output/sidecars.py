"""Writes and reads sidecars of finished shards, for the manifest, for resuming, and for updates.

`OUT/.beam_tfr/SHARD.json` consists of lines: the `ShardInfo` as JSON, the references, the sums of
the images, the reject lines of the shard, and the SHA-256 of all lines before. Until the dataset is
published, the file of the shard is next to the sidecar, under a name that no other attempt uses.
The sidecars of a published dataset move to `OUT/.sources`: they are not part of the dataset, but
show updates which sources are unchanged.
"""

import base64
import contextlib
import dataclasses
import functools
import hashlib
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from beam_tfr import storage
from beam_tfr.dataset.base import PlannedShard
from beam_tfr.planning import packing
from beam_tfr.records.tfrecords import max_record_bytes_in
from beam_tfr.schema.dataset import SOURCES_FOLDER, sha256_hex
from beam_tfr.schema.encoded_ref import EncodedRef, parse_label_ids, to_bytes
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.items import Image, Reject
from beam_tfr.schema.naming import contents_name, is_plain_name, parse_file_name
from beam_tfr.schema.palettes import Palette, add_palette
from beam_tfr.schema.plan import Shard, ShardInfo, WrittenFile
from beam_tfr.schema.untrusted import parse_json
from beam_tfr.storage import Entry, work_path

# Parts of the names of files being built.
RECORDS = ".records-"
CONTENTS = ".contents-"
# A file being built, or a sidecar; the first group is the name of its shard, if it has one.
SHARD_FILE = re.compile(r"(?s)([^.]*+).*(?:\.json|\.records-.*|\.contents-.*)")
_FINGERPRINT_BYTES = 8
_INFO_BYTES = 1 << 18  # enough for the first line of a sidecar, which has some kilobytes
_MOST_BYTES = 1 << 30  # 1 GiB for a sidecar
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError)  # raised by damaged sidecars
_READERS = 32  # threads that read sidecars
_FINGERPRINT = hashlib.blake2b(digest_size=_FINGERPRINT_BYTES)


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """The content of a sidecar.

    Attributes:
        info: the shard.
        packed_refs, packed_sums: see `refs` and `sums`.
        reject_lines: lines of rejects.jsonl, with line ends.
    """

    info: ShardInfo
    packed_refs: bytes
    packed_sums: bytes
    reject_lines: list[bytes]

    @functools.cached_property
    def refs(self) -> list[bytes]:
        """The encoded references in order, or only their fingerprints if rows hold the records."""
        return packing.unpack_untrusted(base64.b64decode(self.packed_refs))

    @functools.cached_property
    def sums(self) -> list[bytes]:
        """The sums and sums of squares by channel of each record, as text; empty if unknown."""
        return packing.unpack_untrusted(base64.b64decode(self.packed_sums))

    @property
    def has_keys(self) -> bool:
        """Whether the references are not only fingerprints."""
        return not self.refs or len(self.refs[0]) != _FINGERPRINT_BYTES

    def as_stored(self, refs: Sequence[bytes]) -> list[bytes]:
        """Returns the encoded references of a shard in the form of `refs`."""
        if self.has_keys:
            return list(refs)
        return [fingerprint_ref(ref) for ref in refs]


def fingerprint_ref(ref: bytes) -> bytes:
    """Returns a short hash of an encoded reference, including its size, labels and columns."""
    fingerprint = _FINGERPRINT.copy()  # twice as fast as a new one
    fingerprint.update(ref)
    return fingerprint.digest()


def encode_sums(image: Image | None) -> bytes:
    """Encodes the sums of a record, as in `Sidecar.sums`."""
    if image is None:
        return b""
    numbers = [*image.channel_sums, *image.channel_squares]
    return b" ".join(b"%d" % number for number in numbers)


def sidecar_name(shard_name: str) -> str:
    """Returns the name of a shard's sidecar."""
    return f"{shard_name}.json"


def _sidecar_path(output: str, shard_name: str) -> str:
    return work_path(output, sidecar_name(shard_name))


def unique_name(name: str, kind: str = RECORDS) -> str:
    """Returns a name for a file in the work folder that no other attempt uses."""
    return f"{name}{kind}{uuid.uuid4().hex[:16]}"


def write_sidecar(
    output: str,
    info: ShardInfo,
    reject_lines: Sequence[str],
    *,
    refs: Sequence[bytes] = (),
    sums: Sequence[bytes] = (),
) -> ShardInfo:
    """Writes the sidecar of a shard whose file is committed.

    Returns the shard's `ShardInfo` with the digest of its rejects.

    Args:
        output: folder of the dataset.
        info: the shard.
        reject_lines: lines of rejects.jsonl, without line ends.
        refs, sums: see `Sidecar`.
    """
    lines = "".join(f"{line}\n" for line in reject_lines).encode()
    info = dataclasses.replace(info, rejects_sha256=sha256_hex(lines))
    body = b"%b\n%b\n%b\n%b" % (info.to_json().encode(), _pack(refs), _pack(sums), lines)
    data = body + sha256_hex(body).encode() + b"\n"
    path = _sidecar_path(output, info.shard.name)
    for _ in range(3):  # other attempts may write it at the same time; any of the results is fine
        with contextlib.suppress(storage.AlreadyExistsError):
            storage.write_bytes(path, data, scratch=work_path(output, ""))
            return info
    raise RunError(f"other runs keep replacing {path}; run the same command again")


def _pack(values: Sequence[bytes]) -> bytes:
    return base64.b64encode(packing.pack_values(values))


def read_sidecar(output: str, shard_name: str) -> Sidecar | None:
    """Reads the sidecar of a shard in an unfinished dataset; None if the sidecar is unusable."""
    return _read_file(_sidecar_path(output, shard_name), _MOST_BYTES)


def _read_file(path: str, max_bytes: int) -> Sidecar | None:
    """Reads a sidecar; returns None if the file is missing, damaged or longer than `max_bytes`."""
    data = storage.read_existing(path, max_bytes)
    if data is None or len(data) > max_bytes:
        return None
    return _parse_sidecar(data)


def _parse_sidecar(data: bytes) -> Sidecar | None:
    """Parses the content of a sidecar; returns None if the content is damaged."""
    body, _, checksum = data.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    if sha256_hex(body).encode() != checksum:
        return None
    with contextlib.suppress(*_DAMAGE, msgspec.MsgspecError):  # not a sidecar
        first, packed_refs, packed_sums, *lines = body.splitlines(keepends=True)
        info = msgspec.json.decode(first, type=ShardInfo)
        _check_names(info)
        info.rejects_sha256 = sha256_hex(b"".join(lines))
        sidecar = Sidecar(info, packed_refs, packed_sums, lines)
        _check_values(sidecar)
        return sidecar
    return None


def _check_names(info: ShardInfo) -> None:
    """Checks the names of a shard's files, because the folder may come from a stranger.

    Raises:
        ValueError: a name leads out of the folder.
    """
    built = [info.built]
    if info.contents:
        built.append(info.contents.built)
    if not all(map(is_plain_name, filter(None, built))):
        raise ValueError("a file is built elsewhere")
    if info.file and parse_file_name(info.file) is None:
        raise ValueError("its file does not have the name of a shard file")


def _check_values(sidecar: Sidecar) -> None:
    """Checks that the values in a sidecar can be used, because the folder may be a stranger's.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: a value cannot be used.
    """
    if sidecar.has_keys:
        for ref in map(EncodedRef.parse, sidecar.refs):  # one by one: there may be a million
            _check_ref(ref)
    elif any(len(ref) != _FINGERPRINT_BYTES for ref in sidecar.refs):
        raise ValueError("not all references are fingerprints")
    for numbers in sidecar.sums:
        list(map(int, numbers.split()))
    for line in sidecar.reject_lines:
        _check_reject(Reject(**parse_json(line)))
    parse_json(sidecar.info.shard.codecs).items()


def _check_ref(ref: EncodedRef) -> None:
    """Checks that a reference can be decoded, and that `encode_source` can pack its numbers."""
    if len(ref) != len(EncodedRef._fields):
        raise ValueError("a reference is incomplete")
    crc32c = int(ref.crc32c or 0)
    numbers = (int(ref.size_bytes), int(ref.generation), crc32c)
    if min(numbers) < 0 or max(numbers) >= 1 << 64 or crc32c >= 1 << 32:
        raise ValueError("a number of a reference is out of range")
    parse_label_ids(ref.label_ids)
    ref.reason.decode()


def _check_reject(reject: Reject) -> None:
    """Checks that a reject holds strings, and that its key can be the key of a file."""
    to_bytes(reject.key)
    if not all(isinstance(text, str) for text in reject):
        raise TypeError("a reject holds other values than text")


def read_rejects(output: str, shard_name: str, sha256: str = "") -> list[bytes]:
    """Reads the reject lines of a finished shard.

    Args:
        output: folder of the dataset.
        shard_name: name of the shard.
        sha256: `ShardInfo.rejects_sha256`, or an empty string for any rejects.

    Raises:
        RunError: the sidecar is missing, damaged or from another run.
    """
    sidecar = read_sidecar(output, shard_name)
    if sidecar is None or sha256 not in ("", sidecar.info.rejects_sha256):
        path = _sidecar_path(output, shard_name)
        raise RunError(
            f"{path} is missing, or another program or run changed it; run the same command again"
        )
    return sidecar.reject_lines


def read_finished(
    output: str,
    shard: Shard,
    refs: Sequence[bytes] = (),
    *,
    accept_unreadable: bool = False,
    on_changed: Callable[[int], object] = lambda _: None,
) -> ShardInfo | None:
    """Reads the `ShardInfo` of a shard if an earlier run finished the shard; otherwise None.

    The run must have had the same references and recipe, and the same codec versions. If one of its
    codecs was not installed, a shard with images that no decoder could read is written again.

    A file with the size and generation of its commit is unchanged: a generation on gs:// identifies
    the bytes of a file, and the modification time of a file on a disk changes with its bytes,
    unless someone resets the time or the disk decays. A file with the same size and another
    generation, such as a copy, is read completely to compare its SHA-256.

    Args:
        output: folder of the dataset.
        shard: the shard as planned.
        refs: the encoded references of the shard, in order.
        accept_unreadable: whether to keep a shard in which an earlier run accepted unreadable
            files.
        on_changed: called with the number of new or changed references, if there are any.
    """
    sidecar = read_sidecar(output, shard.name)
    if sidecar is None:
        return None
    info = sidecar.info
    if info.shard.name != shard.name or not shard.continues(info.shard):
        return None
    now = sidecar.as_stored(refs)
    if (info.shard.total, sidecar.refs) != (shard.total, now):
        changed = {*now} - {*sidecar.refs}
        on_changed(len(changed))
        storage.delete(_sidecar_path(output, shard.name))
    elif _has_final_rejects(info, shard, accept_unreadable=accept_unreadable):
        with contextlib.suppress(OSError):
            finished = find_files(output, dataclasses.replace(info, shard=shard))
            if finished:
                return finished
    _delete_built(output, info)
    return None


def _has_final_rejects(info: ShardInfo, shard: Shard, *, accept_unreadable: bool) -> bool:
    """Whether this plan would also reject the rejects of a finished shard."""
    if "unreadable" in info.rejected and not accept_unreadable:
        return False
    return "unsupported-image" not in info.rejected or not shard.adds_codecs(info.shard)


def _delete_built(output: str, info: ShardInfo) -> None:
    """Deletes the files of a shard that will be written again, to free disk space."""
    files = [info.written]
    if info.contents:
        files.append(info.contents)
    for file in files:
        if file.built:
            with contextlib.suppress(OSError):
                storage.delete(work_path(output, file.built))


def locate_file(output: str, name: str, built: str) -> str:
    """Returns the path of a finished file that has this name in the dataset."""
    return work_path(output, built) if built else storage.join(output, name)


def find_files(output: str, info: ShardInfo, *, moved: bool = False) -> ShardInfo | None:
    """Finds the files of a shard, and checks that they have the bytes that were written.

    Args:
        output: folder of the dataset.
        info: the shard.
        moved: whether the files have been moved, which changes their generations, so that only
            their sizes are checked.

    Returns:
        The shard, with the current generations of its files; None if a file has changed (see
        `read_finished`).
    """
    if info.contents is None:  # a shard without records has no file
        return info
    file = _find_unchanged(output, info.file, info.written, moved=moved)
    contents = _find_unchanged(output, contents_name(info.file), info.contents, moved=moved)
    if file is None or contents is None:
        return None
    return dataclasses.replace(
        info,
        generation=file.generation,
        contents=info.contents._replace(generation=contents.generation),
    )


def _find_unchanged(output: str, name: str, written: WrittenFile, *, moved: bool) -> Entry | None:
    """Finds a file with this name in the dataset; None if the file has changed."""
    path = locate_file(output, name, written.built)
    entry = storage.find(path)
    if entry is None or entry.size_bytes != written.num_bytes:
        return None
    if moved or entry.generation == written.generation:
        return entry
    return entry if storage.sha256(path) == written.sha256 else None


def move_sidecars(output: str, entries: Iterable[Entry], shards: Collection[str]) -> None:
    """Moves the sidecars of a published dataset to the place that `read_published_sidecar` reads.

    Removes older sidecars.

    Args:
        output: folder of the dataset.
        entries: files in the work folder.
        shards: names of all shards of the dataset.
    """
    folder = storage.join(output, SOURCES_FOLDER)
    names = {sidecar_name(shard) for shard in shards}

    def move_sidecar(entry: Entry) -> None:
        # A missing file was already moved, by a request whose answer was lost.
        with contextlib.suppress(FileNotFoundError):
            storage.move(entry.path, storage.join(folder, entry.name))

    storage.make_folder(folder)
    storage.for_each_file(move_sidecar, [entry for entry in entries if entry.name in names])
    present = storage.list_files(folder)
    storage.delete_all(entry for entry in present if entry.name not in names)


def read_palettes(output: str, shards: Iterable[str]) -> list[Palette]:
    """Reads the palettes of a published dataset's masks, as `add_palette` stores them.

    Palettes are in the first lines of sidecars; a missing sidecar counts as having no palettes.

    Args:
        output: folder of the dataset.
        shards: names of all shards of the dataset.
    """
    folder = storage.join(output, SOURCES_FOLDER)
    paths = [storage.join(folder, sidecar_name(shard)) for shard in shards]
    kept = list[Palette]()
    with ThreadPoolExecutor(_READERS) as pool:
        for palettes in pool.map(_read_first_line, paths):
            for palette in palettes:
                add_palette(kept, palette)
    return kept


def _read_first_line(path: str) -> list[Palette]:
    """Reads the palettes in the first line of a sidecar."""
    with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
        begin = storage.read_part(path, 0, _INFO_BYTES)
        first, _, _ = begin.partition(b"\n")
        return msgspec.json.decode(first, type=ShardInfo).palettes
    return []


def read_published_sidecar(output: str, shard: PlannedShard) -> Sidecar | None:
    """Reads the sidecar of a shard of a published dataset.

    Returns None if the sidecar is missing, or belongs to another file.
    """
    folder = storage.join(output, SOURCES_FOLDER)
    shard_bytes = shard.entry.num_bytes if shard.entry else 0
    max_bytes = min(max_record_bytes_in(shard_bytes), _MOST_BYTES)
    sidecar = _read_file(storage.join(folder, sidecar_name(shard.name)), max_bytes)
    if sidecar is None:
        return None
    sha256 = shard.entry.sha256 if shard.entry else ""
    is_of_shard = (sidecar.info.shard.name, sidecar.info.sha256) == (shard.name, sha256)
    return sidecar if is_of_shard else None
