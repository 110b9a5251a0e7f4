"""Finds fonts that have the characters of the text in pictures.

Pillow's own font has ASCII only; the bundled DejaVu Sans has Latin, Greek and Cyrillic. Text
within images uses only these two fonts, so that it looks the same on each machine; captions use a
font installed on the machine if these two lack a character.
"""

import functools
import re
import unicodedata
from pathlib import Path

from PIL import ImageFont

from beam_tfr.console.terminal import printable

Font = ImageFont.ImageFont | ImageFont.FreeTypeFont
_BUNDLED = str(Path(__file__).with_name("DejaVuSans.ttf"))
_NOT_IN_BUNDLED = re.compile("[^ -~\u00a0-\u024f\u0370-\u04ff\u1e00-\u1eff\u2010-\u2027\u20ac]")
_ABSENT = "\uffff"  # a character that no font has
# Fonts with Chinese, Japanese and Korean characters that come with Linux, macOS and Windows; Pillow
# looks for them in the system's font folders.
_OF_SYSTEMS = (
    "NotoSansCJK-Regular.ttc",
    "DroidSansFallbackFull.ttf",
    "wqy-microhei.ttc",
    "wqy-zenhei.ttc",
    "Arial Unicode.ttf",
    "AppleSDGothicNeo.ttc",
    "msyh.ttc",
    "malgun.ttf",
    "unifont.ttf",
)


def drawable(text: str) -> str:
    """Returns text as one line, with escapes for characters that the bundled fonts lack."""
    return _NOT_IN_BUNDLED.sub(_escape_match, _on_one_line(text))


def find_font(text: str, size: int) -> Font:
    """Finds a bundled font that has the characters of drawable text."""
    if text.isascii():
        return ImageFont.load_default(size)
    return _load_bundled(size)


def choose_lettering(text: str, size: int) -> tuple[str, Font]:
    """Returns text as one line, and a font that has its characters.

    Characters are escaped if no bundled or installed font has them.
    """
    line = _on_one_line(text)
    escaped = drawable(text)
    if escaped != line:
        for font in _load_fonts_of_system(size):
            if all(_has(font, char) for char in line):
                return line, font
    return escaped, find_font(escaped, size)


def _on_one_line(text: str) -> str:
    return printable(unicodedata.normalize("NFC", text.replace("\n", " ")))


def _escape_match(match: re.Match[str]) -> str:
    return match[0].encode("ascii", "backslashreplace").decode()


@functools.cache
def _load_bundled(size: int) -> Font:
    return ImageFont.truetype(_BUNDLED, size)


@functools.cache
def _load_fonts_of_system(size: int) -> list[Font]:
    fonts = list[Font]()
    for name in _OF_SYSTEMS:
        try:
            fonts.append(ImageFont.truetype(name, size))
        except OSError:  # this machine has no font with that name
            continue
    return fonts


def _has(font: Font, char: str) -> bool:
    return bytes(font.getmask(char)) != bytes(font.getmask(_ABSENT))
