"""WriteManifest: adds up all shards and publishes the dataset."""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.console.terminal import counted
from beam_tfr.dataset.history import Update, add_update
from beam_tfr.dataset.manifest import (
    Manifest,
    dataset_digest,
    labels_text,
    manifest_bytes,
    manifest_digest,
    parse_manifest,
    read_manifest,
)
from beam_tfr.dataset.metadata import metadata_files
from beam_tfr.dataset.metadata.card import is_own_card
from beam_tfr.output import claim, rejects, switch
from beam_tfr.output.claim import Claim
from beam_tfr.output.lock import TAKEN_OVER
from beam_tfr.output.sidecars import locate_file, unique_name
from beam_tfr.output.switch import BuiltFile, Switch, is_of_dataset, list_dataset, name_in_dataset
from beam_tfr.records import box_counts
from beam_tfr.schema import dataset as names
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.schema.features import features_of, has_boxes
from beam_tfr.schema.naming import contents_name
from beam_tfr.schema.plan import MOST_CAUSES, Counts, Plan, ShardInfo, Unfinished, WrittenFile
from beam_tfr.storage import Entry
from beam_tfr.version import __version__

_UNPUBLISHED = "Nothing is published"


class CommittedShard(NamedTuple):
    """What the manifest needs of a single shard, a few hundred bytes; the last three identify one
    of equal files."""

    file: str
    num_examples: int
    num_bytes: int
    sha256: str
    records_sha256: str
    rejects_sha256: str
    num_rejected: int
    built: str
    generation: int
    contents: WrittenFile | None


@dataclasses.dataclass(slots=True)
class SplitTotals:
    """The sums over the shards of a split, and its shards by name."""

    counts: Counts = dataclasses.field(default_factory=Counts)
    shards: dict[str, CommittedShard] = dataclasses.field(default_factory=dict)

    def add(self, info: ShardInfo) -> None:
        """Adds a shard, unless it was added before.

        Raises:
            RunError: the shard was added before with different content.
        """
        entry = CommittedShard(*(getattr(info, name) for name in CommittedShard._fields))
        if (before := self.shards.setdefault(info.shard.name, entry)) is entry:
            self.counts.add(info)
        elif before[:-3] != entry[:-3]:
            raise RunError(
                f"shard {info.shard.name} was written twice, with different content. {_UNPUBLISHED}"
            )


def add_up_shards(plan: Plan, infos: Iterable[ShardInfo | Unfinished]) -> dict[str, SplitTotals]:
    """Adds up the shards of each split, and checks that nothing is missing.

    Args:
        plan: the plan of the run.
        infos: results of its shards, in any order; a shard may be first `Unfinished` and then
            finished.

    Returns:
        split -> totals, with the shards in order, for every split of the plan.

    Raises:
        RunError: shards are unfinished, because images cannot be read now; or the runner lost or
            repeated elements: a shard is missing or was written twice with different content, or
            matched is not written + rejected.
    """
    totals = {split: SplitTotals() for split in sorted(plan.splits)}
    planned = dict.fromkeys(plan.shards())  # an ordered set
    plan_digest = plan.digest
    given_up: dict[str, Unfinished] = {}
    for info in infos:  # not kept: with a thousand classes each has tens of kilobytes
        shard = info.shard
        if shard.plan_digest != plan_digest or shard.name not in planned:
            raise RunError(f"shard {shard.name} is not in the plan. {_UNPUBLISHED}")
        if isinstance(info, Unfinished):
            given_up[shard.name] = info
        else:
            totals[shard.split].add(info)
    finished = {name for split_totals in totals.values() for name in split_totals.shards}
    unfinished = [given_up[name] for name in planned if name in given_up.keys() - finished]
    if unfinished:
        problem = describe_unfinished(unfinished, f"of {plan.matched:,} {plan.noun}", len(planned))
        cure = "Run the same command again: it reads just those shards"
        raise RunError(
            f"{problem}. {_UNPUBLISHED}. {cure}. `accept_unreadable=` rejects what cannot be read"
        )
    missing = [name for name in planned if name not in finished]
    if missing:
        problem = (
            f"{len(missing)} of {len(planned)} shards are missing at the end, such as {missing[0]}"
        )
        cure = "the same command resumes from the finished shards"
        raise RunError(f"{problem}: the runner lost them. {_UNPUBLISHED}; {cure}")
    for split, split_totals in totals.items():
        split_totals.shards = {
            name: split_totals.shards[name] for name in planned if name in split_totals.shards
        }
        if (
            split_totals.counts.num_examples + split_totals.counts.num_rejected
            != plan.splits[split].matched
        ):
            problem = f"split {split}: {plan.splits[split].matched} {plan.noun} were matched"
            done = f"{split_totals.counts.num_examples} written and {split_totals.counts.num_rejected} rejected"
            raise RunError(
                f"{problem}, but {done}: the runner lost or repeated some. {_UNPUBLISHED}"
            )
    return totals


def describe_unfinished(unfinished: Sequence[Unfinished], what: str, num_shards: int) -> str:
    """Says which shards are unfinished, and why; `what` is "of 18 images"."""
    causes: collections.Counter[str] = collections.Counter()
    for shard in unfinished:
        causes.update(shard.causes)
    led = "; ".join(f"{n:,}: {cause}" for cause, n in causes.most_common(MOST_CAUSES))
    images = f"{sum(shard.images for shard in unfinished):,} {what}"
    shards = f"{len(unfinished):,} of {counted(num_shards, 'shard')}"
    return f"{images} cannot be read, such as {unfinished[0].example} ({led}). That leaves {shards} unfinished"


def check_repaired(
    plan: Plan, infos: Iterable[ShardInfo | Unfinished], *, folder: str
) -> Iterator[None]:
    """Checks the repaired shards of a dataset; raises an error at the end, after all that can be
    repaired are.

    Args:
        plan: the plan that its shards have.
        infos: results of its broken shards.
        folder: folder of the dataset.

    Raises:
        DataError: some would get other bytes than before.
        RunError: some are unfinished.
    """
    found = {info.shard.name: info for info in infos}  # only of the shards that are repaired
    unfinished = [info for info in found.values() if isinstance(info, Unfinished)]
    differing = sorted(info.shard.name for info in unfinished if info.differs)
    if differing:
        codecs = ", ".join(f"{name} {version}" for name, version in sorted(plan.codecs.items()))
        dataset = read_manifest(folder)
        tools = f"beam_tfr {dataset.fields['tool_version']} made the dataset, this is beam_tfr {__version__}"
        beside = ", but compares no masks or pairs" if dataset.names.companions else ""
        raise DataError(
            f"{counted(len(differing), 'broken shard')}, such as {differing[0]}, would get different bytes than "
            f"before: {plan.noun} have changed, or libraries ({tools}, {codecs}). `beam-tfr verify` with `sources=` "
            f"tells which {plan.noun} changed{beside}: put them back, or use `beam-tfr update`, which takes "
            "what is there now"
        )
    if unfinished:
        raise RunError(
            f"{describe_unfinished(unfinished, plan.noun, len(found))}. Run the same command again"
        )
    yield None


def reject_digests(totals: Mapping[str, SplitTotals]) -> dict[str, str]:
    """Names of the shards that have rejects -> the SHA-256 of their lines."""
    shards = [shard for split in totals.values() for shard in split.shards.items()]
    return {name: entry.rejects_sha256 for name, entry in shards if entry.num_rejected}


def compute_statistics(counts: Counts, options: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and standard deviation of stored pixels before encoding, source sizes, the share cut off
    by crops, boxes."""
    pixels = counts.pixels
    pairs = zip(counts.channel_sums, counts.channel_squares, strict=True)
    # Integers up to the last division: the same figures on every machine and for every order of the
    # shards.
    found: dict[str, Any] = {
        "pixels": pixels,
        "channel_mean": [round(s / pixels, 6) for s in counts.channel_sums],
        "channel_std": [
            round(math.sqrt((q * pixels - s * s) / (pixels * pixels)), 6) for s, q in pairs
        ],
        "source_sizes": {str(size): n for size, n in sorted(counts.source_sizes.items())},
    }
    if options.get("resize") == "crop":
        found["cropped"] = round(counts.cut_ppm / 1e6 / max(counts.num_examples, 1), 4)
    if has_boxes(options):
        found["boxes"] = box_counts.statistics(counts)
    return found


def build_manifest(
    plan: Plan, totals: Mapping[str, SplitTotals], *, rejects_sha256: str
) -> dict[str, Any]:
    """The content of manifest.json."""
    labels = plan.labels or []
    features = features_of(plan.options, labelled=plan.labels is not None)
    total = rejects.add_up_counts(split.counts for split in totals.values())
    fields: dict[str, Any] = {
        "format_version": names.FORMAT_VERSION,
        "name": plan.name,
        "tool_version": __version__,
        "options": plan.options,
        "options_digest": names.json_digest(plan.options),
        "input_digest": plan.input_digest,
        "labels": {"names": labels, "digest": names.sha256_hex(labels_text(labels))},
        "features": {
            name: {"dtype": dtype, "shape": list(shape)}
            for name, (dtype, shape) in features.items()
        },
        "counts": {
            "matched": plan.matched,
            "written": total.num_examples,
            "rejected": dict(sorted(total.rejected.items())),
            "adjusted": dict(sorted(total.adjusted.items())),
        },
        "rejects": {"count": total.num_rejected, "sha256": rejects_sha256},
        "splits": {
            split: {
                "matched": plan.splits[split].matched,
                "rejected": split_totals.counts.num_rejected,
                "num_examples": split_totals.counts.num_examples,
                "num_bytes": split_totals.counts.num_bytes,
                "class_counts": {
                    label: split_totals.counts.class_counts.get(label_id, 0)
                    for label_id, label in enumerate(labels if split != names.NO_SPLIT else ())
                },
                "shards": [
                    {
                        name: getattr(entry, name)
                        for name in ("file", "num_examples", "num_bytes", "sha256")
                    }
                    for entry in split_totals.shards.values()
                    if entry.file
                ],
            }
            for split, split_totals in totals.items()
        },
        "statistics": compute_statistics(total, plan.options),
    }
    records = {
        name: [entry.records_sha256 for entry in split.shards.values() if entry.file]
        for name, split in totals.items()
    }
    fields["dataset_digest"] = dataset_digest(fields, records)
    fields["manifest_digest"] = manifest_digest(fields)
    return fields


def find_published(
    folder: str, plan: Plan, totals: Mapping[str, SplitTotals], claimed: Claim | None
) -> Manifest | None:
    """The dataset of these totals, if an earlier attempt of this step has published it.

    Args:
        folder: the output.
        plan: the plan of the run.
        totals: from `add_up_shards`.
        claimed: the claim of the run, if it still has one.

    Raises:
        RunError: the folder holds a different dataset.
    """
    current = storage.find(storage.join(folder, names.MANIFEST_FILE))
    if current is None or (claimed and current.generation == claimed.replaces):
        return None
    found = read_manifest(folder)
    fields = build_manifest(plan, totals, rejects_sha256=found.fields["rejects"]["sha256"])
    if found.fields["manifest_digest"] != fields["manifest_digest"]:
        raise RunError(
            f"another run published a different dataset into {folder} while this one ran"
        )
    return found


def publish_dataset(
    folder: str,
    plan: Plan,
    totals: Mapping[str, SplitTotals],
    claimed: Claim | None,
    *,
    check_lock: Callable[[], None] = lambda: None,
    update: Update | None = None,
) -> Manifest:
    """Publishes the dataset: checks the files of all shards, writes the others, and makes the
    switch.

    Args:
        folder: the output, with the sidecars of its shards.
        plan: the plan of the run.
        totals: from `add_up_shards`.
        claimed: the claim of the run.
        check_lock: raises an error if this run has lost the folder.
        update: how the dataset in the folder is updated. If nothing changed, it stays as it is.

    Raises:
        RunError: another run has published or taken over, or a file is not the one that this run
            wrote.
    """
    if claimed is None:
        raise RunError(TAKEN_OVER.format(folder))
    work_folder = storage.work_path(folder, "")
    shards = [entry for split in totals.values() for entry in split.shards.values() if entry.file]
    files = [
        BuiltFile(entry.file, entry.built, entry.num_bytes, entry.generation) for entry in shards
    ]
    contents = [(contents_name(entry.file), entry.contents) for entry in shards if entry.contents]
    files += [
        BuiltFile(name, file.built, file.num_bytes, file.generation) for name, file in contents
    ]
    existing = list_dataset(folder)
    _vouch(folder, files, [*existing, *storage.list_files(work_folder)])

    paths: dict[str, str] = {}

    def path_of(name: str) -> str:
        return paths.setdefault(
            name, storage.join(work_folder, unique_name(name.rpartition("/")[2]))
        )

    def add(name: str, data: bytes) -> None:
        storage.write_bytes(path_of(name), data, scratch=work_folder)

    rejects_sha256 = rejects.write_rejects(
        path_of(names.REJECTS_FILE), folder, reject_digests(totals)
    )
    if plan.labels is not None:
        add(names.LABELS_FILE, labels_text(plan.labels))
    fields = build_manifest(plan, totals, rejects_sha256=rejects_sha256)
    data = manifest_bytes(fields)
    for name, text in (metadata := build_metadata(parse_manifest(data, folder))).items():
        add(name, text)
    add(
        names.SUMS_FILE,
        format_checksums(((name, file.sha256) for name, file in contents), metadata),
    )
    if update and (before := read_manifest(folder)):
        if before.fields == fields and not any(file.built for file in files):
            storage.delete(
                storage.work_path(folder, claim.PLAN_FILE)
            )  # so that `claim.remove_work_folder` removes the rest
            return before
        counts = rejects.add_up_counts(split.counts for split in totals.values())
        add(names.HISTORY_FILE, add_update(before, fields, counts, update))
    add(names.MANIFEST_FILE, data)  # the last to be moved
    for name, path in paths.items():
        if (found := storage.find(path)) is None:
            raise RunError(f"{path} was removed by another program; run the same command again")
        files.append(BuiltFile(name, path.rpartition("/")[2], found.size_bytes, found.generation))
    old = [(name_in_dataset(folder, entry), entry.generation) for entry in existing]
    prefix = "" if claimed.overwrite else plan.name
    of_dataset = [entry for entry in old if entry[0] in metadata or is_of_dataset(entry[0], prefix)]
    decided = Switch(replaces=claimed.replaces, old=of_dataset, files=files)
    switch.make_switch(folder, decided, check_lock=check_lock)
    return parse_manifest(data, folder)


def build_metadata(dataset: Manifest) -> dict[str, bytes]:
    """Name -> content of the files for other programs, without a README.md that is somebody's
    own."""
    files = metadata_files(dataset)
    card = storage.read_existing(storage.join(dataset.folder, names.CARD_FILE))
    if card is not None and not is_own_card(card):
        del files[names.CARD_FILE]
    return files


def format_checksums(contents: Iterable[tuple[str, str]], metadata: Mapping[str, bytes]) -> bytes:
    """Content of SHA256SUMS, given the names of contents with their SHA-256, and `build_metadata`."""
    sums = [(name.rpartition("/")[2], sha256) for name, sha256 in contents]
    sums += [(f"../{name}", names.sha256_hex(data)) for name, data in metadata.items()]
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sums).encode()


def _vouch(folder: str, files: Iterable[BuiltFile], found: Iterable[Entry]) -> None:
    """Checks that the files of all shards are the ones that were written, by size and generation.

    Raises:
        RunError: a file is different.
    """
    states = {entry.path: (entry.size_bytes, entry.generation) for entry in found}
    paths = {locate_file(folder, file.name, file.built): file for file in files}
    wrong = [
        file.name
        for path, file in paths.items()
        if states.get(path) != (file.num_bytes, file.generation)
    ]
    if wrong:
        problem = (
            f"{counted(len(wrong), 'finished shard')} missing or not as written, such as {wrong[0]}"
        )
        reason = f"another run or program changes files in {storage.work_path(folder, '')}"
        raise RunError(
            f"{problem}: {reason}. {_UNPUBLISHED}; the same command writes such shards again"
        )
