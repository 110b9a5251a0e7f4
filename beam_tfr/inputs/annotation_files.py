"""Finds annotations, which are tables, among the files that a folder of images skips.

Also beside that folder, where nothing is listed.
"""

import collections
import contextlib
import itertools
import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from beam_tfr import storage
from beam_tfr.layouts.mask_folders import IMAGES
from beam_tfr.schema.extensions import FORMAT_OF, has_image_name

MOST_LOOKED_INTO = 5  # files of each extension
_FIRST_LINES = 10  # of it, if it has lines
_BEGIN_BYTES = 64 << 10  # of a file that is looked into
_COCO_KEYS = re.compile(rb'"(?:images|annotations|categories|licenses|info|coordinates)"\s*:')
_LABELME_KEYS = re.compile(rb'"(?:shapes|imagePath|flags|version)"\s*:')
_FIFTYONE_KEYS = re.compile(rb'"(?:classes|labels)"\s*:')
_VOC = re.compile(rb"<annotation[\s>]")
_YOLO = re.compile(rb"(?m)^names\s*:")
_SHARE = rb"(?:0?\.[0-9]+|[01](?:\.0*)?|[0-9.]+[eE]-[0-9]+)"
_YOLO_LINE = re.compile(rb"[0-9]+(?:[ \t]+%b){4}(?:[ \t]+[0-9.eE+-]+)*\s*" % _SHARE)
_KITTI_LINE = re.compile(rb"[A-Za-z_]+(?:[ \t]+-?[0-9.]+){14,15}\s*")
# Of a list of images with their classes, such as 1.jpg 0.
_LINE_ABOUT_IMAGE = re.compile(
    rf"(?m)^[^\s,;]*\.(?i:{'|'.join(FORMAT_OF)})[ \t,;]+[^\s,;]".encode()
)
_NAME_OF_IMAGE = re.compile(rf"\.(?i:{'|'.join(FORMAT_OF)})\b".encode())
# A word in the first line of a table with classes.
_CLASS_COLUMN = re.compile(
    rb"(?i)(?<![a-z])(?:labels?|class(?:es)?|category|target|breed|diagnosis|species)(?![a-z])"
)
_TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")
# Of SageMaker, MXNet, CrowdHuman and Edge Impulse.
_TEXTS_TO_RENAME = (".manifest", ".lst", ".odgt", ".labels", ".geojson")
_UNREAD = (".mat", ".npy", ".npz", ".pts")  # which no option reads
_NO_EXTENSION = ""
_EXTENSIONS = (
    _NO_EXTENSION,
    ".xml",
    ".json",
    ".yaml",
    ".yml",
    ".txt",
    *_TEXTS,
    *_TEXTS_TO_RENAME,
    *_UNREAD,
)

# Beside a folder of images.
_MOST_BESIDE = 1_000  # files and folders that are listed
_MOST_READ = 20  # files of each extension
_LABEL_FOLDER = re.compile(
    r"(?i)(?:(?P<prefix>.*)[-_ ])?(?:labels?|annot(?:ation)?s?|anno?|ann|xmls?|txts?|jsons?|boxes"
    r"|bbox(?:es)?|ground_?truth|gt|labeltxt|captions?)(?:[-_]?[0-9a-z]{1,5})?"
)
_GCS_FOLDERS = ("labels", "annotations", "Annotations")
_OF_ONE_IMAGE = (".txt", ".xml", ".json", ".geojson", _NO_EXTENSION, *_UNREAD)
_NAMING_IMAGES = (".json", ".xml", *_TEXTS, *_TEXTS_TO_RENAME)
_CELLS = re.compile(rb"[,;\t]")
_QUOTED_CELLS = re.compile(rb'[,\t\n"]')  # of JSON
# From the first character of a word on, so that long words take no time.
_IN_WORD = r"[^\s/\\\"',;|]"
_IMAGE_NAMES = re.compile(
    rf"(?<!{_IN_WORD}){_IN_WORD}{{1,255}}\.(?i:{'|'.join(FORMAT_OF)})\b".encode()
)
_LEAST_STEM = 4  # characters that are hardly in a table by chance


def annotation_extension(path: str) -> str | None:
    """The extension of a file that may hold annotations, empty if it has none; None for others."""
    extension = os.path.splitext(path)[1].lower()
    return extension if extension in _EXTENSIONS else None


def describe_annotations(
    candidates: Mapping[str, Sequence[str]], image_paths: Sequence[str]
) -> str:
    """Says which skipped files are annotations, and that they are tables; empty if none are.

    Args:
        candidates: extension -> the first files that have it.
        image_paths: those of the first images.
    """
    tables = _find_tables(candidates)
    if tables:
        return f"skipped files hold boxes or classes of images: {', '.join(tables)}"
    images = _Images(image_paths)
    paths = [path for extension in sorted(candidates) for path in candidates[extension]]
    return _describe_naming(paths, images, "skipped files") or _describe_named_alike(
        paths, images.stems, "skipped files"
    )


def _describe_naming(paths: Iterable[str], images: "_Images", noun: str) -> str:
    """Says so if one of some files names an image; empty if none does."""
    for path in paths:
        extension = os.path.splitext(path)[1].lower()
        if extension not in _NAMING_IMAGES:
            continue
        if images.are_named_in(_read_begin(path), extension):
            return (
                f"{noun} name images, such as {path}: what it says of them is not read; "
                f"`table={shlex.quote(path)}` reads it, or says what does"
            )
    return ""


def _describe_named_alike(paths: Iterable[str], stems: Set[str], noun: str) -> str:
    """Says so if one of some files has the name of an image; empty if none has."""
    path = next((path for path in sorted(paths) if _is_named_alike(path, stems)), "")
    if not path:
        return ""
    return (
        f"{noun} have the names of images, such as {path}: what they say is not read; give it as "
        "columns of a `table=`"
    )


def _is_named_alike(path: str, stems: Set[str]) -> bool:
    """Whether a file has the name of an image: 1.txt or 1.jpg.json, for 1.jpg."""
    stem, extension = os.path.splitext(posixpath.basename(path))
    if extension.lower() not in _OF_ONE_IMAGE:
        return False
    return stem in stems or (has_image_name(stem) and os.path.splitext(stem)[0] in stems)


def describe_labels_beside(root: str, paths: Sequence[str]) -> str:
    """Says which files beside the folder of an input are annotations of its images; may be empty.

    If they name one of these images, or are named like one.

    Args:
        root: the folder that all inputs share, with a trailing slash.
        paths: those of the first images.
    """
    images = _Images(paths)
    folder = root.rstrip("/")
    found = _list_about(_list_beside(folder), images)
    around = posixpath.dirname(folder)
    if IMAGES.fullmatch(posixpath.basename(around)):  # images/train, beside labels/train
        for extension, files in _list_about(_list_beside(around), images).items():
            found[extension] += files
    tables = _find_tables(found)
    if tables:
        return f"files beside {root} hold boxes or classes of its images: {', '.join(tables)}"
    noun = f"files beside {root}"
    about = [*itertools.chain.from_iterable(found.values())]
    return _describe_naming(about, images, noun) or _describe_named_alike(about, images.stems, noun)


class _Images:
    """The names of some images.

    Args:
        paths: those of the images.

    Attributes:
        names: their names.
        stems: those without extensions.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.names = {posixpath.basename(path) for path in paths}
        self.stems = stems_of(paths)

    def are_named_in(self, begin: bytes, extension: str) -> bool:
        """Whether a file that begins so names one of them."""
        named = map(os.fsdecode, _IMAGE_NAMES.findall(begin))
        if not self.names.isdisjoint(named):
            return True
        if extension in (".json", *_TEXTS_TO_RENAME):
            cells = {*map(os.fsdecode, _QUOTED_CELLS.split(begin))}
        elif extension in _TEXTS:
            rows = begin.splitlines()[1:_FIRST_LINES]
            cells = {os.fsdecode(cell) for row in rows for cell in _CELLS.split(row)}
        else:
            return False
        return any(len(cell) >= _LEAST_STEM for cell in cells & self.stems)


def _list_about(paths: Iterable[str], images: _Images) -> dict[str, list[str]]:
    """Extension -> the first of some files that name images, or are named like one."""
    found = collections.defaultdict[str, list[str]](list)
    read = collections.Counter[str]()
    for path in paths:
        extension = annotation_extension(path)
        if extension is None or len(found[extension]) == MOST_LOOKED_INTO:
            continue
        is_about = _is_named_alike(path, images.stems)
        is_of_many = extension not in (_NO_EXTENSION, *_UNREAD)
        if not is_about and is_of_many and read[extension] < _MOST_READ:
            read[extension] += 1
            is_about = images.are_named_in(_read_begin(path), extension)
        if is_about:
            found[extension].append(path)
    return found


def _read_begin(path: str) -> bytes:
    """The first bytes of a file; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return storage.read_part(path, 0, _BEGIN_BYTES)
    return b""


def stems_of(paths: Iterable[str]) -> set[str]:
    """The names of files, without their extensions."""
    return {os.path.splitext(posixpath.basename(path))[0] for path in paths}


def _list_beside(folder: str) -> Iterator[str]:
    """Yields files beside a folder, and the first files in folders of labels beside it."""
    if not storage.is_gcs(folder):
        yield from _list_beside_on_disk(folder)
        return
    around, _, name = folder.rpartition("/")
    if around.startswith(storage.GCS):
        yield from _list_some(around, deep=False)
        for label_folder in (*_GCS_FOLDERS, name.replace("image", "label")):  # not listed there
            if label_folder != name:
                yield from _list_some(f"{around}/{label_folder}")


def _list_some(folder: str, *, deep: bool = True) -> Iterator[str]:
    """Yields the first files in a folder; none if it cannot be listed."""
    with contextlib.suppress(OSError):
        files = storage.walk(folder, lambda _: deep, deep=deep)
        yield from (file.path for file in itertools.islice(files, _MOST_BESIDE))


def _list_beside_on_disk(folder: str) -> Iterator[str]:
    name = posixpath.basename(folder).lower()
    with contextlib.suppress(OSError), os.scandir(posixpath.dirname(folder)) as listed:
        for entry in itertools.islice(listed, _MOST_BESIDE):
            label_folder = _LABEL_FOLDER.fullmatch(entry.name)
            if entry.is_file():
                yield entry.path
            elif entry.path != folder and label_folder:
                prefix = label_folder["prefix"] or ""
                if prefix.lower() in name:  # train_labels, beside train_images
                    yield from _list_some(entry.path)


def _find_tables(candidates: Mapping[str, Sequence[str]]) -> list[str]:
    """What is said of the first table of each extension; see `describe_annotations`."""
    tables = list[str]()
    for extension in sorted(candidates):
        table = _find_table(extension, candidates[extension])
        if table:
            tables.append(table)
    return tables


def _find_table(extension: str, paths: Sequence[str]) -> str:
    """Says what table the first of some files with annotations is part of; empty if none is."""
    for path in sorted(paths):
        begin = _read_begin(path)
        if _holds_annotations(extension, begin):
            return _name_table(extension, path)
        if extension == ".txt" and _have_lines(begin, _KITTI_LINE):
            return (
                f"{posixpath.dirname(path)}/*.txt are of KITTI, which no option reads; a CSV with "
                "a row for each box is a `table=`"
            )
        if extension == ".txt" and len(_LINE_ABOUT_IMAGE.findall(begin)) > 1:
            return (
                f"{path} names images with values: saved as CSV with a first line such as "
                "path,class it is a `table=`"
            )
    return ""


def _name_table(extension: str, path: str) -> str:
    """Says what table a file of annotations is part of."""
    folder, name = posixpath.split(path)
    if extension == ".xml":  # of one image
        return f"{folder}/*{os.path.splitext(name)[1]} are a `table=`"
    if extension == _NO_EXTENSION:
        return f"{folder}/* are of VOC, and with .xml behind their names a `table=`"
    if extension == ".txt":
        return f"{folder}/*.txt belong to a data.yaml of YOLO, which is a `table=`"
    return f"{path} is a `table=`"


def _holds_annotations(extension: str, begin: bytes) -> bool:
    """Whether a file that begins so is one of a kind of annotations, or a table."""
    if extension == ".txt":
        return _have_lines(begin, _YOLO_LINE)
    if extension in _TEXTS:
        return _is_table(begin.splitlines()[:_FIRST_LINES])
    if extension in (".xml", _NO_EXTENSION):
        return _VOC.search(begin) is not None
    if extension == ".json":
        if len({*_LABELME_KEYS.findall(begin)}) > 2 or len({*_FIFTYONE_KEYS.findall(begin)}) > 1:
            return True
        return len({*_COCO_KEYS.findall(begin)}) > 1
    return extension not in _UNREAD and _YOLO.search(begin) is not None


def _have_lines(begin: bytes, pattern: re.Pattern[bytes]) -> bool:
    """Whether all of the first lines of a text fit a pattern."""
    lines = begin.splitlines()[:_FIRST_LINES]
    return bool(lines) and all(map(pattern.fullmatch, lines))


def _is_table(lines: Sequence[bytes]) -> bool:
    """Whether a text that begins with these lines is a table of images, or of their classes."""
    rows = lines[1:]
    if not rows:
        return False
    return _CLASS_COLUMN.search(lines[0]) is not None or all(map(_NAME_OF_IMAGE.search, rows))
