"""Describes the dataset that a conversion made, and the counters of the run."""

import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.console.terminal import Printable, counted
from beam_tfr.copies.summary import describe_duplicates
from beam_tfr.dataset.base import BaseDataset, planned_shards
from beam_tfr.dataset.class_numbers import describe_class_numbers
from beam_tfr.dataset.history import CHANGE_KINDS, read_history
from beam_tfr.dataset.manifest import Manifest, Split, read_manifest
from beam_tfr.dataset.read_items import ReadItem
from beam_tfr.dataset.reject_lines import read_rejects
from beam_tfr.dataset.share_notes import describe_dataset_shares
from beam_tfr.dataset.split_notes import describe_classes, describe_unlabelled
from beam_tfr.dataset.tallies import format_count_table
from beam_tfr.dataset.unused_names import describe_unused_allowances, describe_unused_renames
from beam_tfr.features.box_counts import describe_boxes
from beam_tfr.features.mask_counts import describe_masks
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.patterns import describe_unused
from beam_tfr.inputs.skipped import PACKED_LABELS_CURE, list_kinds
from beam_tfr.launch.examples import read_items
from beam_tfr.launch.reuse import find_new_codecs
from beam_tfr.launch.source_hashes import describe_shared_sources
from beam_tfr.layouts.class_folders import describe_only_class
from beam_tfr.layouts.class_names import describe_class_names
from beam_tfr.output import rejects, sidecars
from beam_tfr.pipeline import Convert
from beam_tfr.schema import differences
from beam_tfr.schema.dataset import ADJUSTMENTS, NO_SPLIT, REJECTS_FILE, sort_splits
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, noun_of
from beam_tfr.schema.errors import BeamTfrError, DataError, RunError, UsageError
from beam_tfr.schema.items import Reject
from beam_tfr.schema.palettes import describe_palettes
from beam_tfr.schema.renames import find_renamed, parse_renames
from beam_tfr.schema.spelling import quote_word
from beam_tfr.tables.repeats import REPEATED_NOTE
from beam_tfr.transforms.counting import SKIPPED_KIND

MAX_REJECTS = 100  # in a result
_COUNTERS = {  # name in `Result.run` -> counter
    "skipped": "skipped",
    "missed": "missed",
    "archives": "archives",
    "packed_archives": "packed-archives",
    "raw_photos": "raw-photos",
    "repeated_folders": "repeated-folders",
    "guessed_names": "guessed-names",
    "packed_labels": "packed-labels",
    "repeated_rows": "repeated-rows",
    "nested": "nested",
    "last_folders": "last-folders",
    "ignored_split": "ignored-split",
    "split_folders": "split-folders",
    "empty_folders": "empty-folders",
    "mask_names": "mask-names",
    "mask_folders": "mask-folders",
    "pair_folders": "pair-folders",
    "resumed": "resumed-images",
    "left_out": "left-out",
    "moved": "moved-images",
    "followed": "followed-images",
    "unhashed": "unhashed-images",
    "crowded": "crowded-images",
    "rewritten_shards": "rewritten-shards",
}
_COUNTED = ("archive", "file", "folder", "image", "link", "shard")  # nouns in _NOTES
_NOTES = {  # name in `Result.run` -> note if the number is not 0
    "rewritten_shards": "the input has changed since an earlier run: {shards} written again",
    "unhashed": (
        "the contents lack the perceptual hashes of {images}, so only their copies with equal "
        "bytes are found; delete the folder named contents, rebuild it with `beam-tfr repair` and "
        "the input, and run the same command again"
    ),
    "crowded": (
        "{images} look like thousands of others: not all pairs were compared, so some near copies "
        "may be missed"
    ),
    "left_out": "{images} kept out by earlier removals (removed.txt)",
    "nested": (
        "{images} in deeper folders than those of other classes: their class is the inner "
        "folder; `beam-tfr plan` names the layout that uses the outer folder"
    ),
    "last_folders": (
        "the folders used as classes have the same names in several other folders, or hold all "
        "images: `beam-tfr plan` names the layout that uses other folders, or none"
    ),
    "ignored_split": (
        "some images are in folders named like a split, which the layout does not use as a "
        "split: see `beam-tfr plan`"
    ),
    "split_folders": (
        "folders named like splits hold {images}, but all rows go to train: add a column with the "
        "split of each row and name it in `split_column=`, or let `splits=` divide the rows"
    ),
    "empty_folders": (
        "{folders} without images next to folders with images: `beam-tfr plan` names them"
    ),
    "mask_names": (
        "{files} named like masks of other files, but converted as images; `pair=` puts each mask "
        "into the record of its image, see `beam-tfr plan`"
    ),
    "mask_folders": (
        "some folders look like images and their masks: `pair=` puts a mask into the record of its "
        "image, see `beam-tfr plan`"
    ),
    "pair_folders": (
        "some folders look like pairs of photos, which become separate records: see `beam-tfr plan`"
    ),
    "repeated_rows": REPEATED_NOTE,
    "missed": "{images} next to the matched ones skipped: `input=DIR` converts all images",
    "archives": "{archives} (.zip, .tar) skipped: add them to `input=`",
    "packed_archives": (
        "{archives} skipped, which must be unpacked first: compressed as a whole (.rar, .7z, "
        ".tar.gz), split, or within others; `beam-tfr plan` shows which kinds"
    ),
    "raw_photos": (
        "raw camera photos ({number:,}) skipped, which must be developed first: `beam-tfr plan` "
        "shows which kinds"
    ),
    "repeated_folders": (
        "{links} skipped, because other paths list their folders: each folder is listed once"
    ),
    "packed_labels": (
        f"files in archives that may hold labels or splits ({{number:,}}) skipped: "
        f"{PACKED_LABELS_CURE}"
    ),
    "guessed_names": (
        "{images} in zips have names that are not UTF-8, and are read in code page 437: see "
        "`beam-tfr plan` if classes look wrong"
    ),
}
_COMPLETE = (
    "This folder already holds this complete dataset; nothing was written.",
    "Its files were compared by name and size; beam-tfr verify reads all their bytes.",
)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Result(Printable):
    """A complete dataset.

    Attributes:
        manifest: manifest of the dataset.
        seconds: wall time in seconds.
        fresh: False if the dataset was already complete.
        run: counters of this run; a missing counter is 0.

            Work: `resumed`, images that an earlier run had finished; `rewritten_shards`, finished
            shards that this run wrote again because the input has changed.

            Input: `skipped`, files without an image extension, among them `archives`,
            `packed_archives` (which must be unpacked) and `raw_photos` of cameras; `missed`, images
            that the patterns miss; `repeated_folders`, links to folders that other paths list;
            `empty_folders`, folders without images; `guessed_names`, images in zips whose names
            were read in code page 437; `packed_labels`, files in archives that may hold labels;
            `repeated_rows`, keys that several rows of tables have.

            Images whose folders suggest a different layout: `nested`, in deeper folders than other
            classes; `last_folders`, whose folders are unlikely to be classes; `ignored_split` and
            `split_folders` (of tables), in folders named like splits; `mask_names` and
            `mask_folders`, masks that are converted as images; `pair_folders`, in folders of pairs.

            Copies and updates: `left_out`, images that removed.txt keeps out; `moved`, images in a
            different split than before, or copies of such images; `followed`, images put into the
            split of a copy that they replace; `unhashed`, images compared only by their bytes;
            `crowded`, images some of whose near copies may be missed.
        skipped_kinds: kind of name, such as ".txt" -> number of skipped files, for the most common
            kinds.
        new_ids: how the label ids differ from those of the replaced dataset; empty if none differ.
        lost_splits: a sentence about splits that only the replaced dataset has; empty if there are
            none.
        renamed: class of the replaced dataset -> its new name; its id stays the same.
        changed: for an update, the number of records that were "added", "removed", "changed",
            "relabelled" and "renamed".
        new_codecs: codecs that are installed now, but were missing when a complete dataset was
            made, so that some of its images were rejected.
        unused: sentences about options that changed nothing.
        class_numbers: a sentence about classes whose names are numbers, but not their ids; may be
            empty.
        odd_names: sentences about class names that hold more than the class.
        examples: the first item of each of the first three splits, as it was read.
        copies_that_stay: keys of images that `remove` left in place, although they are copies of
            images that it took down.
    """

    manifest: Manifest
    seconds: float
    fresh: bool
    run: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    skipped_kinds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    new_ids: str = ""
    lost_splits: str = ""
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    changed: Mapping[str, int] = dataclasses.field(default_factory=dict)
    new_codecs: Sequence[str] = ()
    unused: Sequence[str] = ()
    class_numbers: str = ""
    odd_names: Sequence[str] = ()
    examples: Sequence[ReadItem] = ()
    copies_that_stay: Sequence[str] = ()

    @property
    def folder(self) -> str:
        """The folder of the dataset, local or gs://."""
        return self.manifest.folder

    @property
    def digest(self) -> str:
        """The digest, 64 hex digits: equal for equal datasets, wherever they were made."""
        return self.manifest.dataset_digest

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, indexed by label; empty without labels."""
        return self.manifest.class_names

    @property
    def counts(self) -> Mapping[str, Any]:
        """The counts of images, by name.

        Names are `matched`, `written`, `rejected` (reason -> number), `adjusted` (kind -> number).
        """
        return self.manifest.counts

    @property
    def splits(self) -> Mapping[str, Split]:
        """The splits, by name, in their usual order.

        A split has `matched`, `rejected`, `num_examples`, `num_bytes`, `class_counts` and `shards`.
        """
        return {name: self.manifest.splits[name] for name in sort_splits(self.manifest.splits)}

    @functools.cached_property
    def rejects(self) -> tuple[Reject, ...]:
        """The first `MAX_REJECTS` rejects: key, stage, reason, detail.

        The file rejects.jsonl in the folder lists all of them.
        """
        listed = read_rejects(storage.join(self.folder, REJECTS_FILE))
        return tuple(itertools.islice(listed, MAX_REJECTS))

    @functools.cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences about splits and masks.

        The sentences describe images with the same bytes in several splits, classes that a split
        lacks, and conflicting palettes of masks.
        """
        dataset = self.manifest
        encoding = dataset.options["encoding"]
        return (
            *describe_shared_sources(dataset),
            *describe_duplicates(dataset),
            *describe_classes(dataset.splits, dataset.class_names, encoding),
            *describe_dataset_shares(dataset),
            *describe_unlabelled(dataset),
            *filter(None, [_describe_palettes(dataset)]),
        )

    @property
    def images_per_second(self) -> float:
        """The speed of this run, not counting images that an earlier run had finished."""
        if not self.fresh:
            return 0.0
        converted: int = self.counts["matched"] - self.run["resumed"]
        return converted / max(self.seconds, 1e-3)

    def as_json(self) -> dict[str, Any]:
        """Returns the summary as JSON values."""
        dataset = self.manifest
        splits = {name: dict(split) for name, split in dataset.fields["splits"].items()}
        for split in splits.values():
            split["num_shards"] = len(split.pop("shards"))
        return {
            "output": dataset.folder,
            "name": dataset.name,
            "complete_already": not self.fresh,
            **dataset.counts,
            "splits": splits,
            "cropped": dataset.statistics.get("cropped"),
            "boxes": dataset.statistics.get("boxes"),
            "masks": dataset.statistics.get("masks"),
            "duplicates": dataset.duplicates,
            "columns": dataset.options.get("feature_columns", {}),
            "examples": [item.as_json() for item in self.examples],
            **{name: self.run[name] for name in _COUNTERS},
            "skipped_kinds": dict(self.skipped_kinds),
            "new_ids": self.new_ids,
            "renamed": dict(self.renamed),
            "dataset_digest": dataset.dataset_digest,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.images_per_second, 1),
            "changed": dict(self.changed),
            "notes": [
                *self.notes,
                *filter(None, [self.class_numbers, self.lost_splits]),
                *self.odd_names,
                *self.unused,
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yields a table of splits and classes, and then the other facts."""
        if not self.fresh:
            yield from _COMPLETE
        yield from format_count_table(self.manifest.splits, self.manifest.class_names)
        yield from self._describe_counts()
        yield from self._describe_records()
        yield from self._describe_input()
        yield f"dataset: {self.folder}   digest {self.digest[:16]}"
        if self.fresh:
            yield from self._describe_run()
        yield from self._describe_use()
        if self.changed:
            changes = [f"{number:,} {kind}" for kind, number in self.changed.items() if number]
            if self.run["moved"]:
                changes.append(f"{self.run['moved']:,} moved to another split")
            if self.run["followed"]:
                changes.append(f"{self.run['followed']:,} put into the split of a copy")
            text = ", ".join(changes) or "no image changed, only other parts of the dataset"
            yield f"update:  {text}"

    def _describe_counts(self) -> Iterator[str]:
        """Yields the numbers of images written, rejected and skipped."""
        counts = self.counts
        limit = self.manifest.options.get("limit")
        if limit:
            yield f"limit:   a trial run of the first {limit:,} in the order of `seed=`"
        matched = counts["matched"]
        written = counts["written"]
        rejected = sum(counts["rejected"].values())
        yield f"balance: {matched:,} matched = {written:,} written + {rejected:,} rejected"
        skipped = self.run["skipped"]
        if skipped:
            kinds = list_kinds(self.skipped_kinds)
            yield f"skipped: {skipped:,} without an image extension ({kinds})"
        path = storage.join(self.folder, REJECTS_FILE)
        yield from rejects.describe_rejects(path, counts["rejected"])
        if self.new_codecs:
            yield (
                f"  {', '.join(self.new_codecs)} was not installed when this dataset was made, "
                "but is now: `beam-tfr update` with the same input tries its rejects again"
            )

    def _describe_records(self) -> Iterator[str]:
        """Yields notable facts about the records."""
        dataset = self.manifest
        for item in self.examples:
            yield f"example: {item.describe()}"
        for kind, number in self.counts["adjusted"].items():
            yield f"adjusted: {number:,} {kind} ({ADJUSTMENTS[kind]})"
        cropped = dataset.statistics.get("cropped")
        if cropped is not None:
            yield f"cropped: {cropped:.0%} of an image on average; `resize=pad` keeps all of it"
        boxes = dataset.statistics.get("boxes")
        if boxes:
            yield f"boxes:   {describe_boxes(boxes)}"
        masks = dataset.statistics.get("masks")
        if masks:
            for sentence in describe_masks(masks):
                yield f"masks:   {sentence}"
        for name, kind in dataset.options.get("feature_columns", {}).items():
            yield f"column:  {name} {kind}"
        for note in self.notes:
            yield f"note:    {note}"

    def describe_new_ids(self) -> str:
        """Returns how label ids differ from those in the replaced dataset, or "" if none differ."""
        if not self.new_ids:
            return ""
        note = f"class ids have changed since the replaced dataset: {self.new_ids}"
        return f"{note}; models trained on it use the old ids" if "->" in self.new_ids else note

    def _describe_input(self) -> Iterator[str]:
        """Yields notes about the input and its changes since earlier runs."""
        if self.renamed:
            names = [f"{old} -> {new}" for old, new in self.renamed.items()]
            text = differences.join_texts(names, differences.MOST_SHOWN, ", ")
            yield f"note:    renamed classes: {text}; their ids stay the same"
        if self.new_ids:
            yield f"note:    {self.describe_new_ids()}"
        only_class = describe_only_class(self.class_names, self.manifest.options.get("layout", ""))
        notes = [self.lost_splits, self.class_numbers, only_class, *self.odd_names]
        for note in filter(None, notes):
            yield f"note:    {note}"
        for name, note in _NOTES.items():
            number = self.run[name]
            if number:
                counts = {f"{noun}s": counted(number, noun) for noun in _COUNTED}
                yield f"note:    {note.format(number=number, **counts)}"
        for note in self.unused:
            yield f"note:    {note}"

    def _describe_run(self) -> Iterator[str]:
        """Yields the work and the speed of this run."""
        noun = noun_of(self.manifest.options["encoding"])
        resumed = self.run["resumed"]
        if resumed:
            part = f"{resumed:,} of {self.counts['matched']:,} {noun}"
            if self.changed:
                yield f"kept:    {part} are in shards that did not change"
            else:
                yield f"resumed: {part} were finished by an earlier run"
        yield f"time:    {self.seconds:.1f} s, {self.images_per_second:,.0f} {noun}/s"

    def _describe_use(self) -> Iterator[str]:
        """Yields how to open the dataset, and what to do next."""
        splits = [name for name in self.splits if name != NO_SPLIT]
        split = splits[0] if splits else "train"
        call = f"load({self.folder!r}, split={split!r}{self._describe_arguments()})"
        yield f"load:    from beam_tfr.reader import load; {split} = {call}"
        folder = quote_word(self.folder, "DIR")
        yield f"look:    beam-tfr report {folder}"
        yield f"next:    beam-tfr verify {folder}"

    def _describe_arguments(self) -> str:
        """Returns the other arguments that `load` needs for this dataset."""
        features = self.manifest.feature_kinds
        if features.boxes and self.manifest.options["encoding"] in IMAGE_ENCODINGS:
            return ", boxes='xyxy'"
        if features.companions or self.manifest.options["encoding"] not in IMAGE_ENCODINGS:
            return ", output='dict'"
        return ""


def _describe_palettes(dataset: Manifest) -> str:
    """Returns a sentence about conflicting palettes of masks, or "" if there are none."""
    if not any(companion.marks_places for companion in dataset.feature_kinds.companions):
        return ""
    shards = [shard.name for shard in planned_shards(dataset)]
    return describe_palettes(sidecars.read_palettes(dataset.folder, shards))


def read_replaced(output: str) -> Mapping[str, Any] | None:
    """Reads the manifest in an output before a run, if there is one."""
    with contextlib.suppress(BeamTfrError):
        return read_manifest(output).fields
    return None


def read_result(
    step: Convert, replaced: Mapping[str, Any] | None, counters: Mapping[str, int], seconds: float
) -> Result:
    """Reads the result of a run that has ended.

    Args:
        step: step of the run.
        replaced: manifest that was in the output before the run, if there was one.
        counters: final counters of this package.
        seconds: wall time in seconds.

    Raises:
        RunError: there is no dataset, although the engine reports success.
    """
    options = step.options
    try:
        published = read_manifest(options.output)
    except (UsageError, DataError) as error:
        raise RunError(f"the runner reports success, but it lost elements: {error}") from error
    differs = published.fields != replaced
    is_update = step.update is not None
    fresh = differs or (options.overwrite and not is_update)
    changed: Mapping[str, int] = {}
    if is_update and differs:
        changed = _read_changes(options.output)
    new_ids = ""
    lost_splits = ""
    renamed = dict[str, str]()
    if replaced:
        images = {name: split["num_examples"] for name, split in replaced["splits"].items()}
        lost_splits = differences.describe_lost_splits(images, published.splits)
        names_before = replaced["labels"]["names"]
        renamed = find_renamed(
            parse_renames(replaced["options"].get("rename", ())),
            parse_renames(published.options.get("rename", ())),
            names_before,
        )
        class_names = [renamed.get(name, name) for name in names_before]
        new_ids = differences.describe_id_changes(class_names, published.class_names)
    counts = {name: counters.get(counter, 0) for name, counter in _COUNTERS.items()}
    return Result(
        manifest=published,
        seconds=seconds,
        fresh=fresh,
        run=collections.Counter(counts),
        skipped_kinds=_count_skipped_kinds(counters),
        new_ids=new_ids,
        lost_splits=lost_splits,
        renamed=renamed,
        changed=changed,
        new_codecs=() if fresh else find_new_codecs(published),
        examples=read_items(published, step.source),
        unused=_describe_unused_options(step, published, counters),
        odd_names=[
            *describe_class_names(
                published.class_names, published.splits, published.options.get("layout", "")
            )
        ],
        class_numbers=describe_class_numbers(
            published.class_names, are_given=step.source.plan.gives_classes
        ),
    )


def _count_skipped_kinds(counters: Mapping[str, int]) -> dict[str, int]:
    """Returns kind of name -> number of skipped files, from the counters of a run."""
    return {
        name.removeprefix(SKIPPED_KIND): number
        for name, number in counters.items()
        if name.startswith(SKIPPED_KIND)
    }


def _describe_unused_options(
    step: Convert, published: Manifest, counters: Mapping[str, int]
) -> list[str]:
    """Describes options that changed nothing, based on the dataset and a run's counters."""
    if isinstance(step.source.origin, BaseDataset):
        return []
    classes = published.class_names
    splits = published.splits
    return [
        *_describe_unused_renames(step, counters, classes),
        *describe_unused_allowances(step.options.allow_empty, splits, classes),
        *_describe_unused_exclusions(step, counters),
    ]


def _describe_unused_renames(
    step: Convert, counters: Mapping[str, int], classes: Sequence[str]
) -> Iterator[str]:
    """Describes renames of classes that do not exist, based on a run's counters."""
    renames = step.source.renames
    used = {old for number, old in enumerate(renames, start=1) if counters.get(f"renamed-{number}")}
    return describe_unused_renames(renames, used.union(step.source.plan.allowed_classes), classes)


def _describe_unused_exclusions(step: Convert, counters: Mapping[str, int]) -> list[str]:
    """Describes patterns in `exclude` that match nothing, based on a run's counters."""
    if not isinstance(step.source.origin, Labeler):
        return []
    exclude = step.options.exclude
    numbers = range(1, len(exclude) + 1)
    used = {number for number in numbers if counters.get(f"excluded-{number}")}
    return describe_unused(exclude, used, step.source.root)


def _read_changes(output: str) -> Mapping[str, int]:
    """Reads how many records the last update of a dataset changed, by kind."""
    updates = read_history(output)
    if not updates:
        return {}
    return {kind: number for kind, number in updates[-1].items() if kind in CHANGE_KINDS}
