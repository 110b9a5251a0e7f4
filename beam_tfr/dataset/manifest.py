"""Reads and checks manifest.json, which describes a complete dataset.

Readers and `verify` start here: `read_manifest(folder)` returns a checked `Manifest` or raises an
error that says what to do. `publish` writes manifest.json. Its schema is `manifest.schema.json`,
next to this module; docs/dataset.md explains the fields.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import fastjsonschema

from beam_tfr import storage
from beam_tfr.options.image import ImageOptions
from beam_tfr.records.contents import ContentsColumn, contents_columns, contents_schema
from beam_tfr.records.shard_file import gzip_level
from beam_tfr.schema.dataset import (
    FIRST_FOLDER,
    FORMAT_VERSION,
    MANIFEST_FILE,
    NO_SPLIT,
    SWITCH_FILE,
    WORK_FOLDER,
    is_class_name,
    json_digest,
)
from beam_tfr.schema.encodings import RecordNames, names_of
from beam_tfr.schema.errors import DataError, NotFoundError, UsageError
from beam_tfr.schema.feature_names import MAX_FEATURES, FeatureSpec
from beam_tfr.schema.naming import NAME
from beam_tfr.schema.untrusted import check_json_size, parse_json
from beam_tfr.version import __version__

if TYPE_CHECKING:  # NumPy, which features need, would make each command slow to start
    from beam_tfr.features.features_dict import FeaturesDict

KEPT_FORMATS = ("jpeg", "png", "webp")  # of --encoding keep
# Enough for 100,000 shards. Parsing takes up to 7 times the bytes; each object takes 250 bytes,
# each other value 60.
MAX_MANIFEST_BYTES = 32 << 20  # 32 MiB
_MAX_CONTAINERS = 250_000
_MAX_VALUES = 2_000_000
# The options that readers and `verify` use. They ignore all others, which any version may add,
# remove or extend.
_READER_OPTIONS = {
    "encoding",
    "color",
    "image_size",
    "resize",
    "upscale",
    "ignore_orientation",
    "max_pixels",
}
# The least size of a record in any shard: different keys and checksums do not compress.
_MIN_RECORD_BYTES = 4
# The fixes for a damaged manifest, and for any other damage.
COPY_OR_CONVERT = "copy the dataset again, or run `beam-tfr convert … --overwrite`"
REPAIR_OR_COPY = (
    "run `beam-tfr repair` on its folder, with its original input, or copy the dataset again"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """One file of a split, as listed in the manifest.

    The fields are the name of the file, its numbers of records and bytes, and its SHA-256.
    """

    file: str
    num_examples: int
    num_bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """One split.

    `class_counts` maps class names to numbers of records or boxes; it is empty if there are no
    classes.
    """

    matched: int
    rejected: int
    num_examples: int
    num_bytes: int
    class_counts: Mapping[str, int]
    shards: tuple[ShardEntry, ...] = dataclasses.field(repr=False)

    @property
    def num_shards(self) -> int:
        return len(self.shards)


class DigestLocation(NamedTuple):
    """Where manifest.json holds its own digest.

    Readers check the digest there, to notice if the manifest was replaced.

    Attributes:
        path: path of the file.
        before, after: numbers of bytes in the file before and after the digest.
    """

    path: str
    before: int
    after: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """A complete dataset, as described by its manifest.json.

    Attributes:
        folder: folder that the manifest was read from; not stored in the file.
        name: prefix of the shard files.
        options: the options of `convert` that can change a record, a shard or a reject.
        image_options: those options about images that readers and `verify` use.
        class_names: names of the classes, indexed by label id; empty if there are no classes.
        features: name -> {"dtype": "bytes" | "int64" | "float", "shape": [...]} in one record;
            shape [] is a single value, [-1] is a list of any length.
        counts: {"matched": n, "written": n, "rejected": {reason: n}, "adjusted": {kind: n}}.
        splits: name -> `Split`; the split `none` holds the rejects that belong to no split.
        statistics: mean and standard deviation (0 to 255) of each channel of the stored pixels
            before encoding; sizes of the source images.
        dataset_digest: equal for equal datasets, wherever and whenever they were made.
        digest_location: where the file holds its own digest.
        fields: all fields of the file.
    """

    folder: str
    name: str
    options: Mapping[str, Any]
    image_options: ImageOptions
    class_names: tuple[str, ...]
    features: Mapping[str, Mapping[str, Any]]
    counts: Mapping[str, Any]
    splits: Mapping[str, Split]
    statistics: Mapping[str, Any]
    dataset_digest: str
    digest_location: DigestLocation = dataclasses.field(repr=False)
    fields: Mapping[str, Any] = dataclasses.field(repr=False)

    @property
    def gzip_level(self) -> int | None:
        """The compression level of the shards: 0 for stored blocks, None without gzip."""
        return gzip_level(
            self.compression, self.options.get("gzip_level", "auto"), self.image_options.encoding
        )

    @property
    def compression(self) -> str:
        return str(self.options["compression"])

    @property
    def duplicates(self) -> Mapping[str, Any]:
        """The result of `copies.summary`; empty unless copies were searched for and found."""
        summary: Mapping[str, Any] = self.fields.get("duplicates", {})
        return summary

    @property
    def shards(self) -> list[ShardEntry]:
        """All shards, in the order of the splits."""
        return [shard for split in self.splits.values() for shard in split.shards]

    @functools.cached_property
    def class_totals(self) -> collections.Counter[str]:
        """Class -> number of records, or of boxes, in all splits."""
        totals = collections.Counter[str]()
        for name in self.split_names:
            totals.update(self.splits[name].class_counts)
        return totals

    @property
    def split_names(self) -> list[str]:
        """The sorted names of the splits, except the split for images that belong to no split."""
        return sorted(self.splits.keys() - {NO_SPLIT})

    @functools.cached_property
    def feature_kinds(self) -> "FeaturesDict":
        """The features and their kinds, which follow from the options."""
        from beam_tfr.features.features_dict import FeaturesDict

        names = names_of(self.options["encoding"])
        labelled = bool(self.class_names or self.features.keys() & {names.label, names.text})
        return FeaturesDict.from_options(
            self.options, labelled=labelled, class_names=self.class_names
        )

    @property
    def has_unusable_files(self) -> bool:
        """Whether unusable files, such as damaged archives, were rejected."""
        return "unusable-file" in self.counts["rejected"]

    @property
    def names(self) -> RecordNames:
        """The names of the features that hold the key and the label."""
        return self.feature_kinds.names

    @functools.cached_property
    def feature_specs(self) -> dict[str, FeatureSpec]:
        """Name -> (dtype, shape) of the features in one record."""
        specs = {}
        for name, feature in self.features.items():
            shape = tuple(feature["shape"])
            specs[name] = FeatureSpec(feature["dtype"], shape)
        return specs

    @functools.cached_property
    def contents_columns(self) -> dict[str, ContentsColumn]:
        """Feature -> column of the contents that holds it."""
        return contents_columns(self.feature_specs, self.names)

    def contents_schema(self) -> Any:
        """Returns the `pyarrow.Schema` of the contents.

        Raises:
            NotInstalledError: pyarrow is missing.
        """
        return contents_schema(self.feature_specs, self.names)


def read_manifest(folder: str) -> Manifest:
    """Reads the manifest of a complete dataset.

    Args:
        folder: local or gs://.

    Raises:
        UsageError: the name of the folder is empty.
        NotFoundError: the folder does not exist.
        DataError: the manifest is missing (the message says what the folder holds instead),
            invalid, edited, or in a newer format.
    """
    if not folder:
        raise UsageError("the name of the dataset's folder is empty")
    path = storage.join(folder, MANIFEST_FILE)
    try:
        data = storage.read_bytes(path, max_bytes=MAX_MANIFEST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        error = _missing_manifest(folder)
        if storage.find(path):  # it has just been written
            return read_manifest(folder)
        raise error from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_manifest(data, folder)


def find_manifest(folder: str) -> Manifest | None:
    """Reads the manifest of a folder; returns None if the folder has no manifest.

    Raises the errors of `read_manifest`.
    """
    if storage.find(storage.join(folder, MANIFEST_FILE)) is None:
        return None
    return read_manifest(folder)


def _missing_manifest(folder: str) -> DataError:
    """Creates the exception for a folder without a manifest; it says what the folder holds."""
    incomplete = f"{folder} is not a complete dataset"
    missing = f"{incomplete}: {MANIFEST_FILE} is missing"
    try:
        if storage.find(folder):
            return DataError(f"{incomplete}: it is a file; specify the folder of a dataset")
        names = storage.list_folder(folder) or _list_shown_folders(folder)
        work_files = storage.list_folder(storage.join(folder, WORK_FOLDER))
        has_first = storage.is_folder(storage.work_path(folder, FIRST_FOLDER))
    except OSError as error:
        return DataError(f"{incomplete}: {error.strerror or error}")
    if SWITCH_FILE in work_files:
        return DataError(
            f"{incomplete}: it is being replaced; read it again in a moment, or, if a run was "
            "killed, run the same convert command again"
        )
    if work_files or has_first:
        return DataError(
            f"{missing}. A conversion into this folder has not finished; run the same convert "
            "command again to resume it"
        )
    if names:
        return DataError(
            f"{missing}, which convert writes last; the folder holds other files, such as "
            f"{names[0]}"
        )
    if not storage.is_folder(folder):  # gs:// has no empty ones
        return NotFoundError(f"{incomplete}: the folder does not exist")
    return DataError(f"{missing}, and the folder is empty")


def _list_shown_folders(folder: str) -> list[str]:
    """Lists the visible subfolders of a folder, as "name/"; none if the folder does not exist."""
    if not storage.is_folder(folder):
        return []
    return [f"{name}/" for name in storage.list_folders(folder) if not name.startswith(".")]


def check_not_replaced(dataset: Manifest) -> None:
    """Checks that a dataset is still in its folder.

    If it is, everything that was read from the folder so far belongs to this dataset.

    Raises:
        DataError: the dataset was replaced, is being replaced, or its manifest cannot be read.
    """
    digest = dataset.fields["manifest_digest"].encode()
    location = dataset.digest_location
    end = location.before + len(digest)
    with contextlib.suppress(OSError):
        if storage.read_part(location.path, location.before, len(digest)) == digest:
            return
    with contextlib.suppress(OSError):  # on gs://, it may be stored compressed
        if storage.read_bytes(location.path, max_bytes=end)[location.before : end] == digest:
            return
    raise DataError(replaced_message(dataset.folder))


def replaced_message(folder: str) -> str:
    """Returns a message that a dataset was or is being replaced."""
    return f"another dataset replaced {folder} while it was read; read the folder again"


def check_shard_files(dataset: Manifest, splits: Iterable[Split]) -> None:
    """Checks that the files of splits exist and have the right sizes.

    Lists the files, but does not open them.

    Raises:
        DataError: a file is missing, has the wrong size, or is too small for its records.
    """
    prefix = f"{dataset.name}-"
    listed = storage.walk(dataset.folder, lambda _: False, prefix=prefix, deep=False)
    sizes = {entry.path: entry.size_bytes for entry in listed}
    above = storage.join(dataset.folder, "")
    for shard in itertools.chain.from_iterable(split.shards for split in splits):
        path = above + shard.file
        size = sizes.get(path)
        if size != shard.num_bytes:
            check_not_replaced(dataset)
            raise wrong_size(path, size, shard.num_bytes)
        if shard.num_examples * _MIN_RECORD_BYTES > shard.num_bytes:
            raise DataError(
                f"{path} cannot hold {shard.num_examples} records in {size} bytes: "
                f"{COPY_OR_CONVERT}"
            )


def wrong_size(path: str, size: int | None, expected: int) -> DataError:
    """Creates the exception for a file that is missing, or has a different size in the manifest."""
    if size is None:
        return DataError(f"{path} is missing: {REPAIR_OR_COPY}")
    cure = REPAIR_OR_COPY
    if storage.is_gcs(path):
        cure += (
            "; if it was uploaded with -z or -Z, which compress files, upload it without -z or -Z"
        )
    return DataError(f"{path} has {size} bytes instead of {expected}: {cure}")


@functools.lru_cache(maxsize=4)  # parsing one with 70,000 shards takes a second
def parse_manifest(data: bytes, folder: str) -> Manifest:
    """Parses the untrusted bytes of manifest.json.

    Raises:
        DataError: the manifest is invalid, edited, or in a newer format.
    """
    path = storage.join(folder, MANIFEST_FILE)
    try:
        fields = _parse_fields(data)
        _check_version(path, fields["format_version"])
        digest = fields.get("manifest_digest")
        if digest != manifest_digest(fields):
            raise DataError(
                f"{path} was changed after it was written: its manifest_digest does not match its "
                f"content; {COPY_OR_CONVERT}"
            )
        _compile_schema()(fields, name_prefix="manifest")
        before, after = data.split(digest.encode(), 1)
        location = DigestLocation(path, len(before), len(after))
        return _build_manifest(fields, location, folder)
    except UsageError as error:
        problem = str(error)[:300]
        raise DataError(
            f"{path}: this beam_tfr {__version__} does not know {problem}; update beam_tfr"
        ) from None
    except (ValueError, RecursionError) as error:
        problem = str(error)[:300]
        raise DataError(f"{path} is not a manifest: {problem}; {COPY_OR_CONVERT}") from None


def _parse_fields(data: bytes) -> dict[str, Any]:
    """Parses JSON in limited memory.

    Raises:
        ValueError: the JSON exceeds the limits, or is not an object with a version.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise ValueError(f"it has more than {MAX_MANIFEST_BYTES} bytes")
    check_json_size(data, most_containers=_MAX_CONTAINERS, most_values=_MAX_VALUES)
    fields = parse_json(data)
    if not isinstance(fields, dict) or "format_version" not in fields:
        raise ValueError("it is not a JSON object with a format_version")
    return fields


def _check_version(path: str, version: object) -> None:
    """Checks that this version of beam_tfr can read a version of the format.

    Raises:
        DataError: the version of the format is not supported.
    """
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {reprlib.repr(version)}, but beam_tfr {__version__} reads "
            f"version {FORMAT_VERSION}: install the beam_tfr version that wrote it, or convert "
            "again with `overwrite=`"
        )


@functools.cache
def _compile_schema() -> Callable[..., object]:
    """Compiles the schema into a function that checks a manifest.

    The function raises a ValueError that names the invalid field.
    """
    path = pathlib.Path(__file__).with_name("manifest.schema.json")
    schema = json.loads(path.read_text())
    # To all later drafts, 5.0 is an integer.
    schema["$schema"] = "http://json-schema.org/draft-04/schema#"
    check: Callable[..., object] = fastjsonschema.compile(schema)
    return check


def _build_manifest(fields: dict[str, Any], location: DigestLocation, folder: str) -> Manifest:
    """Creates a `Manifest` from fields that match the schema.

    Raises:
        ValueError: fields contradict each other; only `verify` finds contradictions that do not
            affect readers.
        UsageError: this version of beam_tfr does not support an option.
    """
    options = fields["options"]
    image_options = {name: options[name] for name in options.keys() & _READER_OPTIONS}
    splits = {name: _build_split(name, split) for name, split in fields["splits"].items()}
    manifest = Manifest(
        folder=folder,
        name=fields["name"],
        options=options,
        image_options=ImageOptions(**image_options),
        class_names=tuple(fields["labels"]["names"]),
        features=fields["features"],
        counts=fields["counts"],
        splits=splits,
        statistics=fields["statistics"],
        dataset_digest=fields["dataset_digest"],
        digest_location=location,
        fields=fields,
    )
    _check_shards(manifest)
    _check_class_names(manifest)
    _check_features(manifest)
    return manifest


def _build_split(name: str, fields: dict[str, Any]) -> Split:
    if not NAME.fullmatch(name):
        raise ValueError(f"a split has the invalid name {reprlib.repr(name)}")
    shards = tuple(ShardEntry(**shard) for shard in fields["shards"])
    total = sum(shard.num_examples for shard in shards)
    if fields["num_examples"] != total:
        raise ValueError(
            f"splits.{name}.num_examples is {fields['num_examples']}, but its shards have {total}"
        )
    return Split(**{**fields, "shards": shards})


def _check_shards(manifest: Manifest) -> None:
    """Checks that no file occurs twice, since readers would repeat its records."""
    files = set[str]()
    for shard in manifest.shards:
        if shard.file in files:
            raise ValueError(f"the shard {shard.file} occurs twice")
        files.add(shard.file)


def _check_class_names(manifest: Manifest) -> None:
    for name in manifest.class_names:
        if not is_class_name(name):
            raise ValueError(f"a class has the invalid name {reprlib.repr(name)}")


def _check_features(manifest: Manifest) -> None:
    """Checks that a dataset has the features that its options define, and not too many others."""
    if len(manifest.features) > MAX_FEATURES:
        raise ValueError(f"it has {len(manifest.features):,} features, more than {MAX_FEATURES:,}")
    for name, (dtype, shape) in manifest.feature_kinds.specs.items():
        feature = manifest.features.get(name)
        if feature != {"dtype": dtype, "shape": list(shape)}:
            raise ValueError(f"feature {name} is {reprlib.repr(feature)}")


def manifest_digest(fields: Mapping[str, Any]) -> str:
    """Returns the digest of all fields except `manifest_digest`, to detect edits."""
    covered = {**fields}
    covered.pop("manifest_digest", None)
    return json_digest(covered)


def dataset_digest(fields: Mapping[str, Any], records: Mapping[str, Iterable[str]]) -> str:
    """Returns the digest of everything in a dataset that training can see.

    It does not depend on location or compression.

    Args:
        fields: fields of the manifest.
        records: split -> `ShardInfo.records_sha256` of its shards, in order.
    """
    splits = {}
    for name, split in fields["splits"].items():
        splits[name] = {
            "matched": split["matched"],
            "rejected": split["rejected"],
            "class_counts": split["class_counts"],
            "num_examples": [shard["num_examples"] for shard in split["shards"]],
            "records": list(records[name]),
        }
    return json_digest(
        {
            "labels": fields["labels"],
            "features": fields["features"],
            "counts": fields["counts"],
            "statistics": fields["statistics"],
            "splits": splits,
        }
    )


def labels_text(labels: Iterable[str]) -> bytes:
    """Returns the content of labels.txt."""
    return "".join(f"{label}\n" for label in labels).encode()


def manifest_bytes(fields: Mapping[str, Any]) -> bytes:
    """Returns the content of manifest.json."""
    return (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode("ascii")
