"""What comes from outside is bounded: tables, archives, lists and links that are made to hurt."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_tfr.commands import calls
from beam_tfr.dataset import taken_down
from beam_tfr.features import cells
from beam_tfr.inputs import class_files, patterns
from beam_tfr.inputs.listing import order_parts
from beam_tfr.options import kinds
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.tables import doubts, first_rows, image_sets
from beam_tfr.tables.annotations import json_files
from beam_tfr.tables.unused import boxes
from beam_tfr.verification import shard_check
from tests.converted import once, write_photos
from tests.cpu_limit import SLOWER
from tests.faults import outside
from tests.faults.reading import Reader, Reading

HURTING = {**outside.HURTING_TABLES, **outside.HURTING_ARCHIVES}
# The others take seconds.
QUICK = (
    "lists.rows.jsonl.gz",
    "quoted.rows.csv.gz",
    "header.rows.csv.gz",
    "pax.tar",
    "long-name.tar",
    "long.samples.tar",
    "offset.zip",
    "size.zip",
    "deep.json",
)
CHANGES = 10  # of each kind, to be quick
MANY_CHANGES = 30  # `python -m tests.faults` makes more


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with Reader() as opened:
        yield opened


def hurt(reader: Reader, name: str, folder: Path) -> Reading:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(HURTING[name]())
    return reader.read(path)


@pytest.mark.parametrize("name", QUICK)
def test_what_is_made_to_hurt_is_bounded(reader: Reader, name: str, tmp_path: Path) -> None:
    reading = hurt(reader, name, tmp_path)
    assert not reading.problem
    assert reading.said or reading.rejects
    assert reading.peak_bytes < outside.MOST_PEAK_BYTES / 4
    assert reading.seconds < outside.LONGEST_S


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*HURTING} - {*QUICK}))
def test_all_that_is_made_to_hurt_is_bounded(reader: Reader, name: str, tmp_path: Path) -> None:
    reading = hurt(reader, name, tmp_path)
    assert not reading.problem
    assert reading.peak_bytes < outside.MOST_PEAK_BYTES
    assert reading.seconds < SLOWER * outside.LONGEST_S


@pytest.mark.parametrize("trials", [outside.changed_tables, outside.changed_archives])
def test_changed_files_give_rows_or_an_error_that_names_them(
    trials: Callable[[Path], Callable[[int], Any]], tmp_path: Path
) -> None:
    trial = trials(tmp_path)
    assert [trial(seed).problems for seed in range(CHANGES)] == [[]] * CHANGES


@pytest.mark.slow
@pytest.mark.parametrize("trials", [outside.changed_tables, outside.changed_archives])
def test_many_changed_files_give_rows_or_an_error_that_names_them(
    trials: Callable[[Path], Callable[[int], Any]], tmp_path: Path
) -> None:
    trial = trials(tmp_path)
    seeds = range(CHANGES, CHANGES + MANY_CHANGES)
    assert [problem for seed in seeds for problem in trial(seed).problems] == []


def test_sound_files_are_read(reader: Reader, tmp_path: Path) -> None:
    outside.write_yolo(tmp_path / "yolo")
    sound = {**outside.SOUND_TABLES, **outside.SOUND_ARCHIVES}
    for name, make in sound.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make())
    for name in sound:
        path = tmp_path / name
        reading = reader.read(tmp_path / "yolo/data.yaml" if name.startswith("yolo") else path)
        assert not reading.problem, name
        assert not reading.said, reading.said
        assert reading.rows > reading.rejects, name


def test_lists_have_a_longest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MAX_LIST_BYTES", 1 << 20)
    path = tmp_path / "list.txt"
    path.write_bytes(b"")
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # which takes no room on the disk
    with pytest.raises(UsageError, match="has more than 1 MiB") as caught:
        patterns.read_lines(str(path), option="classes", needs="one class per line")
    assert str(path) in str(caught.value)
    folder = tmp_path / "ImageSets/Main"
    folder.mkdir(parents=True)
    path.rename(folder / "train.txt")
    with pytest.raises(UsageError, match="is larger than 64 MiB"):
        image_sets.read_image_sets(f"{tmp_path}/Annotations/")


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "9" * 5_000,
        "#" * (2 << 20),
        # Long names took the square of their length.
        "a." * 250_000 + "a = 1",
        'a."b.c".' * 80_000 + "a = 1",
        '"' + '\\"' * 500_000 + " =",
    ],
)
def test_hostile_options_of_a_file_are_an_error_at_once(
    text: str, tmp_path: Path, beam_tfr: Callable[..., Any]
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    run = beam_tfr("convert", "--config", path)
    assert run.code == 2
    assert re.search(rf"--config {re.escape(str(path))}: (is not valid TOML|has )", run.err)


def test_dots_in_texts_of_a_file_of_options_are_no_names() -> None:
    many = "a." * 1_000
    assert not calls._has_long_key(f'a = "{many}"  # {many}\nb = \'{many}\'\n"{many}".c = [1.5]')
    assert calls._has_long_key(f'a = "b"\n{many}d = 1')


def test_patterns_that_may_match_the_same_files_are_bounded() -> None:
    paths = [f"/a/{number}.jpg" for number in range(20_000)]
    few = [f"/a/*{number}.jpg" for number in range(4)]
    assert len(patterns.order_patterns([*paths, *few])) == len(paths) + len(few)
    many = [f"/a/*{number}.jpg" for number in range(2_100)]
    with pytest.raises(UsageError, match="`input_list=`: too many of the 2,100 patterns"):
        order_parts([], many)
    apart = [f"/{number}/*.jpg" for number in range(4_000)]
    assert len(order_parts([], apart)) == len(apart)


def test_links_that_are_skipped_are_told(tmp_path: Path, beam_tfr: Callable[..., Any]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "real").symlink_to(once("photos", write_photos) / "train")
    (photos / "twice").symlink_to(once("photos", write_photos) / "train")
    for command in ("plan", "convert"):
        run = beam_tfr(
            command,
            *("--input", photos, "--output", tmp_path / "out", "--layout", "{split}/{label}/*"),
        )
        assert run.code == 0
        assert "each folder is listed once" in run.out


@pytest.mark.parametrize("begin", ["", "+", "$", "-", "[", "['a', "])
@pytest.mark.parametrize("end", ["x", "%x", "e+x", "."])
@pytest.mark.timeout(100)
def test_long_cells_are_looked_at_in_linear_time(begin: str, end: str) -> None:
    """They took the square of their length: 20 s for 60,000 digits."""
    cell = f"{begin}{'1' * 300_000}{end}"
    assert not cells.NUMBER.fullmatch(cell) or cell[-1] == "."
    assert cells.parse_list(cell) is None
    assert not doubts._MARKED.fullmatch(cell) or cell[-1] == "."


@pytest.mark.timeout(100)
def test_other_long_texts_are_looked_at_in_linear_time() -> None:
    """They took the square of their length, and cells of boxes the fifth power."""
    many = 300_000
    assert not cells._BOX.fullmatch(f"{'1' * many} " * 3 + "1" * many + "x")
    assert cells._BOX.fullmatch("(1, -2.5 .5e3,4.)")
    for line in ("1" + ")" * many + "1", "a" * many, "1 " * many, " " * many + "x"):
        assert not class_files._have_numbers([line, line], class_files._NUMBER_FIRST)
        assert not class_files._have_numbers([line, line], class_files._NUMBER_LAST)
    assert image_sets._without_numbers("a  b 1 -1") == "a  b"
    assert image_sets._without_numbers("a" + " 1" * many + "x") == "a" + " 1" * many + "x"
    assert image_sets._without_numbers("a" + " " * many + "b") == "a" + " " * many + "b"
    assert not boxes._OBJECTS.fullmatch("_" * many)
    unended = b'["NaN\\"\n", NaN, ' + b'\\"' * many
    assert json_files._without_nan(unended) == unended.replace(b", NaN,", b", null,")
    assert not kinds._SHARE.fullmatch(" " * many + "x")
    assert boxes._OBJECTS.fullmatch("my_ANNOTATIONS")


@pytest.mark.parametrize("cell", ["", "a", "12", "é" * 9, 7, 10**30, 1.5, ["ab", 1.5], {"a": "bc"}])
def test_cells_of_first_rows_are_counted_with_all_that_they_take(cell: Any) -> None:
    """A thousand columns of two digits took 30 times what was counted."""
    place = 8
    taken = 0 if isinstance(cell, str) and len(cell) < 2 else sys.getsizeof(cell)
    assert first_rows._measure_cell(cell) >= 0.9 * (place + taken)


def test_files_beside_a_dataset_have_a_longest_size(tmp_path: Path) -> None:
    for name in ("removed.txt", "contents.sha256"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)  # which takes no room on the disk
    with pytest.raises(DataError, match=r"removed\.txt has more than 256 MiB"):
        taken_down.read_removed(str(tmp_path))
    assert shard_check.read_sums(str(tmp_path)) == {}
