"""--duplicates group and drop: copies in one split, or one of them, of new datasets and updates."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import beam_tfr as package
from beam_tfr.copies.images import read_hashed_images
from beam_tfr.copies.parts import Pairs, Parts
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.launch import settling
from beam_tfr.output.copied_images import CopiedImages
from beam_tfr.planning.packing import unpack_values
from beam_tfr.schema.errors import DataError, RunError, UsageError
from beam_tfr.transforms.copies import _choose_copied_split
from tests import contents_by_hand
from tests.conftest import Run
from tests.converted import SAMPLE
from tests.fake_gcs import FakeGcs
from tests.living_photos import files_of
from tests.portable_runners import PROCESSES, THREADS
from tests.updates import convert, count_decoding, update

Command = Callable[..., Run]
CLASSES = ("hat", "shoes", "t-shirt")
SPLITS: dict[str, Any] = {"splits": {"train": 0.6, "test": 0.4}, "image_size": 64}


def write_copies(folder: Path, first: int = 0) -> None:
    """Writes four photos of each class, and copies of three of them, one in the next class."""
    for place, label in enumerate(CLASSES):
        (folder / label).mkdir(parents=True, exist_ok=True)
        photos = sorted((SAMPLE / "train" / label).iterdir())[first : first + 4]
        for photo in photos:
            shutil.copy(photo, folder / label / photo.name)
        small = Image.open(photos[0]).convert("RGB").resize((120, 160))
        small.save(folder / label / f"a_small_{photos[0].name}")
        shutil.copy(photos[1], folder / label / f"same_{photos[1].name}")
        other = folder / CLASSES[place - 1]
        other.mkdir(exist_ok=True)
        Image.open(photos[2]).convert("L").save(other / f"gray_{photos[2].name}")


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    write_copies(tmp_path / "copies")
    return tmp_path / "copies"


def kept_of(folder: Path) -> set[str]:
    """The keys of images that stay, of those that have copies."""
    details = [reject["detail"] for reject in rejects_of(folder).values()]
    return {detail.removeprefix("a copy of ").split(", which")[0] for detail in details}


def clusters_of(folder: Path) -> list[dict[str, Any]]:
    return [*package.duplicates(folder).clusters()]


def rejects_of(folder: Path) -> dict[str, dict[str, str]]:
    lines = (folder / "rejects.jsonl").read_text().splitlines()
    return {reject["key"]: reject for reject in map(json.loads, lines)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settled", "options"),
    [("group", SPLITS), ("drop", SPLITS), ("group", {**SPLITS, "stratify": True})],
    ids=["group", "drop", "stratified"],
)
def test_a_new_dataset_equals_an_update_of_one_that_only_reports(
    copies: Path,
    tmp_path: Path,
    settled: str,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = convert(tmp_path / "updated", input=copies, **options)
    assert reported.manifest.duplicates["clusters"] == 9
    assert reported.manifest.duplicates["across_classes"] == 3
    before = clusters_of(tmp_path / "updated")
    assert any(cluster["across_splits"] for cluster in before)
    new = convert(tmp_path / "new", input=copies, duplicates=settled, **options)
    decoded = count_decoding(monkeypatch)
    updated = update(tmp_path / "updated", duplicates=settled)
    assert decoded == []
    assert convert(tmp_path / "new", input=copies, duplicates=settled, **options).fresh is False
    assert files_of(tmp_path / "new") == files_of(tmp_path / "updated")
    assert new.digest == updated.digest
    assert not (tmp_path / "new" / ".beam_tfr").exists()
    again = update(tmp_path / "updated", duplicates=settled)
    assert not again.fresh
    after = clusters_of(tmp_path / "new")
    if settled == "group":
        assert {len(cluster["images"]) for cluster in after} == {2}
        assert not any(cluster["across_splits"] for cluster in after)
        assert new.counts["written"] == 21
        if options.get("stratify"):
            sizes = np.array([[*split.class_counts.values()] for split in new.splits.values()])
            shares = np.array([[0.6], [0.4]])
            assert np.abs(sizes - 7 * shares).max() < 2  # the size of a cluster
        return
    assert after == []
    rejects = rejects_of(tmp_path / "new")
    kept = {cluster["images"][0]["key"] for cluster in before}
    others = {image["key"] for cluster in before for image in cluster["images"][1:]}
    assert rejects.keys() == others
    for cluster in before:
        first, other = cluster["images"]
        detail = rejects[other["key"]]["detail"]
        assert rejects[other["key"]]["reason"] == "duplicate"
        assert first["key"] in detail
        assert ("another class" in detail) == cluster["across_classes"]
    assert not any("small_" in key or "same_" in key for key in kept)


@pytest.mark.slow
@pytest.mark.parametrize("settled", ["group", "drop"])
def test_an_update_with_other_images_equals_a_new_dataset(
    copies: Path, tmp_path: Path, settled: str
) -> None:
    convert(tmp_path / "d", input=copies, duplicates=settled, **SPLITS)
    write_copies(copies, first=2)
    next(copies.rglob("same_*")).unlink()
    update(tmp_path / "d", input=copies)
    convert(tmp_path / "new", input=copies, duplicates=settled, **SPLITS)
    assert files_of(tmp_path / "d") == files_of(tmp_path / "new")


@pytest.mark.slow
def test_nothing_is_published_between_the_steps_and_the_same_call_resumes(
    copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RunError("killed")

    options = {"input": copies, "duplicates": "group", **SPLITS}
    convert(tmp_path / "whole", **options)
    with monkeypatch.context() as patched:
        patched.setattr(settling, "_choose_second", fail)
        with pytest.raises(RunError, match="killed"):
            convert(tmp_path / "d", **options)
    with pytest.raises(DataError, match="run the same convert command again to resume it"):
        read_manifest(str(tmp_path / "d"))
    decoded = count_decoding(monkeypatch)
    assert convert(tmp_path / "d", **options).fresh
    assert decoded == []
    assert files_of(tmp_path / "d") == files_of(tmp_path / "whole")
    assert not convert(tmp_path / "d", **options).fresh


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settled"), [("files", "drop"), ("table", "group"), ("table", "drop")]
)
def test_a_complete_dataset_is_only_compared(
    copies: Path, tmp_path: Path, kind: str, settled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a table with splits, whose copies moved to others or were rejected."""
    options: dict[str, Any] = {"input": copies, "duplicates": settled, **SPLITS}
    table = tmp_path / "t.csv"
    if kind == "table":
        options = {"table": table, "uri_column": "file", "duplicates": settled, "image_size": 64}
        lines = ["file,class,split"]
        for number, path in enumerate(sorted(copies.rglob("*.jpg"))):
            lines.append(f"{path},{path.parent.name},{('train', 'test')[number % 2]}")
        table.write_text("\n".join(lines) + "\n")
    assert convert(tmp_path / "d", **options).fresh
    before = files_of(tmp_path / "d")
    monkeypatch.setattr(settling, "convert_and_settle", None)
    assert not convert(tmp_path / "d", **options).fresh
    assert files_of(tmp_path / "d") == before
    assert not (tmp_path / "d" / ".beam_tfr").exists()
    with pytest.raises(UsageError, match="image_size"):
        convert(tmp_path / "d", **{**options, "image_size": 32})
    if kind == "table":
        table.write_text(table.read_text().replace("train", "test", 3))
    next(copies.rglob("same_*")).unlink()
    with pytest.raises(UsageError, match="beam-tfr update"):
        convert(tmp_path / "d", **options)


@pytest.mark.parametrize(
    ("flags", "settled"),
    [
        pytest.param(THREADS["not fused, four attempts"], "group", id="not fused"),
        pytest.param(PROCESSES, "drop", id="processes", marks=pytest.mark.slow),
        pytest.param(["prism"], "group", id="prism", marks=pytest.mark.slow),
    ],
)
def test_every_engine_finds_the_same_copies(
    copies: Path, tmp_path: Path, flags: list[str], settled: str, request: pytest.FixtureRequest
) -> None:
    if flags == ["prism"]:
        binary = request.getfixturevalue("prism")
        flags = ["--runner=PrismRunner", f"--prism_location={binary}"]
    options = {"input": copies, "duplicates": settled, **SPLITS}
    here = convert(tmp_path / "here", **options)
    assert convert(tmp_path / "there", beam_flags=flags, **options).digest == here.digest


def test_groups_of_the_layout_that_share_a_copy_are_one(tmp_path: Path) -> None:
    photos = sorted((SAMPLE / "train" / "hat").iterdir())[:4]
    names = ["x_1", "x_2", "y_1", "y_2", "z_1", "v_1"]
    for name, photo in zip(names, [photos[i] for i in (0, 1, 1, 2, 3, 3)], strict=True):
        (tmp_path / "photos" / "hat").mkdir(parents=True, exist_ok=True)
        shutil.copy(photo, tmp_path / "photos" / "hat" / f"{name}.jpg")
    flags = {"layout": "{label}/{group}_*", "splits": {"train": 1}}
    convert(tmp_path / "d", input=tmp_path / "photos", image_size=64, **flags)
    manifest = read_manifest(str(tmp_path / "d"))
    base = BaseDataset.of(manifest)
    parts = Parts.choose(manifest.counts["written"], 31)
    (shard,) = manifest.shards
    divided = parts.divide(read_hashed_images(manifest, shard), 0)
    linked = Pairs.join(parts.link(part, [packed]) for part, packed in divided)
    copied = CopiedImages.find(base, linked)
    assert [len(cluster.images) for cluster in copied.clusters] == [2, 2]
    assert [*copied.list_groups()] == []  # all are in one split
    torn = copied.images._replace(splits=np.arange(4), split_names=list("abcd"))
    copied = dataclasses.replace(copied, images=torn)
    pairs = [value.decode().split("\0") for value in copied.list_groups()]
    assert dict(pairs) == {
        **dict.fromkeys([f"hat/{name}.jpg" for name in names[:4]], "hat/x_1.jpg"),
        **dict.fromkeys([f"hat/{name}.jpg" for name in names[4:]], "hat/v_1.jpg"),
    }


@pytest.mark.parametrize(
    ("arguments", "cures"),
    [
        (["--table", "t.csv", "--duplicates", "drop"], ["--duplicates drop", "table"]),
        (
            [
                "--table",
                "t.csv",
                "--uri_column",
                "f",
                "--splits",
                "a=0.5,b=0.5",
                "--group_column",
                "g",
                "--duplicates",
                "group",
            ],
            ["--group_column", "beam-tfr duplicates"],
        ),
        (
            [
                "--input",
                "x",
                "--duplicates",
                "group",
                "--no_wait",
                "--runner=DataflowRunner",
                "--project=p",
                "--region=europe-west1",
                "--temp_location=gs://b/t",
            ],
            ["--no_wait", "beam-tfr update"],
        ),
        (["--input", "x", "--duplicates", "merge"], ["report, group, drop"]),
        (["--input", ".", "--encoding", "bytes", "--duplicates", "group"], ["--input", "**"]),
    ],
)
def test_calls_that_cannot_settle_copies_name_a_cure(
    beam_tfr: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    cures: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("f,g\na.jpg,1\n")
    run = beam_tfr("convert", "--output", tmp_path / "d", *arguments)
    assert run.code == 2
    assert "so this takes two runs" not in run.err  # as nothing does
    for cure in cures:
        assert cure in run.err


def test_what_was_settled_needs_the_images_to_be_undone(
    beam_tfr: Command, copies: Path, tmp_path: Path
) -> None:
    convert(tmp_path / "d", input=copies, duplicates="group", **SPLITS)
    run = beam_tfr("update", tmp_path / "d", "--duplicates", "drop")
    assert run.code == 2
    assert "--input" in run.err
    run = beam_tfr("convert", "--input", copies, "--output", tmp_path / "d", "--duplicates", "drop")
    assert run.code == 2
    assert "beam-tfr update" in run.err


@pytest.mark.slow
def test_what_the_first_run_saw_of_the_input_is_told(copies: Path, tmp_path: Path) -> None:
    """As without the option: files that are skipped, and options that have no effect."""
    (copies / "hat" / "notes.doc").write_text("x")
    archive = copies / "more.rar"
    archive.write_bytes(b"Rar!")
    options = {"input": copies, "exclude": ["none/**"], "rename": ["cap=hood"], **SPLITS}
    plain = convert(tmp_path / "plain", **options)
    settled = convert(tmp_path / "d", duplicates="group", **options)
    assert plain.unused
    assert plain.run["skipped"] == 2
    assert settled.unused == plain.unused
    assert {**settled.run, "moved": 0} == plain.run
    updated = update(tmp_path / "d", input=copies, exclude=["none/**"])
    assert updated.unused == plain.unused


@pytest.mark.slow
def test_dropped_copies_of_what_is_taken_down_are_kept_out(
    beam_tfr: Command, copies: Path, tmp_path: Path
) -> None:
    """And a dropped copy alone may go, of which the image that stays is told."""
    output = tmp_path / "d"
    convert(output, input=copies, duplicates="drop", **SPLITS)
    cluster = next(
        [image["key"] for image in rejects_of(output).values() if kept in image["detail"]] + [kept]
        for kept in sorted(kept_of(output))
    )
    *dropped, kept = cluster
    listed = tmp_path / "keys.txt"
    listed.write_text(f"{kept}\n")
    found = beam_tfr("verify", output, "--absent", listed)
    assert found.code == 1
    assert found.err.count(f"rejects.jsonl: {kept}, which {dropped[0]}") == 1
    run = beam_tfr("remove", output, "--keys", listed)
    assert run.code == 0, run.err
    assert all(key in run.err for key in dropped)
    for path in output.rglob("*"):
        assert path.is_dir() or kept.encode() not in path.read_bytes()
    assert beam_tfr("verify", output, "--absent", listed).code == 0
    before = files_of(output)
    result = update(output, input=copies)
    assert files_of(output) == before
    assert result.run["left_out"] == 1 + len(dropped)

    (other, *_), kept = next(
        ([reject["key"]], reject["detail"].removeprefix("a copy of ").split(", which")[0])
        for reject in rejects_of(output).values()
    )
    listed.write_text(f"{other}\n")
    done = beam_tfr("remove", output, "--keys", listed, "--json")
    assert done.json["copies_that_stay"] == [kept], done.err


@pytest.mark.slow
@pytest.mark.parametrize("settled", ["report", "group"])
def test_copies_that_stay_are_told_when_images_are_taken_down(
    beam_tfr: Command, copies: Path, tmp_path: Path, settled: str
) -> None:
    output = tmp_path / "d"
    convert(output, input=copies, duplicates=settled, **SPLITS)
    cluster = next(
        [image["key"] for image in cluster["images"]]
        for cluster in clusters_of(output)
        if any("small_" in image["key"] for image in cluster["images"])
    )
    listed = tmp_path / "keys.txt"
    listed.write_text(f"{cluster[0]}\nhat/none.jpg\n")
    run = beam_tfr("remove", output, "--keys", listed, "--allow_missing")
    assert run.code == 0, run.err
    lines = run.out.splitlines()
    assert f"  {cluster[1]}" in lines
    listed.write_text(f"{cluster[1]}\n")
    run = beam_tfr("remove", output, "--keys", listed)
    assert "still in the dataset" not in run.out


@pytest.mark.parametrize(
    ("settled", "options"),
    [
        ("group", SPLITS),
        ("drop", SPLITS),
        pytest.param(
            "group",
            {**SPLITS, "layout": "{label}/{group}-*", "stratify": True},
            marks=pytest.mark.slow,
        ),
        pytest.param("drop", {**SPLITS, "stratify": True}, marks=pytest.mark.slow),
    ],
)
def test_broken_shards_and_contents_are_repaired(
    beam_tfr: Command, copies: Path, tmp_path: Path, settled: str, options: dict[str, Any]
) -> None:
    """No image moves, although files seem to have changed since; hashes are there again."""
    output = tmp_path / "d"
    convert(output, input=copies, duplicates=settled, **options)
    write_copies(copies, first=2)
    update(output, input=copies)
    whole = files_of(output)
    for path in copies.rglob("*.jpg"):
        os.utime(path, (1, 1))
    shutil.rmtree(output / "contents")
    (shard,) = output.glob("*test*.gz")
    shard.write_bytes(shard.read_bytes()[:-100])
    (output / "rejects.jsonl").unlink()
    run = beam_tfr("repair", output, "--input", copies)
    assert run.code == 0, run.err
    assert files_of(output) == whole
    next(copies.rglob("*.jpg")).unlink()
    shutil.rmtree(output / "contents")
    run = beam_tfr("repair", output, "--input", copies)
    assert run.code == 1
    assert "input has changed" in run.err


@pytest.mark.parametrize(
    ("settled", "options"),
    [
        ("group", {}),
        pytest.param("drop", {}, marks=pytest.mark.slow),
        pytest.param("group", {**SPLITS, "stratify": True}, marks=pytest.mark.slow),
    ],
)
def test_tables_with_settled_copies_are_repaired_and_compared(
    beam_tfr: Command, copies: Path, tmp_path: Path, settled: str, options: dict[str, Any]
) -> None:
    """Also after a takedown: the rows that are left are those of the table."""
    output = tmp_path / "d"
    table = tmp_path / "t.csv"
    lines = ["file,class,split"]
    for number, path in enumerate(sorted(copies.rglob("*.jpg"))):
        lines.append(f"{path},{path.parent.name},{('train', 'test')[number % 2]}")
    table.write_text("\n".join(lines) + "\n")
    options = {"table": table, "uri_column": "file", "image_size": 64, **options}
    if "splits" in options:
        table.write_text(table.read_text().replace("split", "part", 1))
    convert(output, duplicates=settled, **options)
    whole = files_of(output)
    shutil.rmtree(output / "contents")
    assert beam_tfr("repair", output, "--table", table).code == 0
    assert files_of(output) == whole
    some_key = next(iter(package.contents(output).to_table().column("key").to_pylist()))
    package.remove(output, keys=[some_key], progress=False)
    whole = files_of(output)
    if settled == "drop" or "stratify" in options:
        assert not convert(output, duplicates=settled, **options).fresh
    else:  # which split the table gave to what was moved is not known any more
        with pytest.raises(UsageError, match="beam-tfr update"):
            convert(output, duplicates=settled, **options)
        update(output, table=table)
        assert not convert(output, duplicates=settled, **options).fresh
    shutil.rmtree(output / "contents")
    assert beam_tfr("repair", output, "--table", table).code == 0
    lines = [line for line in table.read_text().splitlines() if lines[3].split(",")[0] not in line]
    table.write_text("\n".join(lines) + "\n")
    shutil.rmtree(output / "contents")
    run = beam_tfr("repair", output, "--table", table)
    assert run.code == 1
    assert "input has changed" in run.err


@pytest.mark.slow
def test_broken_shards_of_which_nobody_knows_the_copies_are_written_again(
    beam_tfr: Command, copies: Path, tmp_path: Path
) -> None:
    convert(tmp_path / "d", input=copies, duplicates="group", **SPLITS)
    whole = files_of(tmp_path / "d")
    (shard,) = (tmp_path / "d").glob("*train*.gz")
    shard.write_bytes(shard.read_bytes()[:-100])
    shutil.rmtree(tmp_path / "d" / ".sources")
    run = beam_tfr("repair", tmp_path / "d", "--input", copies)
    assert run.code == 2
    assert "--overwrite" in run.err
    convert(tmp_path / "d", input=copies, duplicates="group", overwrite=True, **SPLITS)
    assert files_of(tmp_path / "d") == whole


@pytest.mark.slow
def test_images_without_hashes_are_told_with_the_cure(
    beam_tfr: Command, copies: Path, tmp_path: Path
) -> None:
    convert(tmp_path / "d", input=copies, **SPLITS)
    (tmp_path / "d" / ".beam_tfr").mkdir()
    manifest = read_manifest(str(tmp_path / "d"))
    for name, split in manifest.splits.items():
        for shard in split.shards:
            contents_by_hand.make(manifest, name, shard)
    contents_by_hand.write_sums(manifest)
    result = update(tmp_path / "d", duplicates="group")
    assert result.run["unhashed"] == 21
    assert "`beam-tfr repair`" in "\n".join(result.lines())
    shutil.rmtree(tmp_path / "d" / "contents")
    assert beam_tfr("repair", tmp_path / "d", "--input", copies).code == 0
    assert update(tmp_path / "d", duplicates="group").run["unhashed"] == 0
    convert(tmp_path / "new", input=copies, duplicates="group", **SPLITS)
    assert files_of(tmp_path / "d") == files_of(tmp_path / "new")


def test_plan_looks_at_its_sample(copies: Path) -> None:
    preview = package.plan(input=copies, progress=False, **SPLITS)
    notes = [note for note in preview.warnings if "9 clusters" in note]
    assert len(notes) == 1
    assert "3 across classes" in notes[0]


@pytest.mark.slow
def test_copies_are_settled_on_gcs_and_nothing_is_left_over(
    fake: FakeGcs, copies: Path, tmp_path: Path
) -> None:
    for settled in ("group", "drop"):
        on_gcs = package.convert(
            input=copies,
            output=f"gs://b/{settled}",
            name="d",
            duplicates=settled,
            progress=False,
            **SPLITS,
        )
        here = convert(tmp_path / settled, input=copies, duplicates=settled, **SPLITS)
        assert on_gcs.digest == here.digest
        assert on_gcs.manifest.fields == here.manifest.fields
    assert not any("/.beam_tfr/" in name for name in fake.names())


def test_a_copy_takes_the_place_of_several_in_train_if_one_was_there() -> None:
    """A model may have seen that one; else most of them decide, and then the usual order."""
    for splits, expected in (
        ("test test train", "train"),
        ("validation test test", "test"),
        ("fold1 fold0", "fold0"),
    ):
        votes = [split.encode() for split in splits.split()]
        (packed,) = _choose_copied_split((b"key", votes))
        assert unpack_values(packed) == [b"key\0" + expected.encode()]
    assert [*_choose_copied_split((b"key", [b"test", b""]))] == []  # it was a record itself
