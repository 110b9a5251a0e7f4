"""Reads the names of files in zips, which often declare no encoding."""

import os
import re
import struct
import zlib
from zipfile import ZipInfo

from beam_tfr.inputs.zip_directory import UTF8, read_fields

UNIX = 3  # code of the system that packed a file
_UNICODE_PATH = struct.Struct("<BI")  # version, checksum of the other name
_UNICODE_PATH_KIND = 0x7075
_ASCII_BACKSLASH = re.compile(r"(?<![^\0-\x7f])\\")


def name_in_zip(info: ZipInfo, *, are_utf8: bool) -> str:
    """Returns the name that a file has when it is unpacked.

    A name packed on Unix keeps its bytes, even if no encoding is declared. Some Windows programs
    separate folders with backslashes instead of slashes.

    Args:
        info: the file.
        are_utf8: whether all names in the zip are valid UTF-8, declared or not.
    """
    name = _read_unicode_path(info) or info.filename
    if _is_declared(info):
        return name.replace("\\", "/")
    if are_utf8:
        return name.encode("cp437").decode().replace("\\", "/")
    # In Chinese and Japanese encodings, a backslash may be the second half of a character.
    name = _ASCII_BACKSLASH.sub("/", name)
    if info.create_system != UNIX:
        return name
    return os.fsdecode(name.encode("cp437"))


def is_utf8(info: ZipInfo) -> bool:
    """Whether a name is declared to be UTF-8, or may be UTF-8 anyway."""
    if _is_declared(info):
        return True
    try:
        info.filename.encode("cp437").decode()
    except UnicodeDecodeError:
        return False
    return True


def is_guessed(info: ZipInfo, *, are_utf8: bool) -> bool:
    """Whether a name was decoded as code page 437, which the zip does not declare.

    Args:
        info, are_utf8: see `name_in_zip`.
    """
    return not are_utf8 and info.create_system != UNIX and not _is_declared(info)


def _is_declared(info: ZipInfo) -> bool:
    """Whether the encoding of a name is certain."""
    if info.flag_bits & UTF8 or info.filename.isascii():
        return True
    return _read_unicode_path(info) != ""


def _read_unicode_path(info: ZipInfo) -> str:
    """Returns the UTF-8 name that some programs add to a name in another encoding, or "".

    Format: section 4.6.9 of PKWARE's APPNOTE.TXT.
    """
    if info.flag_bits & UTF8 or info.filename.isascii():
        return ""
    checksum = zlib.crc32(info.orig_filename.encode("cp437"))
    for kind, field in read_fields(info.extra):
        if kind != _UNICODE_PATH_KIND or len(field) < _UNICODE_PATH.size:
            continue
        if _UNICODE_PATH.unpack_from(field) == (1, checksum):
            return field[_UNICODE_PATH.size :].decode()
    return ""
