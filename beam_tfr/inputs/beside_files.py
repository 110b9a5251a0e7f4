"""Lists files that may describe images and are next to the folder of these images."""

import contextlib
import itertools
import os
import posixpath
import re
from collections.abc import Iterator, Sequence

from beam_tfr import storage
from beam_tfr.inputs.first_names import FirstNames
from beam_tfr.layouts.name_pattern import IMAGES
from beam_tfr.schema.extensions import has_image_name

_MOST_LISTED = 1_000  # files and folders
_LABEL_FOLDER = re.compile(
    r"(?i)(?:(?P<prefix>.*)[-_ ])?(?:labels?|annot(?:ation)?s?|anno?|ann|xmls?|txts?|jsons?|boxes"
    r"|bbox(?:es)?|ground_?truth|gt|labeltxt|captions?)"
    r"(?:[-_][0-9a-z]{1,5}|v?[0-9]{1,4}|(?-i:[A-Z][a-z]{1,4}))?"  # labels_v1, but not labelstudio
)
_BEFORE_LAST_WORD = re.compile(".*[-_ ]")
_GCS_FOLDERS = ("labels", "annotations", "Annotations")


def list_beside(folder: str, first_names: FirstNames) -> Iterator[str]:
    """Yields files next to a folder, and the first files in label folders next to it.

    Args:
        folder: the folder of images.
        first_names: lists folders on gs://.
    """
    if not storage.is_gcs(folder):
        yield from _list_on_disk(folder)
        return
    around, _, name = folder.rpartition("/")
    if not around.startswith(storage.GCS):
        return
    for file_name in first_names.list_names(around, _MOST_LISTED):
        yield storage.join(around, file_name)
    folders = first_names.list_folders(around, _MOST_LISTED)
    for label_folder in dict.fromkeys([*_GCS_FOLDERS, name.replace("image", "label")]):
        if label_folder != name and label_folder in folders:
            yield from _list_below(f"{around}/{label_folder}")


def _list_below(folder: str) -> Sequence[str]:
    """Lists the first files below a label folder.

    Lists no files if the folder cannot be listed, or holds a folder of images, which makes it a
    separate dataset.
    """
    paths = list[str]()
    with contextlib.suppress(OSError):
        files = storage.walk(folder, lambda _: True)
        paths += (file.path for file in itertools.islice(files, _MOST_LISTED))
    images = filter(has_image_name, paths)
    below = (posixpath.dirname(path.removeprefix(folder)).split("/") for path in images)
    names = itertools.chain.from_iterable(below)
    return [] if any(map(IMAGES.fullmatch, names)) else paths


def _list_on_disk(folder: str) -> Iterator[str]:
    name = posixpath.basename(folder).lower()
    start = _BEFORE_LAST_WORD.match(name)
    with contextlib.suppress(OSError), os.scandir(posixpath.dirname(folder)) as listed:
        for entry in itertools.islice(listed, _MOST_LISTED):
            label_folder = _LABEL_FOLDER.fullmatch(entry.name)
            if entry.is_file():
                yield entry.path
            elif entry.path != folder and label_folder:
                prefix = label_folder["prefix"] or ""
                starts_alike = start and entry.name.lower().startswith(start[0])
                if prefix.lower() in name or starts_alike:  # train_labels, beside train_images
                    yield from _list_below(entry.path)
