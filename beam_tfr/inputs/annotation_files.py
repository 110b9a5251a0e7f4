"""Reports annotations that `table=` could read when images are converted from a folder.

The annotations are next to the folder, or among the files that its listing skips.
"""

import collections
import itertools
import posixpath
from collections.abc import Iterable, Mapping, Sequence

from beam_tfr import storage
from beam_tfr.inputs.annotation_content import (
    OF_MANY_IMAGES,
    TEXTS,
    annotation_extension,
    describe_tables,
    is_metadata_table,
    is_unread_label_file,
    read_begin,
)
from beam_tfr.inputs.beside_files import list_beside
from beam_tfr.inputs.first_names import FirstNames
from beam_tfr.inputs.image_mentions import ImageMentions, names_any_image
from beam_tfr.inputs.patterns import compile_pattern
from beam_tfr.layouts.name_pattern import IMAGES
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.wildcards import pattern_below

MOST_LOOKED_INTO = 5  # files with each extension
_MOST_BESIDE_ARCHIVES = 1_000  # files
_HEADED = (".csv", ".tsv")
_CURE_OF_OTHERS = "`table=` reads such a file, or explains how to convert it"
_MOST_READ = 20  # files with each extension that are read next to a folder


def describe_annotations(
    candidates: Mapping[str, Sequence[str]], image_paths: Sequence[str]
) -> str:
    """Returns which skipped files hold annotations, and how to read them, or "" if none do.

    Args:
        candidates: extension -> the first files with this extension.
        image_paths: paths of the first images.
    """
    images = ImageMentions(image_paths)
    all_paths = [path for extension in sorted(candidates) for path in candidates[extension]]
    folder_of = {path: images.find_folder(path) for path in all_paths}
    about_images = {
        extension: [path for path in paths if not folder_of[path]]
        for extension, paths in candidates.items()
    }
    texts = [_describe_about_images(about_images, images), _describe_about_folders(folder_of)]
    return "; ".join(filter(None, texts))


def _describe_about_images(candidates: Mapping[str, Sequence[str]], images: ImageMentions) -> str:
    """Returns which skipped files hold annotations of images; see `describe_annotations`."""
    tables = describe_tables(candidates)
    if tables:
        others = _describe_other_tables(candidates, tables, images)
        return f"skipped files hold boxes or classes of images: {', '.join(tables)}{others}"
    paths = [path for extension in sorted(candidates) for path in candidates[extension]]
    about_images = images.describe(paths, "skipped files")
    return about_images or _describe_unread(paths, "skipped files")


def _describe_about_folders(folder_of: Mapping[str, str]) -> str:
    """Names the first table with rows about folders of images; "" if there is none.

    Args:
        folder_of: path of a file -> a folder of images that it has a row about; may be empty.
    """
    path = next(filter(folder_of.get, folder_of), "")
    if not path:
        return ""
    return (
        f"{path} has rows about folders of images, such as {folder_of[path]}: to "
        "store its values, write them into columns of a `table=` with a row for each image"
    )


def describe_labels_beside(root: str, image_paths: Sequence[str], first_names: FirstNames) -> str:
    """Returns which files next to an input folder hold annotations of its images, or "" if none do.

    A file counts if it mentions one of these images, or is named like one.

    Args:
        root: the folder that all inputs share, with a trailing slash.
        image_paths: paths of the first images.
        first_names: lists folders on gs://.
    """
    images = ImageMentions(image_paths)
    folder = root.rstrip("/")
    about = _select_about(list_beside(folder, first_names), images)
    around = posixpath.dirname(folder)
    if IMAGES.fullmatch(posixpath.basename(around)):  # images/train, beside labels/train
        for extension, files in _select_about(list_beside(around, first_names), images).items():
            about[extension] += files
    tables = describe_tables(about)
    if tables:
        others = _describe_other_tables(about, tables, images)
        noun = f"files next to {root}"
        return f"{noun} hold boxes or classes of its images: {', '.join(tables)}{others}"
    paths = [*itertools.chain.from_iterable(about.values())]
    noun = f"files next to {root}"
    return images.describe(paths, noun) or _describe_unread(paths, noun)


def describe_labels_beside_archives(archives: Iterable[str], first_names: FirstNames) -> str:
    """Returns a message about files next to archives that mention images, or "" if there are none.

    Archives are not opened, so these images may differ from those in the archives.

    Args:
        archives: paths or patterns of archives.
        first_names: lists folders.
    """
    folders = dict.fromkeys(map(posixpath.dirname, archives))
    for folder in folders:
        names = sorted(first_names.list_names(folder, _MOST_BESIDE_ARCHIVES))
        about = [name for name in names if annotation_extension(name) in OF_MANY_IMAGES]
        for name in about[:_MOST_READ]:
            path = storage.join(folder, name)
            if names_any_image(read_begin(path)):
                return (
                    f"files next to archives, such as {path}, mention images, but are not read: if "
                    "these images are in an archive, unpack it; then "
                    f"{spell_option('table', path)} reads this file, or explains how to convert it"
                )
    return ""


def _describe_other_tables(
    candidates: Mapping[str, Sequence[str]], tables: Sequence[str], images: ImageMentions
) -> str:
    """Returns the part of a message about further tables of images, or "" if there are none.

    Args:
        candidates: extension -> the first files with this extension.
        tables: descriptions of the tables that the message mentions already.
        images: finds files that mention images.
    """
    paths = [path for extension in TEXTS for path in candidates.get(extension, ())]
    others = list[str]()
    for path in paths:
        is_named = any(path in table for table in tables)
        if not is_named and images.are_listed_in(path):
            others.append(path)
    if not others:
        return ""
    verb = "names" if len(others) == 1 else "name"
    pattern = _find_pattern(paths, others)
    cure = f"{spell_option('table', pattern)} reads them all" if pattern else _CURE_OF_OTHERS
    return f"; {join_names(sorted(others))} also {verb} images: {cure}"


def _find_pattern(paths: Sequence[str], others: Sequence[str]) -> str:
    """Returns a pattern for all tables if they are alike and one of them is named; otherwise "".

    Args:
        paths: all tables.
        others: those of them that are not named yet.
    """
    folder, name = posixpath.split(paths[0])
    pattern = pattern_below(folder, f"/*{posixpath.splitext(name)[1]}")
    are_all = len(paths) == len(others) + 1 < MOST_LOOKED_INTO
    is_alike = all(compile_pattern(pattern).fullmatch(path) for path in paths)
    return pattern if are_all and is_alike and _have_equal_headers(paths) else ""


def _have_equal_headers(paths: Sequence[str]) -> bool:
    """Whether tables have the same columns in the same order, or are JSON Lines."""
    if not paths[0].endswith(_HEADED):
        return True
    return len({read_begin(path).partition(b"\n")[0] for path in paths}) == 1


def _describe_unread(paths: Iterable[str], noun: str) -> str:
    """Returns a message about a label file that no option reads, or "" if there is none."""
    all_paths = [*paths]
    path = min(filter(is_unread_label_file, all_paths), default="")
    if not path:
        return _describe_metadata(all_paths, noun)
    return (
        f"{noun}, such as {path}, seem to hold labels that no option reads: write the labels as a "
        "`table=` with a row for each image or box"
    )


def _describe_metadata(paths: Iterable[str], noun: str) -> str:
    """Returns a message about a table of metadata that names no image, or "" if there is none.

    In WILDS, several columns of such a table together make up the name of an image.
    """
    path = min(filter(is_metadata_table, paths), default="")
    if not path:
        return ""
    return (
        f"{noun}, such as {path}, may describe the images, but do not name them: add a column with "
        "the path of each image, and read the file with `table=` and `uri_column=`"
    )


def _select_about(paths: Iterable[str], images: ImageMentions) -> dict[str, list[str]]:
    """Returns extension -> the first files that mention images, or are named like an image."""
    about = collections.defaultdict[str, list[str]](list)
    read = collections.Counter[str]()
    for path in paths:
        extension = annotation_extension(path)
        if extension is None or len(about[extension]) == MOST_LOOKED_INTO:
            continue
        is_about = images.is_named_alike(path) or is_unread_label_file(path)
        is_of_many = extension in OF_MANY_IMAGES
        if not is_about and is_of_many and read[extension] < _MOST_READ:
            read[extension] += 1
            begin_names = images.are_named_in(read_begin(path), extension)
            is_about = begin_names or images.find_group(path) != ""
        if is_about:
            about[extension].append(path)
    return about
