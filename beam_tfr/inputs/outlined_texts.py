"""Recognizes files with outlines of the words in an image, as in ICDAR, which no option reads."""

import itertools
import posixpath
import re

from beam_tfr.inputs.annotation_texts import FIRST_LINES
from beam_tfr.schema.spelling import quote_word

_PIXEL = rb"\s*-?[0-9]+(?:\.0)?\s*"
_BOM = b"\xef\xbb\xbf"
# The x and y of four corners, then a word, which may have commas.
_CORNERS = re.compile(rb"(?P<corners>%b(?:,%b){7}),(?P<word>.*)" % (_PIXEL, _PIXEL))
_NUMBERS = re.compile(rb"(?:[-0-9.eE\s]+,)*[-0-9.eE\s]+")


def has_outlined_words(begin: bytes) -> bool:
    """Whether each of the first lines of a text file has four corners, followed by a word.

    Other tables have more than these eight numbers in all lines, as in MOT, or begin with a line of
    increasing numbers, which are the names of the columns.
    """
    lines = [line for line in begin.removeprefix(_BOM).splitlines() if line.strip()][:FIRST_LINES]
    matches = [*filter(None, map(_CORNERS.fullmatch, lines))]
    if not matches or len(matches) < len(lines):
        return False
    numbers = [*map(float, matches[0]["corners"].split(b","))]
    may_be_names = all(low < high for low, high in itertools.pairwise(numbers))
    have_words = not all(_NUMBERS.fullmatch(match["word"]) for match in matches)
    return have_words and not may_be_names


def describe_outlined_words(path: str) -> str:
    """Describes a file with outlined words, and a command that makes a table from such files."""
    folder, name = posixpath.split(path)
    files = f"{quote_word(folder or '.', 'FOLDER')}/*{quote_word(posixpath.splitext(name)[1], '')}"
    return (
        "has the corners of word outlines in an image, as in ICDAR: jq -nRc "
        '\'reduce inputs as $line ({}; .[input_filename] += [$line | ltrimstr("\\ufeff") | '
        'split(",") | select(length > 7)]) | to_entries[] | [.value[][:8] | map(gsub("\\\\s"; "") '
        '| tonumber)] as $all | {path: (.key | split("/")[-1] | sub("[.][^.]*$"; "") | '
        'sub("^gt_"; "")), box: [$all[] | [.[0, 2, 4, 6]] as $x | [.[1, 3, 5, 7]] as $y | '
        "[($x | min), ($y | min), ($x | max), ($y | max)]], outline: $all, text: [.value[][8:] | "
        'join(",") | rtrimstr("\\r")]}\' '
        f"{files} > words.jsonl writes a table with boxes around them: read it with `table=`, "
        "`uri_column=path`, `feature_columns='box:bbox[xyxy],outline:points[xy],text:bytes[]'` and "
        "`image_root=` with the folder of images"
    )
