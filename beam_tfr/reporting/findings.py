"""What of a dataset deserves a look: sentences, each with the section that shows it."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from beam_tfr.console.terminal import counted, printable
from beam_tfr.copies.summary import describe_duplicates
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.share_notes import describe_dataset_shares
from beam_tfr.dataset.split_notes import describe_classes, describe_unlabelled
from beam_tfr.features.box_counts import describe_boxes
from beam_tfr.features.mask_counts import describe_masks
from beam_tfr.reporting.measuring import Measures
from beam_tfr.reporting.odd_labels import OddLabels
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.encodings import noun_of

_STRONG_IMBALANCE = 10  # times as many images
_DRIFT = 2  # times the share
_LEAST_FOR_DRIFT = 20  # images that a class should have in a split
_MUCH_CROPPED = 0.1
_MOST_LOST_BOXES = 0.02  # share of boxes
_MOST_SHOWN = 3


class Finding(NamedTuple):
    """Something that deserves a look.

    Attributes:
        text: a sentence.
        section: id of the section of the page that shows it.
    """

    text: str
    section: str


def list_findings(dataset: Manifest, measures: Measures, odd: OddLabels) -> list[Finding]:
    """The findings, in the order of the sections of the page."""
    encoding = dataset.options["encoding"]
    noun = noun_of(encoding)[:-1]
    findings = list[Finding]()

    def add(section: str, sentences: Iterator[str]) -> None:
        findings.extend(Finding(sentence, section) for sentence in sentences)

    add("classes", describe_classes(dataset.splits, dataset.class_names, encoding))
    add("classes", describe_dataset_shares(dataset))
    add("classes", describe_unlabelled(dataset))
    add("classes", _describe_imbalance(dataset))
    add("classes", _describe_drift(dataset))
    add("odd-labels", _describe_odd(dataset, odd, noun))
    add("copies", describe_duplicates(dataset))
    add("looks", _describe_looks(measures, noun))
    add("sizes", _describe_crops(dataset))
    add("boxes", _describe_lost_boxes(dataset))
    add("masks", _describe_masks(dataset))
    add("rejects", _describe_rejects(dataset))
    return findings


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


def _describe_odd(dataset: Manifest, odd: OddLabels, noun: str) -> Iterator[str]:
    if not odd.number:
        return
    first = odd.shown[0]
    names = dataset.class_names
    verb = "has" if odd.number == 1 else "have"
    yield (
        f"{counted(odd.number, noun)} {verb} another class than nearly all others whose names "
        f"begin alike: {printable(names[first.label])} instead of "
        f"{printable(names[first.usual])} in {printable(first.group) or 'the same folder'}"
    )


def _describe_looks(measures: Measures, noun: str) -> Iterator[str]:
    for name, number in measures.looks.items():
        if number:
            verb = "is" if number == 1 else "are"
            yield f"{counted(number, noun)} {verb} {name}"


def _describe_crops(dataset: Manifest) -> Iterator[str]:
    cropped = dataset.statistics.get("cropped", 0)
    if cropped > _MUCH_CROPPED:
        yield (
            f"{cropped:.0%} of an image was cropped off on average; --resize pad keeps all of it"
        )


def _describe_lost_boxes(dataset: Manifest) -> Iterator[str]:
    boxes = dataset.statistics.get("boxes")
    if not boxes:
        return
    stored = boxes["small"] + boxes["medium"] + boxes["large"]
    if boxes["dropped"] > _MOST_LOST_BOXES * (stored + boxes["dropped"]):
        yield f"boxes were dropped: {describe_boxes(boxes)}"


def _describe_masks(dataset: Manifest) -> Iterator[str]:
    masks = dataset.statistics.get("masks")
    if not masks:
        return
    _, *odd = describe_masks(masks)
    yield from odd
    rare = [name for name, value in masks["values"].items() if value["images"] == 1]
    if rare and dataset.counts["written"] > 1:
        values = ", ".join(rare[:_MOST_SHOWN])
        verb = "occurs" if len(rare) == 1 else "occur"
        more = f" and {len(rare) - _MOST_SHOWN} more" if len(rare) > _MOST_SHOWN else ""
        noun = "value" if len(rare) == 1 else "values"
        yield f"{noun} {values}{more} of masks {verb} in 1 image{'' if len(rare) == 1 else ' each'}"


def _describe_rejects(dataset: Manifest) -> Iterator[str]:
    rejected: Mapping[str, int] = dataset.counts["rejected"]
    number = sum(rejected.values())
    if number:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.items())
        verb = "was" if number == 1 else "were"
        yield f"{number:,} of {dataset.counts['matched']:,} {verb} rejected: {reasons}"
