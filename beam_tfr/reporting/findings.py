"""What of a dataset deserves a look: sentences, each with the section that shows it."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.console.terminal import counted, printable
from beam_tfr.copies.search import Duplicates
from beam_tfr.copies.summary import describe_duplicates
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.share_notes import describe_dataset_shares
from beam_tfr.dataset.split_notes import describe_classes, describe_unlabelled
from beam_tfr.features.box_counts import dropped_share
from beam_tfr.features.mask_counts import describe_masks
from beam_tfr.reporting.equal_rows import EqualRows
from beam_tfr.reporting.mask_samples import MaskSamples
from beam_tfr.reporting.measuring import Measures
from beam_tfr.reporting.odd_labels import OddLabels
from beam_tfr.reporting.table_columns import find_contradicted_rows, find_far_values
from beam_tfr.reporting.unlike_boxes import UnlikeBoxes
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.encodings import noun_of

_STRONG_IMBALANCE = 10  # times as many images
_DRIFT = 2  # times the share
_LEAST_FOR_DRIFT = 20  # images that a class should have in a split
_MUCH_CROPPED = 0.1
_MOST_LOST_BOXES = 0.02  # share of boxes
_MOST_SHOWN = 3
_MOST_PICTURES = 6  # of a finding
_MANY_MISSING = 0.05  # share of records without a value


class Finding(NamedTuple):
    """Something that deserves a look.

    Attributes:
        text: a sentence.
        section: id of the section of the page that shows it.
        records: numbers of some records that show it.
    """

    text: str
    section: str
    records: Sequence[int] = ()


class Observations(NamedTuple):
    """What findings are made of.

    Attributes:
        dataset: the dataset.
        measures: of its records.
        odd: records with other classes than those around them.
        copies: its copies; None if they were not looked for.
        clusters: those that are shown.
        unlike_boxes: boxes of the size of another class.
        masks: what some masks tell.
    """

    dataset: Manifest
    measures: Measures
    odd: OddLabels
    copies: Duplicates | None
    clusters: Sequence[dict[str, Any]]
    unlike_boxes: UnlikeBoxes
    masks: MaskSamples

    @property
    def noun(self) -> str:
        """What a record is made of."""
        return noun_of(self.dataset.options["encoding"])[:-1]


def list_findings(seen: Observations) -> list[Finding]:
    """The findings, in the order of the sections of the page."""
    return [
        *_find_classes(seen),
        *_find_masks_of_splits(seen.masks),
        *_find_odd(seen),
        *_find_unlike_masks(seen.masks),
        *_find_unlike_boxes(seen),
        *_find_unlike_rows(seen),
        *_find_equal_rows(seen.measures.equal_rows),
        *_find_copies(seen),
        *_find_looks(seen),
        *_find_crops(seen),
        *_find_lost_boxes(seen),
        *_find_masks(seen.dataset),
        *_find_margins(seen.masks),
        *_find_column_problems(seen.measures),
        *_find_rejects(seen.dataset),
    ]


def _find_classes(seen: Observations) -> Iterator[Finding]:
    dataset = seen.dataset
    sentences = [
        *describe_classes(dataset.splits, dataset.class_names, dataset.options["encoding"]),
        *describe_dataset_shares(dataset),
        *describe_unlabelled(dataset),
        *_describe_imbalance(dataset),
        *_describe_drift(dataset),
    ]
    for sentence in sentences:
        yield Finding(sentence, "classes")


def _describe_imbalance(dataset: Manifest) -> Iterator[str]:
    present = [(number, name) for name, number in dataset.class_totals.items() if number]
    if len(present) < 2:
        return
    fewest, rarest = min(present)
    most, largest = max(present)
    if most >= _STRONG_IMBALANCE * fewest:
        yield (
            f"class {printable(largest)} has {most:,} and class {printable(rarest)} {fewest:,}: "
            f"{most / fewest:,.0f} times as many"
        )


class _Drift(NamedTuple):
    """A class that is much rarer or more frequent in a split than in all.

    Attributes:
        times: how many times, as a number above 1.
        name: of the class.
        split: the split.
        number: its records there.
        expected: how many these would be by its share in all splits.
    """

    times: float
    name: str
    split: str
    number: int
    expected: float


def _describe_drift(dataset: Manifest) -> Iterator[str]:
    """Yields sentences about the classes that drift most."""
    drifts = sorted(_find_drifts(dataset), key=lambda drift: drift.times, reverse=True)
    for drift in drifts[:_MOST_SHOWN]:
        yield (
            f"class {printable(drift.name)} has {drift.number:,} in {drift.split} instead of about "
            f"{drift.expected:,.0f}"
        )


def _find_drifts(dataset: Manifest) -> Iterator[_Drift]:
    totals = dataset.class_totals
    everything = max(totals.total(), 1)
    for split in sort_splits(dataset.splits):
        counts = dataset.splits[split].class_counts
        of_split = sum(counts.values())
        for name, total in totals.items():
            number = counts.get(name, 0)
            expected = total / everything * of_split
            if not number or expected < _LEAST_FOR_DRIFT:
                continue
            share = (number + 1) / (expected + 1)
            times = max(share, 1 / share)
            if times > _DRIFT:
                yield _Drift(times, name, split, number, expected)


def _find_odd(seen: Observations) -> Iterator[Finding]:
    odd = seen.odd
    if not odd.number:
        return
    first = odd.shown[0]
    names = seen.dataset.class_names
    verb = "has" if odd.number == 1 else "have"
    yield Finding(
        f"{counted(odd.number, seen.noun)} {verb} another class than nearly all others in the "
        f"same folder or of like names, such as {printable(names[first.label])} instead of "
        f"{printable(names[first.usual])} for {printable(first.group) or 'the same folder'}",
        "odd-labels",
        [record.record for record in odd.shown[:_MOST_PICTURES]],
    )


def _find_unlike_boxes(seen: Observations) -> Iterator[Finding]:
    unlike = seen.unlike_boxes
    if unlike.number:
        names = seen.dataset.class_names
        classes = join_names([printable(names[label]) for label in unlike.labels])
        boxes = "1 box has" if unlike.number == 1 else f"{unlike.number:,} boxes have"
        yield Finding(
            f"{boxes} the size of another class: those of {classes}",
            "looks",
            unlike.records[:_MOST_PICTURES],
        )


def _find_unlike_rows(seen: Observations) -> Iterator[Finding]:
    if seen.dataset.names.sha256:
        return
    records = find_contradicted_rows(seen.measures)
    if records:
        verb = "has" if len(records) == 1 else "have"
        yield Finding(
            f"{counted(len(records), 'row')} {verb} another class than nearly all rows of like "
            "numbers",
            "sizes",
            records[:_MOST_PICTURES],
        )


def _find_equal_rows(rows: EqualRows) -> Iterator[Finding]:
    if rows.across_splits:
        verb = "is" if rows.across_splits == 1 else "are"
        yield Finding(
            f"{counted(rows.across_splits, 'row')} {verb} in several splits, equal in all columns",
            "sizes",
            [*itertools.chain.from_iterable(rows.split_pairs)],
        )
    if rows.across_classes:
        verb = "has" if rows.across_classes == 1 else "have"
        yield Finding(
            f"{counted(rows.across_classes, 'row')} {verb} several classes, equal in all columns",
            "sizes",
            [*itertools.chain.from_iterable(rows.class_pairs)],
        )
    if rows.number and not rows.across_splits and not rows.across_classes:
        yield Finding(f"{rows.number:,} rows are equal to others in all columns", "sizes")


def _find_column_problems(measures: Measures) -> Iterator[Finding]:
    for name, missing in measures.missing.items():
        if missing > _MANY_MISSING * measures.number:
            yield Finding(
                f"column {printable(name)}: {missing:,} of {measures.number:,} have no value",
                "columns",
            )
    for far in find_far_values(measures):
        shown = join_names([f"{value:,.6g}" for value in sorted({*far.values})])
        noun = "value is" if len(far.values) == 1 else "values are"
        yield Finding(
            f"column {printable(far.column)}: {len(far.values):,} {noun} far from all others: "
            f"{shown}",
            "columns",
            far.records[:_MOST_SHOWN],
        )


def _find_copies(seen: Observations) -> Iterator[Finding]:
    """Yields what there is across splits, then of different classes, else how many copies."""
    if seen.copies is None:
        for sentence in describe_duplicates(seen.dataset):
            yield Finding(sentence, "verdict")
        return
    counts = seen.copies.counts
    if counts["across_splits"]:
        number = counted(counts["across_splits"], f"{seen.noun}")
        verb = "has" if counts["across_splits"] == 1 else "have"
        yield Finding(f"{number} {verb} copies in another split", "copies", _pair_up(seen, "split"))
    if counts["across_classes"]:
        number = counted(counts["across_classes"], f"{seen.noun}")
        verb = "has" if counts["across_classes"] == 1 else "have"
        yield Finding(
            f"{number} {verb} copies of different classes", "copies", _pair_up(seen, "class")
        )
    if counts["clusters"] > counts["across_splits"] + counts["across_classes"]:
        yield Finding(
            f"{counts['copies']:,} of {counts['images']:,} {seen.noun}s are copies of others, in "
            f"{counted(counts['clusters'], 'cluster')}",
            "copies",
        )
    if counts["too_large"]:
        yield Finding(
            f"{counted(counts['too_large'], 'cluster')} of very many alike {seen.noun}s: they are "
            "hardly copies, and only equal bytes among them count",
            "copies",
        )


def _pair_up(seen: Observations, field: str) -> list[int]:
    """Two records of each of the first clusters, of which a field differs."""
    records = list[int]()
    for cluster in seen.clusters:
        first, *others = cluster["images"]
        differing = [image for image in others if image[field] != first[field]]
        if differing:
            records += [first["record"], differing[0]["record"]]
    return records[:_MOST_PICTURES]


def _find_looks(seen: Observations) -> Iterator[Finding]:
    for name, number in seen.measures.looks.items():
        if number:
            verb = "is" if number == 1 else "are"
            records = [record for record, _ in seen.measures.extremes[name]]
            yield Finding(
                f"{counted(number, seen.noun)} {verb} {name}", "looks", records[:_MOST_PICTURES]
            )


def _find_crops(seen: Observations) -> Iterator[Finding]:
    cropped = seen.dataset.statistics.get("cropped", 0)
    if cropped > _MUCH_CROPPED:
        yield Finding(
            f"{cropped:.0%} of an image was cropped off on average; --resize pad keeps all of it",
            "looks",
            [record for record, _ in seen.measures.extremes["aspect"]][:_MOST_PICTURES],
        )


def _find_lost_boxes(seen: Observations) -> Iterator[Finding]:
    boxes = seen.dataset.statistics.get("boxes")
    if not boxes:
        return
    adjusted = seen.dataset.counts["adjusted"]
    number = adjusted.get("bad-boxes-dropped", 0)
    if number:
        verb = "has" if number == 1 else "have"
        yield Finding(
            f"{counted(number, seen.noun)} {verb} boxes outside of the image or without area, "
            "which were dropped",
            "boxes",
            seen.measures.adjusted["bad-boxes-dropped"][:_MOST_PICTURES],
        )
    if dropped_share(boxes) > _MOST_LOST_BOXES:
        stored = boxes["small"] + boxes["medium"] + boxes["large"]
        yield Finding(
            f"{boxes['dropped']:,} of {stored + boxes['dropped']:,} boxes were dropped "
            f"({dropped_share(boxes):.1%})",
            "boxes",
            seen.measures.adjusted.get("boxes-dropped", [])[:_MOST_PICTURES],
        )


def _find_masks(dataset: Manifest) -> Iterator[Finding]:
    masks = dataset.statistics.get("masks")
    if not masks:
        return
    _, *odd = describe_masks(masks)
    for sentence in odd:
        yield Finding(sentence, "masks")
    rare = [name for name, value in masks["values"].items() if value["images"] == 1]
    if not rare or dataset.counts["written"] == 1:
        return
    values = join_names(rare)
    if len(rare) == 1:
        yield Finding(f"value {values} of masks occurs in 1 image only", "masks")
    else:
        yield Finding(f"values {values} of masks occur in 1 image each", "masks")


def _find_masks_of_splits(masks: MaskSamples) -> Iterator[Finding]:
    for missing in masks.missing[:_MOST_SHOWN]:
        yield Finding(
            f"value {missing.value} is in none of {counted(missing.number, 'mask')} of "
            f"{missing.split} that were looked at, but in {missing.share:.0%} of those of others",
            "masks",
        )


def _find_unlike_masks(masks: MaskSamples) -> Iterator[Finding]:
    if masks.odd:
        verb = "has" if len(masks.odd) == 1 else "have"
        yield Finding(
            f"{counted(len(masks.odd), 'mask')} {verb} values where others hardly ever have them",
            "looks",
            masks.odd[:_MOST_PICTURES],
        )


def _find_margins(masks: MaskSamples) -> Iterator[Finding]:
    if masks.margin is not None:
        yield Finding(
            f"the margins of masks have {masks.margin}, which {masks.margin_share:.0%} of them "
            "have within the image too: right if it is no class",
            "masks",
        )


def _find_rejects(dataset: Manifest) -> Iterator[Finding]:
    rejected: Mapping[str, int] = dataset.counts["rejected"]
    number = sum(rejected.values())
    if number:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.items())
        verb = "was" if number == 1 else "were"
        text = f"{number:,} of {dataset.counts['matched']:,} {verb} rejected: {reasons}"
        yield Finding(text, "rejects")
