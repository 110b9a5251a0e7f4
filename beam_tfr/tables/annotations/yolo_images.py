"""Finds the images that a YOLO `data.yaml` names.

The keys `train`, `val` and `test` each name a folder with images, a text file with an image in
each line, a pattern, an image, or a list of such places, relative to `path`. See
https://docs.ultralytics.com/datasets/detect.
"""

import collections
import contextlib
import itertools
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.patterns import split_pattern
from beam_tfr.inputs.skipped import FoundFolders
from beam_tfr.inputs.spellings import MAX_PATH_LENGTH, choose_spelling
from beam_tfr.inputs.split_lists import describe_split_lists
from beam_tfr.layouts.split_names import split_of_folder
from beam_tfr.schema.bad_bytes import describe_bad_byte
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import InputNotFoundError
from beam_tfr.schema.extensions import IMAGE_NAME
from beam_tfr.schema.wildcards import WILDCARD, escape_pattern
from beam_tfr.schema.yolo import SPLITS
from beam_tfr.tables.annotations.yolo_files import YoloImage
from beam_tfr.tables.shared_images import SplitList, separate_lists

_MAX_LIST_BYTES = 64 << 20  # 64 MiB
_MOST_LINES = 2_000_000  # in a list of images
_MOST_REPEATS = 1_000_000  # repeated images in places
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # for `str.splitlines`
_MOST_FOLDERS = 100  # image folders next to which other folders are looked for
_MOST_LISTED = 1_000  # files in such a folder
_SPLIT_FOLDERS = ("train", "val", "valid", "validation", "test")
_SPLIT_KEYS = (
    "train",
    "val",
    "test",
)  # each name in `_SPLIT_FOLDERS` begins with one of these
_TRIED_LINES = 10  # of a list of images, tried to find the folder that its paths are relative to
_LIST = ".txt"
_LIST_BEGIN = 4 << 10  # bytes at the start of a list, to see if it names images
_MOST_OTHER_KEYS = 20
_MOST_DROPPED = 32  # folders from another machine that are dropped from a place or line
_is_image_name = re.compile(IMAGE_NAME).fullmatch


OtherKeys = Mapping[str, Sequence[str]]  # a key that is not a split -> the places that it may name


class YoloPlaces(NamedTuple):
    """The places of the images in a `data.yaml`.

    Attributes:
        folder: the folder of the file.
        path: the value of `path` in the file.
        places: "train", "val" or "test" -> the places that the key names.
    """

    folder: str
    path: str
    places: Mapping[str, Sequence[str]]


def find_images(places: YoloPlaces, say: Callable[[str], object]) -> tuple[str, list[YoloImage]]:
    """Returns the folder that all places are relative to, and the images in each split, sorted.

    Each image occurs once.

    Raises:
        ValueError: a place has no images, or all images in a split are also in another split.
    """
    base = _choose_base(places, say)
    lister = _Lister(base, say)
    paths_of = dict[str, list[str]]()  # key -> its images
    for key, names in places.places.items():
        paths_of[key] = lister.list_places(key, names)
    lists = [SplitList(_spell(places, key), dict.fromkeys(paths_of[key])) for key in paths_of]
    separated = separate_lists(lists)
    for note in separated.notes:
        say(note)
    images = []
    for key, kept in zip(paths_of, separated.images, strict=True):
        images += [YoloImage(path, key, separated.problems.get(path, "")) for path in kept]
    return base, images


def describe_unnamed(images: Sequence[YoloImage], base: str) -> str:
    """Reports folders of other splits, if any, next to image folders, that the file does not name.

    An example is images/test next to images/train, if the file names only images/train.

    Args:
        images: the images that the file names.
        base: the folder that the places are relative to.
    """
    folders = _list_folders(images)
    candidates = set[str]()
    for folder in sorted(folders)[:_MOST_FOLDERS]:
        candidates.update(_list_other_splits(folder))
    unnamed = [folder for folder in sorted(candidates - folders) if _holds_images(folder)]
    if not unnamed:
        return ""
    place = unnamed[0].removeprefix(f"{base.rstrip('/')}/")
    splits = [split for split in map(split_of_folder, place.split("/")) if split]
    key = next(key for key in _SPLIT_KEYS if splits[-1].startswith(key))
    return (
        f"images in {', '.join(unnamed)} are left out, since the file does not name that folder; "
        f"to convert them, add the folder, such as `{key}: {place}`"
    )


def describe_other_keys(keys: OtherKeys, images: Sequence[YoloImage], base: str) -> str:
    """Returns the message about images under keys that are not splits, or an empty string.

    An example is `minival: images/minival`.

    Args:
        keys: the keys that are not read.
        images: the images of the splits.
        base: the folder that places are relative to.
    """
    if not keys:
        return ""
    known = _KnownImages(
        _list_folders(images), {posixpath.basename(image.path) for image in images}
    )
    left_out = []
    for key, names in itertools.islice(keys.items(), _MOST_OTHER_KEYS):
        for name in names[:_MOST_OTHER_KEYS]:
            if any(known.lacks(path) for path in _candidates(base, name)):
                left_out.append(f"{key}: {name}")
    if not left_out:
        return ""
    place = left_out[0].partition(": ")[2]
    unused = [key for key in SPLITS if key not in {image.key for image in images}]
    if unused:
        cure = f"rename the key, such as `{unused[-1]}: {place}`"
    else:
        cure = f"name them under one of these, as a list such as `val: [PLACE, {place}]`"
    return (
        f"images in {', '.join(left_out)} are left out: only train, val and test are keys of "
        f"splits; to convert them, {cure}"
    )


class _KnownImages(NamedTuple):
    """The images in the splits.

    Attributes:
        folders: the folders of the images.
        names: the file names of the images.
    """

    folders: Collection[str]
    names: Collection[str]

    def lacks(self, path: str) -> bool:
        """Whether a path is a folder with images, or a list of images, that are in no split."""
        if not path.endswith(_LIST):
            return path not in self.folders and _holds_images(path)
        with contextlib.suppress(OSError):
            begin = storage.read_bytes(path, max_bytes=_LIST_BEGIN).decode(errors="replace")
            line = begin.partition("\n")[0].strip().replace("\\", "/")
            name = posixpath.basename(line)
            return _is_image_name(name) is not None and name not in self.names
        return False


def _list_folders(images: Sequence[YoloImage]) -> set[str]:
    return {posixpath.dirname(image.path) for image in images}


def describe_unread_lists(images: Sequence[YoloImage], places: YoloPlaces) -> str:
    """Reports split lists, if any, next to a file that names images of only one split."""
    names = [name for names in places.places.values() for name in names]
    has_lists = any(name.endswith(_LIST) for name in names)
    if has_lists or len({image.key for image in images}) > 1:
        return ""
    paths = [image.path for image in images]
    cure = "name them in the file, such as `train: train.txt` and `val: val.txt`"
    return describe_split_lists([places.folder], paths, cure=cure)


def _list_other_splits(folder: str) -> Iterator[str]:
    """Yields the paths of folders for other splits, which may not exist."""
    names = folder.split("/")
    for number in reversed(range(len(names))):
        split = split_of_folder(names[number])
        if split:
            behind = names[number][len(split) :]
            for other in _SPLIT_FOLDERS:
                yield "/".join([*names[:number], f"{other}{behind}", *names[number + 1 :]])
            return


def _holds_images(folder: str) -> bool:
    with contextlib.suppress(OSError):
        listed = itertools.islice(storage.walk(folder, lambda _: False, deep=False), _MOST_LISTED)
        return any(_is_image_name(entry.name) for entry in listed)
    return False


def _choose_base(places: YoloPlaces, say: Callable[[str], object]) -> str:
    """Returns the folder that places are relative to: `path` or, failing that, the file's folder.

    Raises:
        ValueError: neither folder contains the first place.
    """
    if not places.path:
        return places.folder
    named = _join(places.folder, places.path)
    first = next(iter(places.places.values()))[0]
    if any(map(_exists, _candidates(named, first))):
        return named
    if any(map(_exists, _candidates(places.folder, first))):
        say(
            f"path ({places.path}) was ignored: there is no {_join(named, first)}, but "
            f"{first} is next to the file"
        )
        return places.folder
    if _find_end(places.folder, first):
        return places.folder
    raise ValueError(
        f"neither {_join(named, first)} nor {_join(places.folder, first)} exists: correct path, or "
        "remove path if the images are next to the file"
    )


def _join(base: str, path: str) -> str:
    """Joins a folder and a path, without `.` and `..`; an absolute path stays as it is."""
    if storage.is_gcs(path):
        return path
    joined = posixpath.normpath(posixpath.join(base, path))
    if joined.startswith("gs:/"):
        return joined.replace("gs:/", storage.GCS)  # normpath made one slash of two
    return joined


def _candidates(base: str, place: str) -> Iterator[str]:
    """Yields the paths that a place may mean, from most to least likely.

    Roboflow writes ../train/images for train/images; Windows uses backslashes.
    """
    for name in (place, place.replace("\\", "/")):
        yield _join(base, name)
        if name.startswith("../"):
            yield _join(base, name.removeprefix("../"))


def _find_end(base: str, place: str) -> str:
    """Returns the path below a folder to the longest end of a place, or an empty string.

    For example, /content/set/train/images ends in train/images, which may be next to the file. The
    end always includes the folder of the split.
    """
    parts = [part for part in place.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if len(parts) > _MOST_DROPPED:
        return ""
    for number in range(1, len(parts)):
        if split_of_folder(parts[number - 1]):
            return ""
        path = _join(base, "/".join(parts[number:]))
        if _exists(path):
            return path
    return ""


def _exists(path: str) -> bool:
    """Whether a path exists; for a pattern, whether the folder before its wildcards exists."""
    if storage.find(path):
        return True
    folder = split_pattern(path)[0] if WILDCARD.search(path) else path
    listed = storage.walk(folder, lambda _: True)
    return next(iter(listed), None) is not None


def _list_images(path: str, base: str, say: Callable[[str], object]) -> list[str]:
    """Lists the images that a path means; an empty list if the path does not exist."""
    if storage.find(path):
        is_image = _is_image_name(posixpath.basename(path))
        return [path] if is_image else _read_list(path, base, say)
    images = _match_images(f"{escape_pattern(path)}/", say)
    if not images and WILDCARD.search(path):
        images = _match_images(path, say)
    return images


def _match_images(pattern: str, say: Callable[[str], object]) -> list[str]:
    """Lists the images that match a pattern, sorted."""
    found = FoundFolders()
    with contextlib.suppress(InputNotFoundError):
        entries = match_files([(pattern, ())], skipped=found)
        paths = sorted(entry.path for entry in entries if _is_image_name(entry.name))
        if found.repeats.number:
            say(found.repeats.describe())
        return paths
    return []


def _read_list(path: str, base: str, say: Callable[[str], object]) -> list[str]:
    """Lists the images in the lines of a text file, in order.

    Raises:
        ValueError: the file is too long, or not UTF-8.
    """
    data = storage.read_bytes(path, max_bytes=_MAX_LIST_BYTES)
    if len(data) > _MAX_LIST_BYTES:
        raise ValueError(f"{path} has more than {_MAX_LIST_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = describe_bad_byte(error.object, error.start)
        raise ValueError(f"{path} is not a list of images: {problem}") from None
    if sum(map(text.count, _LINE_ENDS)) > 2 * _MOST_LINES:  # \r\n counts twice
        raise ValueError(f"{path} has more than {_MOST_LINES:,} lines")
    lines = [line.strip() for line in text.splitlines()]
    names = [line for line in lines if line]
    if max(map(len, names), default=0) > MAX_PATH_LENGTH:
        raise ValueError(
            f"{path} is not a list of images: it has lines of more than {MAX_PATH_LENGTH:,} "
            "characters"
        )
    return _resolve_lines(path, names, base, say)


class _LineReading(NamedTuple):
    """An interpretation of the lines in a list as paths.

    Attributes:
        root: the folder that the lines are relative to.
        separator: the separator between folders.
        num_dropped: the number of leading folders to drop, which belong to another machine.
    """

    root: str
    separator: str = "/"
    num_dropped: int = 0

    def resolve(self, line: str) -> str:
        """Returns the path of the image that a line names."""
        parts = line.replace(self.separator, "/").split("/")
        first = min(self.num_dropped, len(parts) - 1)
        return _join(self.root, "/".join(parts[first:]))


def _resolve_lines(
    path: str, lines: Sequence[str], base: str, say: Callable[[str], object]
) -> list[str]:
    """Returns the paths of the images that the lines of a list name.

    Lines are relative to the folder of the list or of `data.yaml`, perhaps with backslashes, or
    begin with folders from another machine, like Darknet's `data/obj_train_data/1.jpg`. The first
    interpretation in which one of the first images exists is used.
    """
    folder = posixpath.dirname(path)
    first_lines = lines[:_TRIED_LINES]
    for reading in _list_readings(first_lines, folder, base):
        if any(storage.find(reading.resolve(line)) for line in first_lines):
            if reading.num_dropped:
                image = reading.resolve(lines[0])
                say(f"{path} names images elsewhere: {lines[0]} is read as {image}")
            return [choose_spelling(reading.resolve(line)) for line in lines]
    return [_join(folder, line) for line in lines]


def _list_readings(lines: Sequence[str], folder: str, base: str) -> Iterator[_LineReading]:
    """Yields interpretations of some lines, the likeliest first."""
    roots = (folder, base)
    separators = ["/", "\\"] if any("\\" in line for line in lines) else ["/"]
    for separator in separators:
        for root in roots:
            yield _LineReading(root, separator)
    separator = separators[-1]
    most_folders = max((line.count(separator) for line in lines), default=0)
    for number in range(1, min(most_folders, _MOST_DROPPED) + 1):
        for root in roots:
            yield _LineReading(root, separator, number)


class _Lister:
    """Lists the images in places; lists each file and folder once, even if spelled differently.

    Args:
        base: the folder that places are relative to.
        say: called with notes on how places are read.
    """

    def __init__(self, base: str, say: Callable[[str], object]) -> None:
        self._base = base
        self._say = say
        self._images_at = dict[str, list[str]]()  # path -> its images

    def list_places(self, key: str, names: Sequence[str]) -> list[str]:
        """Lists the images in a split, each once.

        Raises:
            ValueError: a place has no images, or the places repeat the same images.
        """
        once = dict[str, None]()
        repeats = 0
        for name, number in collections.Counter(names).items():
            paths = self._list_place(key, name)
            before = len(once)
            once.update(dict.fromkeys(paths))
            repeats += number * len(paths) - (len(once) - before)
            if repeats > _MOST_REPEATS + len(once):
                raise ValueError(
                    f"{key} names images more than once ({repeats:,}): remove {name:.200}"
                )
        if repeats:
            self._say(f"{key} lists images again ({repeats} repeats): each is converted once")
        return [*once]

    def _list_place(self, key: str, place: str) -> list[str]:
        """Lists the images in a place that a key names, sorted.

        Raises:
            ValueError: there are no images.
        """
        for path in _candidates(self._base, place):
            images = self._list_images(path)
            if images:
                return images
        path = _join(self._base, place)
        end = "" if _exists(path) else _find_end(self._base, place)
        images = self._list_images(end) if end else []
        if images:
            self._say(f"{key} names images elsewhere: {place} is read as {end}")
            return images
        if _exists(path):
            raise ValueError(
                f"there are no images in {path}; name folders of images, or lists of them"
            )
        raise ValueError(
            f"there is no such file or folder: {path}; if there are no images for {key}, remove it "
            "from the file"
        )

    def _list_images(self, path: str) -> list[str]:
        """Lists the images that a path means; an empty list if the path does not exist."""
        if path not in self._images_at:
            self._images_at[path] = _list_images(path, self._base, self._say)
        return self._images_at[path]


def _spell(places: YoloPlaces, key: str) -> str:
    """Formats a key of data.yaml, and the places that it refers to, for messages."""
    return f"{key} ({join_texts(places.places[key], separator=', ')})"
