"""Collects the facts that fill in the template of the page."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.console.display import Progress
from beam_tfr.copies.images import read_images
from beam_tfr.copies.search import Duplicates, check_distance, find_duplicates
from beam_tfr.copies.summary import is_summarized
from beam_tfr.dataset.history import describe_updates
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.metadata.summary import describe_size, given_texts
from beam_tfr.reporting import charts
from beam_tfr.reporting.beside import Comparison, compare_records
from beam_tfr.reporting.finding import Finding, Severity
from beam_tfr.reporting.findings import (
    Observations,
    describe_likeness,
    find_drifts,
    list_findings,
)
from beam_tfr.reporting.mask_samples import describe_fit, look_at_masks
from beam_tfr.reporting.measuring import measure
from beam_tfr.reporting.odd_labels import find_odd_labels
from beam_tfr.reporting.refused import list_rejects
from beam_tfr.reporting.samples import (
    ClassRow,
    RecordName,
    RecordPictures,
    Thumbnail,
    choose_classes,
    encode_all,
    show_text,
)
from beam_tfr.reporting.source_files import SourceFiles
from beam_tfr.reporting.table_columns import describe_columns
from beam_tfr.reporting.unlike_boxes import find_unlike_boxes
from beam_tfr.reporting.unlike_looks import (
    MOST_CLASSES,
    MOST_COMPARED,
    find_unlike_looks,
)
from beam_tfr.schema.dataset import ADJUSTMENTS, NO_SPLIT, sort_splits
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, noun_of
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.version import __version__

_MOST_CLUSTERS = 12  # clusters to show with pictures
_MOST_COMPARED_CLUSTERS = 500
_MOST_IN_CLUSTER = 6
_MOST_UNLIKE = 12  # images
_MOST_EXTREMES = 6
_MOST_PICTURES = 6  # per finding
_MOST_CLASS_ROWS = 5_000
_SEARCHED_CLASSES = 20  # with this many or more, the page has a field to search for classes


def _show_mean(value: float) -> str:
    return f"mean {abs(value):.0f} of 255"


def _show_deviation(value: float) -> str:
    return f"standard deviation {value:.0f}"


def _show_area(value: float) -> str:
    return f"{value:,.0f} pixels"


def _show_lost(value: float) -> str:
    return f"{1 - value:.0%} lost"


def _show_stretch(value: float) -> str:
    return f"by {1 / value:.2f}"


def _show_margin(value: float) -> str:
    return f"{1 - value:.0%} margins"


_EXTREMES = {  # name of a measure -> its title, and the format of its values
    "darkest": ("Darkest", _show_mean),
    "brightest": ("Brightest", _show_mean),
    "flattest": ("Least contrast", _show_deviation),
    "smallest": ("Smallest sources", _show_area),
}
_ASPECTS = {
    "crop": ("Most cropped", _show_lost),
    "stretch": ("Most stretched", _show_stretch),
    "pad": ("Widest margins", _show_margin),
}
_ADJUSTED_TITLES = {  # what was adjusted -> title
    "bad-boxes-dropped": "Boxes outside the image or with no area were dropped",
    "boxes-dropped": "Boxes were cropped off",
    "nearly-black": "More than 8 bits per sample, few of them used",
    "nearly-white": "More than 8 bits per sample, few of them used, and 0 is white",
    "margins-in-mask": "Masks with the value of their margins within the image",
}
_SIZES = {  # name of a measure -> the format of its values
    "source height": charts.format_number,
    "source width": charts.format_number,
    "source aspect": charts.format_number,
    "source bytes": charts.format_bytes,
    "stored height": charts.format_number,
    "stored width": charts.format_number,
    "stored bytes": charts.format_bytes,
    "brightness": charts.format_number,
    "contrast": charts.format_number,
}


class EvidenceLine(NamedTuple):
    """Records that show a finding, as text.

    Attributes:
        names: names of the records.
        note: what is wrong with the records; empty if the text of the finding says it.
    """

    names: list[RecordName]
    note: str


class ShownFinding(NamedTuple):
    """A finding, with some records that show it.

    Attributes:
        finding: the finding.
        pictures: pictures of the first records, if they have images.
        lines: the records as text.
    """

    finding: Finding
    pictures: list[Thumbnail]
    lines: list[EvidenceLine]


class FindingGroup(NamedTuple):
    """The findings with the same severity, under their heading."""

    title: str
    findings: list[ShownFinding]


class _Choice(NamedTuple):
    """Records that are extreme in some respect.

    Attributes:
        section: id of the part of the page that shows the records.
        title: title of this part.
        records: numbers of the records, each with its value as text.
    """

    section: str
    title: str
    records: list[tuple[int, str]]


class Extreme(NamedTuple):
    """Records that are extreme in some respect, next to their sources; see `_Choice`."""

    section: str
    title: str
    records: list[Comparison]


class Facts:
    """The facts that fill in the template.

    Args:
        dataset: the dataset.
        sources: see `report`.
        progress: see `report`.

    Attributes:
        findings: sentences about what deserves a look.
    """

    def __init__(
        self,
        dataset: Manifest,
        sources: SourceFiles | None,
        progress: Callable[[Progress], object] | None,
    ) -> None:
        self._dataset = dataset
        self._sources = sources
        self._has_images = dataset.options["encoding"] in IMAGE_ENCODINGS
        self._pictures = RecordPictures(dataset)
        self._measures = measure(dataset, progress)
        self._odd = find_odd_labels(dataset)
        self._unlike_boxes = find_unlike_boxes(self._measures)
        self._copies = self._find_copies()
        self._clusters = self._choose_clusters()
        self._masks = look_at_masks(dataset, self._list_copied())
        self._findings = [*self._list_findings()]
        self.findings = tuple(finding.text for finding in self._findings)

    def as_variables(self) -> dict[str, Any]:
        """Returns the variables for the template."""
        dataset = self._dataset
        rejects = list_rejects(dataset, self._sources)
        class_rows = choose_classes(dataset, self._measures.samples, self._find_unlike_looks())
        extremes = self._choose_extremes()
        comparisons = list[Extreme]()
        if self._has_images:
            self._read_pictures(class_rows, extremes)
            comparisons = [self._compare(choice) for choice in extremes]
        shown_findings = self._show_findings()
        shown = self._pictures.list_drawn()
        for group in rejects:
            shown += group.pictures
        for shown_finding in shown_findings:
            shown += shown_finding.pictures
        for extreme in comparisons:
            shown += [record.source for record in extreme.records if record.source]
        encode_all(shown)
        return {
            "dataset": dataset,
            "noun": noun_of(dataset.options["encoding"]),
            "about": describe_size(dataset),
            "has_images": self._has_images,
            "findings": _group_findings(shown_findings),
            "num_rejected": sum(dataset.counts["rejected"].values()),
            "splits": [name for name in sort_splits(dataset.splits) if name != NO_SPLIT],
            "classes": self._list_classes(),
            "more_classes": max(len(dataset.class_names) - _MOST_CLASS_ROWS, 0),
            "is_searchable": len(dataset.class_names) >= _SEARCHED_CLASSES,
            "class_rows": class_rows,
            "legends": self._pictures.shapes.list_legends(dataset.class_names),
            "extremes": comparisons,
            "odd": self._odd,
            "pictures": self._pictures,
            "rejects": rejects,
            "has_sources": self._sources is not None,
            "charts": self._draw_sizes(),
            "boxes": self._describe_boxes(),
            "masks": self._describe_masks(),
            "columns": describe_columns(self._measures),
            "copies": self._copies,
            "clusters": self._clusters[:_MOST_CLUSTERS],
            "likeness": describe_likeness,
            "adjustments": ADJUSTMENTS,
            "drifts": {(drift.name, drift.split) for drift in find_drifts(dataset)},
            "mask_numbers": self._masks.numbers,
            "mask_counts": self._masks.counts,
            "missing_values": {(found.value, found.split) for found in self._masks.missing},
            "has_unlike_looks": any(row.unlike for row in class_rows),
            "given": given_texts(dataset),
            "options": self._list_options(),
            "updates": [*describe_updates(dataset.folder)],
            "version": __version__,
        }

    def _list_findings(self) -> Iterator[Finding]:
        seen = Observations(
            self._dataset,
            self._measures,
            self._odd,
            self._copies,
            self._clusters,
            self._unlike_boxes,
            self._masks,
        )
        for finding in list_findings(seen):
            yield finding._replace(text=spell_as_flags(finding.text))

    def _show_findings(self) -> list[ShownFinding]:
        shown = [evidence for finding in self._findings for evidence in finding.list_shown()]
        numbers = [number for evidence in shown for number in evidence.records]
        names = self._pictures.name_records(numbers)
        return [self._show_finding(finding, names) for finding in self._findings]

    def _show_finding(self, finding: Finding, names: Mapping[int, RecordName]) -> ShownFinding:
        lines = []
        for evidence in finding.list_shown():
            notes = [evidence.note] if evidence.note else []
            if evidence.note and not self._has_images:
                notes += self._pictures.describe_rows(evidence.records)
            named = [names[number] for number in evidence.records]
            lines.append(EvidenceLine(named, "; ".join(notes)))
        pictures = [
            self._pictures.get(number).make_small() for number in self._list_pictured(finding)
        ]
        return ShownFinding(finding, pictures, lines)

    def _list_pictured(self, finding: Finding) -> list[int]:
        """Lists the records of a finding to show as pictures."""
        if not self._has_images:
            return []
        numbers = [number for evidence in finding.evidence for number in evidence.records]
        return numbers[:_MOST_PICTURES]

    def _compare(self, choice: _Choice) -> Extreme:
        records = compare_records(choice.records, self._pictures, self._sources)
        return Extreme(choice.section, choice.title, records)

    def _read_pictures(self, class_rows: Sequence[ClassRow], extremes: Sequence[_Choice]) -> None:
        clusters = self._clusters[:_MOST_CLUSTERS]
        numbers = [number for row in class_rows for number in row.records]
        numbers += [number for row in class_rows for number in row.unlike]
        numbers += [number for choice in extremes for number, _ in choice.records]
        numbers += [image["record"] for cluster in clusters for image in cluster["images"]]
        numbers += [record.record for record in self._odd.shown]
        numbers += [number for finding in self._findings for number in self._list_pictured(finding)]
        self._pictures.read(numbers)

    def _list_classes(self) -> list[dict[str, Any]]:
        """Returns a row for each class: name, number of records, and fraction of all records."""
        dataset = self._dataset
        totals = dataset.class_totals
        everything = max(totals.total(), 1)
        largest = max([1, *totals.values()])
        rows = []
        for name in dataset.class_names[:_MOST_CLASS_ROWS]:
            number = totals[name]
            row = {
                "name": name,
                "total": number,
                "share": number / everything,
                "width": number / largest,
            }
            rows.append(row)
        return rows

    def _choose_extremes(self) -> list[_Choice]:
        if not self._has_images:
            return []
        chosen = [*self._choose_unlike()]
        for name, (title, show) in self._list_measures().items():
            extremes = itertools.islice(self._measures.extremes[name], _MOST_EXTREMES)
            records = [(record, show(value)) for record, value in extremes]
            if records:
                chosen.append(_Choice(name, title, records))
        for kind, title in _ADJUSTED_TITLES.items():
            adjusted = self._measures.adjusted.get(kind, [])[:_MOST_EXTREMES]
            if adjusted:
                chosen.append(_Choice(kind, title, [(record, "") for record in adjusted]))
        return chosen

    def _choose_unlike(self) -> Iterator[_Choice]:
        """Yields records whose boxes or masks differ from those of other records."""
        if self._unlike_boxes:
            names = self._dataset.class_names
            values = {
                box.record: show_text(f"{names[box.label]}, perhaps {names[box.expected]}")
                for box in self._unlike_boxes
            }
            shown = itertools.islice(values.items(), _MOST_UNLIKE)
            yield _Choice("unlike-boxes", "Boxes whose size is typical of another class", [*shown])
        if self._masks.unlike:
            records = [
                (misfit.record, describe_fit(misfit.fit))
                for misfit in self._masks.unlike[:_MOST_UNLIKE]
            ]
            yield _Choice("unlike-masks", "Masks whose edges match their images least", records)

    def _list_measures(self) -> dict[str, tuple[str, Callable[[float], str]]]:
        """Maps each measure's name to the title of its extremes and the format of its values."""
        measures: dict[str, tuple[str, Callable[[float], str]]] = {**_EXTREMES}
        resize = self._dataset.options.get("resize", "")
        if resize in _ASPECTS:
            measures["aspect"] = _ASPECTS[resize]
        return measures

    def _find_copies(self) -> Duplicates | None:
        """Finds copies; returns None if there are too many records, or nothing to compare."""
        if not is_summarized(self._dataset):
            return None
        distance = check_distance(self._dataset, None)
        return find_duplicates(self._dataset, read_images(self._dataset), distance)

    def _choose_clusters(self) -> list[dict[str, Any]]:
        """Chooses clusters, sorted by whether they cross splits or classes, then by similarity."""
        if self._copies is None:
            return []
        clusters = itertools.islice(self._copies.clusters(), _MOST_COMPARED_CLUSTERS)
        chosen = [{**cluster, "images": _choose_images(cluster["images"])} for cluster in clusters]
        return sorted(chosen, key=_rank_cluster)

    def _find_unlike_looks(self) -> dict[int, list[int]]:
        label = self._dataset.feature_kinds.label
        is_alone = label is not None and not label.is_list  # an image has only one class
        number = len(self._dataset.class_names)
        if not self._has_images or not is_alone or number > MOST_CLASSES:
            return {}
        compared = self._measures.compared
        records = {name: compared.of_class(name, MOST_COMPARED) for name in range(number)}
        return find_unlike_looks(self._dataset, records)

    def _list_copied(self) -> set[int]:
        """Lists the records that have copies in other splits."""
        if self._copies is None:
            return set()
        clusters = [cluster for cluster in self._copies.clusters() if cluster["across_splits"]]
        return {image["record"] for cluster in clusters for image in cluster["images"]}

    def _draw_sizes(self) -> list[Any]:
        drawn = []
        for name, show in _SIZES.items():
            histogram = self._measures.sizes.get(name)
            if histogram is None or not histogram.number:
                continue
            title = f"{name[0].upper()}{name[1:]}"
            if name.endswith(("height", "width")):
                title += ", pixels"
            if histogram.is_constant:
                drawn.append((title, "", f"all {show(histogram.least)}"))
            else:
                drawn.append((title, charts.draw_histogram(histogram, title, show), ""))
        return drawn

    def _describe_boxes(self) -> dict[str, Any] | None:
        boxes = self._dataset.statistics.get("boxes")
        if not boxes:
            return None
        sizes = self._measures.sizes
        names = self._dataset.class_names
        by_class = [
            (names[label] if label < len(names) else str(label), number)
            for label, number in self._measures.boxes.items()
        ]
        by_class.sort(key=lambda pair: (-pair[1], pair[0]))
        return {
            "statistics": boxes,
            "by_class": by_class[:_MOST_CLASS_ROWS],
            "per_image": charts.draw_histogram(sizes["boxes of an image"], "Boxes per image"),
            "sizes": charts.draw_histogram(
                sizes["size of boxes"], "Side of a box as a fraction of its image"
            ),
            "centers": charts.draw_heat_map(self._measures.centers, "Centers of boxes"),
        }

    def _describe_masks(self) -> list[dict[str, Any]]:
        masks = self._dataset.statistics.get("masks")
        if not masks:
            return []
        total = max(sum(value["pixels"] for value in masks["values"].values()), 1)
        return [
            {"value": name, "images": value["images"], "share": value["pixels"] / total}
            for name, value in masks["values"].items()
        ]

    def _list_options(self) -> list[tuple[str, str]]:
        options = self._dataset.options
        given = [name for name in sorted(options) if options[name] is not None]
        return [(name, show_text(json.dumps(options[name]))) for name in given]


def _rank_cluster(cluster: Mapping[str, Any]) -> tuple[bool, int]:
    """Returns a key to sort clusters: by what they cross, then by dissimilarity of images."""
    distance = max(image["distance"] or 0 for image in cluster["images"])
    crosses_none = not cluster["across_splits"] and not cluster["across_classes"]
    return crosses_none, distance


def _group_findings(findings: Sequence[ShownFinding]) -> list[FindingGroup]:
    groups = []
    for severity in Severity:
        grave = [shown for shown in findings if shown.finding.severity is severity]
        if grave:
            groups.append(FindingGroup(severity.value, grave))
    return groups


def _choose_images(images: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chooses some images of a cluster: first one from each split and class, then others."""
    seen = set[tuple[str, str | None]]()
    first = list[dict[str, Any]]()
    others = list[dict[str, Any]]()
    for image in images:
        place = (image["split"], image["class"])
        (others if place in seen else first).append(image)
        seen.add(place)
    return [*first, *others][:_MOST_IN_CLUSTER]
