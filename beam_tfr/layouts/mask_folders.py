"""Finds mask folders next to image folders: images and masks, train and train_masks."""

import collections
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from beam_tfr.layouts.mask_cures import MaskCure, NamesIn
from beam_tfr.layouts.mask_paths import (
    LIKE_PHOTOS,
    find_inner_mark,
    find_mask_name,
    have_masks,
    have_numbered_masks,
    have_scattered_masks,
    last_separator,
)
from beam_tfr.layouts.name_pattern import IMAGES, NamePattern
from beam_tfr.layouts.named_classes import are_all_named, find_named_layout
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT
from beam_tfr.layouts.split_names import are_different, split_of_folder
from beam_tfr.layouts.unnamed_masks import (
    FileKind,
    KindOf,
    find_unnamed_masks,
    hold_only,
    is_unknown,
)
from beam_tfr.schema.differences import common_start, join_names
from beam_tfr.schema.spelling import quote_word, spell_option
from beam_tfr.schema.wildcards import escape_pattern

_MASK_WORDS = (
    r"(?:(?:masks?|labels?|anno(?:t(?:ation)?)?s?|(?<![A-Za-z])anns?|segmentations?"
    r"|segmentation(?:class|object)[a-z]*|seg(?=[-_ ]?dir)|targets|binary"
    r"|ground[-_ ]?truth|gts?|gtfine|gtcoarse|trimaps?|manual|semantic|instances?"
    r"|labeledapproved_full)"
    r"(?:[-_ ]?(?:png|imgs?|images?|dir|binary|machine|human|all|full|left|right"
    r"|for[-_ ]participants[a-z_ -]*))?"
    r"|(?P<other>alpha|matte|depth|disp|disparity|normal(?=s)|thermal|infrared)s?"
    r"(?:[-_ ]?(?:left|right))?)"
)
# Words before it are separate: PedMasks matches, unmasks does not.
_MASKS = NamePattern(rf"(?i)(?:.*[-_ ]|.*(?-i:(?<=[a-z])(?=[A-Z])))?{_MASK_WORDS}")
_OF_IMAGES = NamePattern(rf"(?i)(?P<images>.+?)[-_ ]?{_MASK_WORDS}")  # train_masks for train
_MOST_NAMES = 100  # files in a folder whose names are compared
_MOST_FOLDERS = 10  # folders whose files are compared
_MOST_LEVELS = 12  # folders of a path, counted from its start and from its end
_LIKE_IMAGES = "{stem}.png"
PANOPTIC = (
    "panoptic masks, whose colors are ids of segments, not classes: the script in "
    "docs/objects.md#panoptic-masks writes masks of classes, and the next run says how to convert "
    "them"
)


class _Place(NamedTuple):
    """A place in paths: hashes of the folders above and below, whose names may be long."""

    parent: int
    below: int


class _NamesBeside(NamedTuple):
    """The names at a place.

    Attributes:
        folder: the first path with a name there.
        level: the number of folders above the names.
        names: all names.
    """

    folder: str
    level: int
    names: list[str]

    @property
    def parent(self) -> str:
        """The path of the folders above the names."""
        return "/".join(self.folder.split("/")[: self.level])

    @property
    def below(self) -> str:
        """The path of the folders below the names."""
        return "/".join(self.folder.split("/")[self.level + 1 :])


_NamesAt = Mapping[_Place, _NamesBeside]


class MaskFolders(NamedTuple):
    """An image folder, and a mask folder next to it.

    Attributes:
        parent: the folder that contains both folders, relative to the folder that all images share;
            may be empty.
        images, masks: paths of the two folders, relative to the parent.
        below: the subfolder of each folder that holds files; an empty string if the two folders
            hold the files.
        has_siblings: whether folders next to the parent hold such folders too, as in cat/images and
            dog/images.
        pairs: image folders and mask folders, below the parent and below folders next to it.
        has_splits: whether the image folder is one of several splits, some of which have no masks,
            such as test next to train.
        ends: endings of the names of the two folders, if folders elsewhere have the same endings:
            org and label, for a_org and a_label, if there are b_org and b_label; usually empty
            strings.
        are_deep: whether only one of the two folders has subfolders.
        others: paths of other folders with masks of the same images, relative to the parent.
        are_panoptic: whether the masks have a color for each segment of an image, as in COCO.
    """

    parent: str
    images: str
    masks: str
    below: str
    has_siblings: bool = False
    pairs: Sequence[tuple[str, str]] = ()
    has_splits: bool = False
    ends: tuple[str, str] = ("", "")
    are_deep: bool = False
    others: Sequence[str] = ()
    are_panoptic: bool = False

    def describe(
        self, all_folders: Sequence[str], names_in: NamesIn, *, in_archives: bool = False
    ) -> str:
        """Reports the two folders, and says how to convert both together.

        Args:
            all_folders: all folders, including folders next to these two.
            names_in: folder -> the names of its files, if known.
            in_archives: whether some images may be in archives, where no other files are found.
        """
        images = names_in(self._path_of(self.images))
        masks = names_in(self._path_of(self.masks))
        name = find_mask_name(images, masks)
        folders = f"the folders {self.images or '.'} and {self.masks}"
        if self.are_panoptic:
            return f"{folders} look like images and {PANOPTIC}"
        unpaired = self._describe_unpaired(images, masks, name, names_in)
        if unpaired:
            return f"{folders} look like images and {unpaired}"
        path, extension = os.path.splitext(name or _LIKE_IMAGES)
        is_png = extension.lower() == ".png"
        chosen = self._choose_cure(path + extension if is_png else f"{path}.png", images)
        cure = chosen.fit_layout(all_folders)
        form = "" if is_png else self._require_pngs(extension, cure)
        if in_archives:
            form += ", once archives are unpacked"
        form += cure.describe_other_classes(all_folders)
        rest = cure.describe_rest(all_folders, filter(is_of_masks, all_folders))
        if self.others:
            verb = "seems" if len(self.others) == 1 else "seem"
            rest += f"; {join_names(self.others)} also {verb} to hold masks"
        misfits = cure.describe_misfits(all_folders, names_in)
        return (
            f"{folders} look like images and their masks: {cure.describe()} converts "
            f"both together{form}{rest}{misfits}"
        )

    def _describe_unpaired(
        self, images: Sequence[str], masks: Sequence[str], name: str, names_in: NamesIn
    ) -> str:
        """Describes masks that no path derives from image names, or returns an empty string.

        Args:
            images, masks: names of files in the two folders; may be empty.
            name: the name of a mask, from `find_mask_name`.
            names_in: folder -> the names of its files, if known.
        """
        are_several = have_numbered_masks(images, masks, name) or have_scattered_masks(
            images, masks, name
        )
        if are_several or self._have_several_masks(names_in):
            return f"several masks per image, {self._cure_several()}"
        mark = find_inner_mark(images, masks, name)
        if mark:
            return f"their masks, {self._cure_mark(mark)}"
        if self.are_deep or (images and masks and not name):
            return (
                "masks with other names: name the mask of each image in a `table=`, in a column of "
                "type mask"
            )
        return ""

    def _require_pngs(self, extension: str, cure: MaskCure) -> str:
        """Says what to do beforehand with masks that are not PNGs.

        Args:
            extension: extension of the masks.
            cure: the options that then convert the masks.
        """
        text = ", once the masks are PNGs"
        if extension.lower() in LIKE_PHOTOS:
            text += ", made from the sources of these JPEGs, since JPEG changes values"
        if not cure.folder:
            pattern = f"**/{self._name_all_masks()}/*{extension}"
            text += f"; {spell_option('exclude', pattern)} leaves out the old files"
        return text

    def _name_all_masks(self) -> str:
        """Returns a pattern for this mask folder and mask folders of other image folders.

        Examples are *_labels for train_labels and test_labels, and *_GT/TRA for 01_GT/TRA.
        """
        if any(self.ends):
            return f"*{escape_pattern(self.ends[1])}"
        if self.images and self.masks.startswith(self.images):
            return f"*{escape_pattern(self.masks.removeprefix(self.images))}"
        return escape_pattern(self.masks)

    def _cure_mark(self, mark: str) -> str:
        """Says how to rename masks whose names are image names with an inserted mark."""
        folder = quote_word("/".join(filter(None, ["DIR", self.parent, self.masks])), "FOLDER")
        names = quote_word(f"*{escape_pattern(mark)}*", "NAMES")
        script = """'mv -n "$1" "${1/"$2"/}"'"""
        return (
            f"whose names contain {mark}: find {folder} -name {names} -execdir bash -c {script} - "
            f"{{}} {quote_word(mark, 'MARK')} \\; renames masks to match their images, and the "
            "next run says how to convert both together"
        )

    def _cure_several(self) -> str:
        """Says how to merge the several masks of an image into one."""
        merged = "mask" if self.masks != "mask" else "merged"
        path = f"{{folder}}/../{merged}/{{stem}}.png"
        folder = f"{self.parent}/{merged}".lstrip("/")
        if self.below or not self.images or "/" in self.images + self.masks:
            path = "PATH/{path}.png"
            folder = "PATH"
        return (
            "but `pair=` accepts only one: merge the masks of an image into one PNG, such as one "
            f"with an object number per pixel; if it is {folder}/NAME.png, with the name of the "
            f"image, {spell_option('pair', f'mask={path}')} `layout='*'` "
            f"{spell_option('exclude', f'**/{self.masks}/*')} converts both together"
        )

    def _have_several_masks(self, names_in: NamesIn) -> bool:
        """Whether the only image in a folder has several masks, as in Data Science Bowl 2018."""
        if not self.has_siblings:
            return False
        for images, masks in self.pairs[:_MOST_FOLDERS]:
            if len(names_in(images)) == 1 and len(names_in(masks)) > 1:
                return True
        return False

    def _path_of(self, folder: str) -> str:
        """Returns the folder that holds the files of one of the two folders."""
        return "/".join(filter(None, [self.parent, folder, self.below]))

    def _choose_cure(self, name: str, images: Sequence[str]) -> MaskCure:
        """Chooses the options that convert images and masks together.

        Args:
            name: name of the mask of an image.
            images: names of images in the folder; empty if the names are unknown.
        """
        if not self.images and not self.below:
            return self._cure(f"{{folder}}/{self.masks}/{name}", _read_names("*", images))
        if self.masks.startswith(self.images) and not self.below:
            layout = "{split}/*" if split_of_folder(self.images) else "*"
            path = f"{{folder}}{self.masks.removeprefix(self.images)}/{name}"
            return self._cure(path, _read_names(layout, images))
        layout = self._read_parent(has_class=self.has_siblings and len(images) > 1)
        if any(self.ends):
            image_end, mask_end = self.ends
            return self._cure(f"{{folder%{image_end}}}{mask_end}/{name}", layout)
        if self.parent and not self.below and "/" not in self.images:
            return self._cure(f"{{folder}}/../{self.masks}/{name}", _read_names(layout, images))
        if self.has_splits and self.below:
            path = f"{self.masks}/{{folder#{self.images}/}}/{name}[optional]"
            return self._cure(path, f"{{split}}/{self._choose_layout()}", self.parent)
        return self._cure_below(name, images)

    def _cure_below(self, name: str, images: Sequence[str]) -> MaskCure:
        """Returns the options for using the image folder as the input; see `_choose_cure`."""
        layout = "*"
        if self.below:
            layout = self._choose_layout()
            has_stem_first = name.startswith("{stem") and "#" not in name
            name = name.replace("{stem", "{path") if has_stem_first else f"{{folder}}/{name}"
        above = "../" * len(self.images.split("/")) if self.images else ""
        folder = "/".join(filter(None, [self.parent, self.images]))
        return self._cure(f"{above}{self.masks}/{name}", _read_names(layout, images), folder)

    def _cure(self, path: str, layout: str, folder: str = "") -> MaskCure:
        images = self.images.rpartition("/")[2]
        return MaskCure(folder, self._name_pair(), path, layout, images)

    def _name_pair(self) -> str:
        """Returns the name of the masks in `pair=`: mask, or another kind, such as depth."""
        for name in self.masks.split("/"):
            mask = _MASKS.fullmatch(name) or _OF_IMAGES.fullmatch(name)
            if mask and mask["other"]:
                return mask["other"].lower()
        return "mask"

    def _read_parent(self, *, has_class: bool) -> str:
        """Returns the layout if each parent has one image folder, such as train/cat/images.

        Args:
            has_class: whether the last part of the parent is a class, unless it is a split.
        """
        names = self.parent.split("/")
        splits = [name for name in names if split_of_folder(name)]
        parts = ["{split}" if name in splits[-1:] else "*" for name in names]
        if has_class and parts[-1] == "*":
            parts[-1] = "{label}"
        while parts and parts[0] == "*":
            del parts[0]
        return "/".join([*parts, "*", "*"]) if parts else "*"

    def _choose_layout(self) -> str:
        """Returns the layout of images below the image folder."""
        first, *others = self.below.split("/")
        if split_of_folder(first):
            return "{split}/" + "*/" * len(others) + "*"
        return DEFAULT_LAYOUT


def _read_names(layout: str, images: Sequence[str]) -> str:
    """Adds classes from file names such as cat_1.jpg to a layout that reads no classes."""
    if "{label}" in layout or not are_all_named(images):
        return layout
    return layout.removesuffix("*") + find_named_layout(images)


def is_of_masks(folder: str) -> bool:
    """Whether a folder, or a folder above it, is named like a mask folder."""
    return any(map(_MASKS.fullmatch, folder.split("/")))


def list_nothing(_: str) -> Sequence[str]:
    """Returns no file names, for callers that do not know which files there are."""
    return ()


def find_mask_folders(
    folders: Iterable[str], names_in: NamesIn = list_nothing, kind_of: KindOf = is_unknown
) -> MaskFolders | None:
    """Finds the first mask folder next to an image folder; None if there is none.

    A folder with photos holds no masks, whatever its name, unless the other folder is named like
    images: mask_weared_incorrect and with_mask are classes. If no folder is named like masks, the
    contents of the files decide.

    Args:
        folders: paths of folders with files, relative to the folder that all share.
        names_in: folder -> the names of its files, if known.
        kind_of: path of a file -> the kind of its content.
    """

    def holds_photos(folder: str) -> bool:
        return hold_only(folder, names_in(folder), FileKind.PHOTO, kind_of)

    ordered = sorted(folders)
    names_at = _group_names(ordered)
    named = _find_named_masks(ordered, names_at, holds_photos)
    if named:
        return named
    masks = {*_select_masks(ordered)}
    without_photos = [
        folder for folder in ordered if folder not in masks or not holds_photos(folder)
    ]
    compared = next(_compare_files(without_photos, names_in, kind_of), None)
    if compared is None:
        are_all = len(without_photos) == len(ordered)
        compared = _find_deep_masks(names_at if are_all else _group_names(without_photos))
    if compared is None:
        unnamed = find_unnamed_masks(ordered, names_in, kind_of)
        return _divide_paths(*unnamed) if unnamed else None
    if not split_of_folder(compared.images):
        return compared
    beside = set[str]()
    for place, names in names_at.items():
        if place.parent == hash(compared.parent):
            beside.update(names.names)
    return compared._replace(has_splits=are_different(filter(split_of_folder, beside)))


def _find_named_masks(
    folders: Sequence[str],
    names_at: _NamesAt,
    holds_photos: Callable[[str], bool],
) -> MaskFolders | None:
    """Returns the first folder that is named like the masks of another folder, or None.

    Args:
        folders: paths of folders with files, sorted.
        names_at: place -> names there.
        holds_photos: path of a folder -> whether its files are certainly photos.
    """
    for names in names_at.values():
        pair = _find_pair(names.names)
        if not pair:
            continue
        images, masks = pair
        parent = names.parent
        below = names.below
        mask_folder = "/".join(filter(None, [parent, masks, below]))
        if not IMAGES.fullmatch(images) and holds_photos(mask_folder):
            continue
        siblings = _find_siblings(folders, parent, images)
        return MaskFolders(
            parent,
            images,
            masks,
            below,
            has_siblings=len(siblings) > 1,
            pairs=_pair_folders(siblings, images, masks, known_folders={*folders}),
            ends=_find_ends(images, masks, names_at),
        )
    return None


def _group_names(folders: Iterable[str]) -> _NamesAt:
    """Returns place -> the names there, for places in the paths; skips the middle of deep paths."""
    names_at = dict[_Place, _NamesBeside]()
    for folder in folders:
        parts = folder.split("/")
        for level, name in enumerate(parts):
            if _MOST_LEVELS <= level < len(parts) - _MOST_LEVELS:
                continue
            place = _Place(hash("/".join(parts[:level])), hash("/".join(parts[level + 1 :])))
            beside = names_at.setdefault(place, _NamesBeside(folder, level, []))
            beside.names.append(name)
    return names_at


def _pair_folders(
    folders: Iterable[str], images: str, masks: str, *, known_folders: Set[str]
) -> list[tuple[str, str]]:
    """Returns pairs of an image folder and its mask folder, for image folders with a mask folder.

    Args:
        folders: image folders.
        images, masks: the names of image folders and of mask folders.
        known_folders: all folders.
    """
    pairs = []
    for folder in folders:
        mask_folder = folder.removesuffix(images) + masks
        if mask_folder in known_folders:
            pairs.append((folder, mask_folder))
    return pairs


def _find_deep_masks(names_at: _NamesAt) -> MaskFolders | None:
    """Returns the first image and mask folders of which only one has subfolders, or None.

    An example is CelebAMask-HQ-mask-anno/0 next to CelebA-HQ-img.

    Args:
        names_at: place -> names there.
    """
    names_in = collections.defaultdict[int, dict[str, None]](dict)
    first_in = dict[int, _NamesBeside]()
    for place, names in names_at.items():
        names_in[place.parent].update(dict.fromkeys(names.names))
        first_in.setdefault(place.parent, names)
    for parent, all_names in names_in.items():
        pair = _find_pair([*all_names])
        if pair:
            return MaskFolders(first_in[parent].parent, *pair, below="", are_deep=True)
    return None


def _find_ends(images: str, masks: str, names_at: _NamesAt) -> tuple[str, str]:
    """Returns the different endings of two names, if other names have the same endings.

    Returns empty strings if no two names elsewhere have these endings.

    Args:
        images, masks: the names.
        names_at: place -> names there.
    """
    shared = len(common_start([images, masks]))
    begin = last_separator(images[:shared]) + 1
    image_end = images[begin:]
    mask_end = masks[begin:]
    if not begin or not image_end or not mask_end:
        return "", ""
    for beside in names_at.values():
        names = frozenset(beside.names)
        for name in names - {images, image_end}:
            twin = name.removesuffix(image_end) + mask_end
            if name.endswith(image_end) and twin in names:
                return image_end, mask_end
    return "", ""


def _find_siblings(folders: Sequence[str], parent: str, name: str) -> list[str]:
    """Returns the folders called `name` below `parent`, and below the folders next to `parent`."""
    outer, slash, _ = parent.rpartition("/")
    pattern = re.compile(rf"{re.escape(outer + slash)}[^/]+/{re.escape(name)}")
    return [folder for folder in folders if pattern.fullmatch(folder)]


def _find_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """Returns the names of an image folder and a mask folder; None if either is missing."""
    known_names = frozenset(names)
    if len(known_names) < 2:
        return None
    for name in names:
        mask = _OF_IMAGES.fullmatch(name)
        if mask and mask["images"] in known_names:
            return mask["images"], name
    masks = [*filter(None, map(_MASKS.fullmatch, names))]
    masks.sort(key=_rank_mask)
    mask_names = [mask[0] for mask in masks]
    others = known_names.difference(mask_names)
    images = [name for name in names if name in others and IMAGES.fullmatch(name)]
    if images and masks:
        return images[0], mask_names[0]
    return None


def _rank_mask(mask: re.Match[str]) -> tuple[bool, bool]:
    """Returns a sort key for mask folders: semantic masks, then instances, then the rest."""
    return mask["other"] is not None, _is_of_instances(mask[0])


def _is_of_instances(name: str) -> bool:
    return "instance" in name.lower()


def without_mask_folders(folders: Mapping[str, int]) -> dict[str, int]:
    """Returns image folders, without folders named like the masks of other folders.

    An example is trainannot next to train.

    Args:
        folders: image folder -> number of images.
    """
    images = {}
    for folder, number in folders.items():
        parent, slash, name = folder.rpartition("/")
        mask = _OF_IMAGES.fullmatch(name)
        if not mask or f"{parent}{slash}{mask['images']}" not in folders:
            images[folder] = number
    return images


def _compare_files(
    folders: Sequence[str], names_in: NamesIn, kind_of: KindOf
) -> Iterator[MaskFolders]:
    """Yields folders named like masks, each with a folder of images that have these masks.

    Masks in color come last: BDD100K has masks, and also color maps for people to look at.
    """
    masks = _select_masks(folders)
    images = [folder for folder in folders if folder not in masks][:_MOST_FOLDERS]
    masks = sorted(masks, key=_is_of_instances)[:_MOST_FOLDERS]
    if not masks or not images:
        return
    names = {folder: names_in(folder)[:_MOST_NAMES] for folder in [*masks, *images]}
    masks.sort(key=lambda folder: _are_colored(folder, names[folder], kind_of))

    def fit(image_folder: str, mask_folder: str) -> bool:
        is_of_another = _is_of_another(mask_folder, image_folder, images)
        return not is_of_another and have_masks(names[image_folder], names[mask_folder])

    for mask_folder, image_folder in itertools.product(masks, images):
        if fit(image_folder, mask_folder):
            has_colors = _are_colored(mask_folder, names[mask_folder], kind_of)
            fitting = [mask for mask in masks if fit(image_folder, mask)]
            yield _divide_paths(image_folder, mask_folder)._replace(
                others=_list_others(image_folder, mask_folder, fitting),
                are_panoptic=has_colors and "panoptic" in mask_folder.lower(),
            )


def _is_of_another(mask_folder: str, image_folder: str, images: Iterable[str]) -> bool:
    """Whether a mask folder is named after another image folder: 02_GT for 02, but not for 01."""
    owners = [folder for folder in images if re.match(rf"{re.escape(folder)}[-_ ]", mask_folder)]
    return bool(owners) and image_folder not in owners


def _list_others(images: str, masks: str, fitting: Iterable[str]) -> list[str]:
    """Returns mask folders next to a mask folder, divided like it; see `MaskFolders.others`.

    Args:
        images: path of the image folder.
        masks: path of its mask folder.
        fitting: paths of all folders that hold masks of these images.
    """
    chosen = _divide_paths(images, masks)
    others = (_divide_paths(images, folder) for folder in fitting if folder != masks)
    place = chosen.parent, chosen.below
    return [other.masks for other in others if (other.parent, other.below) == place]


def _are_colored(folder: str, names: Iterable[str], kind_of: KindOf) -> bool:
    """Whether the first file in a folder is a PNG in color."""
    first = min(names, default="")
    return kind_of(f"{folder}/{first}") in (FileKind.COLORED, FileKind.PHOTO)


def _select_masks(folders: Sequence[str]) -> list[str]:
    """Returns the folders that are named like masks, or are below such folders.

    The names of folders that contain all of them, such as the folder of a whole dataset, do not
    count.
    """
    if not folders:
        return []
    around = "/".join(common_start([folder.split("/")[:-1] for folder in folders]))
    return [folder for folder in folders if is_of_masks(folder.removeprefix(around).strip("/"))]


def _divide_paths(images: str, masks: str) -> MaskFolders:
    """Divides the paths of an image folder and its mask folder into shared and differing parts.

    The shared parts are the folders above, and class folders below: images/cat and gt/cat.
    """
    image_parts = images.split("/") if images else []
    mask_parts = masks.split("/")
    parent = common_start([image_parts, mask_parts])
    image_parts = image_parts[len(parent) :]
    mask_parts = mask_parts[len(parent) :]
    below = common_start([image_parts[::-1], mask_parts[::-1]])[::-1]
    image_parts = image_parts[: len(image_parts) - len(below)]
    mask_parts = mask_parts[: len(mask_parts) - len(below)]
    return MaskFolders(
        parent="/".join(parent),
        images="/".join(image_parts),
        masks="/".join(mask_parts),
        below="/".join(below),
    )


def describe_mask_folders(
    folders: Iterable[str],
    names_in: NamesIn = list_nothing,
    kind_of: KindOf = is_unknown,
    *,
    in_archives: bool = False,
) -> str:
    """Reports folders that look like images and the masks next to them, or returns an empty string.

    Args:
        folders: paths of folders with files, relative to the folder that all share.
        names_in: folder -> the names of its files, if known.
        kind_of: path of a file -> the kind of its content.
        in_archives: whether some images may be in archives, where no other files are found.
    """
    all_folders = [*folders]
    known_names = functools.cache(names_in)  # lists a folder only once
    found = find_mask_folders(all_folders, known_names, kind_of)
    return found.describe(all_folders, known_names, in_archives=in_archives) if found else ""
