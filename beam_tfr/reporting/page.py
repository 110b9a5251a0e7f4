"""The page itself: the template, and what it is filled with."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import html
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Any

import jinja2

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import Printable
from beam_tfr.copies.images import read_images
from beam_tfr.copies.search import Duplicates, check_distance, find_duplicates
from beam_tfr.copies.summary import is_summarized
from beam_tfr.dataset.history import describe_updates
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.metadata.summary import describe_dataset, given_texts
from beam_tfr.options import ConvertOptions
from beam_tfr.reporting import charts
from beam_tfr.reporting.findings import list_findings
from beam_tfr.reporting.measuring import Measures, measure
from beam_tfr.reporting.odd_labels import OddLabels, find_odd_labels
from beam_tfr.reporting.refused import list_rejects
from beam_tfr.reporting.samples import RecordPictures, choose_classes, encode_all, show_text
from beam_tfr.reporting.source_files import SourceFiles
from beam_tfr.reporting.table_columns import describe_columns
from beam_tfr.schema.arguments import public
from beam_tfr.schema.dataset import NO_SPLIT, REPORT_FILE, sort_splits
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, noun_of
from beam_tfr.schema.errors import UsageError, spell_as_flags
from beam_tfr.version import __version__

_MOST_CLUSTERS = 12
_MOST_IN_CLUSTER = 6
_MOST_CLASS_ROWS = 5_000
_SEARCHED_CLASSES = 20  # from so many on, there is a field to search them
_EXTREMES = {  # name of a measure -> title
    "darkest": "Darkest",
    "brightest": "Brightest",
    "flattest": "Least contrast",
    "smallest": "Smallest sources",
}
_ASPECT_TITLES = {"crop": "Most cropped", "stretch": "Most stretched", "pad": "Widest margins"}
_SIZES = {  # name of a measure -> how its numbers are shown
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


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ReportPage(Printable):
    """A page about a dataset.

    A notebook shows it; `save` writes it.

    Attributes:
        manifest: manifest of the dataset.
        html: the page, which needs no other file.
        findings: what deserves a look, a sentence each.
    """

    manifest: Manifest
    html: str
    findings: tuple[str, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, local or gs://.

        Raises:
            UsageError: the file cannot be written.
        """
        location = storage.check_path(path, option="path")
        try:
            scratch = location.rpartition("/")[0]
            storage.write_bytes(location, self.html.encode(), scratch=scratch)
        except OSError as error:
            message = f"cannot be written: {error.strerror or error}"
            raise UsageError(message, option="path", value=location) from None

    def lines(self) -> Iterator[str]:
        """Yields what deserves a look, a line each."""
        if not self.findings:
            yield "nothing stands out"
        yield from self.findings

    def _repr_html_(self) -> str:
        page = html.escape(self.html)
        return (
            f'<iframe srcdoc="{page}" title="report" style="width: 100%; height: 800px; '
            'border: 0"></iframe>'
        )


@public
def report(
    path: str | os.PathLike[str],
    *,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    progress: Callable[[Progress], object] | None = None,
) -> ReportPage:
    """Makes a page about a dataset: what deserves a look, classes, samples, rejects, sizes, copies.

    Reads the manifest, the contents of all shards, and a few hundred records by themselves.

    Args:
        path: folder that `convert` wrote, local or gs://.
        sources: the patterns or tables that the dataset was made from, and the folder of
            `image_root=`; then rejects have thumbnails.
        progress: called with a `Progress` for each shard of which the contents are read.

    Raises:
        NotFoundError: there is no such folder.
        DataError: the folder holds no complete dataset, or a file of it is missing or damaged.
        NotInstalledError: pyarrow is missing.
        UsageError: there is no such source.
    """
    dataset = read_manifest(storage.check_path(path))
    given = [sources] if isinstance(sources, str | os.PathLike) else sources
    paths = [os.fspath(source) for source in given]
    with contextlib.ExitStack() as stack:
        files = None
        if paths:
            files = stack.enter_context(SourceFiles(dataset, paths))
        measures = measure(dataset, progress)
        odd = find_odd_labels(dataset)
        variables = _Facts(dataset, measures, odd, files).as_variables()
    findings = [
        finding._replace(text=spell_as_flags(finding.text))
        for finding in list_findings(dataset, measures, odd)
    ]
    text = _template().render(variables, findings=findings)
    sentences = tuple(finding.text for finding in findings)
    return ReportPage(manifest=dataset, html=text, findings=sentences)


def write_report(
    folder: str, options: ConvertOptions, progress: Callable[[Progress], object] | None = None
) -> None:
    """Writes the page about a dataset that was just made into its folder.

    Args:
        folder: of the dataset.
        options: those of the run, which name the sources. If these cannot be opened by them alone,
            the page is made without.
        progress: see `report`.

    Raises as `report`.
    """
    sources = [*options.input, *options.table]
    if options.image_root:
        sources.append(storage.join(options.image_root, ""))
    try:
        page = report(folder, sources=sources, progress=progress)
    except UsageError:
        page = report(folder, progress=progress)
    page.save(storage.join(folder, REPORT_FILE))


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["bytes"] = charts.format_bytes
    environment.filters["text"] = show_text
    return environment.get_template("page.html")


def _read_file(name: str) -> str:
    return (resources.files("beam_tfr.reporting") / name).read_text(encoding="utf-8")


class _Facts:
    """What the template is filled with.

    Args:
        dataset: the dataset.
        measures: of its records.
        odd: records with other classes than those around them.
        sources: see `report`.
    """

    def __init__(
        self,
        dataset: Manifest,
        measures: Measures,
        odd: OddLabels,
        sources: SourceFiles | None,
    ) -> None:
        self._dataset = dataset
        self._measures = measures
        self._odd = odd
        self._sources = sources
        self._has_images = dataset.options["encoding"] in IMAGE_ENCODINGS
        self._pictures = RecordPictures(dataset)

    def as_variables(self) -> dict[str, Any]:
        """The variables of the template."""
        dataset = self._dataset
        rejects = list_rejects(dataset, self._sources)
        copies = self._find_copies()
        clusters = [] if copies is None else self._choose_clusters(copies)
        class_rows = choose_classes(dataset, self._measures.samples)
        extremes = self._choose_extremes()
        if self._has_images:
            self._read_pictures(class_rows, extremes, clusters)
        shown = self._pictures.list_drawn()
        for group in rejects:
            shown += group.pictures
        encode_all(shown)
        return {
            "css": _read_file("page.css"),
            "script": _read_file("page.js"),
            "dataset": dataset,
            "noun": noun_of(dataset.options["encoding"]),
            "about": describe_dataset(dataset),
            "has_images": self._has_images,
            "num_rejected": sum(dataset.counts["rejected"].values()),
            "splits": [name for name in sort_splits(dataset.splits) if name != NO_SPLIT],
            "classes": self._list_classes(),
            "more_classes": max(len(dataset.class_names) - _MOST_CLASS_ROWS, 0),
            "is_searchable": len(dataset.class_names) >= _SEARCHED_CLASSES,
            "class_rows": class_rows,
            "extremes": extremes,
            "odd": self._odd,
            "pictures": self._pictures,
            "rejects": rejects,
            "has_sources": self._sources is not None,
            "charts": self._draw_sizes(),
            "boxes": self._describe_boxes(),
            "masks": self._describe_masks(),
            "columns": describe_columns(self._measures),
            "copies": copies,
            "clusters": clusters,
            "given": given_texts(dataset),
            "options": self._list_options(),
            "updates": [*describe_updates(dataset.folder)],
            "version": __version__,
        }

    def _read_pictures(self, class_rows: Any, extremes: Any, clusters: Any) -> None:
        numbers = [number for row in class_rows for number in row.records]
        numbers += [number for _, records in extremes for number, _ in records]
        numbers += [image["record"] for cluster in clusters for image in cluster["images"]]
        numbers += [record.record for record in self._odd.shown]
        self._pictures.read(numbers)

    def _list_classes(self) -> list[dict[str, Any]]:
        """A row for each class: its name, its records, and how many these are of all."""
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

    def _choose_extremes(self) -> list[tuple[str, list[tuple[int, float]]]]:
        """Titles, each with records and the values that make them extreme."""
        if not self._has_images:
            return []
        titles = dict(_EXTREMES)
        resize = self._dataset.options.get("resize", "")
        if resize in _ASPECT_TITLES:
            titles["aspect"] = _ASPECT_TITLES[resize]
        chosen = []
        for name, title in titles.items():
            records = [*self._measures.extremes[name]]
            if records:
                chosen.append((title, records))
        return chosen

    def _find_copies(self) -> Duplicates | None:
        """The copies; None if there are too many records, or nothing to compare."""
        if not is_summarized(self._dataset):
            return None
        distance = check_distance(self._dataset, None)
        return find_duplicates(self._dataset, read_images(self._dataset), distance)

    def _choose_clusters(self, copies: Duplicates) -> list[dict[str, Any]]:
        clusters = itertools.islice(copies.clusters(), _MOST_CLUSTERS)
        return [{**cluster, "images": _choose_images(cluster["images"])} for cluster in clusters]

    def _draw_sizes(self) -> list[Any]:
        drawn = []
        for name, show in _SIZES.items():
            histogram = self._measures.sizes.get(name)
            if histogram is None or not histogram.number:
                continue
            title = f"{name[0].upper()}{name[1:]}"
            if histogram.is_constant:
                drawn.append((title, "", f"{show(histogram.least)} in all"))
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
            "per_image": charts.draw_histogram(sizes["boxes of an image"], "Boxes of an image"),
            "sizes": charts.draw_histogram(
                sizes["size of boxes"], "Side of a box as a share of its image"
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
        return [(name, show_text(json.dumps(options[name]))) for name in sorted(options)]


def _choose_images(images: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some images of a cluster: the first of each split and class, then others."""
    seen = set[tuple[str, str | None]]()
    first = list[dict[str, Any]]()
    others = list[dict[str, Any]]()
    for image in images:
        place = (image["split"], image["class"])
        (others if place in seen else first).append(image)
        seen.add(place)
    return [*first, *others][:_MOST_IN_CLUSTER]
