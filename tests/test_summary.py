"""What a conversion says while it runs and at its end."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import cli
from beam_tfr.commands import calls
from beam_tfr.console import display
from beam_tfr.console.display import Display, Progress
from beam_tfr.dataset import tallies
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.dataset.tallies import class_count_rows
from beam_tfr.engine import runs
from beam_tfr.launch.results import Result
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.plan import SplitPlan
from tests.conftest import Run
from tests.converted import converted_sample

Command = Callable[..., Run]


def test_a_conversion_is_listed_converted_and_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LINE_S", 0.0)
    stream = io.StringIO()
    shown = Display(stream, "convert")
    shown(Progress("listing", 700))
    shown(Progress("converting", 1_000, 10_000, 1, 10))
    shown(Progress("publishing", 10_000, 10_000, 10, 10, rejected=1))
    assert stream.getvalue().splitlines() == [
        "convert: listing: 700 images",
        "convert: converting: 1,000 of 10,000 images, 1 of 10 shards",
        "convert: publishing: 10,000 of 10,000 images, 1 rejected, 10 of 10 shards",
    ]


@pytest.mark.slow
def test_the_time_of_a_conversion_counts_from_the_start_of_the_command(
    beam_tfr: Command, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as long as Beam's imports take
    monkeypatch.setattr(calls, "check_flags", lambda *_: time.sleep(1.5))
    layout = ["--layout", "{split}/{label}/*"]
    run = beam_tfr(
        "convert", "--input", f"{photos}/**/*.jpg", "--output", tmp_path / "o", *layout, "--json"
    )
    assert run.json["seconds"] >= 1.5


@pytest.mark.parametrize(
    "flags", [["--progress_format", "plain"], ["--progress_format", "json"], ["--quiet"]]
)
def test_how_progress_is_shown(
    flags: list[str],
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runs, "PROGRESS_S", 0.0)
    monkeypatch.setattr(display, "LINE_S", 0.0)
    assert (
        cli.main(
            [
                "convert",
                "--input",
                f"{photos}/**/*.jpg",
                "--output",
                f"{tmp_path}/o",
                "--layout=*",
                *flags,
            ]
        )
        == 0
    )
    lines = capsys.readouterr().err.splitlines()
    if "--quiet" in flags:
        assert lines == []
    elif "json" in flags:
        assert {json.loads(line)["stage"] for line in lines} <= {
            "listing",
            "converting",
            "publishing",
        }
        assert json.loads(lines[0])["stage"] == "listing"
    else:
        assert lines[0] == "convert: listing"


def test_the_table_has_the_splits_in_the_order_of_training(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    layout = ["--layout", "{split}/{label}/*"]
    run = beam_tfr("convert", "--input", f"{photos}/**/*.jpg", "--output", tmp_path / "o", *layout)
    rows = [line.split() for line in run.out.splitlines()]
    assert rows[0] == ["train", "test", "total"]
    assert rows[1:5] == [
        ["matched", "12", "6", "18"],
        ["rejected", "0", "0", "0"],
        ["written", "12", "6", "18"],
        ["shards", "1", "1", "2"],
    ]
    assert ["t-shirt", "4", "2", "6"] in rows
    assert "balance: 18 matched = 18 written + 0 rejected" in run.out
    assert rows[6:8] == [["classes"], ["hat", "4", "2", "6"]]
    assert f"train = load('{tmp_path / 'o'}', split='train')" in run.out
    assert f"beam-tfr verify {tmp_path / 'o'}" in run.out


@pytest.mark.slow
def test_a_folder_is_taken_whole_and_a_pattern_says_what_it_leaves_behind(
    beam_tfr: Command, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, photo in enumerate(sorted(photos.rglob("*.jpg"))[:6]):
        folder = tmp_path / "phone" / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}{'.JPG' if number < 3 else '.jpg'}").write_bytes(photo.read_bytes())
    for junk in (".DS_Store", "cat/._1.jpg", "notes.txt"):
        (tmp_path / "phone" / junk).touch()
    whole = beam_tfr("convert", "--input", "phone", "--output", "phone/out")
    assert (whole.code, whole.err) == (0, "")
    assert "balance: 6 matched = 6 written + 0 rejected" in whole.out
    kinds = "skipped: 3 without an image extension (1 .DS_Store, 1 ._*, 1 .txt)"
    assert kinds in whole.out
    again = beam_tfr("convert", "--input", "phone", "--output", "phone/out", "--json")
    assert (again.json["complete_already"], again.json["skipped"]) == (True, 3)
    assert again.json["skipped_kinds"] == {".DS_Store": 1, "._*": 1, ".txt": 1}
    part = beam_tfr("convert", "--input", "phone/**/[0-9].jpg", "--output", "part", "--limit", "2")
    folder_of_both = f"{tmp_path}/phone/"
    assert (
        part.err == f"convert: other images there are skipped (3 .JPG): --input {folder_of_both} "
        f"includes all images\n"
    )
    assert (
        "note:    3 images next to the matched ones skipped: --input DIR converts all images"
        in part.out
    )
    assert "limit:   a trial run of the first 2 in the order of --seed" in part.out
    same = beam_tfr("convert", "--input", "phone", "--output", "phone")
    assert (same.code, "--input" in same.err, "is also the folder of the dataset" in same.err) == (
        2,
        True,
        True,
    )


def test_classes_beyond_the_first_thirty_are_summed_up() -> None:
    names = [f"class {n}" for n in range(1_032)]
    rows = class_count_rows(names, [dict.fromkeys(names, 2), {"class 31": 7}])
    assert rows[0] == ("  class 0", [2, 0])
    assert rows[29:] == [("  class 29", [2, 0]), ("  and 1,002 more", [2_004, 7])]


def test_a_table_is_as_narrow_as_it_can_be() -> None:
    numbers = {"train": (1_200, 2), "test": (6, 1), NO_SPLIT: (3, 1)}
    splits = {
        name: SplitPlan(matched=images, num_shards=shards, cuts=[], class_counts={"hat": images})
        for name, (images, shards) in numbers.items()
    }
    table = [*tallies.format_count_table(splits, ["hat"])]
    assert table == [
        "         train  test  none  total",
        "matched  1,200     6     3  1,209",
        "shards       2     1     0      3",
        "classes",
        "  hat    1,200     6     3  1,209",
    ]


def test_the_summary_says_what_was_resumed_rewritten_and_renumbered() -> None:
    dataset = read_manifest(str(converted_sample()))
    run = Counter(resumed=40, rewritten_shards=2)
    done = Result(
        manifest=dataset, seconds=2.0, fresh=True, run=run, new_ids="cat 0 -> 1, new: bird"
    )
    lines = [*done.lines()]
    ids = "cat 0 -> 1, new: bird; models trained on it use the old ids"
    assert f"note:    class ids have changed since the replaced dataset: {ids}" in lines
    assert "note:    the input has changed since an earlier run: 2 shards written again" in lines
    assert "resumed: 40 of 130 images were finished by an earlier run" in lines
    assert "time:    2.0 s, 45 images/s" in lines
    assert not [
        line
        for line in Result(manifest=dataset, seconds=2.0, fresh=True).lines()
        if line.startswith("note")
    ]
