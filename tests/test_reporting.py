"""The page about a dataset: what it measures, and what it shows."""

from __future__ import annotations

import html.parser
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr.dataset.class_samples import ClassSamples
from beam_tfr.dataset.manifest import manifest_digest, read_manifest
from beam_tfr.features.gray_png import encode_gray
from beam_tfr.inspection.legend import DrawnShapes
from beam_tfr.reporting import charts, report
from beam_tfr.reporting.histograms import SHADES, Extremes, HeatMap, Histogram
from beam_tfr.schema.feature_names import MASK
from tests.conftest import Run
from tests.converted import converted_photos, converted_spoiled_photos, spoiled_photos

NUMBERS = st.lists(st.floats(allow_nan=True, width=32), max_size=50)
PARTS = st.lists(NUMBERS, max_size=5)


@given(PARTS)
def test_a_histogram_counts_each_number_once(parts: list[list[float]]) -> None:
    histogram = Histogram(SHADES)
    for part in parts:
        histogram.add(part)
    finite = [value for part in parts for value in part if np.isfinite(value)]
    assert histogram.counts.sum() == histogram.number == len(finite)
    if finite:
        assert (histogram.least, histogram.most) == (min(finite), max(finite))


@given(PARTS)
def test_extremes_are_the_lowest_of_all_parts(parts: list[list[float]]) -> None:
    extremes = Extremes(3)
    first = 0
    pairs = list[tuple[float, int]]()
    for part in parts:
        records = first + np.arange(len(part))
        extremes.add(part, records)
        pairs += [(v, r) for v, r in zip(part, records.tolist(), strict=True) if np.isfinite(v)]
        first += len(part)
    assert [*extremes] == [(record, value) for value, record in sorted(pairs)[:3]]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200), st.integers(1, 199))
def test_samples_of_a_class_do_not_depend_on_shards(labels: list[int], cut: int) -> None:
    records = np.arange(len(labels))
    numbers = np.array(labels)
    whole = ClassSamples(4)
    whole.add(numbers, records)
    parts = ClassSamples(4)
    parts.add(numbers[:cut], records[:cut])
    parts.add(numbers[cut:], records[cut:])
    for label in range(4):
        chosen = whole.of_class(label, 4)
        assert chosen == parts.of_class(label, 4)
        assert len({*chosen}) == min(4, labels.count(label))
        assert all(labels[record] == label for record in chosen)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30))
def test_a_heat_map_counts_each_point_once(points: list[tuple[float, float]]) -> None:
    heat_map = HeatMap()
    x, y = np.array(points, np.float64).reshape(-1, 2).T
    heat_map.add(x, y)
    assert heat_map.counts.sum() == len(points)


class _Outside(html.parser.HTMLParser):
    """Lists what a page would load, or run, that is not in it."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded = list[str]()
        self.handlers = list[str]()
        self.tags = list[str]()
        self.ids = set[str]()
        self.links = set[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "href", "data", "poster", "action"):
                self.loaded.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)
            if name == "id":
                self.ids.add(value or "")
            if name == "href" and value and value.startswith("#"):
                self.links.add(value[1:])


def parse_page(page: str) -> _Outside:
    parser = _Outside()
    parser.feed(page)
    return parser


def check_page(page: str) -> _Outside:
    """Checks that a page needs no other file, and that its links lead somewhere."""
    assert len(page.encode()) <= 2_000_000
    parsed = parse_page(page)
    assert all(url.startswith(("#", "data:image/jpeg;base64,")) for url in parsed.loaded)
    assert not parsed.handlers
    assert parsed.links <= parsed.ids
    return parsed


def test_the_page_is_the_same_twice_and_needs_nothing_else() -> None:
    folder = converted_photos()
    page = report(folder)
    assert page.html == report(folder).html
    parsed = check_page(page.html)
    assert parsed.tags.count("img") >= 18  # all of this small dataset
    assert "hat" in page.html
    assert str(folder) not in page.html


def test_the_page_of_a_copy_elsewhere_is_the_same(tmp_path: Path) -> None:
    folder = converted_photos()
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert report(copy).html == report(folder).html


def test_rejects_are_shown_with_their_reasons_and_those_that_decode() -> None:
    folder = converted_spoiled_photos()
    bare = parse_page(report(folder).html)
    page = report(folder, sources=f"{spoiled_photos()}/**/*.jpg")
    check_page(page.html)
    for reason in ("damaged-image", "empty-file", "not-an-image", "not-found", "layout-mismatch"):
        assert reason in page.html
    with_sources = parse_page(page.html)
    assert with_sources.tags.count("img") > bare.tags.count("img")  # loose.jpg and a.jpg decode


def write_image(path: Path, seed: int, size: tuple[int, int] = (40, 30)) -> None:
    """Writes an image of colored squares."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    PIL.Image.fromarray(pixels).resize(size, PIL.Image.Resampling.NEAREST).save(path)


def convert_table(beam_tfr: Callable[..., Run], table: Path, *flags: str) -> Path:
    """Converts images that a table names, with their labels, to a folder beside it."""
    output = table.parent / "out"
    columns = ("--uri_column", "path", "--label_column", "label")
    run = beam_tfr("convert", "--table", table, *columns, *flags, "--output", output)
    assert run.code == 0, run.err
    return output


@pytest.fixture
def planted(tmp_path: Path, beam_tfr: Any) -> Path:
    """A dataset with a black image, copies across splits, wrong labels and a missing class."""
    rows = ["path,label,split"]
    for label, first in (("cat", 0), ("dog", 100)):
        for number in range(30):
            name = f"{label}/{number}.png"
            write_image(tmp_path / name, first + number)
            split = "test" if number < 5 and label == "cat" else "train"
            wrong = label == "dog" and number in (7, 9)
            rows.append(f"{name},{'cat' if wrong else label},{split}")
    write_image(tmp_path / "cat/copy.png", 0)  # of cat/0.png, which is in test
    rows.append("cat/copy.png,cat,train")
    PIL.Image.new("RGB", (40, 30)).save(tmp_path / "cat/black.png")
    rows.append("cat/black.png,cat,train")
    rows.append("cat/absent.png,cat,train")
    table = tmp_path / "photos.csv"
    table.write_text("\n".join(rows) + "\n")
    return convert_table(beam_tfr, table, "--split_column", "split")


def test_what_was_planted_is_found(planted: Path) -> None:
    page = report(planted)
    check_page(page.html)
    text = "\n".join(page.findings)
    assert "class dog has no image in test" in text
    assert "2 images have a different class" in text
    assert "1 image has copies in another split" in text
    assert "1 image is nearly black" in text
    assert "not-found" in text
    assert "cat/black.png" in page.html


def test_a_file_in_the_wrong_folder_is_found_by_its_name(tmp_path: Path, beam_tfr: Any) -> None:
    for number in range(60):
        label = "cat" if number % 2 else "dog"
        folder = "dog" if number == 7 else label
        write_image(tmp_path / "pets" / folder / f"{label}_{number:03}.png", number)
    output = tmp_path / "out"
    assert beam_tfr("convert", "--input", tmp_path / "pets", "--output", output).code == 0
    page = report(output)
    (finding,) = [text for text in page.findings if "different class" in text]
    assert "1 image has a different class" in finding
    assert "dog instead of cat for cat" in finding


def test_sources_are_beside_what_is_extreme(planted: Path) -> None:
    bare = parse_page(report(planted).html)
    root = planted.parent
    (root / "cat" / "black.png").unlink()
    page = report(planted, sources=[root / "photos.csv", f"{root}/"])
    with_sources = check_page(page.html)
    extremes = page.html.partition("Darkest")[2].partition("<section")[0]
    sources = extremes.count("<figcaption>source")
    assert with_sources.tags.count("img") == bare.tags.count("img") + sources
    assert sources > 10
    assert "its source cannot be read: not-found" in extremes


def test_a_source_that_was_changed_is_told(planted: Path) -> None:
    root = planted.parent
    write_image(root / "cat" / "black.png", 1)  # another image than before
    page = report(planted, sources=[root / "photos.csv", f"{root}/"])
    assert "its source has changed since" in page.html


def test_classes_of_boxes_and_values_of_masks_have_a_legend() -> None:
    shapes = DrawnShapes()
    mask = encode_gray(np.array([[0, 1], [4, 4]], np.uint8))
    shapes.add({"image/height": [2], "image/width": [2], MASK: [mask]})
    (legend,) = shapes.list_legends(read_manifest(str(converted_photos())).class_names)
    assert [entry.text for entry in legend.entries] == ["1", "4"]
    assert len({entry.color for entry in legend.entries}) == 2


HOSTILE = [
    "<script>alert(1)<",
    '"><img src=x onerror=alert(1)>',
    "\u202egpj.exe",
    "{{ 7 * 7 }}",
    "a" * 150,
]


def test_hostile_names_are_text(tmp_path: Path, beam_tfr: Any) -> None:
    rows = []
    for number, name in enumerate(HOSTILE):
        write_image(tmp_path / f"{number}.png", number)
        rows.append(json.dumps({"path": f"{number}.png", "label": name, "<b>column</b>": name}))
    table = tmp_path / "photos.jsonl"
    table.write_text("\n".join(rows) + "\n")
    page = report(convert_table(beam_tfr, table, "--feature_columns", "*")).html
    parsed = check_page(page)
    assert "b" not in parsed.tags
    assert "script" not in parsed.tags  # too few classes to search them
    assert "\u202e" not in page
    assert "49" not in [line.strip() for line in page.splitlines()]


@pytest.mark.parametrize("change", [{"splits": {}}, {"tool_version": "\ud800"}])
def test_a_manifest_from_elsewhere_has_a_page(change: dict[str, Any], tmp_path: Path) -> None:
    """Without records nothing is extreme, and UTF-8 cannot hold all texts of JSON."""
    folder = Path(shutil.copytree(converted_photos(), tmp_path / "d"))
    path = folder / "manifest.json"
    fields = json.loads(path.read_text()) | change
    fields["manifest_digest"] = manifest_digest(fields)
    path.write_text(json.dumps(fields))
    report(folder).save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_convert_writes_the_page_and_an_update_removes_it(
    photos: Path, tmp_path: Path, beam_tfr: Any
) -> None:
    output = tmp_path / "out"
    given: list[Any] = ["--input", photos, "--layout", "{split}/{label}/*"]
    run: Run = beam_tfr("convert", *given, "--output", output, "--report")
    assert run.code == 0, run.err
    page = output / "report.html"
    check_page(page.read_text(encoding="utf-8"))
    assert beam_tfr("verify", output).code == 0
    next(photos.rglob("*.jpg")).unlink()
    assert beam_tfr("update", output, "--input", photos).code == 0
    assert not page.exists()
    assert beam_tfr("report", output).code == 0
    assert page.exists()


def test_a_chart_shows_all_values() -> None:
    histogram = Histogram(SHADES)
    histogram.add([0, 3, 100, 255, 255])
    chart = charts.draw_histogram(histogram, "Brightness")
    assert chart.count("<rect") == 3
    assert "Brightness: 0 to 255" in chart


def test_a_dataset_without_images_has_a_page(tmp_path: Path, beam_tfr: Any) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("age,city\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(40)))
    run = beam_tfr(
        "convert", "--table", table, "--encoding", "row", "--feature_columns", "*",
        "--output", tmp_path / "out",
    )  # fmt: skip
    assert run.code == 0, run.err
    page = report(tmp_path / "out").html
    assert "img" not in check_page(page).tags
    assert "Column age" in page
