"""`beam-tfr plan`: it says what `convert` then does, and writes nothing."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import beam_tfr
from beam_tfr import cli
from beam_tfr.console import display
from beam_tfr.console.display import Progress
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.inputs import measuring
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.output import lock
from beam_tfr.output.rejects import describe_excess
from beam_tfr.planning.survey import SAMPLE_IMAGES, Survey
from beam_tfr.preview import estimate, preview, sampling
from beam_tfr.preview.sampling import survey_listing
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.plan import Plan, SplitPlan
from tests.conftest import Run, as_nobody, files_of
from tests.converted import SAMPLE, converted_photos, once, spoil, write_photos

Command = Callable[..., Run]
LAYOUT = "{split}/{label}/*"


def test_a_plan_says_what_the_conversion_does_and_writes_nothing(
    beam_tfr: Command, tmp_path: Path
) -> None:
    photos, output = once("photos", write_photos), tmp_path / "out"
    run = beam_tfr(
        "plan", "--input", f"{photos}/**/*.jpg", "--output", output, "--layout", LAYOUT, "--json"
    )
    assert (run.code, run.err, output.exists()) == (0, "", False)
    found, dataset = run.json, read_manifest(str(converted_photos()))
    assert found["matched"] == 18
    assert found["splits"] == {
        name: {"matched": of.matched, "num_shards": len(of.shards), "class_counts": of.class_counts}
        for name, of in dataset.splits.items()
    }
    assert found["num_bytes"] == pytest.approx(
        sum(of.num_bytes for of in dataset.splits.values()), rel=0.01
    )
    assert found["rejects"] == {}
    assert found["skipped"] == {}
    assert found["seconds"] > estimate.START_S
    assert found["cpu_seconds"] > 18 * estimate.OVERHEAD_S


WRONG_CALLS = [
    ["--no_wait"],
    ["--on_interrupt", "leave"],
    ["--direct_num_workers=-1"],
    ["--runner=DataflowRunner"],
    ["--seed", "1"],
    ["--output", "strays"],
    ["--output", "strays/labels.txt"],
    ["--output", "unfinished", "--seed", "1"],
    ["--output", "held"],
    ["--output", "linked"],
]


@pytest.mark.slow
def test_what_convert_refuses_a_plan_refuses_with_the_same_words(
    beam_tfr: Command, pets: Path
) -> None:
    (pets / "strays").mkdir()
    (pets / "strays" / "labels.txt").write_text("mine")
    (pets / "linked").mkdir()
    (pets / "linked" / ".beam_tfr").symlink_to(pets)
    with lock.hold_lock(str(pets / "held"), "other"):
        for flags in WRONG_CALLS:
            before = files_of(pets)
            refused = beam_tfr("plan", "--config", "convert.toml", *flags)
            assert (refused.code, files_of(pets)) == (1 if "held" in flags else 2, before), flags
            converted = beam_tfr("convert", "--config", "convert.toml", *flags)
            said = (
                refused.err.replace("beam-tfr plan: ", "beam-tfr convert: ")
                .rstrip("\n")
                .partition(": it would add")[0]
            )
            assert (converted.code, said in converted.err) == (refused.code, True), flags
    (pets / "sealed").mkdir()
    (pets / "sealed").chmod(0o555)
    for folder in (pets, *pets.parents[:3]):
        folder.chmod(0o755)
    with (
        as_nobody(),
        pytest.raises(UsageError, match="cannot be written to: Permission denied; choose a folder"),
    ):
        lock.check_lockable(str(pets / "sealed" / "new"))


def test_what_convert_does_in_another_way_a_plan_says(beam_tfr: Command, pets: Path) -> None:
    command = ["plan", "--config", "convert.toml"]
    told = {
        (): f"writes nothing: {pets}/dataset already holds this dataset",
        ("--overwrite",): f"writes the dataset and replaces the one in {pets}/dataset",
        ("--output", "unfinished"): "resumes an earlier run, which has finished 3 of 4 shards",
        ("--output", "new"): "writes the dataset",
    }
    before = files_of(pets)
    for flags, outcome in told.items():
        run = beam_tfr(*command, *flags)
        assert run.code == 0, run.err
        assert run.out.endswith(f"nothing was written; convert with the same options {outcome}\n")
    assert files_of(pets) == before
    # of no folder, whatever `dataset` holds
    assert beam_tfr("plan", "--input", "photos", "--layout", LAYOUT).code == 0


def test_a_plan_foretells_an_update(tmp_path: Path) -> None:
    photos, output = tmp_path / "photos", tmp_path / "out"
    shutil.copytree(SAMPLE / "test", photos)
    beam_tfr.convert(input=photos, output=output, progress=False)
    names = sorted(photos.rglob("*.jpg"))
    names[0].unlink()
    shutil.copy(names[2], names[1])
    shutil.copy(names[3], photos / "hat" / "new.jpg")
    with pytest.raises(UsageError) as caught:
        beam_tfr.plan(input=photos, output=output, progress=False)
    told = ": it would add 2 that are new or seem changed, drop 2, and copy 18, in about "
    assert told in str(caught.value)
    with pytest.raises(UsageError, match="holds a dataset with different input") as caught:
        beam_tfr.plan(input=SAMPLE / "test" / "hat", layout="*", output=output, progress=False)
    assert ": it would add 2 that are new or seem changed, drop 20, and copy 0" in str(caught.value)
    assert "but it would fail: the update would remove 20 of the 20 images" in str(caught.value)


def test_rejects_are_foretold_with_one_of_each(beam_tfr: Command, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(once("photos", write_photos), photos)
    expected = spoil(photos)
    call = ("--input", f"{photos}/**/*.jpg", "--output", tmp_path / "out", "--layout", LAYOUT)
    run = beam_tfr("plan", *call)
    assert (run.code, run.err) == (0, "")
    for key, reason in expected.items():
        assert f" {reason}: " in run.out, key
        assert f"such as {key} (" in run.out or [*expected.values()].count(reason) > 1
    assert run.out.endswith(
        ", and 2 of these 25 are allowed: 1% of the images, at least 10, but at most 10% of "
        "them. Nothing is published. Fix them, leave them out of --input, or run again with a "
        "larger --max_rejects: finished shards are kept\n"
    )
    assert (
        "\nnext:      nothing was written; convert would fail: 7 of 25 images were rejected ("
        in run.out
    )
    failed = beam_tfr("convert", *call)
    assert (failed.code, run.out.partition("convert would fail: ")[2].strip() in failed.err) == (
        1,
        True,
    )


def test_a_failure_is_foretold() -> None:
    splits = {"train": SplitPlan(matched=10_000, num_shards=1, cuts=[], class_counts={})}
    options = {"encoding": "jpeg", "layout": "*"}
    plan = Plan(
        name="x", suffix="", options=options, input_digest="", labels=[], splits=splits, codecs={}
    )

    def told(*rejects: float) -> str:
        found = {f"reason-{number}": one for number, one in enumerate(rejects)}
        return describe_excess(found, 0.01, plan).partition(". Nothing")[0]

    assert told() == told(10) == told(60, 40) == ""
    led = "reason-1 59, reason-0 50"
    assert (
        told(50.4, 59.4)
        == f"110 of 10,000 images were rejected ({led}), `max_rejects=0.01` allows 100"
    )


def test_from_python_a_plan_is_shown_as_text_and_as_a_table(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("name,value\n" + "".join(f"<b>{n},{n}\n" for n in range(20)))
    found = beam_tfr.plan(
        table=tmp_path / "rows.csv", key_column="name", encoding="row", sample_size=5
    )
    assert repr(found) == str(found)
    assert str(found).startswith(
        "         train  total\nmatched     20     20\nshards       1      1\n"
    )
    assert "\noutput:    " in str(found)
    assert (found.sample.tried, found.seconds, found.cpu_seconds) == (5, None, None)
    html = found._repr_html_()
    assert "\nmatched     20     20\n" in html
    assert found.num_bytes > 0


def test_options_of_the_estimates_change_them() -> None:
    given = {"input": f"{SAMPLE}/test/hat/*.jpg", "layout": "*"}
    options, seen, told = (
        from_values({**given, "output": "dataset"}, ConvertOptions),
        list[Progress](),
        list[Progress](),
    )
    plain = preview(options, sample_size=256, progress=seen.append)
    assert seen[0] == Progress("listing", 0)
    assert [state.stage for state in seen[-3:]] == ["sampling", "sampling", "planned"]
    assert " here; CPU time " in str(plain)
    assert "CPU time" in plain._repr_html_()
    wide = beam_tfr.plan(**given, sample_size=1, progress=told.append)
    assert (plain.sample.tried, wide.sample.tried) == (2, 1)
    assert told[1][:3] == ("sampling", 1, 1)


def test_a_plan_says_what_it_leaves_out_and_behind(tmp_path: Path) -> None:
    for number, name in enumerate(("1.jpg", "2.b.JPG", "notes.txt", "._1.jpg", ".DS_Store")):
        shutil.copy(sorted(SAMPLE.glob("test/hat/*.jpg"))[number % 2], tmp_path / name)
    folder, pattern = (
        beam_tfr.plan(input=path, layout="{label}.*") for path in (tmp_path, tmp_path / "*.jpg")
    )
    assert folder.plan.matched == 2
    assert ("skipped", "3 without an image extension (1 .DS_Store, 1 ._*, 1 .txt)") in [
        *folder.facts()
    ]
    assert pattern.listing.skipped == {".JPG": 1}
    assert "skipped" not in dict(pattern.facts())
    assert folder.warnings[0].startswith(
        "1 of 2 files match the layout in more than one way, such as 2.b.JPG: {label} "
    )
    beside = f"other images there are skipped (1 .JPG): `input={tmp_path}/` includes all images"
    assert ("warning", beside) in [*pattern.facts()]


@pytest.mark.parametrize("wrong", [0, "x", 1.5])
def test_a_wrong_number_is_named(wrong: Any) -> None:
    with pytest.raises(
        UsageError, match=f"`sample_size={wrong!r}`: must be a whole number from 1 to "
    ):
        beam_tfr.plan(input="a/*", sample_size=wrong)


def _refs(*parts: tuple[str, str, str]) -> Iterator[ImageRef]:
    return (ImageRef(key, 10, 0, split, (label,)) for key, split, label in parts)


def test_the_sample_begins_with_that_of_the_conversion() -> None:
    refs = [*_refs(*((f"{n}.jpg", "train", "a") for n in range(99)))]
    surveys = {size: Survey(3, size) for size in (7, SAMPLE_IMAGES, 70, 200)}
    for survey in surveys.values():
        random.Random(0).shuffle(refs)
        survey_listing(refs, survey)
    samples = {size: survey.sample_refs() for size, survey in surveys.items()}
    assert sorted(samples[200]) == sorted(refs)
    for size, sample in samples.items():
        assert sample == samples[200][:size]


def test_nothing_is_converted_twice_for_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    converted = list[str]()
    make_record = measuring.make_record

    def counted(content: Any, ref: ImageRef, steps: Any) -> Any:
        converted.append(ref.key)
        return make_record(content, ref, steps)

    monkeypatch.setattr(measuring, "make_record", counted)
    monkeypatch.setattr(sampling, "make_record", counted)
    for size in (1, 5, 256):
        converted.clear()
        found = beam_tfr.plan(input=SAMPLE / "test", sample_size=size, progress=False)
        assert (found.sample.tried, len(converted), len({*converted})) == (min(size, 20), 20, 20)


def test_plan_shows_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(display, "LINE_S", 0.0)
    rows = tmp_path / "rows.csv"
    rows.write_text("name,value\n" + "".join(f"{n},{n}\n" for n in range(2000)))
    beam_tfr.plan(table=rows, encoding="row", sample_size=3, progress=False)
    assert capsys.readouterr().err == ""
    call = [
        "plan",
        "--table",
        f"{rows}",
        "--encoding",
        "row",
        "--output",
        "d",
        "--sample_size",
        "3",
    ]
    assert cli.main(call) == 0
    assert [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "plan: listing",
        "plan: listing: 1",
        "plan: listing: 2",
        "plan: sampling: 1 of 3 rows",
        "plan: sampling: 2 of 3 rows",
        "plan: sampling: 3 of 3 rows",
        "plan: planned: 2",
    ]


def test_a_wrong_image_root_is_the_cure_that_is_named(beam_tfr: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label\na.jpg,x\nb.jpg,y\n")
    flags = ("--table", tmp_path / "t.csv", "--uri_column", "path", "--label_column", "label")
    (tmp_path / "empty").mkdir()
    run = beam_tfr("plan", *flags, "--image_root", tmp_path / "empty")
    assert (run.code, run.out) == (1, "")
    assert "None of the 2 files tried first can be read: " in run.err
    assert " or correct the folder that a table, --image_root or --pair names. " in run.err
    assert "looked up there without their first folders; none of the first 2 images" in run.err
