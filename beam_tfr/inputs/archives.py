"""Lists and reads images in zip and tar files, without unpacking them.

Listing an archive finds the images in it; each image is then read as a range of bytes.

An archive stands for the folder that it would be unpacked to: `train/1.jpg` in `photos.zip` has the
path `photos/train/1.jpg`. The place of an image says where its bytes are stored. It consists of the
extension of the archive, the length of the image's name in the archive, the generation of the
archive, the first byte, the number of bytes, and the `Method`. A reference to an image in a zip has
the image's CRC-32 as its generation, so it stays the same when images are added to the zip.
"""

from __future__ import annotations

import bisect
import contextlib
import enum
import io
import os
import posixpath
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from array import array
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, NamedTuple, cast

import numpy as np

from beam_tfr import storage
from beam_tfr.inputs.held_files import Hashes, HeldFiles
from beam_tfr.inputs.patterns import NOTHING, compile_pattern
from beam_tfr.inputs.skipped import UNCOUNTED, SkippedFiles
from beam_tfr.inputs.zip_directory import ZipDirectory
from beam_tfr.inputs.zip_names import UNIX, is_guessed, is_utf8, name_in_zip
from beam_tfr.layouts.split_names import splits_of_file
from beam_tfr.schema.errors import DataError, RejectError
from beam_tfr.schema.extensions import is_junk, may_describe_image
from beam_tfr.storage.opened import note_path

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# 2 MiB of an archive on gs://, where a request takes as long as reading a few images.
_GCS_STEP_BYTES = 2 << 20
_DISK_STEP_BYTES = 1 << 14
_MOST_BYTES = 1 << 30  # 1 GiB read at once
# Header of an image in a zip: signature, length of its name, and of what follows the name.
_HEADER = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\3\4"
_MOST_HEADER = _HEADER.size + 2 * 0xFFFF
_TAIL_BYTES = 1 << 20  # the end of a tar, which must be zeros
# 256 KiB for the header of a file in a tar, including long names and the parts of sparse files.
_MOST_TAR_HEADER = 256 << 10
_TAR_KIND = slice(156, 157)  # of the block that begins a header
_PAX_KINDS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_KINDS_WITH_CONTENT = (*_PAX_KINDS, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PAX_LENGTH = re.compile(rb"([0-9]{1,9}) ")
_TOO_MANY_DIGITS = re.compile(rb"[0-9]{256}")  # more than a file name may have
_MOST_TAR_VALUES = 1_000  # values for all files of a tar; each file gets a copy
_SIZE_BITS = 64  # for the size of a file in a tar
# A small zip could otherwise stand for millions of large images (CVE-2024-0450).
_SAME_POSITION = "has the same position in the zip as another file: create the zip again"
_ENCRYPTED = 1  # flag of a file in a zip
# Files that may hold labels of all images.
_TABLES = (".json", ".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".yaml", ".yml")
_EXTENSION = re.compile(r"\.[A-Za-z_]+(?:-[^:]*)?")
# First bytes of files that are neither zip nor tar -> what these files are.
_BEGIN_BYTES = 64
_OTHER_CONTENTS = {
    rb"7z\xbc\xaf": "that of a .7z: unpack it",
    rb"Rar!": "that of a .rar: unpack it",
    rb"\x1f\x8b|\(\xb5/\xfd|\xfd7zXZ|BZh": "compressed as a whole: decompress it, or unpack it",
    rb"(?i)\s*<(?:!doctype|html|\?xml)": "a web page: download the archive again",
}
# Errors that a hostile archive may raise.
ERRORS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    struct.error,
    EOFError,
    ValueError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
)


class DamagedArchiveError(DataError):
    """An archive cannot be read.

    Attributes:
        problem: what is wrong, without the path of the archive.
    """

    problem = ""


class Method(enum.IntEnum):
    """The method by which a file is stored in an archive."""

    TAR = -1  # uncompressed, without a checksum
    STORED = zipfile.ZIP_STORED
    DEFLATED = zipfile.ZIP_DEFLATED


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        size_bytes: size of the unpacked file.
        begin, num_bytes: where the file is in the archive; in a zip, including its header.
        method: a `Method`, or another compression method of zips, which `problem` then mentions.
        checksum: CRC-32; None for a file in a tar.
        problem: why the file cannot be read; empty if it can.
        is_outside: whether the name leads out of the archive.
        is_guessed: whether the name was decoded as code page 437 without a declared encoding.
    """

    size_bytes: int
    begin: int = 0
    num_bytes: int = 0
    method: int = Method.TAR
    checksum: int | None = None
    problem: str = ""
    is_outside: bool = False
    is_guessed: bool = False

    def to_entry(self, file: storage.Entry, name: str) -> storage.Entry:
        """Converts a member of an archive to a listed file."""
        folder, extension = split_extension(file.path)
        place = ""
        if not self.problem:
            place = (
                f"{extension}:{len(name)}:{file.generation}:"
                f"{self.begin}:{self.num_bytes}:{self.method:d}"
            )
        generation = file.generation if self.checksum is None else 1 << 32 | self.checksum
        return storage.Entry(
            f"{folder}/{name}", self.size_bytes, generation, 0, place, self.problem
        )


class RangeReader(io.RawIOBase):
    """A listed file, read in ranges of bytes.

    Raises:
        OSError: it is not a file.
    """

    def __init__(self, file: storage.Entry) -> None:
        storage.check_is_file(file)
        self.file = file
        self._position = 0
        note_path(file.path, file.size_bytes)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        starts = {
            os.SEEK_SET: 0,
            os.SEEK_CUR: self._position,
            os.SEEK_END: self.file.size_bytes,
        }
        self._position = starts[whence] + offset
        return self._position  # io.BufferedReader refuses a place before the start

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        size = min(len(view), self.file.size_bytes - self._position)
        if size > _MOST_BYTES:
            raise ValueError(f"a part of more than {_MOST_BYTES} bytes")
        if size <= 0:
            return 0
        data = storage.read_part(
            self.file.path, self._position, size, generation=self.file.generation
        )
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


class _TarReader:
    """A reader of tar headers that limits what they may cost, whatever they state.

    A header consists of a block that begins it, and perhaps of content, such as a long name or a
    pax header, which the block of the file itself follows.

    Args:
        opened: the tar, at its beginning.
    """

    def __init__(self, opened: IO[bytes]) -> None:
        self._opened = opened
        self.seek = opened.seek
        self.tell = opened.tell
        self.begin_header()

    def begin_header(self) -> None:
        """Declares that the next bytes are the header of another file."""
        self._room = _MOST_TAR_HEADER
        self._kind = b""  # of the content that is read next

    def read(self, num_bytes: int) -> bytes:
        """Reads a part of a header.

        Raises:
            ValueError: the header is too long, or is a pax header with invalid records.
        """
        begin = self.tell()
        self._room -= num_bytes
        if self._room < 0:
            raise ValueError(
                f"the header at byte {begin:,} states a length of more than "
                f"{_MOST_TAR_HEADER >> 10} KiB"
            )
        data = self._opened.read(num_bytes)
        if num_bytes < tarfile.BLOCKSIZE:
            return data
        if not self._kind:
            self._kind = data[_TAR_KIND]
        elif self._kind in _KINDS_WITH_CONTENT:
            if self._kind in _PAX_KINDS and not _is_pax(data):
                raise ValueError(f"the pax header at byte {begin:,} has invalid records")
            self._kind = b""
        return data


def _is_pax(content: bytes) -> bool:
    """Whether the content of a pax header consists of valid records, and then of zeros.

    Each record is `LENGTH KEYWORD=VALUE` and a line end; the length includes itself. Checked here
    because tarfile would take quadratic time or memory for other content, in some versions also
    for long runs of digits (CVE-2024-6232).
    """
    if _TOO_MANY_DIGITS.search(content):
        return False
    begin = 0
    while content[begin : begin + 1].strip(b"\0"):
        length = _PAX_LENGTH.match(content, begin)
        if not length:
            return False
        end = begin + int(length[1])
        record = content[length.end() : end]
        if b"=" not in record[1:] or not record.endswith(b"\n"):
            return False
        begin = end
    return True


def list_images(
    file: storage.Entry,
    exclude: re.Pattern[str] = NOTHING,
    skipped: SkippedFiles = UNCOUNTED,
) -> Iterator[storage.Entry]:
    """Lists the images in an archive.

    Uses some 60 bytes of memory for each image in a zip, and 200 for each image in a tar.

    Args:
        file: the archive.
        exclude: result of `compile_exclusion`.
        skipped: counts the files that are not images.

    Raises:
        DamagedArchiveError: the archive is damaged.
        OSError: the archive cannot be read, or has changed.
    """
    folder, _, extension = file.path.rpartition(".")
    step_bytes = _GCS_STEP_BYTES if storage.is_remote(file.path) else _DISK_STEP_BYTES
    try:
        with io.BufferedReader(RangeReader(file), step_bytes) as opened:
            images, others = _hold_files(file, opened, exclude, skipped)
    except ERRORS as error:
        kind = extension.lower()
        cause = error or type(error).__name__
        damaged = DamagedArchiveError(
            f"{file.path} cannot be read as {kind}: {cause}; {_find_cure(file)}, or leave it out "
            "with `exclude=`"
        )
        damaged.problem = f"cannot be read as {kind}: {cause}"
        raise damaged from error
    for name in _find_labels(others, images):
        skipped.add_packed_label(f"{folder}/{name}")
    repeated = images.find_repeated()
    for name, values in images:
        if name not in repeated:
            yield Member(*values).to_entry(file, name)
    for name in sorted(repeated):
        yield Member(0, problem=f"is in {file.name} more than once").to_entry(file, name)


def _hold_files(
    file: storage.Entry, opened: IO[bytes], exclude: re.Pattern[str], skipped: SkippedFiles
) -> tuple[HeldFiles, HeldFiles]:
    """Returns the images in an archive, with their `Member` values, and possible label files.

    Raises:
        ERRORS: one of these, if the archive is damaged.
    """
    folder = file.path.rpartition(".")[0]
    is_image = compile_pattern(f"{folder}/").fullmatch
    images = HeldFiles()
    others = HeldFiles()
    for name, member in list_members(file, opened):
        if exclude.fullmatch(f"{folder}/{name}"):
            skipped.note_excluded(f"{folder}/{name}")
            continue
        shown_name = posixpath.basename(name) if member.is_outside else name
        if not is_image(f"{folder}/{shown_name}"):
            skipped.add_packed_kind(name)
            if may_describe_image(name):
                others.add(name)
            continue
        if member.is_guessed:
            skipped.add_guessed_name(f"{folder}/{name}")
        images.add(name, member)
    return images, others


def _find_cure(file: storage.Entry) -> str:
    """Says how to make an archive readable, judging by its first bytes."""
    begin = b""
    with contextlib.suppress(OSError):
        begin = storage.read_part(file.path, 0, _BEGIN_BYTES, generation=file.generation)
    for pattern, cure in _OTHER_CONTENTS.items():
        if re.match(pattern, begin):
            return f"its content is {cure}"
    if begin.startswith(_SIGNATURE) and not file.path.lower().endswith("zip"):
        return "its content is that of a .zip: rename it"
    return "copy or create it again"


def _find_labels(others: HeldFiles, images: HeldFiles) -> Iterator[str]:
    """Yields the names of files in an archive that may hold labels of its images.

    These are tables, lists of splits, and files in any folder that are named like an image.
    """
    stems = Hashes()
    if others:
        for image, _ in images:
            stems.add(_stem_of(image))
    for name, _ in others:
        is_of_image = stems.has(_stem_of(name))
        is_table = name.lower().endswith(_TABLES)
        is_list = name.lower().endswith(".txt") and splits_of_file(name.rpartition("/")[2])
        if (is_of_image or is_table or is_list) and not is_junk(name):
            yield name


def _stem_of(name: str) -> str:
    """Returns the file name in a path up to its first dot, as in WebDataset."""
    return name.rpartition("/")[2].partition(".")[0]


def list_members(file: storage.Entry, opened: IO[bytes]) -> Iterator[tuple[str, Member]]:
    """Yields each file in an archive as its name and `Member`.

    Raises:
        ERRORS: any of these errors, if the archive is damaged.
    """
    list_format = _list_zip if file.path.lower().endswith("zip") else _list_tar
    for name, member in list_format(opened):
        if name.startswith("/") or ".." in name.split("/"):
            problem = f"its name leads out of {file.name}"
            yield name, Member(0, problem=problem, is_outside=True)
        else:
            yield posixpath.normpath(name), member


def _list_zip(opened: IO[bytes]) -> Iterator[tuple[str, Member]]:
    directory = ZipDirectory(opened)
    survey = _survey_zip(directory)
    for info in directory.rows():
        name = name_in_zip(info, are_utf8=survey.are_utf8)
        if name.endswith("/"):  # a folder
            continue
        begin = 0
        num_bytes = 0  # if the stated position cannot be that of a file
        problem = _find_zip_problem(info)
        if 0 <= info.header_offset < directory.begin:
            begin = info.header_offset
            position = bisect.bisect_right(survey.starts, begin)
            num_bytes = min(survey.starts[position] - begin, info.compress_size + _MOST_HEADER)
            if position > 1 and survey.starts[position - 2] == begin:
                problem = problem or _SAME_POSITION
        yield (
            name,
            Member(
                info.file_size,
                begin,
                num_bytes,
                info.compress_type,
                info.CRC,
                problem,
                is_guessed=is_guessed(info, are_utf8=survey.are_utf8),
            ),
        )


class _ZipSurvey(NamedTuple):
    """The findings of a first pass over the directory of a zip.

    Attributes:
        starts: sorted positions where files begin, and where the directory begins.
        are_utf8: whether all names are valid UTF-8, declared or not.
    """

    starts: array[int]
    are_utf8: bool


def _survey_zip(directory: ZipDirectory) -> _ZipSurvey:
    starts = array("Q", [directory.begin])
    are_utf8 = True
    for info in directory.rows():
        if info.volume:
            raise ValueError(
                "it is the last part of a split zip, which `zip -s 0 FILE -O whole.zip` joins"
            )
        are_utf8 = are_utf8 and is_utf8(info)
        if 0 <= info.header_offset < directory.begin:
            starts.append(info.header_offset)
    in_order = np.sort(np.frombuffer(starts, np.uint64))
    return _ZipSurvey(array("Q", in_order.tobytes()), are_utf8)


def _find_zip_problem(info: zipfile.ZipInfo) -> str:
    """Returns why a file in a zip cannot be read, or an empty string if it can."""
    if info.create_system == UNIX and stat.S_ISLNK(info.external_attr >> 16):
        return "is a symbolic link in a zip"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted: unpack the zip with its password"
    if info.compress_type not in (Method.STORED, Method.DEFLATED):
        return (
            f"has compression method {info.compress_type} in a zip: unpack the zip, or create "
            "it again with `zip -0`"
        )
    return ""


def _list_tar(opened: IO[bytes]) -> Iterator[tuple[str, Member]]:
    places = _TarPlaces()
    offset = -1
    reader = _TarReader(opened)
    with tarfile.open(fileobj=cast(IO[bytes], reader), mode="r:") as archive:
        for info in iter(archive.next, None):
            reader.begin_header()
            archive.members.clear()  # type: ignore[attr-defined]
            if len(archive.pax_headers) > _MOST_TAR_VALUES:
                raise ValueError(f"it states more than {_MOST_TAR_VALUES:,} global header values")
            if archive.offset <= offset:
                raise ValueError(
                    f"a header before byte {offset:,} leads back to {archive.offset:,}"
                )
            offset = archive.offset
            if not info.isdir():
                name = info.name.replace("\0", "\ufffd")
                member = _make_tar_member(info, places)
                places.add(name, member)
                yield name, member
        opened.seek(archive.offset)
        tail = opened.read(_TAIL_BYTES)
        if not tail or tail.strip(b"\0"):  # tarfile takes both for the end
            raise ValueError(
                f"it is cut off, damaged or joined with another tar at byte {archive.offset:,}"
            )


class _TarPlaces:
    """The positions of files in a tar, needed for links; uses some 120 bytes of memory per file."""

    def __init__(self) -> None:
        self._places = dict[int, int]()  # hash of a name -> begin and size, in one integer

    def add(self, name: str, member: Member) -> None:
        """Adds a file, which replaces an earlier file with the same name."""
        place = member.begin << _SIZE_BITS | member.size_bytes
        self._places[hash(name)] = -1 if member.problem else place

    def find(self, name: str) -> Member | None:
        """Returns the file with a name; None if there is no such file, or it cannot be read."""
        place = self._places.get(hash(name), -1)
        if place < 0:
            return None
        size = place & (1 << _SIZE_BITS) - 1
        return Member(size, place >> _SIZE_BITS, size)


def _make_tar_member(info: tarfile.TarInfo, earlier: _TarPlaces) -> Member:
    """Builds a member from a tar header; a link becomes the earlier member that it leads to."""
    if info.islnk():  # another name of a file that is in the tar
        link = Member(0, problem=f"is a link to {info.linkname!r} in a tar")
        return earlier.find(info.linkname) or link
    if info.issym():
        return Member(0, problem="is a symbolic link in a tar")
    if not info.isreg():
        return Member(0, problem="is a device or pipe in a tar")
    if info.issparse():
        return Member(0, problem="is a sparse file in a tar")
    return Member(info.size, info.offset_data, info.size)


def split_extension(path: str) -> tuple[str, str]:
    """Splits the path of an archive into the folder that the archive stands for, and the extension.

    The extension consists of letters, and perhaps the number of a shard. Any other ending remains
    part of the folder, so that `train.1` and `train.2` stand for different folders.
    """
    folder, extension = os.path.splitext(path)
    return (folder, extension) if _EXTENSION.fullmatch(extension) else (path, "")


def archive_of(path: str, place: str) -> str:
    """Returns the path of the archive that holds an image."""
    extension, length, *_ = place.split(":")
    return path[: -int(length) - 1] + extension


def read_member(entry: storage.Entry, max_bytes: int) -> bytes:
    """Reads an image in an archive, up to `max_bytes` of the file.

    Raises:
        RejectError: `unusable-file` if the bytes are not those that the archive describes; or
            `file-too-large`.
        OSError: see `storage.read_part`.
    """
    if entry.size_bytes > max_bytes:
        raise RejectError("file-too-large", f"more than {max_bytes} bytes")
    file = archive_of(entry.path, entry.place)
    generation, begin, num_bytes, method = map(int, entry.place.split(":")[2:])
    num_bytes = min(num_bytes, max_bytes + _MOST_HEADER)
    data = storage.read_part(file, begin, num_bytes, generation=generation)
    is_sound = True
    if method != Method.TAR:
        data = _unzip(data, method, entry.size_bytes)
        is_sound = zlib.crc32(data) == entry.generation & 0xFFFFFFFF
    if not is_sound or len(data) != entry.size_bytes:
        raise RejectError(
            "unusable-file", f"its bytes in {posixpath.basename(file)} are incomplete or damaged"
        )
    return data


def _unzip(data: bytes, method: int, size_bytes: int) -> bytes:
    """Decompresses the bytes of a file in a zip; may return fewer bytes if they are damaged."""
    header = data[: _HEADER.size].ljust(_HEADER.size)
    signature, name_length, extra_length = _HEADER.unpack(header)
    if signature != _SIGNATURE:
        return b""
    stored = data[_HEADER.size + name_length + extra_length :]
    if method == Method.STORED:
        return stored[:size_bytes]
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(stored, size_bytes + 1)
    except zlib.error:
        return b""
