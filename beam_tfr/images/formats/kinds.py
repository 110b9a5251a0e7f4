"""Guesses the type of a file that is not an image, for the detail of its reject.

Libraries that know file signatures (puremagic, filetype) do not know SVG and text, the most frequent strangers in
folders of images.
"""

from __future__ import annotations

import codecs
import re

_LOOK = 4096  # bytes that are read
# What a file begins with -> its name; the first match counts. https://en.wikipedia.org/wiki/List_of_file_signatures
_SIGNATURES = {
    rb"%PDF-": "PDF",
    rb"%!PS|\xc5\xd0\xd3\xc6": "PostScript",
    rb"8BPS|gimp xcf": "a Photoshop or GIMP file",
    rb"\0\0[\x01\x02]\0|icns": "an icon",
    rb"v/1\x01|#\?(RADIANCE|RGBE)": "a high dynamic range image (OpenEXR, Radiance)",
    rb".{128}DICM": "DICOM",
    rb".{8}CR\x02|II(R[OS]|U\0)|MMOR|FUJIFILMCCD-RAW|.{4}ftypcrx ": "a camera raw file",
    rb".{4}(ftyp|moov|mdat)|.{8}AVI |\x1a\x45\xdf\xa3|FLV\x01|\0\0\x01[\xb3\xba]|\x30\x26\xb2\x75": "a video",
    rb"PK(\x03\x04|\x05\x06)": "a ZIP archive (or a document in one, such as docx)",
    rb"\x1f\x8b|BZh|\xfd7zXZ\0|\x28\xb5\x2f\xfd": "compressed data; decompress it first",
    rb"7z\xbc\xaf|Rar!|.{257}ustar": "an archive",
    rb"\x93NUMPY": "a NumPy array",
    rb"\0\x05\x16\x07": "Finder data of macOS (AppleDouble): --exclude '**/._*' leaves such files out",
    rb"version https://git-lfs": "a pointer of Git LFS, not the file itself",
}
_NOTES = re.compile(r"<\?.*?\?>|<!--.*?-->", re.DOTALL)
_ROOT = re.compile(r"\s*<(?:!DOCTYPE\s)?(?:\w+:)?(\w+)", re.IGNORECASE)
_ROOTS = {"svg": "SVG", "html": "HTML", "head": "HTML", "body": "HTML"}


def describe(data: bytes) -> str:
    """Guesses the type of a file, such as "PDF" or "text"."""
    if not data:
        return "an empty file"
    for signature, name in _SIGNATURES.items():
        if re.match(signature, data, re.DOTALL):
            return name
    if not data.strip(b"\0"):
        return "nothing but zero bytes"
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:  # the last character may be cut
        text = codecs.getincrementaldecoder(encoding)().decode(data[:_LOOK])
    except UnicodeDecodeError:
        text = "\0"
    if any(char < " " and char not in "\t\n\r\f" for char in text):
        return f"unknown content that begins with {data[:16]!r}"
    if root := _ROOT.match(_NOTES.sub("", text)):
        return _ROOTS.get(root[1].lower(), "XML")
    return "JSON" if text.lstrip().startswith(("{", "[")) else "text"
