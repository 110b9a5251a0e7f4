"""Images in zip and tar files: found once, while listing, then each read by a range of bytes;
nothing is unpacked.

An archive stands for the folder that it would be unpacked to: `train/1.jpg` in `photos.zip` has the
path of `photos/train/1.jpg`. Its place says which bytes of which file it is: the extension of the
archive, the length of its name in it, the generation of the archive, the first byte, the number of
bytes, and the compression, `_TAR` if none and no checksum. A reference with a place in a zip has
its CRC-32 as generation, so it stays the same when others come.
"""

from __future__ import annotations

import bisect
import io
import os
import posixpath
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.patterns import compile_pattern
from beam_tfr.inputs.skipped import SkippedFiles
from beam_tfr.schema.errors import DataError, RejectError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_STEP_BYTES = (
    2 << 20
)  # 2 MiB of a tar on gs://, where a request takes as long as reading a few images
_MOST_BYTES = 1 << 30  # 1 GiB read at once: the directory of a zip with ten million images
_HEADER = struct.Struct(
    "<4s22xHH"
)  # of an image in a zip: signature, length of its name, and of what follows it
_MOST_HEADER = _HEADER.size + 2 * 0xFFFF
_UNIX = 3
_UTF8 = 0x800
_ENCRYPTED = 1
_TAR = -1
_OUTSIDE = "its name leads out of"
_PARSER_ERRORS = (zipfile.BadZipFile, tarfile.TarError, struct.error, EOFError)
ERRORS = (
    *_PARSER_ERRORS,
    ValueError,
    LookupError,
    ArithmeticError,
    RuntimeError,
)  # if an archive is hostile


class Member(NamedTuple):
    """A file in an archive; `checksum` is None in a tar."""

    size_bytes: int
    begin: int = 0
    num_bytes: int = 0
    method: int = _TAR
    checksum: int | None = None
    problem: str = ""

    def to_entry(self, file: storage.Entry, name: str) -> storage.Entry:
        """The member of an archive as a listed file."""
        folder, dot, form = file.path.rpartition(".")
        place = (
            f"{dot}{form}:{len(name)}:{file.generation}:{self.begin}:{self.num_bytes}:{self.method}"
        )
        place = "" if self.problem else place
        generation = file.generation if self.checksum is None else 1 << 32 | self.checksum
        return storage.Entry(
            f"{folder}/{name}", self.size_bytes, generation, 0, place, self.problem
        )


class RangeReader(io.RawIOBase):
    """A listed file that is read by ranges."""

    def __init__(self, file: storage.Entry) -> None:
        self.file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self.file.size_bytes)[whence]
        return self._at  # io.BufferedReader refuses a place before the start

    def readinto(self, buffer: WriteableBuffer) -> int:
        size = min(len(view := memoryview(buffer)), self.file.size_bytes - self._at)
        if size > _MOST_BYTES:
            raise ValueError(f"a part of more than {_MOST_BYTES} bytes")
        if size <= 0:
            return 0
        data = storage.read_part(self.file.path, self._at, size, generation=self.file.generation)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def list_images(
    file: storage.Entry, exclude: re.Pattern[str] | None = None, skipped: SkippedFiles | None = None
) -> Iterator[storage.Entry]:
    """Lists the images in an archive; takes less than 1 kB of memory for each file in it.

    Args:
        file: the archive.
        exclude: result of `compile_exclusion`.
        skipped: counts other files.

    Raises:
        DataError: it is damaged.
        OSError: it cannot be read, or was changed.
    """
    folder, _, form = file.path.rpartition(".")
    is_image = compile_pattern(f"{folder}/").fullmatch
    found = dict[str, Member]()
    try:
        with io.BufferedReader(
            RangeReader(file), _STEP_BYTES if storage.is_gcs(file.path) else 1 << 14
        ) as opened:
            for name, member in list_members(file, opened):
                path = f"{folder}/{name}"
                if exclude and exclude.fullmatch(path):
                    continue
                outside = member.problem.startswith(_OUTSIDE)
                if is_image(f"{folder}/{posixpath.basename(name)}" if outside else path):
                    twice = Member(0, problem=f"is in {file.name} more than once")
                    found[name] = twice if name in found else member
                elif skipped:
                    skipped.add_kind(name)
    except ERRORS as error:
        problem = f"{file.path} cannot be read as {form.lower()}: {error or type(error).__name__}; copy it again"
        cure = "make it anew if it is compressed as a whole, or leave it out with `exclude=`"
        raise DataError(f"{problem}, {cure}") from error
    for name, member in found.items():
        yield member.to_entry(file, name)


def list_members(file: storage.Entry, opened: IO[bytes]) -> Iterator[tuple[str, Member]]:
    """The names of the files in an archive, and the files; raises one of `ERRORS` if it is
    damaged."""
    for name, member in (_in_zip if file.path.lower().endswith("zip") else _in_tar)(opened):
        if name.startswith("/") or ".." in name.split("/"):
            yield name, Member(0, problem=f"{_OUTSIDE} {file.name}")
        else:
            yield posixpath.normpath(name), member


def _in_zip(opened: IO[bytes]) -> Iterator[tuple[str, Member]]:
    with zipfile.ZipFile(opened) as archive:
        infos = archive.infolist()
        end = archive.start_dir
        archive.NameToInfo.clear()
        starts = sorted([end, *(info.header_offset for info in infos)])
        while infos:  # which frees them
            info = infos.pop()
            name = info.filename
            unix = info.create_system == _UNIX
            problem = ""
            if info.is_dir():
                continue
            if (
                unix
                and name == info.orig_filename
                and not (info.flag_bits & _UTF8 or name.isascii())
            ):
                name = os.fsdecode(name.encode("cp437"))  # the bytes that it has on a disk
            if unix and stat.S_ISLNK(info.external_attr >> 16):
                problem = "is a symbolic link in a zip"
            elif info.flag_bits & _ENCRYPTED:
                problem = "is encrypted: unpack the zip with its password"
            elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                method = f"has compression method {info.compress_type} in a zip"
                problem = f"{method}: unpack it, or make it anew with `zip -0`"
            at = info.header_offset
            span = (
                starts[bisect.bisect_right(starts, at)] - at if 0 <= at < end else 0
            )  # up to the next image
            num_bytes = min(span, info.compress_size + _MOST_HEADER)
            yield name, Member(info.file_size, at, num_bytes, info.compress_type, info.CRC, problem)


def _in_tar(opened: IO[bytes]) -> Iterator[tuple[str, Member]]:
    found = dict[str, Member]()
    at = -1
    with tarfile.open(fileobj=opened, mode="r:") as archive:
        while (info := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]
            if archive.offset <= at:
                raise ValueError(f"a header before byte {at:,} leads back to {archive.offset:,}")
            at = archive.offset
            name = info.name.replace("\0", "\ufffd")
            if info.isdir():
                continue
            member = Member(info.size, info.offset_data, info.size)
            if info.islnk():  # another name of a file that is in the tar
                member = found.get(info.linkname) or Member(
                    0, problem=f"is a link to {info.linkname!r} in a tar"
                )
            elif not info.isreg() or info.issparse():
                if info.issym():
                    what = "a symbolic link"
                else:
                    if info.isreg():
                        what = "a sparse file"
                    else:
                        what = "a device or pipe"
                member = Member(0, problem=f"is {what} in a tar")
            found[name] = member
            yield name, member
        opened.seek(archive.offset)
        end = opened.read(1 << 20)
        if not end or end.strip(b"\0"):  # tarfile takes both for the end
            raise ValueError(
                f"it is cut, damaged or joined with another at byte {archive.offset:,}"
            )


def archive_of(path: str, place: str) -> str:
    """The path of the archive that holds an image."""
    extension, length, *_ = place.split(":")
    return path[: -int(length) - 1] + extension


def read_member(entry: storage.Entry, max_bytes: int) -> bytes:
    """Reads an image in an archive, but no more than `max_bytes` from the file.

    Raises:
        RejectError: `unusable-file`: its bytes are not those that the archive describes.
        OSError: as `storage.read_part`.
    """
    file = archive_of(entry.path, entry.place)
    size = entry.size_bytes
    generation, begin, num_bytes, method = map(int, entry.place.split(":")[2:])
    data = storage.read_part(
        file, begin, min(num_bytes, max_bytes + _MOST_HEADER), generation=generation
    )
    if method != _TAR:
        signature, *lengths = _HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size))
        data = data[_HEADER.size + sum(lengths) :] if signature == b"PK\3\4" else b""
        if method == zipfile.ZIP_DEFLATED:
            try:
                data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, size + 1)
            except zlib.error:
                data = b""
        else:
            data = data[:size]
    if len(data) != size or (method != _TAR and zlib.crc32(data) != entry.generation & 0xFFFFFFFF):
        raise RejectError(
            "unusable-file", f"its bytes in {posixpath.basename(file)} are cut or damaged"
        )
    return data
