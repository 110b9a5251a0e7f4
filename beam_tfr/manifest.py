"""manifest.json: the one file that says what a dataset is.

Readers and `verify` start here: `read(folder)` returns a checked `Manifest` or raises an error that says what to do.
`publish` writes it. The schema of the file is `manifest.schema.json` beside this module; docs/dataset.md explains it.
"""

from __future__ import annotations

import dataclasses
import json
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from beam_tfr import __version__, storage
from beam_tfr.json_check import check_kinds, load_object
from beam_tfr.naming import parse_file_name
from beam_tfr.options import ImageOptions
from beam_tfr.schema import (
    FORMAT_VERSION,
    MANIFEST_FILE,
    WORK_FOLDER,
    DataError,
    UsageError,
    canonical_json,
    is_class_name,
    sha256_hex,
)
from beam_tfr.schema.features import IMAGE_ENCODINGS, OTHER_ENCODINGS, Names, features_of, names_of

KEPT_FORMATS = ("jpeg", "png", "webp", "bmp", "gif")  # of images stored with --encoding keep
MAX_RANK = 8  # of a feature
MAX_MANIFEST_BYTES = 32 << 20  # 32 MiB, enough for 100,000 shards; parsing takes up to 7 times that
_CURE = "copy the dataset again, or convert it again with `overwrite=`"

# The type of everything in a manifest, so that code after `parse` need not check.
_KINDS: Mapping[Any, Any] = {
    "name": str,
    "options": {"compression": str, "encoding": str, ...: object},
    "labels": {"names": [str], "digest": str},
    "features": {...: {"dtype": str, "shape": [object]}},
    "counts": {"matched": int, "written": int, "rejected": {...: int}, "adjusted": {...: int}},
    "rejects": {"count": int, "sha256": str},
    "splits": {
        ...: {
            "matched": int,
            "rejected": int,
            "num_examples": int,
            "num_bytes": int,
            "class_counts": {...: int},
            "shards": [{"file": str, "num_examples": int, "num_bytes": int, "sha256": str}],
        }
    },
    "statistics": {"pixels": int, "channel_mean": [float], "channel_std": [float], "source_sizes": {...: int}},
    "dataset_digest": str,
    ...: object,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """One file of a split: its name in the folder, records, bytes, and the SHA-256 of the file."""

    file: str
    num_examples: int
    num_bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """One split; `class_counts` maps class names to records and is empty without labels."""

    matched: int
    rejected: int
    num_examples: int
    num_bytes: int
    class_counts: Mapping[str, int]
    shards: tuple[ShardEntry, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """A complete dataset, as described by its manifest.json.

    Attributes:
        folder: where it was read from; not part of the file.
        name: prefix of the shard files.
        options: the options of `convert` that can change a record, a shard or a reject.
        image_options: the image options among them.
        class_names: indexed by label id; empty without labels.
        features: name -> {"dtype": "bytes" | "int64" | "float", "shape": [...]} of one record; shape [-1] is a list of
            any length.
        counts: {"matched": n, "written": n, "rejected": {reason: n}, "adjusted": {member of `schema.ADJUSTMENTS`: n}}.
        splits: name -> `Split`; `none` has the rejects that fit no split.
        statistics: channel mean and standard deviation (0 to 255) of the stored pixels before encoding, source sizes.
        dataset_digest: equal for equal datasets, wherever they are and whenever they were made.
        fields: the whole file as parsed.
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
    fields: Mapping[str, Any]

    @property
    def compression(self) -> str:
        return str(self.options["compression"])

    @property
    def names(self) -> Names:
        """The feature names of key and label."""
        return names_of(self.options["encoding"])


def read(folder: str) -> Manifest:
    """Reads the manifest of a complete dataset.

    Args:
        folder: local or gs://.

    Raises:
        UsageError: the name of the folder is empty.
        DataError: there is no manifest (the message says what is there instead), or it is invalid, was edited, or has
            a newer format.
    """
    if not folder:
        raise UsageError("the name of the dataset's folder is empty")
    path = storage.join(folder, MANIFEST_FILE)
    try:
        data = storage.read_bytes(path, max_bytes=MAX_MANIFEST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{folder} is not a complete dataset: {_what_is_there(folder)}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse(data, folder)


def find(folder: str) -> Manifest | None:
    """Reads the manifest of a folder, or returns None if there is none; raises like `read`."""
    there = storage.size_bytes(storage.join(folder, MANIFEST_FILE)) is not None
    return read(folder) if there else None


def check_shards(dataset: Manifest, splits: Iterable[Split]) -> None:
    """Checks, with one listing, that the files of some splits exist and have the right sizes.

    Raises:
        DataError: a file is missing or has another size.
    """
    found = {entry.path: entry.size_bytes for entry in storage.walk(dataset.folder, lambda _: False)}
    for shard in (shard for split in splits for shard in split.shards):
        path = storage.join(dataset.folder, shard.file)
        size = found.get(path)
        if size != shard.num_bytes:
            wrong = "is missing" if size is None else f"has {size} bytes instead of {shard.num_bytes}"
            raise DataError(f"{path} {wrong}: {_CURE}")


def _what_is_there(folder: str) -> str:
    try:
        names = storage.list_folder(folder)
        started = storage.list_folder(storage.join(folder, WORK_FOLDER))
    except OSError as error:
        return error.strerror or str(error)
    if started:
        return f"{MANIFEST_FILE} is missing. A conversion has not finished here; the same convert command resumes it"
    if any(map(parse_file_name, names)):
        return f"it holds TFRecord files, but {MANIFEST_FILE} is missing, which convert writes last"
    if names:
        return f"it holds {len(names)} files (such as {names[0]}), but no {MANIFEST_FILE}"
    return f"there is no {MANIFEST_FILE}, and no other file"


def parse(data: bytes, folder: str) -> Manifest:
    """Makes a `Manifest` from the untrusted bytes of its file.

    Raises:
        DataError: the manifest is invalid, was edited, or has a newer format.
    """
    path = storage.join(folder, MANIFEST_FILE)
    try:
        if len(data) > MAX_MANIFEST_BYTES:
            raise ValueError(f"it has more than {MAX_MANIFEST_BYTES} bytes")
        fields = load_object(data)
        check_kinds(fields, {"format_version": object, "manifest_digest": object, ...: object})
        version = fields["format_version"]
        if type(version) is not int or version > FORMAT_VERSION:
            raise DataError(
                f"{path} has format version {reprlib.repr(version)}; this beam_tfr {__version__} reads up to "
                f"{FORMAT_VERSION}: update it"
            )
        if fields["manifest_digest"] != manifest_digest(fields):
            raise DataError(
                f"{path} was changed after it was written: its manifest_digest does not match its content; {_CURE}"
            )
        return _from_fields(fields, folder)
    except ValueError as error:
        raise DataError(f"{path} is not a manifest: {_printable(error)}; {_CURE}") from None
    except UsageError as error:
        raise DataError(f"{path}: this beam_tfr {__version__} does not know {_printable(error)}; update it") from None


def _printable(error: Exception) -> str:
    return "".join(char if char.isprintable() else "?" for char in str(error)[:300])


def _from_fields(fields: dict[str, Any], folder: str) -> Manifest:
    """Makes a `Manifest` from parsed JSON.

    Raises:
        ValueError: a field is wrong.
        UsageError: this version does not know an option.
    """
    check_kinds(fields, _KINDS)
    _check_values(fields)
    splits = {}
    for name, split in fields["splits"].items():
        shards = tuple(ShardEntry(**shard) for shard in split["shards"])
        for shard in shards:
            _require(parse_file_name(shard.file) is not None, f"splits.{name}: the name of a shard", shard.file)
        total = sum(shard.num_examples for shard in shards)
        if split["num_examples"] != total:
            raise ValueError(f"splits.{name}.num_examples is {split['num_examples']}, but its shards have {total}")
        splits[name] = Split(**{**split, "shards": shards})
    files = [shard.file for split in splits.values() for shard in split.shards]
    if len(set(files)) != len(files):
        raise ValueError("a shard file is listed twice")
    options = fields["options"]
    names = options.keys() & {field.name for field in dataclasses.fields(ImageOptions)}
    return Manifest(
        folder=folder,
        name=fields["name"],
        options=options,
        image_options=ImageOptions(**{name: options[name] for name in names}),
        class_names=tuple(fields["labels"]["names"]),
        features=fields["features"],
        counts=fields["counts"],
        splits=splits,
        statistics=fields["statistics"],
        dataset_digest=fields["dataset_digest"],
        fields=fields,
    )


def _check_values(fields: dict[str, Any]) -> None:
    """Checks the values that readers rely on; `verify` checks the rest.

    Raises:
        ValueError: a value is wrong.
    """
    options, labels, features = fields["options"], fields["labels"]["names"], fields["features"]
    _require(options["compression"] in ("gzip", "none"), "options.compression", options["compression"])
    for name, feature in features.items():
        sides = all(type(side) is int and -1 <= side < 1 << 63 for side in feature["shape"])
        known = feature["dtype"] in ("bytes", "int64", "float") and sides and len(feature["shape"]) <= MAX_RANK
        _require(known, f"feature {name}", feature)
    for name in labels:
        _require(is_class_name(name), "a class name", name)
    if options["encoding"] not in IMAGE_ENCODINGS + OTHER_ENCODINGS:
        return  # ImageOptions refuses it with a better message
    columns = options.get("feature_columns", {})
    check_kinds(columns, {...: str}, "options.feature_columns")
    names = names_of(options["encoding"])
    labelled = bool(labels or {names.label, names.text} & features.keys())
    for name, (dtype, shape) in features_of(options, labelled=labelled).items():
        _require(features.get(name) == {"dtype": dtype, "shape": list(shape)}, f"feature {name}", features.get(name))


def _require(holds: bool, what: str, found: Any) -> None:
    if not holds:
        raise ValueError(f"{what} is {reprlib.repr(found)}")


def manifest_digest(fields: Mapping[str, Any]) -> str:
    """Digest of all other fields, which shows any edit."""
    return sha256_hex(canonical_json({name: value for name, value in fields.items() if name != "manifest_digest"}))


def dataset_digest(fields: Mapping[str, Any], records: Mapping[str, Iterable[str]]) -> str:
    """Digest of everything that training can see of a dataset, whatever its place and compression.

    Args:
        fields: of the manifest.
        records: split -> `ShardInfo.records_sha256` of its shards, in order.
    """
    return sha256_hex(
        canonical_json(
            {
                "labels": fields["labels"],
                "features": fields["features"],
                "counts": fields["counts"],
                "statistics": fields["statistics"],
                "splits": {
                    name: {
                        "matched": split["matched"],
                        "rejected": split["rejected"],
                        "class_counts": split["class_counts"],
                        "num_examples": [shard["num_examples"] for shard in split["shards"]],
                        "records": list(records[name]),
                    }
                    for name, split in fields["splits"].items()
                },
            }
        )
    )


def labels_text(labels: Iterable[str]) -> bytes:
    """Content of labels.txt."""
    return "".join(f"{label}\n" for label in labels).encode()


def to_bytes(fields: Mapping[str, Any]) -> bytes:
    """Content of manifest.json."""
    return (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode("ascii")
