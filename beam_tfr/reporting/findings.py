"""Lists what deserves a look in a dataset: sentences, each with the section that shows it."""

import collections
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
from beam_tfr.reporting.finding import Evidence, Finding, Severity, note_records
from beam_tfr.reporting.mask_samples import MaskSamples, describe_fit
from beam_tfr.reporting.measuring import Measures
from beam_tfr.reporting.odd_labels import OddLabels
from beam_tfr.reporting.table_columns import find_contradicted_rows, find_far_values
from beam_tfr.reporting.unlike_boxes import UnlikeBox
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.encodings import noun_of

_STRONG_IMBALANCE = 10  # times as many images
_DRIFT = 2  # times the expected number
_LEAST_FOR_DRIFT = 20  # images that a class should have in a split
_MUCH_CROPPED = 0.1
_MOST_LOST_BOXES = 0.02  # fraction of boxes
_MOST_SHOWN = 3
_MOST_CROPPED = 6
_MOST_COLUMNS = 10  # columns whose missing values are reported
_NEAR_COPY = 16  # bits of 256; images that differ by more may be unrelated


class Observations(NamedTuple):
    """The observations from which findings are made.

    Attributes:
        dataset: the dataset.
        measures: measures of its records.
        odd: records whose class differs from that of the records around them.
        copies: copies in the dataset; None if they were not searched for.
        clusters: some clusters of copies.
        unlike_boxes: boxes whose size is typical of another class.
        masks: values, margins and edges of some masks.
    """

    dataset: Manifest
    measures: Measures
    odd: OddLabels
    copies: Duplicates | None
    clusters: Sequence[dict[str, Any]]
    unlike_boxes: Sequence[UnlikeBox]
    masks: MaskSamples

    @property
    def noun(self) -> str:
        """The noun for what a record is made from, in the singular."""
        return noun_of(self.dataset.options["encoding"])[:-1]


def list_findings(seen: Observations) -> list[Finding]:
    """Lists the findings, the gravest first."""
    findings = [
        *_find_classes(seen),
        *_find_masks_of_splits(seen.masks),
        *_find_copies(seen),
        *_find_equal_rows(seen.measures.equal_rows),
        *_find_odd(seen),
        *_find_unlike_boxes(seen),
        *_find_unlike_rows(seen),
        *_find_unlike_masks(seen.masks),
        *_find_rare_values(seen),
        *_find_looks(seen),
        *_find_lost_boxes(seen),
        *_find_column_problems(seen.measures),
        *_find_rejects(seen.dataset),
        *_find_crops(seen),
        *_find_masks(seen.dataset),
        *_find_margins(seen.masks),
    ]
    order = [*Severity]
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _find_classes(seen: Observations) -> Iterator[Finding]:
    dataset = seen.dataset
    grave = [
        *describe_classes(dataset.splits, dataset.class_names, dataset.options["encoding"]),
        *_describe_drift(dataset),
    ]
    for sentence in grave:
        yield Finding(Severity.SCORES, sentence, "classes")
    for sentence in describe_unlabelled(dataset):
        yield Finding(Severity.LABELS, sentence, "classes")
    for sentence in [*describe_dataset_shares(dataset), *_describe_imbalance(dataset)]:
        yield Finding(Severity.TIPS, sentence, "classes")


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


class Drift(NamedTuple):
    """A class that is much rarer or more frequent in a split than in the other splits.

    Attributes:
        times: by how much the numbers differ: a factor above 1.
        name: name of the class.
        split: name of the split.
        number: number of the class's records in the split.
        expected: number of records expected from the fraction of the class in the other splits.
    """

    times: float
    name: str
    split: str
    number: int
    expected: float


def _describe_drift(dataset: Manifest) -> Iterator[str]:
    """Yields sentences about the classes that drift the most."""
    drifts = sorted(find_drifts(dataset), key=lambda drift: drift.times, reverse=True)
    for drift in drifts[:_MOST_SHOWN]:
        yield (
            f"class {printable(drift.name)} has {drift.number:,} in {drift.split} instead of about "
            f"{drift.expected:,.0f}, judging by the other splits"
        )


def find_drifts(dataset: Manifest) -> Iterator[Drift]:
    """Finds classes with far more or fewer records in a split than the other splits suggest."""
    totals = dataset.class_totals
    everything = totals.total()
    for split in sort_splits(dataset.splits):
        counts = dataset.splits[split].class_counts
        present = {name: number for name, number in counts.items() if number}
        of_split = sum(present.values())
        if 2 * of_split > everything:
            continue  # the other splits are too small to compare with
        of_others = sum(totals[name] for name in present) - of_split  # the same classes elsewhere
        for name, number in present.items():
            elsewhere = totals[name] - number
            if elsewhere == of_others:  # there is no other class
                continue
            expected = (of_split - number) * elsewhere / (of_others - elsewhere)
            share = (number + 1) / (expected + 1)
            times = max(share, 1 / share)
            if times > _DRIFT and max(expected, number) >= _LEAST_FOR_DRIFT:
                yield Drift(times, name, split, number, expected)


def _find_odd(seen: Observations) -> Iterator[Finding]:
    odd = seen.odd
    if not odd.number:
        return
    first = odd.shown[0]
    names = [*map(printable, seen.dataset.class_names)]
    verb = "has" if odd.number == 1 else "have"
    evidence = [
        Evidence((record.record,), f"{names[record.label]} instead of {names[record.usual]}")
        for record in odd.shown
    ]
    yield Finding(
        Severity.LABELS,
        f"{counted(odd.number, seen.noun)} {verb} a different class than nearly all others in the "
        f"same folder or with similar names, such as {names[first.label]} instead of "
        f"{names[first.usual]} for {printable(first.group) or 'the same folder'}",
        "odd-labels",
        evidence,
        odd.number,
    )


def _find_unlike_boxes(seen: Observations) -> Iterator[Finding]:
    """Yields a sentence for each pair of classes that may have been mistaken for each other."""
    names = [*map(printable, seen.dataset.class_names)]
    groups = collections.defaultdict[tuple[str, str], list[int]](list)
    for box in seen.unlike_boxes:
        groups[names[box.label], names[box.expected]].append(box.record)
    for (label, expected), records in groups.items():
        boxes = "1 box" if len(records) == 1 else f"{len(records):,} boxes"
        yield Finding(
            Severity.LABELS,
            f"{boxes} labelled {label} with a width and height typical of {expected}",
            "unlike-boxes",
            note_records([*dict.fromkeys(records)]),
        )


def _find_unlike_rows(seen: Observations) -> Iterator[Finding]:
    if seen.dataset.names.sha256:
        return
    names = [*map(printable, seen.dataset.class_names)]
    evidence = []
    for row in find_contradicted_rows(seen.measures):
        columns = " and ".join(map(printable, row.columns))
        note = f"{names[row.label]} instead of {names[row.expected]}, judging by {columns}"
        evidence.append(Evidence((row.record,), note))
    if evidence:
        verb = "has" if len(evidence) == 1 else "have"
        yield Finding(
            Severity.LABELS,
            f"{counted(len(evidence), 'row')} {verb} a different class than nearly all rows with "
            "similar numbers",
            evidence=evidence,
        )


def _find_equal_rows(rows: EqualRows) -> Iterator[Finding]:
    if rows.across_splits:
        verb = "is" if rows.across_splits == 1 else "are"
        yield Finding(
            Severity.SCORES,
            f"{counted(rows.across_splits, 'row')} {verb} in several splits, equal in all columns",
            evidence=[*map(Evidence, rows.split_pairs)],
            number=rows.across_splits,
        )
    if rows.across_classes:
        verb = "has" if rows.across_classes == 1 else "have"
        yield Finding(
            Severity.LABELS,
            f"{counted(rows.across_classes, 'row')} {verb} several classes, equal in all columns",
            evidence=[*map(Evidence, rows.class_pairs)],
            number=rows.across_classes,
        )
    if rows.number and not rows.across_splits and not rows.across_classes:
        yield Finding(Severity.TIPS, f"{rows.number:,} rows are equal to others in all columns")


def _find_column_problems(measures: Measures) -> Iterator[Finding]:
    lacking = [column for column in measures.missing if column.number]
    lacking.sort(key=lambda column: -column.number)
    for column in lacking[:_MOST_COLUMNS]:
        splits = [f"{column.share_of(split):.1%} of {split}" for split in sort_splits(column.rows)]
        yield Finding(
            Severity.DATA,
            f"column {printable(column.name)}: {column.number:,} of {measures.number:,} have no "
            f"value ({', '.join(splits)})",
            "columns",
            note_records(column.records),
            column.number,
        )
    for far in find_far_values(measures):
        shown = join_names([f"{value:,.6g}" for value in sorted({*far.values})])
        noun = "value is" if len(far.values) == 1 else "values are"
        yield Finding(
            Severity.DATA,
            f"column {printable(far.column)}: {len(far.values):,} {noun} far from all others: "
            f"{shown}",
            "columns",
            [
                Evidence((record,), f"{value:,.6g}")
                for record, value in zip(far.records, far.values, strict=True)
            ],
        )


def _find_copies(seen: Observations) -> Iterator[Finding]:
    """Yields copies across splits, copies with different classes, and the number of the rest."""
    if seen.copies is None:
        for sentence in describe_duplicates(seen.dataset):
            yield Finding(Severity.TIPS, sentence, "verdict")
        return
    counts = seen.copies.counts
    noun = seen.noun
    across = (
        ("across_splits", Severity.SCORES, "copies in another split", "split"),
        ("across_classes", Severity.LABELS, "copies with different classes", "class"),
    )
    for name, severity, copies, field in across:
        number = counts[name]
        if number:
            verb = "has" if number == 1 else "have"
            text = f"{counted(number, noun)} {verb} {copies}"
            yield Finding(severity, text, "copies", _pair_up(seen, field), number)
    others = counts["clusters"] - counts["across_splits"] - counts["across_classes"]
    if others > 0:
        yield Finding(
            Severity.TIPS,
            f"{counted(others, noun)} {'has a copy' if others == 1 else 'have copies'} in the same "
            "split",
            "copies",
        )
    if counts["too_large"]:
        yield Finding(
            Severity.TIPS,
            f"{counted(counts['too_large'], 'cluster')} of too many similar {noun}s: most are "
            "probably not copies, so only those with equal bytes count",
            "copies",
        )


def _pair_up(seen: Observations, field: str) -> list[Evidence]:
    """Returns, from each cluster, two images that differ in a field."""
    pairs = []
    for cluster in seen.clusters:
        first, *others = cluster["images"]
        differing = [image for image in others if image[field] != first[field]]
        if differing:
            note = describe_likeness(differing[0]["distance"])
            pairs.append(Evidence((first["record"], differing[0]["record"]), note))
    return pairs


def describe_likeness(distance: int | None) -> str:
    """Describes how similar two images are, given the number of hash bits that differ."""
    if not distance:
        return "the same picture"
    if distance <= _NEAR_COPY:
        return f"nearly the same picture: {distance} of 256 bits differ"
    return f"similar, compare them: {distance} of 256 bits differ"


_PLACES_OF_LOOKS = {
    "nearly black": "darkest",
    "nearly white": "brightest",
    "nearly flat": "flattest",
}


def _find_looks(seen: Observations) -> Iterator[Finding]:
    for name, number in seen.measures.looks.items():
        if number:
            verb = "is" if number == 1 else "are"
            records = [record for record, _ in seen.measures.extremes[name]]
            yield Finding(
                Severity.DATA,
                f"{counted(number, seen.noun)} {verb} {name}",
                _PLACES_OF_LOOKS[name],
                note_records(records),
                number,
            )


def _find_crops(seen: Observations) -> Iterator[Finding]:
    cropped = seen.dataset.statistics.get("cropped", 0)
    if cropped > _MUCH_CROPPED:
        records = [record for record, _ in seen.measures.extremes["aspect"]]
        yield Finding(
            Severity.TIPS,
            f"{cropped:.0%} of an image was cropped off on average, and most from those below; "
            "use --resize pad to keep whole images",
            "aspect" if records else "",
            note_records(records[:_MOST_CROPPED]),
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
            Severity.DATA,
            f"{counted(number, seen.noun)} {verb} boxes outside the image or with no area, "
            "which were dropped: their objects have no label now",
            "bad-boxes-dropped",
            note_records(seen.measures.adjusted["bad-boxes-dropped"]),
            number,
        )
    if dropped_share(boxes) > _MOST_LOST_BOXES:
        stored = boxes["small"] + boxes["medium"] + boxes["large"]
        records = seen.measures.adjusted.get("boxes-dropped", [])
        yield Finding(
            Severity.DATA,
            f"{boxes['dropped']:,} of {stored + boxes['dropped']:,} boxes were dropped "
            f"({dropped_share(boxes):.1%})",
            "boxes-dropped" if records else "boxes",
            note_records(records),
        )


def _find_masks(dataset: Manifest) -> Iterator[Finding]:
    masks = dataset.statistics.get("masks")
    if masks:
        _, *odd = describe_masks(masks)
        for sentence in odd:
            yield Finding(Severity.TIPS, sentence, "masks")


def _find_rare_values(seen: Observations) -> Iterator[Finding]:
    """Yields a sentence about values that occur in only one of several masks."""
    masks = seen.dataset.statistics.get("masks")
    if not masks or seen.dataset.counts["written"] == 1:
        return
    rare = [name for name, value in masks["values"].items() if value["images"] == 1]
    if not rare:
        return
    evidence = [
        Evidence((record,), f"value {value}")
        for value, record in seen.masks.rare.items()
        if str(value) in rare
    ]
    values = join_names(rare)
    where = "occurs in only 1 image" if len(rare) == 1 else "occur in only 1 image each"
    noun = "value" if len(rare) == 1 else "values"
    yield Finding(Severity.LABELS, f"mask {noun} {values} {where}", "masks", evidence, len(rare))


def _find_masks_of_splits(masks: MaskSamples) -> Iterator[Finding]:
    for missing in masks.missing[:_MOST_SHOWN]:
        copies = ""
        if missing.num_copies:
            copied = counted(missing.num_copies, "copy", "copies")
            copies = f", except {copied} of masks in other splits"
        yield Finding(
            Severity.SCORES,
            f"value {missing.value} is in none of {counted(missing.number, 'mask')} examined in "
            f"{missing.split}{copies}; {missing.share:.0%} of those in other splits have it",
            "masks-by-split",
        )


def _find_unlike_masks(masks: MaskSamples) -> Iterator[Finding]:
    if masks.misfits:
        verb = "does" if len(masks.misfits) == 1 else "do"
        yield Finding(
            Severity.LABELS,
            f"{counted(len(masks.misfits), 'mask')} {verb} not match the image: the mask has edges "
            "where the image has none",
            "unlike-masks",
            [Evidence((misfit.record,), describe_fit(misfit.fit)) for misfit in masks.misfits],
        )
    if masks.lacking:
        noun = "mask lacks values" if len(masks.lacking) == 1 else "masks lack values"
        evidence = []
        for lack in masks.lacking:
            note = f"lacks {join_names([*map(str, lack.values)])}"
            evidence.append(Evidence((lack.record,), "empty" if lack.is_empty else note))
        yield Finding(
            Severity.LABELS,
            f"{len(masks.lacking):,} {noun} that nearly all others have",
            "masks",
            evidence,
        )
    if masks.odd:
        verb = "has" if len(masks.odd) == 1 else "have"
        yield Finding(
            Severity.LABELS,
            f"{counted(len(masks.odd), 'mask')} {verb} values in places where others hardly ever "
            "do",
            evidence=note_records(masks.odd),
        )


def _find_margins(masks: MaskSamples) -> Iterator[Finding]:
    if masks.margin is not None:
        yield Finding(
            Severity.TIPS,
            f"the margins of masks have value {masks.margin}, and so do pixels within the image in "
            f"{masks.margin_share:.0%} of masks: correct only if the value is not a class",
            "masks",
        )


def _find_rejects(dataset: Manifest) -> Iterator[Finding]:
    rejected: Mapping[str, int] = dataset.counts["rejected"]
    number = sum(rejected.values())
    if number:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.items())
        verb = "was" if number == 1 else "were"
        text = f"{number:,} of {dataset.counts['matched']:,} {verb} rejected: {reasons}"
        yield Finding(Severity.DATA, text, "rejects")
