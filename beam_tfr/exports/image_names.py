"""Derives the file names in an export from the keys of images.

The names depend only on the contents of a dataset, so they are checked before anything is written:
an export whose files cannot exist side by side would never be complete.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.conditions import rows_that_fit
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.exports.shard import ExportedSample, ExportedShard
from beam_tfr.records.repeats import hash_key
from beam_tfr.schema.dataset import EXPORT_FILE, WORK_FOLDER
from beam_tfr.schema.encoded_ref import to_bytes, to_text
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.extensions import EXTENSIONS, FORMAT_OF
from beam_tfr.schema.feature_names import FILENAME, FORMAT
from beam_tfr.schema.naming import parse_shard_names
from beam_tfr.schema.untrusted import quote

CURE = "use `format=webdataset` or `format=parquet`, which do not use keys as file names"
_SHARDS = 16  # shards whose images are in memory at the same time
_FREE_FOLDERS = 1_000_000  # folders that an export may have, however few files it has
_FOLDERS_EACH = 4  # additional folders allowed for each file


class NamedImage(NamedTuple):
    """Everything that the file names of an image depend on.

    Attributes:
        key: key of the image.
        split: split of the image.
        form: stored format of the image, one of `EXTENSIONS`.
        shares_stem: whether another key in the dataset has the same stem.
        beside: keys of the image's companions that are exported, such as "mask".
    """

    key: str
    split: str
    form: str
    shares_stem: bool = False
    beside: tuple[str, ...] = ()


def image_of(shard: ExportedShard, sample: ExportedSample) -> NamedImage:
    """Returns everything that the file names of a record depend on."""
    key = to_text(sample.values[FILENAME][0])
    return NamedImage(
        key,
        split=sample.about["split"],
        form=sample.values[FORMAT][0].decode(),
        shares_stem=stem_of(key) in shard.shared_stems,
        beside=(*sample.files,),
    )


NameFiles = Callable[[NamedImage], Sequence[str]]  # -> paths in the export


def file_name(image: NamedImage) -> str:
    """Returns the file name of an image: its key, with the extension of its format.

    For a JPEG, `1.png` becomes `1.jpg`, or `1.png.jpg` if another key has the same stem.

    Raises:
        DataError: the file would be outside the folder, or among unfinished files.
    """
    key = image.key
    folders = key.split("/")
    leaves_folder = not {"", ".", ".."}.isdisjoint(folders)
    if leaves_folder or folders[0] == WORK_FOLDER or "\0" in key:
        raise DataError(f"the key {quote(key)} cannot be the name of a file in the folder; {CURE}")
    extension = key.rpartition(".")[2].lower()
    if FORMAT_OF.get(extension) == image.form:
        return key
    stem = key if image.shares_stem else stem_of(key)
    return f"{stem}.{EXTENSIONS[image.form][0]}"


def unique_file_name(image: NamedImage) -> str:
    """Returns a file name whose stem no other image has; raises the errors of `file_name`.

    For a JPEG, `1.png` becomes `1.jpg`, or `1_png.jpg` if another key has the same stem.
    """
    name = file_name(image)
    if not image.shares_stem:
        return name
    stem = stem_of(image.key)
    extension = name.rpartition(".")[2]
    extension_of_key = image.key[len(stem) :].replace(".", "_")
    return f"{stem}{extension_of_key}.{extension}"


def stem_of(key: str) -> str:
    """Returns a key without the extension of an image, if the key has one."""
    stem, _, extension = key.rpartition(".")
    has_name = bool(stem.rpartition("/")[2])
    return stem if has_name and extension.lower() in FORMAT_OF else key


def find_shared_stems(dataset: Manifest, parts: Iterable[ShardPart]) -> frozenset[str]:
    """Returns the stems that several keys in a dataset have, from the contents of the shards.

    Holds all stems in memory; each takes about 100 bytes.
    """
    stems = set[str]()
    shared = set[str]()
    for image in read_images(dataset, parts, {}):
        stem = stem_of(image.key)
        if stem in stems:
            shared.add(stem)
        stems.add(stem)
    return frozenset(shared)


def read_images(
    dataset: Manifest, parts: Iterable[ShardPart], where: Mapping[str, str]
) -> Iterator[NamedImage]:
    """Yields those images in some shards that meet the conditions, from the contents."""

    def read_shard(part: ShardPart) -> list[NamedImage]:
        return _read_shard(dataset, part, where)

    waiting = iter(parts)
    with ThreadPoolExecutor(_SHARDS) as pool:
        while batch := [*itertools.islice(waiting, _SHARDS)]:
            yield from itertools.chain.from_iterable(pool.map(read_shard, batch))


def _read_shard(dataset: Manifest, part: ShardPart, where: Mapping[str, str]) -> list[NamedImage]:
    form_column = dataset.contents_columns[FORMAT].name
    columns = None if where else ["key", form_column]
    lookup = RecordLookup(dataset, [part])
    table = lookup.read_contents(part, columns)
    keys = table.column("key").to_pylist()
    forms = table.column(form_column).to_pylist()
    split = parse_shard_names(part.file).split
    companions = dataset.feature_kinds.companions
    beside = tuple(itertools.chain.from_iterable(kind.exported_files for kind in companions))
    images = list[NamedImage]()
    for row in rows_that_fit(dataset, table, where):
        key = lookup.whole_key(row, keys[row])
        images.append(NamedImage(key, split, forms[row], beside=beside))
    return images


class NameCheck:
    """Checks, one by one, whether the files of an export can exist side by side.

    For each file and folder, holds a hash in memory, which takes about 100 bytes. The number of
    folders is limited.

    Args:
        output: folder of the export.
        rules: rules for names in the folder.
        own_files: paths, in the export, of the files that describe all images.
    """

    def __init__(self, output: str, rules: storage.NameRules, own_files: Iterable[str]) -> None:
        self._output = output
        self._rules = rules
        names = (*own_files, EXPORT_FILE, WORK_FOLDER)
        self._own_files = {rules.unify(name) for name in names}
        self._files = {_hash_name(name) for name in self._own_files}
        self._folders = {_hash_name("")}
        for name in self._own_files:
            self._add_folders(name)

    def add(self, name: str) -> None:
        """Adds the path of a file in the export.

        Raises:
            DataError: the file cannot exist there, or cannot exist next to the files added before.
        """
        problem = self._rules.find_problem(self._output, name) or self._find_conflict(name)
        if problem:
            path = storage.join(self._output, name)
            raise DataError(f"{path}: {problem}; {CURE}")

    def _find_conflict(self, name: str) -> str:
        """Adds a file; returns why it cannot exist next to earlier files, or an empty string."""
        unified = self._rules.unify(name)
        hashed = _hash_name(unified)
        if hashed in self._files:
            return self._describe_same_name(unified)
        if hashed in self._folders:
            return "it would be both a file and a folder"
        self._files.add(hashed)
        if not self._rules.has_folders:
            return ""
        return self._add_folders(unified)

    def _add_folders(self, unified: str) -> str:
        """Adds the folders of a file; returns why a folder cannot exist, or an empty string."""
        folder = unified.rpartition("/")[0]
        while (hashed := _hash_name(folder)) not in self._folders:
            if hashed in self._files:
                return self._describe_folder(folder)
            self._folders.add(hashed)
            folder = folder.rpartition("/")[0]
        if len(self._folders) > _FREE_FOLDERS + _FOLDERS_EACH * len(self._files):
            return f"there would be {len(self._folders):,} folders for {len(self._files):,} files"
        return ""

    def _describe_folder(self, folder: str) -> str:
        if folder in self._own_files:
            return f"{folder} has the name of a file that describes all images"
        return f"{quote(folder)} would be both a file and a folder"

    def _describe_same_name(self, unified: str) -> str:
        if unified in self._own_files:
            return "a file that describes all images has this name"
        return (
            "two images would have this name, or an image and the mask of another, such as "
            f"KEY.mask.png{self._rules.describe_unifying()}"
        )


def _hash_name(name: str) -> bytes:
    return hash_key(to_bytes(name))
