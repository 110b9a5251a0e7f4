"""WriteManifest: the books of all shards become one file that says what the dataset is, written last.

Readers and `verify` start here: `read(folder)` gives a checked `Manifest` or an error that says what to do.
The schema of the file is `manifest.schema.json` beside this module; the README explains it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from beam_tfr import __version__, storage
from beam_tfr.schema import (
    FEATURES,
    FORMAT_VERSION,
    LABEL_FEATURES,
    LABELS_FILE,
    MANIFEST_FILE,
    NO_SPLIT,
    REJECTS_FILE,
    WORK_FOLDER,
    DataError,
    Plan,
    RunError,
    ShardInfo,
    canonical_json,
    sha256_hex,
)

MAX_MANIFEST_BYTES = 32 << 20  # 32 MiB: more than 100,000 shards; parsed it takes up to 7 times that
_FILE_NAME = re.compile(r"[A-Za-z0-9_]+-[A-Za-z0-9_]+-[0-9]{5,}-of-[0-9]{5,}\.tfrecord(\.gz)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """One file of a split: its name in the folder, records, bytes, and the SHA-256 of the file."""

    file: str
    num_examples: int
    num_bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """One split; `class_counts` is class name -> records, empty without labels."""

    matched: int
    rejected: int
    num_examples: int
    num_bytes: int
    class_counts: Mapping[str, int]
    shards: tuple[ShardEntry, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """A complete dataset, as its manifest.json describes it.

    Attributes:
        folder: where it was read from (not part of the file).
        name: prefix of the shard files.
        options: what `convert` was told, as far as it can change a record, a shard or a reject.
        class_names: index = label id; empty without labels.
        features: name -> {"dtype": "bytes" | "int64" | "float", "shape": [...]} of one record.
        counts: {"matched": n, "written": n, "rejected": {reason: n}}.
        splits: name -> `Split`; `none` holds images that fit no split (rejects only).
        statistics: channel mean and standard deviation (0 to 255) of the stored pixels before encoding, source sizes.
        dataset_digest: equal for equal datasets, wherever they lie and whenever they were made.
        fields: the whole file as parsed.
    """

    folder: str
    name: str
    options: Mapping[str, Any]
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


def read(folder: str) -> Manifest:
    """The manifest of a complete dataset.

    Args:
        folder: local or gs://.

    Raises:
        DataError: no folder, no manifest (the message says what is there instead), one that was edited, or of a
            newer format.
    """
    path = storage.join(folder, MANIFEST_FILE)
    try:
        data = storage.read_bytes(path, max_bytes=MAX_MANIFEST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{folder} is not a complete dataset: {_what_is_there(folder)}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return parse(data, folder)


def _what_is_there(folder: str) -> str:
    try:
        names = storage.list_folder(folder)
        started = storage.list_folder(storage.join(folder, WORK_FOLDER))
    except OSError as error:
        return str(error)
    if started:
        return f"{MANIFEST_FILE} is missing. A conversion has not finished here; the same convert command goes on"
    if any(_FILE_NAME.fullmatch(name) for name in names):
        return f"it holds TFRecord files, but {MANIFEST_FILE} is missing, which convert writes last"
    if names:
        return f"it holds {len(names)} files (such as {names[0]}), but no {MANIFEST_FILE}"
    return f"there is no {MANIFEST_FILE}, nor any other file"


def parse(data: bytes, folder: str) -> Manifest:
    """A `Manifest` from the bytes of its file; nothing in them is believed before it is checked.

    Raises:
        DataError: whatever is wrong.
    """
    path = storage.join(folder, MANIFEST_FILE)
    if len(data) > MAX_MANIFEST_BYTES:
        raise DataError(f"{path} has more than {MAX_MANIFEST_BYTES} bytes")
    try:
        fields = json.loads(data)
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        version = fields["format_version"]
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise DataError(
                f"{path} has format version {version!r}; this beam_tfr {__version__} reads up to {FORMAT_VERSION}: "
                "update it"
            )
        if fields["manifest_digest"] != manifest_digest(fields):
            raise DataError(f"{path} was changed after it was written: its manifest_digest does not fit its content")
        return _from_fields(fields, folder)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not a manifest: {type(error).__name__}: {str(error)[:200]}") from None


def _from_fields(fields: dict[str, Any], folder: str) -> Manifest:
    splits = {}
    for name, split in fields["splits"].items():
        shards = tuple(ShardEntry(**shard) for shard in split["shards"])
        for shard in shards:
            if not _FILE_NAME.fullmatch(shard.file):
                raise ValueError(f"shard file {shard.file[:100]!r} is not the name of a shard")
            _check_counts(shard.num_examples, shard.num_bytes)
        _check_counts(split["matched"], split["rejected"], split["num_examples"], split["num_bytes"])
        if split["num_examples"] != sum(shard.num_examples for shard in shards):
            raise ValueError(f"split {name}: num_examples is not the sum of its shards")
        splits[name] = Split(**{**split, "shards": shards})
    files = [shard.file for split in splits.values() for shard in split.shards]
    if len(set(files)) != len(files):
        raise ValueError("a shard file is named twice")
    return Manifest(
        folder=folder,
        name=fields["name"],
        options=fields["options"],
        class_names=tuple(fields["labels"]["names"]),
        features=fields["features"],
        counts=fields["counts"],
        splits=splits,
        statistics=fields["statistics"],
        dataset_digest=fields["dataset_digest"],
        fields=fields,
    )


def _check_counts(*counts: Any) -> None:
    for count in counts:
        if type(count) is not int or not 0 <= count < 1 << 63:
            raise ValueError(f"not a count: {str(count)[:50]}")


def manifest_digest(fields: Mapping[str, Any]) -> str:
    return sha256_hex(canonical_json({name: value for name, value in fields.items() if name != "manifest_digest"}))


def dataset_digest(fields: Mapping[str, Any], records: Mapping[str, Iterable[str]]) -> str:
    """Over all that a training run can see of a dataset, and nothing that depends on its place or compression.

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
    return "".join(f"{label}\n" for label in labels).encode()


def balance(plan: Plan, infos: Iterable[ShardInfo], max_rejects: int | float) -> dict[str, list[ShardInfo]]:
    """Checks the books of what was committed against the plan.

    Returns:
        split -> its shards' books, in order; every split of the plan.

    Raises:
        RunError: a shard is missing or there twice with different content, or matched is not written + rejected: the
            runner lost or repeated elements.
        DataError: more rejects than allowed, a split or class without a record.
    """
    by_name: dict[str, ShardInfo] = {}
    for info in infos:
        if by_name.setdefault(info.shard.name, info) != info:
            raise RunError(f"shard {info.shard.name} was written twice, with different content: nothing is published")
    planned = plan.shards()
    if missing := [name for name in planned if name not in by_name]:
        raise RunError(
            f"{len(missing)} of {len(planned)} shards are missing at the end, the first is {missing[0]}: the runner "
            "lost them. Nothing is published; the same command goes on with what is there"
        )
    if extra := sorted(by_name.keys() - set(planned)):
        raise RunError(f"shard {extra[0]} is not in the plan: nothing is published")
    books: dict[str, list[ShardInfo]] = {
        split: [by_name[name] for name in planned if by_name[name].shard.split == split]
        for split in sorted(plan.splits)
    }
    for split, shards in books.items():
        written = sum(info.num_examples for info in shards)
        rejected = sum(sum(info.rejected.values()) for info in shards)
        if written + rejected != plan.splits[split].matched:
            raise RunError(
                f"split {split}: {plan.splits[split].matched} images were matched, but {written} written and "
                f"{rejected} rejected: the runner lost or repeated some. Nothing is published"
            )
    _check_rejects(plan, books, max_rejects)
    _check_nothing_empty(plan, books)
    return books


def _check_rejects(plan: Plan, books: Mapping[str, list[ShardInfo]], max_rejects: int | float) -> None:
    reasons = add_counts(info.rejected for shards in books.values() for info in shards)
    rejected = sum(reasons.values())
    allowed = max_rejects * plan.matched if isinstance(max_rejects, float) else max_rejects
    if rejected > allowed:
        led = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items(), key=lambda kv: (-kv[1], kv[0])))
        raise DataError(
            f"{rejected} of {plan.matched} images were rejected ({led}), --max_rejects {max_rejects} allows "
            f"{math.floor(allowed)}: nothing is published. Mend the images, or call again with a larger --max_rejects: "
            "finished shards are kept"
        )


def _check_nothing_empty(plan: Plan, books: Mapping[str, list[ShardInfo]]) -> None:
    for split, shards in books.items():
        if split == NO_SPLIT:
            continue
        if not any(info.num_examples for info in shards):
            raise DataError(f"split {split} would be empty: all its {plan.splits[split].matched} images were rejected")
        written = add_counts(info.class_counts for info in shards)
        for label_id, label in enumerate(plan.labels or ()):
            if plan.splits[split].class_counts.get(label) and not written.get(label_id):
                raise DataError(f"class {label} would be lost from split {split}: all its images were rejected")


def add_counts(counts: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    total: dict[Any, int] = {}
    for one in counts:
        for key, number in one.items():
            total[key] = total.get(key, 0) + number
    return dict(sorted(total.items()))


def statistics(infos: Iterable[ShardInfo]) -> dict[str, Any]:
    """Channel mean and standard deviation over all stored pixels before encoding (0 to 255), and source sizes."""
    infos = list(infos)
    pixels = sum(info.pixels for info in infos)
    sums = [sum(column) for column in zip(*(info.channel_sums for info in infos if info.pixels), strict=True)]
    squares = [sum(column) for column in zip(*(info.channel_squares for info in infos if info.pixels), strict=True)]
    # Integers up to the last division: the same figures on every machine and for every order of the shards.
    return {
        "pixels": pixels,
        "channel_mean": [round(s / pixels, 6) for s in sums],
        "channel_std": [
            round(math.sqrt((q * pixels - s * s) / (pixels * pixels)), 6) for s, q in zip(sums, squares, strict=True)
        ],
        "source_sizes": {str(size): n for size, n in add_counts(info.source_sizes for info in infos).items()},
    }


def build(plan: Plan, books: Mapping[str, list[ShardInfo]], *, rejects_sha256: str) -> dict[str, Any]:
    """The fields of manifest.json, from books that balance."""
    labels = plan.labels or []
    features = FEATURES | (LABEL_FEATURES if plan.labels is not None else {})
    reasons = add_counts(info.rejected for shards in books.values() for info in shards)
    splits = {}
    for name, shards in books.items():
        written = add_counts(info.class_counts for info in shards)
        splits[name] = {
            "matched": plan.splits[name].matched,
            "rejected": sum(sum(info.rejected.values()) for info in shards),
            "num_examples": sum(info.num_examples for info in shards),
            "num_bytes": sum(info.num_bytes for info in shards),
            "class_counts": {label: written.get(i, 0) for i, label in enumerate(labels)} if name != NO_SPLIT else {},
            "shards": [
                {
                    "file": info.file,
                    "num_examples": info.num_examples,
                    "num_bytes": info.num_bytes,
                    "sha256": info.sha256,
                }
                for info in shards
                if info.file
            ],
        }
    fields: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "name": plan.name,
        "tool_version": __version__,
        "options": plan.options,
        "options_digest": plan.options_digest,
        "input_digest": plan.input_digest,
        "labels": {"names": labels, "digest": sha256_hex(labels_text(labels))},
        "features": {name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in features.items()},
        "counts": {
            "matched": plan.matched,
            "written": sum(info.num_examples for shards in books.values() for info in shards),
            "rejected": reasons,
        },
        "rejects": {"count": sum(reasons.values()), "sha256": rejects_sha256},
        "splits": splits,
        "statistics": statistics(info for shards in books.values() for info in shards),
    }
    fields["dataset_digest"] = dataset_digest(
        fields, {name: [info.records_sha256 for info in shards if info.file] for name, shards in books.items()}
    )
    fields["manifest_digest"] = manifest_digest(fields)
    return fields


def to_bytes(fields: Mapping[str, Any]) -> bytes:
    return (json.dumps(fields, indent=1, sort_keys=True) + "\n").encode("ascii")


def publish(
    folder: str,
    plan: Plan,
    books: Mapping[str, list[ShardInfo]],
    read_rejects: Callable[[str], Iterator[bytes]],
) -> Manifest:
    """Writes labels.txt, rejects.jsonl and, last, manifest.json.

    Args:
        folder: the output.
        plan, books: from `balance`.
        read_rejects: shard name -> its reject lines, in order.

    Raises:
        RunError: another run has published a different dataset into the folder.
    """
    scratch = storage.join(folder, WORK_FOLDER)
    if plan.labels is not None:
        storage.write_bytes(storage.join(folder, LABELS_FILE), labels_text(plan.labels), scratch=scratch)
    digest = hashlib.sha256()
    with storage.create(storage.join(folder, REJECTS_FILE), scratch=scratch) as file:
        for shards in books.values():
            for info in shards:
                if info.rejected:
                    for line in read_rejects(info.shard.name):
                        digest.update(line)
                        file.write(line)
        file.commit()
    data = to_bytes(build(plan, books, rejects_sha256=digest.hexdigest()))
    try:
        storage.write_bytes(storage.join(folder, MANIFEST_FILE), data, scratch=scratch, replace=False)
    except storage.AlreadyExistsError:
        raise RunError(f"another run has published a different dataset into {folder} meanwhile") from None
    return parse(data, folder)
