"""Datasets whose classes are divided by shares: converted, updated, read."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

import beam_tfr
from beam_tfr import cli, reader
from tests.portable_runners import PROCESSES, THREADS
from tests.updates import convert, files_of, fresh, paint, update

SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}
SMALL: dict[str, Any] = {"image_size": 8, "splits": SHARES, "stratify": True}


def write(folder: pathlib.Path, sizes: Mapping[str, int], first: int = 0) -> None:
    """Writes so many photos of each class, with numbers from `first` on."""
    for name, images in sizes.items():
        for number in range(first, first + images):
            paint(folder / name / f"{number:03}.jpg", number + 211 * ord(name[0]))


def keys_of(folder: pathlib.Path) -> dict[str, str]:
    """Key -> split."""
    rows = {}
    for split in reader.open(folder).split_names:
        table = beam_tfr.contents(folder, split).to_table(columns=["key"])
        rows |= dict.fromkeys(table.column("key").to_pylist(), split)
    return rows


def counts_of(folder: pathlib.Path) -> dict[str, dict[str, int]]:
    """Split -> class -> records."""
    splits = reader.open(folder).splits
    return {name: dict(split.class_counts) for name, split in splits.items()}


@pytest.fixture
def photos(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "photos"
    write(folder, {"cat": 20, "dog": 11, "owl": 5})
    return folder


@pytest.mark.slow
def test_a_dataset_grows_and_shrinks_and_no_image_moves(
    tmp_path: pathlib.Path, photos: pathlib.Path
) -> None:
    output = tmp_path / "d"
    result = convert(output, input=photos, **SMALL)
    preview = beam_tfr.plan(input=photos, progress=False, **SMALL)
    planned = {name: split.class_counts for name, split in preview.plan.splits.items()}
    assert counts_of(output) == planned
    assert counts_of(output)["test"] == {"cat": 2, "dog": 1, "owl": 1}
    assert not any("share" in note for note in result.notes)
    before = keys_of(output)

    write(photos, {"cat": 10, "dog": 4, "new": 10}, first=100)
    result = update(output, input=photos)
    after = keys_of(output)
    assert before.items() <= after.items()
    assert result.run["moved"] == 0
    assert result.changed["added"] == 24
    counts = counts_of(output)
    assert counts["test"] == {"cat": 3, "dog": 3 - counts["validation"]["dog"], "new": 1, "owl": 1}
    assert counts["validation"]["cat"] == 3
    assert beam_tfr.verify(output, progress=False).ok

    beam_tfr.remove(output, keys=["cat/000.jpg", "owl/001.jpg"], progress=False)
    kept = keys_of(output)
    assert kept.items() <= after.items()
    assert len(kept) == len(after) - 2
    again = update(output, input=photos)
    assert keys_of(output) == kept
    assert again.run["moved"] == 0

    result = update(output, input=photos, resplit=True)
    moved = sum(kept[key] != split for key, split in keys_of(output).items())
    assert result.run["moved"] == moved > 0
    assert f"{moved} moved" in "\n".join(result.lines())


@pytest.mark.slow
def test_an_update_that_divides_anew_is_a_fresh_conversion(
    tmp_path: pathlib.Path, photos: pathlib.Path
) -> None:
    output = tmp_path / "d"
    convert(output, input=photos, image_size=8)
    write(photos, {"cat": 3, "owl": 9}, first=100)
    options = {"folds": 3, "stratify": True}
    update(output, input=photos, resplit=True, **options)
    assert files_of(output) == fresh(tmp_path / "f", input=photos, image_size=8, **options)
    unchanged = files_of(output)
    update(output, input=photos)
    assert files_of(output) == unchanged


@pytest.mark.slow
def test_groups_stay_together_and_new_images_follow_them(tmp_path: pathlib.Path) -> None:
    photos = tmp_path / "photos"
    for number in range(40):
        paint(photos / ("cat", "dog")[number % 2] / f"p{number // 5}" / f"{number}.jpg", number)
    options = {**SMALL, "layout": "{label}/{group}/*", "splits": {"a": 0.5, "b": 0.5}}
    output = tmp_path / "d"
    convert(output, input=photos, **options)
    before = keys_of(output)
    groups = {key.split("/")[1]: split for key, split in before.items()}
    assert all(groups[key.split("/")[1]] == split for key, split in before.items())
    paint(photos / "cat" / "p3" / "new.jpg", 99)
    update(output, input=photos)
    after = keys_of(output)
    assert before.items() <= after.items()
    assert after["cat/p3/new.jpg"] == groups["p3"]


def test_groups_larger_than_a_split_are_told(tmp_path: pathlib.Path) -> None:
    photos = tmp_path / "photos"
    for number in range(12):
        paint(photos / f"p{number // 6}" / f"{number}.jpg", number)
    options = {"layout": "{group}/*", "stratify": True, "image_size": 8}
    with pytest.raises(beam_tfr.UsageError, match=r"groups stay together.*use fewer"):
        convert(tmp_path / "d", input=photos, folds=3, **options)
    result = convert(tmp_path / "d", input=photos, folds=2, **options)
    assert {split.num_examples for split in result.splits.values()} == {6}


@pytest.mark.parametrize(
    "flags", [*THREADS.values(), pytest.param(PROCESSES, marks=pytest.mark.slow)]
)
def test_every_engine_divides_alike(tmp_path: pathlib.Path, flags: list[str]) -> None:
    photos = tmp_path / "photos"
    for number in range(60):
        folder = photos / "abc"[number % 3] / f"p{number // 5}"
        paint(folder / f"{number}.jpg", number)
    options = {**SMALL, "layout": "{label}/{group}/*"}
    expected = convert(tmp_path / "d", input=photos, **options).digest
    assert convert(tmp_path / "e", input=photos, beam_flags=flags, **options).digest == expected


@pytest.mark.slow
def test_copies_are_groups(tmp_path: pathlib.Path, photos: pathlib.Path) -> None:
    for number in range(12):
        source = photos / "cat" / f"{number:03}.jpg"
        (photos / "cat" / f"copy{number}.jpg").write_bytes(source.read_bytes())
    output = tmp_path / "d"
    convert(output, input=photos, **SMALL)
    before = keys_of(output)
    result = update(output, duplicates="group")
    after = keys_of(output)
    for number in range(12):
        assert after[f"cat/{number:03}.jpg"] == after[f"cat/copy{number}.jpg"]
    moved = sum(before[key] != split for key, split in after.items())
    assert result.run["moved"] == moved > 0
    assert all(before[key] == after[key] for key in before if not key.startswith("cat"))
    assert abs(counts_of(output)["test"]["cat"] - 3.2) <= 3
    fresh_files = fresh(tmp_path / "f", input=photos, duplicates="group", **SMALL)
    assert files_of(output) == fresh_files
    for number in range(12, 20):  # copies that come later follow the image that is there
        source = photos / "cat" / f"{number:03}.jpg"
        (photos / "cat" / f"copy{number}.jpg").write_bytes(source.read_bytes())
    update(output, input=photos)
    now = keys_of(output)
    assert after.items() <= now.items()
    for number in range(12, 20):
        assert now[f"cat/copy{number}.jpg"] == now[f"cat/{number:03}.jpg"]


def test_tables_are_divided_by_classes_and_groups(tmp_path: pathlib.Path) -> None:
    lines = ["class,person,value"]
    lines += [f"{'ab'[n % 2]},p{n % 10},{n}" for n in range(100)]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(lines))
    output = tmp_path / "d"
    options = {"label_column": "class", "splits": SHARES, "stratify": True}
    convert(output, table=table, **options)
    assert counts_of(output)["test"] == {"a": 5, "b": 5}
    table.write_text("\n".join([*lines, "a,p1,101", "b,p1,111"]))
    before = keys_of(output)
    update(output, table=table)
    assert before.items() <= keys_of(output).items()
    assert not convert(output, table=table, **options).fresh
    assert (
        "writes nothing"
        in beam_tfr.plan(table=table, output=output, progress=False, name="d", **options).outcome
    )
    grouped = tmp_path / "g"
    result = convert(grouped, table=table, group_column="person", **options)
    people = {}
    for split in ("train", "validation", "test"):
        values = beam_tfr.contents(grouped, split).to_table().column("value").to_pylist()
        people[split] = {value % 10 for value in values}
    assert sum(map(len, people.values())) == 10
    (note,) = [
        note
        for note in result.notes
        if " differs from its shares" in note or " differ from their" in note
    ]
    assert "`beam-tfr plan` names the largest" in note
    preview = beam_tfr.plan(table=table, group_column="person", progress=False, **options)
    assert any("the largest, p1, has 12 images" in warning for warning in preview.warnings)


def test_images_that_move_are_counted_where_no_record_is_copied(
    tmp_path: pathlib.Path, photos: pathlib.Path
) -> None:
    output = tmp_path / "d"
    convert(output, input=photos, **SMALL)
    before = keys_of(output)
    result = update(output, input=photos, image_size=9, seed=3, resplit=True)
    moved = sum(before[key] != split for key, split in keys_of(output).items())
    assert result.run["moved"] == moved > 0
    table = tmp_path / "t.csv"
    table.write_text("class,value\n" + "".join(f"{'ab'[n % 2]},{n}\n" for n in range(60)))
    options = {"label_column": "class", "splits": SHARES, "stratify": True}
    convert(tmp_path / "rows", table=table, **options)
    before = keys_of(tmp_path / "rows")
    result = update(tmp_path / "rows", table=table, seed=3, resplit=True)
    moved = sum(before[key] != split for key, split in keys_of(tmp_path / "rows").items())
    assert result.run["moved"] == moved > 0


def test_new_copies_are_not_counted_as_moved(tmp_path: pathlib.Path, photos: pathlib.Path) -> None:
    output = tmp_path / "d"
    splits = {"train": 0.5, "test": 0.5}
    convert(output, input=photos, image_size=8, splits=splits, duplicates="group")
    before = keys_of(output)
    for path in sorted(photos.rglob("*.jpg")):
        (path.parent / f"copy_{path.name}").write_bytes(path.read_bytes())
    result = update(output, input=photos)
    after = keys_of(output)
    assert all(after[key] == after[key.replace("/", "/copy_")] for key in before)
    assert result.run["moved"] == sum(after[key] != split for key, split in before.items())


def test_the_largest_group_is_named_where_shares_are_missed(tmp_path: pathlib.Path) -> None:
    photos = tmp_path / "photos"
    for number in range(30):
        paint(photos / "cat" / f"{'big' if number < 20 else number}" / f"{number}.jpg", number)
    options = {**SMALL, "layout": "{label}/{group}/*", "splits": {"a": 0.5, "b": 0.5}}
    result = convert(tmp_path / "d", input=photos, **options)
    preview = beam_tfr.plan(input=photos, progress=False, **options)
    report = beam_tfr.verify(tmp_path / "d", progress=False)
    for notes in (result.notes, preview.warnings, report.notes):
        assert any("the largest, big, has 20 images" in note for note in notes)


def test_groups_without_classes_that_miss_the_shares_are_told(tmp_path: pathlib.Path) -> None:
    """With how far off the splits are, and what to do about a group that is larger than one."""
    files = f"{tmp_path}/films/**/*.jpg"
    for number in range(30):
        film = tmp_path / "films" / f"{'long' if number < 18 else number // 6}"
        film.mkdir(parents=True, exist_ok=True)
        (film / f"{number}.jpg").write_bytes(b"frame %d" % number)
    output = tmp_path / "d"
    options: dict[str, Any] = {"encoding": "bytes", "layout": "{group}/*", "stratify": True}
    options["splits"] = {"train": 0.5, "test": 0.5}
    result = convert(output, input=files, **options)
    preview = beam_tfr.plan(input=files, progress=False, **options)
    report = beam_tfr.verify(output, progress=False)
    for notes in (result.notes, preview.warnings, report.notes):
        (note,) = [note for note in notes if " differ from their shares" in note]
        assert "18 images in " in note
        assert "instead of 15.0" in note
        assert "the largest, long, has 18 images, more than the share of" in note
        assert "smaller groups" in note


@pytest.mark.slow
def test_updates_are_no_reason_once_all_images_are_divided_anew(tmp_path: pathlib.Path) -> None:
    photos = tmp_path / "photos"
    for number in range(30):
        paint(photos / "cat" / f"{'big' if number < 20 else number}" / f"{number}.jpg", number)
    options = {**SMALL, "layout": "{label}/{group}/*", "splits": {"a": 0.5, "b": 0.5}}
    convert(tmp_path / "d", input=photos, **options)
    notes = {}
    for number, resplit in enumerate((False, True), 30):
        paint(photos / "cat" / "new" / f"{number}.jpg", number)
        result = update(tmp_path / "d", input=photos, resplit=resplit)
        notes[resplit] = [note for note in result.notes if " differs from its shares" in note]
    assert "`resplit=`" in notes[False][0]
    assert "`resplit=`" not in notes[True][0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stratify": True}, "`splits=`"),
        ({"folds": 3, "splits": SHARES}, "cannot be combined"),
        ({"folds": 1}, "2"),
        ({"folds": 3, "layout": "{split}/*"}, "cannot be combined"),
        ({"splits": {"a": 0.5, "b": 0.4}}, "add up to 1, not 0.9; with b=0.5 they do"),
        ({"splits": {"a": 1.5, "b": 0.4}}, "add up to 1, not 1.9"),
        ({"folds": 50, "stratify": True}, "use fewer"),
    ],
)
def test_what_cannot_be_divided_is_told(
    tmp_path: pathlib.Path, photos: pathlib.Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(beam_tfr.UsageError, match=message):
        convert(tmp_path / "d", input=photos, **options)


def test_classes_of_fewer_images_than_folds_are_named(
    tmp_path: pathlib.Path, photos: pathlib.Path
) -> None:
    write(photos, {"rare": 2})
    result = convert(tmp_path / "d", input=photos, image_size=8, folds=5, stratify=True)
    (note,) = [note for note in result.notes if "fewer images" in note]
    assert "rare" in note
    assert "owl" not in note


def test_an_update_says_when_images_would_have_to_move(
    tmp_path: pathlib.Path, photos: pathlib.Path
) -> None:
    output = tmp_path / "d"
    convert(output, input=photos, **SMALL)
    with pytest.raises(beam_tfr.UsageError, match=r"validation.*`resplit=`"):
        update(output, input=photos, splits={"train": 0.9, "test": 0.1})
    with pytest.raises(beam_tfr.UsageError, match="input"):
        update(output, resplit=True)
    update(output, input=photos, splits={"train": 0.9, "test": 0.1}, resplit=True)
    assert counts_of(output)["test"] == {"cat": 2, "dog": 1, "owl": 1}
    plain = tmp_path / "plain"
    convert(plain, input=photos, image_size=8)
    with pytest.raises(beam_tfr.UsageError, match="`resplit=` has no effect"):
        update(plain, input=photos, resplit=True)


def test_a_broken_shard_is_repaired_after_images_stayed(
    tmp_path: pathlib.Path, photos: pathlib.Path
) -> None:
    output = tmp_path / "d"
    convert(output, input=photos, **SMALL)
    write(photos, {"cat": 6}, first=100)
    update(output, input=photos)
    files = files_of(output)
    shard = output / "d-test-00000-of-00001.tfrecord.gz"
    shard.write_bytes(b"x" * 10)
    assert cli.main(["repair", str(output), "--input", str(photos)]) == 0
    assert files_of(output) == files


def test_readers_take_all_folds_but_one(tmp_path: pathlib.Path, photos: pathlib.Path) -> None:
    output = tmp_path / "d"
    convert(output, input=photos, image_size=8, folds=4, stratify=True)
    sizes = {name: split.num_examples for name, split in reader.open(output).splits.items()}
    assert sorted(sizes) == ["fold0", "fold1", "fold2", "fold3"]
    assert max(sizes.values()) <= 10
    assert len(beam_tfr.Records(output, split="all-fold3")) == 36 - sizes["fold3"]
    assert beam_tfr.contents(output, "all-fold3").count_rows() == 36 - sizes["fold3"]
    exported = beam_tfr.export(
        output, tmp_path / "e", format="webdataset", split="all-fold0-fold3", progress=False
    )
    assert exported.splits == {"fold1": sizes["fold1"], "fold2": sizes["fold2"]}
