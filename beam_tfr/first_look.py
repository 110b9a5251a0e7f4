"""Warns about problems that the first files of an input show, before the work begins."""

import collections
import contextlib
import functools
import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.console.terminal import counted
from beam_tfr.features.companions import Companion
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.inputs.annotation_files import (
    describe_annotations,
    describe_labels_beside,
    describe_labels_beside_archives,
)
from beam_tfr.inputs.first_names import FirstNames
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.listing import list_names, match_files
from beam_tfr.inputs.patterns import ARCHIVE, describe_unused
from beam_tfr.inputs.png_kinds import find_kind
from beam_tfr.inputs.skipped import UNCOUNTED, SkippedFiles, describe_missed
from beam_tfr.inputs.split_lists import describe_split_lists
from beam_tfr.layouts.class_folders import (
    describe_deep_folders,
    describe_last_folders,
    describe_no_classes,
    find_deep_folders,
)
from beam_tfr.layouts.copy_folders import describe_copy_folders
from beam_tfr.layouts.folders import check_split_folders
from beam_tfr.layouts.group_names import describe_groups
from beam_tfr.layouts.ignored_splits import describe_ignored_split
from beam_tfr.layouts.mask_folders import describe_mask_folders
from beam_tfr.layouts.mask_names import MaskNames
from beam_tfr.layouts.mask_paths import find_mask_name
from beam_tfr.layouts.named_classes import describe_numbered_classes
from beam_tfr.layouts.pair_folders import describe_pair_folders
from beam_tfr.layouts.pair_names import describe_pair_names
from beam_tfr.layouts.same_names import describe_same_names
from beam_tfr.layouts.sample_folders import describe_sample_folders
from beam_tfr.layouts.split_names import describe_split_names, is_split_word
from beam_tfr.layouts.twin_names import describe_twins
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.pair_paths import to_glob
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.wildcards import escape_pattern
from beam_tfr.sources import Input, refuse_records
from beam_tfr.tables.paths import resolve_path
from beam_tfr.tables.rows import Tables, file_of

MOST_LOOKED_AT = 10_000  # files in a first look
_MOST_LEVELS = 5  # folders between the root and the images in which lists are looked for
_FIRST_WORD = re.compile("([A-Za-z]+)([-_ .])")


class FirstFiles(NamedTuple):
    """The first files of an input.

    Attributes:
        paths: their paths.
        are_all: whether the input has no other files.
    """

    paths: list[str]
    are_all: bool


class FirstLook:
    """The first files of an input, which are listed only once and on demand.

    Args:
        source: the input.
        skipped: counts the files that its patterns miss.

    Attributes:
        source: the input.
        first_names: the first names listed in folders inside and next to the input.
    """

    def __init__(self, source: Input, skipped: SkippedFiles = UNCOUNTED) -> None:
        self.source = source
        self.first_names = FirstNames()
        self._skipped = skipped

    @functools.cached_property
    def files(self) -> FirstFiles:
        """The files; raises the errors of `Input.list_first`."""
        listed = self.source.list_first(self._skipped)
        entries = [*itertools.islice(listed, MOST_LOOKED_AT)]
        paths = [entry.path for entry in entries if isinstance(entry, storage.Entry)]
        has_rest = len(paths) < len(entries) or len(entries) == MOST_LOOKED_AT
        return FirstFiles(paths, are_all=not has_rest and not self.source.has_list)


def early_warnings(
    source: Input, *, shares_option: str = "", exclude: Sequence[str] = ()
) -> Iterator[str]:
    """Yields warnings about problems that the first files show.

    Examples are images that the patterns miss, and paths that match the layout in several ways.

    Args:
        source: the input.
        shares_option: the option that sets the shares of splits, or an empty string.
        exclude: the option `exclude`.

    Raises:
        InputNotFoundError: a pattern matches nothing.
        UsageError: a pattern cannot be listed, or folders need a layout; see `check_folders`.
    """
    yield from source.notes
    if isinstance(source.origin, Tables):
        yield from source.origin.warnings
        yield from filter(None, [source.missing])
    if storage.is_gcs(source.root) and not source.layout.longest:
        look = FirstLook(source)
        with contextlib.suppress(UsageError):  # the run reports errors in listing
            notes = [*describe_labels(look, {}), *describe_lists(look), *describe_random(look)]
            yield from filter(None, notes)
        return  # the summary reports missed images
    skipped = source.count_skipped()
    look = FirstLook(source, skipped)
    paths = look.files.paths
    refuse_records(source.plan.options["encoding"], paths)
    keys = [path.removeprefix(source.root) for path in paths]
    masks = MaskNames()
    masks.look_at(keys)
    marked = masks.describe(in_archives=source.has_archives, given_pairs=source.pairs)
    marked = marked or describe_pairs_in_folders(look)
    labels = [*describe_labels(look, skipped.annotations)]
    copies = describe_copies(look)
    folders = collections.Counter[str]()
    empty = ""
    if look.files.are_all:
        folders.update(map(os.path.dirname, keys))
        skipped.empty.fill(paths)
        empty = skipped.empty.describe()
        unused = describe_unused(exclude, skipped.used_exclusions, source.root)
        notes = [*unused, *filter(None, [*labels, marked, copies])]
        check_folders(source, folders, keys, shares_option=shares_option, notes=notes)
    warnings = (
        empty,
        describe_missed(skipped.kinds, source.root),
        source.layout.describe_ambiguity(keys),
        *labels,
        marked,
        describe_twins(keys),
        copies,
        describe_no_classes(keys) if source.has_default_layout else "",
        *describe_folders(source, folders),
        *describe_strays(look),
        *describe_lists(look),
        *describe_random(look),
    )
    yield from filter(None, warnings)


def check_folders(
    source: Input,
    folders: Mapping[str, int],
    keys: Sequence[str],
    *,
    shares_option: str,
    notes: Iterable[str],
) -> None:
    """Checks that the default layout reads folders the way they seem to be meant.

    Args:
        source: the input.
        folders: folder of images -> number of images.
        keys: keys of some images.
        shares_option: the option that sets the shares of splits, or an empty string.
        notes: sentences about other findings in the files, read only if there is an error.

    Raises:
        UsageError: the layout would misread the folders; see `check_split_folders`. The message
            includes the notes.
    """
    if not source.has_default_layout:
        return
    try:
        names_in = functools.partial(list_names, source.root)
        kind_of = functools.partial(find_kind, source.root)
        check_split_folders(folders, shares_option, keys, names_in, kind_of)
    except UsageError as error:
        raise UsageError("; ".join([str(error), *notes])) from None


def describe_pairs_in_folders(look: FirstLook) -> str:
    """Returns a message about images in one folder that look like pairs, or an empty string."""
    source = look.source
    if not isinstance(source.origin, Labeler) or source.pairs:
        return ""
    keys = [path.removeprefix(source.root) for path in look.files.paths]
    return describe_pair_names(keys, in_archives=source.has_archives)


def describe_copies(look: FirstLook) -> str:
    """Returns a message about folders with copies of other images, or an empty string."""
    source = look.source
    if not isinstance(source.origin, Labeler):
        return ""
    return describe_copy_folders([path.removeprefix(source.root) for path in look.files.paths])


def describe_lists(look: FirstLook) -> Iterator[str]:
    """Yields messages about splits in names of images, and in lists next to image folders."""
    source = look.source
    labeler = source.origin
    if not isinstance(labeler, Labeler) or labeler.splits or "{split}" in str(labeler.layout):
        return
    paths = look.files.paths
    text = describe_split_names(map(os.path.basename, paths))
    if text:
        yield f"{text}: {_cure_split_names(source, paths)}"
    if source.has_list:
        return
    folders = [*_list_folders_to_images(source.root, paths)]
    lists = describe_split_lists(folders, paths, first_names=look.first_names)
    yield from filter(None, [lists])


def _list_folders_to_images(root: str, paths: Sequence[str]) -> Iterator[str]:
    """Yields the root and, on a disk, the folders in it that hold all images, outermost first."""
    yield root
    if not paths or storage.is_remote(root):
        return
    shared = os.path.commonpath(map(os.path.dirname, paths))
    names = shared.removeprefix(root).split("/") if shared.startswith(root) else []
    for number in range(1, min(len(names), _MOST_LEVELS) + 1):
        yield root + "/".join(names[:number])


def describe_random(look: FirstLook) -> Iterator[str]:
    """Yields a message about groups in the names of images that go to random splits."""
    source = look.source
    labeler = source.origin
    if not isinstance(labeler, Labeler) or not labeler.splits or source.has_groups:
        return
    keys = [path.removeprefix(source.root) for path in look.files.paths]
    yield describe_groups(keys, labeler.layout)


def _cure_split_names(source: Input, paths: Sequence[str]) -> str:
    """Says how to read splits from file names such as cat/train_1.jpg."""
    separators = {_separator_of_split(os.path.basename(path)) for path in paths}
    if not source.has_default_layout or len(separators) > 1 or "" in separators:
        return "write the split of each image into a column `split` of a `table=`"
    has_folders = all("/" in path.removeprefix(source.root) for path in paths)
    folder = "{label}/" if has_folders else ""
    return f"{spell_option('layout', f'{folder}{{split}}{min(separators)}*')} takes these"


def _separator_of_split(name: str) -> str:
    """Returns the separator after a split that begins a name, such as _, or an empty string."""
    match = _FIRST_WORD.match(name)
    return match[2] if match and is_split_word(match[1]) else ""


def describe_folders(source: Input, folders: Mapping[str, int]) -> Iterator[str]:
    """Yields messages, which may be empty, about folders that a layout may misread.

    Args:
        source: the input.
        folders: folder of images -> number of images.
    """
    names_in = functools.partial(list_names, source.root)
    kind_of = functools.partial(find_kind, source.root)
    in_archives = source.has_archives
    masks = describe_mask_folders(folders, names_in, kind_of, in_archives=in_archives)
    if source.has_default_layout and isinstance(source.origin, Labeler):
        if not masks:  # the message about masks says how classes are read
            yield describe_deep_folders(find_deep_folders(folders, source.layout), source.layout)
            yield describe_last_folders(folders)
            yield describe_numbered_classes(folders, names_in)
        yield describe_ignored_split(folders, source.origin.all_splits)
    companions = masks or describe_pair_folders(folders, names_in, in_archives=in_archives)
    yield companions
    if not companions and source.layout.parts[-2:] == ("{label}", "*"):
        samples = describe_sample_folders(folders, names_in)
        yield samples or describe_same_names(folders, names_in)


def describe_labels(look: FirstLook, annotations: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields messages, which may be empty, about labels in files that are not read.

    Args:
        look: the first files.
        annotations: extension -> the first skipped files that may hold annotations.
    """
    source = look.source
    if isinstance(source.origin, Tables) or source.encoding not in IMAGE_ENCODINGS:
        return
    paths = look.files.paths
    yield describe_annotations(annotations, paths)
    yield describe_labels_beside(source.root, paths, look.first_names)
    archives = [*filter(ARCHIVE.search, source.input)]
    yield describe_labels_beside_archives(archives, look.first_names)


def describe_strays(look: FirstLook) -> Iterator[str]:
    """Yields messages about files next to images, such as masks, that match no image.

    Looks only on a disk, and only if there are few images.
    """
    source = look.source
    features = FeaturesDict.from_options(source.plan.options)
    companions = [companion for companion in features.companions if companion.path]
    if not companions or storage.is_gcs(source.root):
        return
    if not look.files.are_all:
        return
    keys = [path.removeprefix(source.root) for path in look.files.paths]
    refs = [ImageRef(key, 0, 0, NO_SPLIT) for key in keys]
    for companion in companions:
        files = {file_of(ref, root=source.root, companion=companion).path for ref in refs}
        listed = set(_list_companions(source, companion))
        strays = _find_strays(listed, files, look.files.paths)
        if not strays:
            continue
        cure = _cure_strays(strays, keys) if files.isdisjoint(listed) else ""
        number = counted(len(strays), "file")
        yield (
            f"{number} left out, such as {strays[0]}: no image has that file as its "
            f"{companion.key}{cure}"
        )


def _find_strays(listed: Set[str], files: Set[str], images: Collection[str]) -> list[str]:
    """Finds files that match no image.

    Leaves out files that differ only in their extension from a file that matches an image.

    Args:
        listed: all files, with any extension.
        files: the files that would match the images, whether they exist or not.
        images: the images themselves.
    """
    stems = {os.path.splitext(path)[0] for path in listed & files}
    rest = listed - files - {*images}
    return sorted(path for path in rest if os.path.splitext(path)[0] not in stems)


def _cure_strays(strays: Sequence[str], keys: Sequence[str]) -> str:
    """Suggests a path that derives the names of these files from the names of their images."""
    images = [*map(os.path.basename, keys)]
    name = find_mask_name(images, [*map(os.path.basename, strays)])
    return f"; {name} names it by its image" if name else ""


def _list_companions(source: Input, companion: Companion) -> Iterator[str]:
    """Yields the paths of the first files with any extension that may go with an image."""
    path = to_glob(companion.path, escape_pattern)
    pattern = resolve_path(os.path.splitext(path)[0] + ".*", escape_pattern(source.root))
    with contextlib.suppress(UsageError):  # reading reports missing files
        listed = match_files([(pattern, ())], option="pair")
        for entry in itertools.islice(listed, MOST_LOOKED_AT):
            if has_image_name(entry.name):
                yield entry.path
