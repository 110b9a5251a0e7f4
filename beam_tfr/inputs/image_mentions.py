"""Finds files of any format that mention images, or are named like images."""

import collections
import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Sequence

from beam_tfr.inputs.annotation_content import (
    BEGIN_BYTES,
    NO_EXTENSION,
    TEXTS,
    TEXTS_TO_RENAME,
    UNREAD,
    read_begin,
)
from beam_tfr.inputs.annotation_texts import FIRST_LINES, has_rows, list_row_starts
from beam_tfr.schema.extensions import FORMAT_OF, has_image_name
from beam_tfr.schema.spelling import spell_option

_OF_ONE_IMAGE = (".txt", ".xml", ".json", ".geojson", NO_EXTENSION, *UNREAD)
_OF_SEVERAL = (".json", ".xml", *TEXTS, *TEXTS_TO_RENAME)
_TABLES = (".csv", ".tsv")
_CELLS = re.compile(rb"[,;\t]")
_QUOTED_CELLS = re.compile(rb'[,\t\n"]')  # in JSON
_STRING = re.compile(rb'"([^"\\\n]{1,255})"')  # in JSON; names may have commas, as in CrowdHuman
_WORD = re.compile(rb'"([^"\\\s]{1,255})"')
_DIGIT = re.compile("[0-9]")
# A match begins at the first character of a word, so that long words are skipped fast.
_IN_WORD = r"[^\s/\\\"',;|]"
_IMAGE_NAMES = re.compile(
    rf"(?<!{_IN_WORD}){_IN_WORD}{{1,255}}\.(?i:{'|'.join(FORMAT_OF)})\b".encode()
)
_TRUTH = re.compile("(?i)^gt[-_]|[-_]gt$")  # around the name of an image: gt_1.txt
_NUMBER = re.compile(rb"[0-9]{1,12}")
_LINES_OF_JSON = (".json", ".jsonl", ".ndjson", ".odgt")
_LAST_PART = re.compile(r"[-_][^-_]*\Z")  # of a name: -img0 of dev-0-0-img0
_LEAST_STEM = 4  # characters; such a long name is hardly in a table by chance


class ImageMentions:
    """A finder of files that mention some of the images, or are named like one of them.

    Args:
        paths: paths of the images.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._names = {posixpath.basename(path) for path in paths}
        self._stems = {os.path.splitext(name)[0] for name in self._names}
        self._folders = {posixpath.basename(posixpath.dirname(path)) for path in paths}
        self._numbers = {int(stem) for stem in self._stems if _NUMBER.fullmatch(os.fsencode(stem))}
        self._long_stems = {stem for stem in self._stems if len(stem) >= _LEAST_STEM}
        self._groups = _list_groups(self._stems)

    def describe(self, paths: Iterable[str], noun: str) -> str:
        """Returns a message if a file mentions an image or is named like an image; otherwise "".

        Args:
            paths: the files.
            noun: what messages call the files.
        """
        all_paths = [*paths]
        for path in all_paths:
            extension = _extension_of(path)
            if extension in _OF_SEVERAL and self.are_named_in(read_begin(path), extension):
                return (
                    f"{noun}, such as {path}, mention images, but are not read: "
                    f"{spell_option('table', path)} reads this file, or explains how to convert it"
                )
            group = self.find_group(path)
            if group:
                return (
                    f"{noun}, such as {path}, have lines about groups of images, such as those "
                    f"whose names begin with {group}: write the content of these lines into a "
                    "`table=` with a row for each image"
                )
            if extension == ".txt" and self._has_rows_about(read_begin(path)):
                return (
                    f"{noun}, such as {path}, mention images, but are not read: write their "
                    "content into a `table=` with a row for each image or box"
                )
        path = self._find_alike(all_paths)
        if path:
            return (
                f"{noun}, such as {path}, are named like images, but are not read: write "
                "their content into columns of a `table=`"
            )
        return ""

    def _find_alike(self, paths: Sequence[str]) -> str:
        """Finds a file that is named after an image; returns an empty string if there is none.

        If the extension of the files says little about their content, several of them must be named
        after images.
        """
        alike = sorted(filter(self.is_named_alike, paths))
        numbers = collections.Counter(map(_extension_of, alike))
        for path in alike:
            extension = _extension_of(path)
            if extension in _OF_ONE_IMAGE or numbers[extension] >= min(2, len(self._names)):
                return path
        return ""

    def is_named_alike(self, path: str) -> bool:
        """Whether a file is named after an image: 1.txt, gt_1.txt or 1.jpg.json, for 1.jpg."""
        stem = os.path.splitext(posixpath.basename(path))[0]
        if not self._stems.isdisjoint([stem, _TRUTH.sub("", stem)]):
            return True
        return has_image_name(stem) and os.path.splitext(stem)[0] in self._stems

    def are_listed_in(self, path: str) -> bool:
        """Whether a file mentions images, and is not itself named like an image."""
        return not self.is_named_alike(path) and self.are_named_in(
            read_begin(path), _extension_of(path)
        )

    def find_folder(self, path: str) -> str:
        """Returns a folder of images that a table has a row about, or an empty string.

        The first column must differ in all rows, and the table must name no image. An example is
        identity_meta.csv of VGGFace2, with the row n000001, "14th_Dalai_Lama", 424.
        """
        extension = _extension_of(path)
        if extension not in _TABLES:
            return ""
        begin = read_begin(path)
        rows = [_CELLS.split(line, maxsplit=1) for line in begin.splitlines()[1:]]
        starts = [os.fsdecode(row[0].strip(b' "')) for row in rows if len(row) > 1]
        named = self._folders.intersection(starts)
        if not named or len({*starts}) < len(starts) or self.are_named_in(begin, extension):
            return ""
        return min(named)

    def find_group(self, path: str) -> str:
        """Returns the start of the names of images that JSON Lines are about, or an empty string.

        In NLVR2, the line with the identifier dev-0-0-1 is about dev-0-0-img0 and dev-0-0-img1.
        """
        if _extension_of(path) not in _LINES_OF_JSON or len(self._groups) < 2:
            return ""
        lines = read_begin(path).splitlines()[:FIRST_LINES]
        if len(lines) < 2 or not all(map(_is_object, lines[:2])):
            return ""
        words = itertools.chain.from_iterable(map(_WORD.findall, lines))
        return min(self._groups & _list_groups(map(os.fsdecode, words)), default="")

    def are_named_in(self, begin: bytes, extension: str) -> bool:
        """Whether the first bytes of a file mention an image."""
        named = map(os.fsdecode, _IMAGE_NAMES.findall(begin))
        if not self._names.isdisjoint(named):
            return True
        cells = {os.fsdecode(cell) for cell in _list_cells(begin, extension)}
        if not cells.isdisjoint(self._names | self._long_stems):
            return True
        return extension in TEXTS and self._are_numbered_in(begin)

    def _are_numbered_in(self, begin: bytes) -> bool:
        """Whether the first column of a text table has the numbers in the names of most images.

        Leading zeros are ignored, because spreadsheets drop them.
        """
        rows = [_CELLS.split(line, maxsplit=1) for line in begin.splitlines()[1:]]
        starts = (row[0].strip(b' "') for row in rows if len(row) > 1)
        numbers = {int(start) for start in starts if _NUMBER.fullmatch(start)}
        named = self._numbers & numbers
        if len(begin) == BEGIN_BYTES:  # most rows may follow
            return bool(named)
        return 2 * len(named) > len(self._stems)

    def _has_rows_about(self, begin: bytes) -> bool:
        """Whether a text file has rows of cells that mention images or begin with their ids."""
        if not has_rows(begin):
            return False
        starts = {os.fsdecode(start) for start in list_row_starts(begin)}
        return self.are_named_in(begin, ".txt") or not starts.isdisjoint(self._long_stems)


def _list_groups(names: Iterable[str]) -> set[str]:
    """Lists what names begin with, without their last parts; leaves out short starts."""
    starts = {_LAST_PART.sub("", name) for name in names if _LAST_PART.search(name)}
    return {start for start in starts if len(start) >= _LEAST_STEM and _DIGIT.search(start)}


def _is_object(line: bytes) -> bool:
    """Whether a line of a file looks like a whole object of JSON."""
    line = line.strip()
    return line.startswith(b"{") and line.endswith(b"}")


def names_any_image(begin: bytes) -> bool:
    """Whether the first bytes of a file mention images."""
    return _IMAGE_NAMES.search(begin) is not None


def _extension_of(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _list_cells(begin: bytes, extension: str) -> list[bytes]:
    """Returns the strings at the beginning of a file that may be file names without extensions."""
    if extension in (".json", *TEXTS_TO_RENAME):
        return [*_QUOTED_CELLS.split(begin), *_STRING.findall(begin)]
    if extension in TEXTS:
        rows = begin.splitlines()[1:FIRST_LINES]
        cells = (cell.strip(b' "') for row in rows for cell in _CELLS.split(row))
        strings = _STRING.findall(begin) if extension in _LINES_OF_JSON else ()
        return [*(cell.rpartition(b"/")[2] for cell in cells), *strings]
    return []
