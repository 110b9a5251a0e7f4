"""WriteManifest: the books of all shards are balanced, and become the files that make a folder a dataset."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from beam_tfr import __version__, storage
from beam_tfr.manifest import Manifest, dataset_digest, find, labels_text, manifest_digest, parse, to_bytes
from beam_tfr.schema import (
    FORMAT_VERSION,
    LABELS_FILE,
    MANIFEST_FILE,
    NO_SPLIT,
    REJECTS_FILE,
    DataError,
    Plan,
    RunError,
    ShardInfo,
    features_of,
    sha256_hex,
)


def balance(plan: Plan, infos: Iterable[ShardInfo]) -> dict[str, list[ShardInfo]]:
    """Checks that the books of what was committed are those of the plan, and that nothing is missing in them.

    Returns:
        split -> its shards' books, in order; every split of the plan.

    Raises:
        RunError: a shard is missing or there twice with different content, or matched is not written + rejected: the
            runner lost or repeated elements.
    """
    by_name: dict[str, ShardInfo] = {}
    plan_digest = plan.digest
    for info in infos:
        if info.shard.plan_digest != plan_digest:
            raise RunError(f"shard {info.shard.name} belongs to another plan: nothing is published")
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
        for info in shards:
            if info.num_examples + sum(info.rejected.values()) != info.shard.total:
                raise RunError(
                    f"shard {info.shard.name}: {info.shard.total} images were planned, but {info.num_examples} written "
                    f"and {sum(info.rejected.values())} rejected: the runner mixed some up. Nothing is published"
                )
    return books


def check_enough(plan: Plan, books: Mapping[str, list[ShardInfo]], max_rejects: int | float) -> None:
    """
    Args:
        plan, books: from `balance`.
        max_rejects: a share (float) or a number (int).

    Raises:
        DataError: more rejects than allowed, or a split or class without a record.
    """
    _check_rejects(plan, books, max_rejects)
    _check_nothing_empty(plan, books)


def _check_rejects(plan: Plan, books: Mapping[str, list[ShardInfo]], max_rejects: int | float) -> None:
    reasons = add_counts(info.rejected for shards in books.values() for info in shards)
    rejected = sum(reasons.values())
    # The share as it was written: 0.29 of 100 are 29, in floating point a little less.
    allowed = Fraction(str(max_rejects)) * plan.matched if isinstance(max_rejects, float) else max_rejects
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
            raise DataError(
                f"split {split} would be empty: all its {plan.splits[split].matched} images were rejected. Mend one, "
                "or leave them out of --input"
            )
        written = add_counts(info.class_counts for info in shards)
        for label_id, label in enumerate(plan.labels or ()):
            if plan.splits[split].class_counts.get(label) and not written.get(label_id):
                raise DataError(
                    f"class {label} would be lost from split {split}: all its {plan.splits[split].class_counts[label]} "
                    "images there were rejected. Mend one, or leave the class out of --input or --classes"
                )


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
    features = features_of(plan.options, labelled=plan.labels is not None)
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
            "adjusted": add_counts(info.adjusted for shards in books.values() for info in shards),
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


def find_published(folder: str, plan: Plan, books: Mapping[str, list[ShardInfo]]) -> Manifest | None:
    """The dataset of these books, if it is in the folder already: a step that a runner retries has an effect once.

    Raises:
        RunError: the folder holds a different dataset.
    """
    found = find(folder)
    if found is None:
        return None
    fields = build(plan, books, rejects_sha256=found.fields["rejects"]["sha256"])
    if found.fields["manifest_digest"] != fields["manifest_digest"]:
        raise RunError(f"another run has published a different dataset into {folder} meanwhile")
    return found


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
    scratch = storage.work_path(folder, "")
    if plan.labels is not None:
        storage.write_bytes(storage.join(folder, LABELS_FILE), labels_text(plan.labels), scratch=scratch)
    rejects_sha256 = write_rejects(storage.join(folder, REJECTS_FILE), books, read_rejects, scratch=scratch)
    data = to_bytes(build(plan, books, rejects_sha256=rejects_sha256))
    try:
        storage.write_bytes(storage.join(folder, MANIFEST_FILE), data, scratch=scratch, replace=False)
    except storage.AlreadyExistsError:
        raise RunError(f"another run has published a different dataset into {folder} meanwhile") from None
    return parse(data, folder)


def write_rejects(
    path: str, books: Mapping[str, list[ShardInfo]], read_rejects: Callable[[str], Iterator[bytes]], *, scratch: str
) -> str:
    """The rejects of all shards, in order, as one file; its SHA-256."""
    digest = hashlib.sha256()
    with storage.create(path, scratch=scratch) as file:
        for shards in books.values():
            for info in shards:
                if info.rejected:
                    for line in read_rejects(info.shard.name):
                        digest.update(line)
                        file.write(line)
        file.commit()
    return digest.hexdigest()
