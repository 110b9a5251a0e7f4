"""Finds image folders and mask folders by their contents, whatever their names."""

import enum
import itertools
from collections.abc import Callable, Sequence

from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.layouts.mask_paths import have_masks

_MOST_FOLDERS = 10  # more are not compared, since each takes requests
_MOST_NAMES = 100  # files in a folder whose names are compared
_MOST_LOOKS = 3  # files in a folder that are inspected


class FileKind(enum.Enum):
    """The kind of content that a file seems to have.

    Attributes:
        PHOTO: a PNG with too many colors for a mask.
        DETAILED: a grayscale PNG with many values, or a palette PNG with small areas.
        AREAS: a grayscale or palette PNG with few large areas, as in masks.
        COLORED: an RGB PNG whose file is too small for a photo, as that of a colored mask is.
        UNKNOWN: another file, or another PNG.
    """

    PHOTO = enum.auto()
    DETAILED = enum.auto()
    AREAS = enum.auto()
    COLORED = enum.auto()
    UNKNOWN = enum.auto()


KindOf = Callable[[str], FileKind]  # path of a file -> the kind of its content


def is_unknown(_: str) -> FileKind:
    """Returns UNKNOWN, for callers that cannot inspect files."""
    return FileKind.UNKNOWN


def hold_only(folder: str, names: Sequence[str], kind: FileKind, kind_of: KindOf) -> bool:
    """Whether the first files in a folder are all of this kind; False if there are no files."""
    paths = [f"{folder}/{name}" for name in names[:_MOST_LOOKS]]
    return bool(paths) and all(kind_of(path) is kind for path in paths)


def find_unnamed_masks(
    folders: Sequence[str], names_in: NamesIn, kind_of: KindOf
) -> tuple[str, str] | None:
    """Finds an image folder and a folder of masks with the same file names, or returns None.

    Masks are PNGs with few large areas. Examples are input and output, or X and Y.

    Args:
        folders: paths of folders with files.
        names_in: folder -> the names of its files, if known.
        kind_of: path of a file -> the kind of its content.
    """
    if kind_of is is_unknown or not 1 < len(folders) <= _MOST_FOLDERS:
        return None
    names = {folder: names_in(folder)[:_MOST_NAMES] for folder in folders}
    for images, masks in itertools.permutations(folders, 2):
        if not _are_pngs(names[masks]) or not have_masks(names[images], names[masks]):
            continue
        has_images = _hold_images(images, names[images], kind_of)
        if has_images and hold_only(masks, names[masks], FileKind.AREAS, kind_of):
            return images, masks
    return None


def _hold_images(folder: str, names: Sequence[str], kind_of: KindOf) -> bool:
    """Whether files are not masks: photos, grayscale PNGs with many values, or other formats."""
    if not any(name.lower().endswith(".png") for name in names):
        return True
    kinds = FileKind.PHOTO, FileKind.DETAILED
    return any(hold_only(folder, names, kind, kind_of) for kind in kinds)


def _are_pngs(names: Sequence[str]) -> bool:
    return all(name.lower().endswith(".png") for name in names)
