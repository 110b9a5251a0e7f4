"""Names what a file seems to be that is not an image, for the detail of its reject.

Libraries that know file signatures (puremagic, filetype) do not know SVG and text, the most frequent strangers in
folders of images.
"""

from __future__ import annotations

import re

_LOOK = 4096  # bytes of text that are read

# (offset, bytes there, name); the first match counts. Signatures: https://en.wikipedia.org/wiki/List_of_file_signatures
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF-", "PDF"),
    (0, b"%!PS", "PostScript"),
    (0, b"\xc5\xd0\xd3\xc6", "PostScript"),
    (0, b"8BPS", "a Photoshop file"),
    (0, b"gimp xcf", "a GIMP file"),
    (0, b"\0\0\1\0", "an icon (ICO)"),
    (0, b"\0\0\2\0", "a cursor (CUR)"),
    (0, b"icns", "an icon (ICNS)"),
    (0, b"v/1\1", "OpenEXR"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"#?RGBE", "Radiance HDR"),
    (128, b"DICM", "DICOM"),
    (0, b"SIMPLE  =", "FITS"),
    (0, b"DDS ", "a DirectDraw surface (DDS)"),
    (0, b"\xabKTX ", "a texture (KTX)"),
    (0, b"AT&TFORM", "DjVu"),
    (0, b"Pf\n", "a portable float map (PFM)"),
    (0, b"PF\n", "a portable float map (PFM)"),
    (0, b"P7\n", "a portable arbitrary map (PAM)"),
    (8, b"CR\2", "a camera raw file (CR2)"),
    (0, b"IIRO", "a camera raw file (ORF)"),
    (0, b"IIRS", "a camera raw file (ORF)"),
    (0, b"MMOR", "a camera raw file (ORF)"),
    (0, b"IIU\0", "a camera raw file (RW2)"),
    (0, b"FUJIFILMCCD-RAW", "a camera raw file (RAF)"),
    (4, b"ftypcrx ", "a camera raw file (CR3)"),
    (4, b"ftypM4A ", "MP4 audio"),
    (4, b"ftypqt  ", "QuickTime video"),
    (4, b"ftyp", "MP4 video"),
    (4, b"moov", "QuickTime video"),
    (4, b"mdat", "QuickTime video"),
    (8, b"AVI ", "AVI video"),
    (8, b"WAVE", "WAV audio"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska or WebM video"),
    (0, b"FLV\1", "Flash video"),
    (0, b"\0\0\1\xba", "MPEG video"),
    (0, b"\0\0\1\xb3", "MPEG video"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media"),
    (0, b"OggS", "Ogg audio or video"),
    (0, b"ID3", "MP3 audio"),
    (0, b"\xff\xfb", "MP3 audio"),
    (0, b"\xff\xf3", "MP3 audio"),
    (0, b"fLaC", "FLAC audio"),
    (0, b"PK\3\4", "a ZIP archive (or a document in one, such as docx)"),
    (0, b"PK\5\6", "an empty ZIP archive"),
    (0, b"\x1f\x8b", "gzip-compressed data; decompress it first"),
    (0, b"BZh", "bzip2-compressed data; decompress it first"),
    (0, b"\xfd7zXZ\0", "xz-compressed data; decompress it first"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard-compressed data; decompress it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a program"),
    (0, b"\0\5\x16\7", "Finder data of macOS (AppleDouble), not the file beside it"),
    (0, b"version https://git-lfs", "a pointer of Git LFS, not the file itself"),
)
_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))
_XML_HEAD = re.compile(r"(?:\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>)", re.DOTALL | re.IGNORECASE)
_XML_ROOT = re.compile(r"<(?:[\w.-]+:)?([A-Za-z][\w.-]*)")


def describe(data: bytes) -> str:
    """Names what a whole file seems to be, such as "PDF" or "text"."""
    if not data:
        return "an empty file"
    for place, signature, kind in _SIGNATURES:
        if data.startswith(signature, place):
            return kind
    if not data.strip(b"\0"):
        return "nothing but zero bytes"
    text = _text(data[:_LOOK])
    return f"unknown content that begins with {data[:16]!r}" if text is None else _kind_of_text(text)


def _text(head: bytes) -> str | None:
    encoding = next((encoding for mark, encoding in _MARKS if head.startswith(mark)), "utf-8")
    try:
        text = head.decode(encoding)
    except UnicodeDecodeError as error:
        if error.start < _LOOK - 4:
            return None
        text = head[: error.start].decode(encoding)  # cut in the middle of a character
    controls = sum(char < " " and char not in "\t\n\r\f" for char in text)
    return None if controls or not text else text


def _kind_of_text(text: str) -> str:
    place = 0
    while found := _XML_HEAD.match(text, place):
        if found.group().lower().startswith("<!doctype html"):
            return "HTML"
        if found.group().lower().startswith("<!doctype svg"):
            return "SVG"
        place = found.end()
    if root := _XML_ROOT.match(text, place):
        name = root[1].lower()
        return {"svg": "SVG", "html": "HTML", "head": "HTML", "body": "HTML"}.get(name, "XML")
    if text[:place].lstrip().startswith("<?xml"):
        return "XML"
    return "JSON" if text[place : place + 1] in ("{", "[") else "text"
