"""Finds and reads YOLO's label files, one for each image."""

import collections
import contextlib
import itertools
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.console.terminal import counted
from beam_tfr.inputs.pool import Pool
from beam_tfr.layouts.split_names import is_split_word
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.yolo import label_path
from beam_tfr.tables.annotations.text import MAX_TEXT_BYTES, decode_text
from beam_tfr.tables.annotations.yolo_lines import ClassNames

READ_AT_A_TIME = 256  # label files read in parallel
_MOST_LISTED = 1_000_000  # files in a folder with label files
# Files next to label files that are not label files themselves.
_OTHER_TEXT = re.compile(
    r"(?i)(?:(?:.*_)?classes|names|labels|readme.*|notes|licen[cs]e|train|val|valid|test)\.txt"
)
_MOST_SHARED = 100  # label files, at least one of which must exist
_MOST_SEARCHED = 20_000  # files, when searching for a label file elsewhere


class YoloImage(NamedTuple):
    """An image that `data.yaml` names.

    Attributes:
        path: the path of the image.
        key: the key in `data.yaml` that includes the image: "train", "val" or "test".
        problem: why the image is in no split; an empty string if the image is in a split.
    """

    path: str
    key: str
    problem: str = ""


class LabelFile(NamedTuple):
    """The label file of an image.

    Attributes:
        image: the image.
        path: the path where the label file is or should be.
        is_there: whether the file exists.
        data: the bytes of the file.
        problem: why the file cannot be read; an empty string if it can be read.
    """

    image: YoloImage
    path: str
    is_there: bool = True
    data: bytes = b""
    problem: str = ""

    def split_lines(self) -> list[list[str]]:
        """Returns the fields in each nonblank line."""
        fields = [line.split() for line in decode_text(self.data).splitlines()]
        return [line for line in fields if line]


def read_label_files(images: Sequence[YoloImage]) -> Iterator[LabelFile]:
    """Yields the label file of each image; reads many files in parallel.

    Raises:
        ValueError: a file cannot be read now but may be later.
    """
    with contextlib.closing(Pool(storage.READ_AHEAD, "beam_tfr-labels")) as pool:
        for begin in range(0, len(images), READ_AT_A_TIME):
            yield from pool.map(_read_label_file, images[begin : begin + READ_AT_A_TIME])


def _read_label_file(image: YoloImage) -> LabelFile:
    path = label_path(image.path)
    try:
        data = storage.read_bytes(path, max_bytes=MAX_TEXT_BYTES)
        decode_text(data)
    except (FileNotFoundError, NotADirectoryError):
        if storage.is_link(path):
            return LabelFile(image, path, problem="is a link to no file")
        return LabelFile(image, path, is_there=False)
    except OSError as error:
        if storage.may_pass(error) and not isinstance(error, PermissionError):
            raise ValueError(f"{path}: {error}") from None
        return LabelFile(image, path, problem=error.strerror or str(error))
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        return LabelFile(image, path, problem=f"byte 0x{byte:02x} is not UTF-8")
    except ValueError as error:
        return LabelFile(image, path, problem=str(error))
    return LabelFile(image, path, data=data)


def require_labels(files: Iterator[LabelFile], base: str, names: ClassNames) -> Iterator[LabelFile]:
    """Yields the label files of all splits; checks that each split has at least one.

    Args:
        files: the label files of the images, one split after another.
        base: the folder that `data.yaml` describes.
        names: the names of the classes.

    Raises:
        ValueError: no image in a split has a label file.
    """
    waiting = list[LabelFile]()
    labelled = ""  # the key of a split that has a label file
    for file in files:
        if waiting and waiting[0].image.key != file.image.key:
            raise ValueError(_describe_missing(waiting, base, names))
        if file.is_there:
            labelled = file.image.key
        waiting.append(file)
        if file.image.key == labelled:
            yield from waiting
            waiting = []
    if waiting:
        raise ValueError(_describe_missing(waiting, base, names))


def _describe_missing(files: Sequence[LabelFile], base: str, names: ClassNames) -> str:
    """Returns the message for a split in which no image has a label file.

    Args:
        files: the label files that the images in the split should have.
        base, names: see `require_labels`.
    """
    file = files[0]
    key = file.image.key
    image = file.image.path
    if not storage.find(image):
        return f"{key} names images that do not exist, such as {image}, and none has a label file"
    class_folders = _describe_class_folders([file.image.path for file in files], names)
    if class_folders:
        return f"no image of {key} has a label file; {class_folders}"
    near = _find_elsewhere(image, base)
    cure = f"; {near} is nearby: move or rename it, and all others" if near else ""
    return (
        f"no image of {key} has a label file: there is no {file.path} for {image}{cure}; "
        "if the images show no objects, create an empty label file for one of them; to convert "
        f"only other splits, remove {key} from the file"
    )


def _describe_class_folders(images: Sequence[str], names: ClassNames) -> str:
    """Returns the message about a split whose images are in class folders, or an empty string.

    All folders have the same parent; their names are classes, or there is one folder per class.
    """
    folders = {posixpath.dirname(image) for image in images}
    folder_names = sorted(map(posixpath.basename, folders))
    around = {posixpath.dirname(folder) for folder in folders}
    is_one_each = 1 < len(folder_names) == len(names.texts)
    if len(around) > 1 or not (is_one_each or names.texts.issuperset(folder_names)):
        return ""
    root = around.pop()
    layout = "{label}/*"
    if is_split_word(posixpath.basename(root)):
        root = posixpath.dirname(root)
        layout = "{split}/{label}/*"
    listed = join_texts(folder_names, most=5, separator=", ")
    return (
        f"its images are in folders that look like class folders ({listed}): for images with "
        f"classes and no boxes use {spell_option('input', root)} and "
        f"{spell_option('layout', layout)} instead of `table=`"
    )


def describe_imageless(images: Sequence[YoloImage]) -> str:
    """Returns the message about label files without an image, or an empty string if there are none.

    Only folders that may hold the label files of images are searched.
    """
    expected = {label_path(image.path) for image in images}
    imageless = list[str]()
    for folder in sorted({posixpath.dirname(path) for path in expected}):
        listed = storage.walk(folder, lambda _: False, deep=False)
        most = _MOST_SEARCHED if storage.is_remote(folder) else _MOST_LISTED
        with contextlib.suppress(OSError):
            for entry in itertools.islice(listed, most):
                is_label_file = entry.name.lower().endswith(".txt")
                is_other = _OTHER_TEXT.fullmatch(entry.name) is not None
                if is_label_file and not is_other and entry.path not in expected:
                    imageless.append(entry.path)
    if not imageless:
        return ""
    files = counted(len(imageless), "label file")
    return f"{files} left out, such as {min(imageless)}: no image in data.yaml has this stem"


def describe_shared(images: Sequence[YoloImage]) -> str:
    """Reports images that share a label file, such as 1.jpg and 1.png, if any."""
    images_of = collections.defaultdict[str, list[str]](list)
    for image in images:
        images_of[label_path(image.path)].append(image.path)
    shared = {path: members for path, members in images_of.items() if len(members) > 1}
    for path, members in itertools.islice(shared.items(), _MOST_SHARED):
        if storage.find(path):
            files = counted(len(shared), "label file")
            return (
                f"{files} shared by several images, such as {path}: {members[0]} and {members[1]}"
            )
    return ""


def find_respelled(missing: Sequence[LabelFile]) -> str:
    """Finds a label file whose name is spelled differently, or returns an empty string.

    The file is in the right folder, but named b.TXT or b.jpg.txt, for example, instead of b.txt.
    """
    names_of = collections.defaultdict[str, set[str]](set)
    for file in missing:
        folder, name = posixpath.split(file.path)
        image = posixpath.basename(file.image.path)
        names_of[folder].update((name.lower(), f"{image}.txt".lower()))
    paths = list[str]()
    for folder, names in names_of.items():
        listed = storage.walk(folder, lambda _: False, deep=False)
        with contextlib.suppress(OSError):
            for entry in itertools.islice(listed, _MOST_SEARCHED):
                if entry.name.lower() in names:
                    paths.append(entry.path)
    return min(paths, default="")


def _find_elsewhere(image: str, base: str) -> str:
    """Finds a file in another folder that may be an image's label file, or returns an empty string.

    Looks next to the folder of the image, and then below `base`. The file may belong to an image
    with the same name in another split.
    """
    name = posixpath.basename(image).lower()
    stem = posixpath.splitext(name)[0]
    names = {f"{stem}.txt", f"{name}.txt"}
    beside = posixpath.dirname(posixpath.dirname(image))
    for folder in (beside, base):
        listed = storage.walk(folder, lambda _: True)
        with contextlib.suppress(OSError):
            for entry in itertools.islice(listed, _MOST_SEARCHED):
                if entry.name.lower() in names:
                    return entry.path
    return ""
