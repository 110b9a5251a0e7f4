"""Finds folders of images and of masks by what their files hold, whatever the folders' names."""

import enum
import itertools
from collections.abc import Callable, Sequence

from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.layouts.mask_paths import have_masks

_MOST_FOLDERS = 10  # more are not compared, as each takes requests
_MOST_NAMES = 100  # of files in a folder that are compared
_MOST_LOOKS = 3  # files of a folder that show what it holds


class FileKind(enum.Enum):
    """What a file seems to hold.

    Attributes:
        PHOTO: a PNG with too many colors for a mask.
        DETAILED: a gray PNG of many values, or one with a palette and small areas.
        AREAS: a gray PNG, or one with a palette, of few and large areas, as masks have.
        UNKNOWN: another file, or another PNG.
    """

    PHOTO = enum.auto()
    DETAILED = enum.auto()
    AREAS = enum.auto()
    UNKNOWN = enum.auto()


KindOf = Callable[[str], FileKind]  # path of a file -> what it holds


def is_unknown(_: str) -> FileKind:
    """Returns UNKNOWN, where files cannot be looked at."""
    return FileKind.UNKNOWN


def hold_only(folder: str, names: Sequence[str], kind: FileKind, kind_of: KindOf) -> bool:
    """Whether the first files of a folder are all of a kind; False for no files."""
    paths = [f"{folder}/{name}" for name in names[:_MOST_LOOKS]]
    return bool(paths) and all(kind_of(path) is kind for path in paths)


def find_unnamed_masks(
    folders: Sequence[str], names_in: NamesIn, kind_of: KindOf
) -> tuple[str, str] | None:
    """Finds a folder of images, and one of gray PNGs of large areas with the same names, or None.

    Examples are input and output, or X and Y.

    Args:
        folders: paths of folders of files.
        names_in: folder -> names of files in it, maybe none.
        kind_of: path of a file -> what it holds.
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
    """Whether files are no masks: photos, gray PNGs of many values, or not PNGs."""
    if not any(name.lower().endswith(".png") for name in names):
        return True
    kinds = FileKind.PHOTO, FileKind.DETAILED
    return any(hold_only(folder, names, kind, kind_of) for kind in kinds)


def _are_pngs(names: Sequence[str]) -> bool:
    return all(name.lower().endswith(".png") for name in names)
