"""Recognizes annotation files by their first bytes, and says how `table=` can read them."""

import contextlib
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.annotation_texts import (
    FIRST_LINES,
    describe_text,
    has_rows,
    is_of_kitti,
)
from beam_tfr.inputs.outlined_texts import describe_outlined_words, has_outlined_words
from beam_tfr.inputs.yolo_setups import (
    describe_label_files,
    find_setup,
    has_label_lines,
    has_setup_lines,
)
from beam_tfr.layouts.split_names import DEFAULT_SPLIT, split_around, splits_of_file
from beam_tfr.schema.extensions import FORMAT_OF, may_describe_image

TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")
# Extensions used by SageMaker, MXNet, CrowdHuman and Edge Impulse, among others.
TEXTS_TO_RENAME = (".manifest", ".lst", ".odgt", ".labels", ".geojson")
UNREAD = (".mat", ".npy", ".npz", ".pts", ".pkl", ".pickle", ".h5", ".hdf5")  # by any option
NO_EXTENSION = ""
# A file with one of these may be about several images.
OF_MANY_IMAGES = (".xml", ".json", ".yaml", ".yml", ".txt", *TEXTS, *TEXTS_TO_RENAME)
KNOWN_EXTENSIONS = (NO_EXTENSION, *OF_MANY_IMAGES, *UNREAD)
_LABEL_NAME = re.compile(r"(?i)label|anno|digitstruct|attrib|bbox|boxes|landmark|truth|(?:^|_)gt")
_METADATA_NAME = re.compile(r"(?i)(?:^|[-_])meta[-_]?data(?:[-_]|\Z)")
BEGIN_BYTES = 64 << 10  # the part of a file that is looked at

_COCO_KEYS = re.compile(rb'"(?:images|annotations|categories|licenses|info|coordinates)"\s*:')
_OBJECT_KEYS = re.compile(rb'"(?:images|annotations|coordinates)"\s*:')
_LABELME_KEYS = re.compile(rb'"(?:shapes|imagePath|flags|version)"\s*:')
_FIFTYONE_KEYS = re.compile(rb'"(?:classes|labels)"\s*:')
# Typical keys of a kind of JSON, and how many of them a file of that kind must have.
_JSON_KINDS = ((_COCO_KEYS, 2), (_LABELME_KEYS, 3), (_FIFTYONE_KEYS, 2))
_VOC = re.compile(rb"<annotation[\s>]")
_NAME_OF_IMAGE = re.compile(rf"\.(?i:{'|'.join(FORMAT_OF)})\b".encode())
# The first line of Roboflow's _classes.csv, which comes with masks.
MASK_VALUES = re.compile(rb"(?i)\s*\"?pixel value\"?\s*[,;\t]")
# Names of class columns in the first line of a table.
_CLASS_COLUMN = re.compile(
    rb"(?i)(?<![a-z])(?:labels?|class(?:es)?|category|target|breed|diagnosis|species)(?![a-z])"
)


def annotation_extension(path: str) -> str | None:
    """Returns the extension, perhaps "", of a file that may hold annotations; else None."""
    extension = os.path.splitext(path)[1].lower()
    if extension in KNOWN_EXTENSIONS or may_describe_image(path):
        return extension
    return None


def is_unread_label_file(path: str) -> bool:
    """Whether a file is named like a label file, but has a format that no option reads.

    Examples are imagelabels.mat of Flowers-102, and gt.txt of MOT if its lines have several cells.
    """
    stem, extension = os.path.splitext(posixpath.basename(path))
    if not _LABEL_NAME.search(stem):
        return False
    if extension.lower() == ".txt":
        return has_rows(read_begin(path))
    return extension.lower() in UNREAD


def is_metadata_table(path: str) -> bool:
    """Whether a file is named like a table of metadata, as metadata.csv of WILDS is."""
    stem, extension = os.path.splitext(posixpath.basename(path))
    return extension.lower() in TEXTS and _METADATA_NAME.search(stem) is not None


def read_begin(path: str) -> bytes:
    """Returns the first bytes of a file, or empty bytes if the file cannot be read."""
    with contextlib.suppress(OSError):
        return storage.read_part(path, 0, BEGIN_BYTES)
    return b""


def describe_tables(candidates: Mapping[str, Sequence[str]]) -> list[str]:
    """Describes the first table with each extension.

    Args:
        candidates: extension -> some files with this extension.
    """
    texts = list[str]()
    tables = set[str]()
    for extension in sorted({*candidates} & {*KNOWN_EXTENSIONS}):
        found = _describe_table(extension, candidates[extension])
        if found and found.table not in tables:
            texts.append(found.text)
            tables |= {found.table} - {""}
    return texts


class _Description(NamedTuple):
    """The description of a file with annotations.

    Attributes:
        text: what the file is, and how to read it.
        table: the file that the text suggests for `table=`; empty if the text suggests a pattern or
            nothing.
    """

    text: str
    table: str = ""


def _describe_table(extension: str, paths: Sequence[str]) -> _Description | None:
    """Describes the first file that holds annotations; returns None if there is none."""
    for path in sorted(paths, key=_rank_table):
        begin = read_begin(path)
        if extension in TEXTS and MASK_VALUES.match(begin):
            return _Description(
                f"{path} names the values in masks: `description=` can keep it with the dataset"
            )
        if _holds_annotations(extension, begin):
            return _name_table(extension, path, begin)
        if extension in (".txt", ".csv") and has_outlined_words(begin):
            return _Description(f"each of {_all_like(path)} {describe_outlined_words(path)}")
        text = describe_text(begin) if extension == ".txt" else ""
        if text:
            return _Description(f"{_name_text(path, begin)} {text}")
    return None


def _rank_table(path: str) -> tuple[bool, bool, str]:
    """Returns the sort key of a table: training tables come first, sample submissions last."""
    folder, name = posixpath.split(path)
    splits = {*splits_of_file(name), split_around(f"{folder}/")} - {""}
    is_of_train = any(split.startswith(DEFAULT_SPLIT) for split in splits)
    return "submission" in name.lower(), bool(splits) and not is_of_train, path


def _name_text(path: str, begin: bytes) -> str:
    """Returns the path of a text file, or a pattern for such files if each describes one image."""
    return f"each of {_all_like(path)}" if is_of_kitti(begin) else path


def _all_like(path: str) -> str:
    """Returns a pattern for all files with the same extension in a file's folder."""
    return f"{posixpath.dirname(path)}/*{os.path.splitext(path)[1]}"


def _name_table(extension: str, path: str, begin: bytes) -> _Description:
    """Describes the table that a file of annotations belongs to."""
    folder, name = posixpath.split(path)
    if extension == ".xml":  # one file per image
        return _Description(f"{folder}/*{os.path.splitext(name)[1]} can be read with `table=`")
    if extension == NO_EXTENSION:
        return _Description(
            f"{folder}/* are VOC files: add .xml to their names, and read them with `table=`"
        )
    if extension == ".txt":
        return _Description(describe_label_files(path), find_setup(path))
    if extension == ".json" and _has_keys(begin, _LABELME_KEYS, 3):  # one file per image
        return _Description(
            f"{folder}/*.json are LabelMe files: convert them to one COCO file with "
            "labelme2coco.py, an example of LabelMe, and read that file with `table=`"
        )
    if extension == ".json":  # COCO, but also kinds that look like it, such as Datumaro
        return _Description(f"`table=` reads {path}, or explains how to convert it", path)
    if extension in (".csv", ".tsv") and not _names_images(begin):
        return _Description(
            f"{path} has a column of classes, but none that names images: if each row is about "
            "one image, add a column with its path, and read the file with `table=`"
        )
    return _Description(f"{path} can be read with `table=`", path)


def _names_images(begin: bytes) -> bool:
    """Whether a table may name images: it has several columns, or values like names of images."""
    lines = begin.splitlines()[:FIRST_LINES]
    has_columns = re.search(rb"[,;\t]", lines[0]) is not None
    return has_columns or all(map(_NAME_OF_IMAGE.search, lines[1:]))


def _holds_annotations(extension: str, begin: bytes) -> bool:
    """Whether a file with these first bytes holds a known kind of annotations, or a table."""
    if extension == ".txt":
        return has_label_lines(begin)
    if extension in TEXTS:
        return _is_table(begin.splitlines()[:FIRST_LINES])
    if extension in (".xml", NO_EXTENSION):
        return _VOC.search(begin) is not None
    if extension == ".json":
        return _is_json_kind(begin)
    return extension not in UNREAD and has_setup_lines(begin)


def _is_json_kind(begin: bytes) -> bool:
    """Whether a JSON file with these first bytes holds a known kind of annotations."""
    is_whole = len(begin) < BEGIN_BYTES
    for keys, least in _JSON_KINDS:
        has_names_alone = keys is _COCO_KEYS and is_whole and not _OBJECT_KEYS.search(begin)
        if _has_keys(begin, keys, least) and not has_names_alone:
            return True
    return False


def _has_keys(begin: bytes, keys: re.Pattern[bytes], least: int) -> bool:
    """Whether the first bytes of a JSON file contain at least `least` of the keys."""
    return len({*keys.findall(begin)}) >= least


def _is_table(lines: Sequence[bytes]) -> bool:
    """Whether a text file with these first lines is a table of images or of their classes."""
    rows = lines[1:]
    if not rows:
        return False
    return _CLASS_COLUMN.search(lines[0]) is not None or all(map(_NAME_OF_IMAGE.search, rows))
