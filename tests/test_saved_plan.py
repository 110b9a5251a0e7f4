"""Saved plans: listed and planned once, converted elsewhere to the same bytes."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr import images, saved_plan
from beam_tfr.planning import assignment
from beam_tfr.saved_plan import SavedPlan
from beam_tfr.schema import (
    BeamTfrError,
    DataError,
    Plan,
    RunError,
    Shard,
    SplitPlan,
    UsageError,
    canonical_json,
    sha256_hex,
)
from beam_tfr.transforms import plans
from beam_tfr.verification import verify
from tests.conftest import SAMPLE, Run, files_of
from tests.fake_dataflow import FakeDataflow
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import fake, fake_server
from tests.portable_runners import prism
from tests.test_dataflow import dataflow_server, service, submit
from tests.test_pipeline import LAYOUT, spoil

__all__ = ["dataflow_server", "fake", "fake_server", "prism", "service"]

Command = Callable[..., Run]
CALL = {"root": "/p/", "input": ["/p/*.jpg"], "input_list": None, "exclude": [], "table": []}


def convert(beam_tfr: Command, photos: Path, output: object, *more: object) -> Run:
    command = ["convert", "--input", f"{photos}/**/*", "--output", output, "--name", "d", "--layout", LAYOUT]
    return beam_tfr(*command, "--num_shards", "train=3,test=2", "--max_rejects", "9", *more)


def on_prism(prism: Path) -> list[str]:
    return ["--runner=PrismRunner", f"--prism_location={prism}", "--experiments=disable_prism_server_singleton"]


@pytest.mark.parametrize("engine", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_saved_plan_gives_the_same_dataset_and_lists_nothing(
    beam_tfr: Command, photos: Path, tmp_path: Path, engine: str
) -> None:
    flags = ["--direct_running_mode=multi_processing"] if engine == "processes" else []
    spoil(photos)
    (photos / "astray.jpg").write_bytes(b"")  # of no split
    assert convert(beam_tfr, photos, tmp_path / "whole").code == 0
    file, output = tmp_path / "plan.zip", tmp_path / "out"
    saved = convert(beam_tfr, photos, output, "--save_plan", file)
    assert saved.code == 0, saved.err
    assert saved.out.splitlines()[0].split()[:3] == ["train", "test", "none"]
    assert saved.out.splitlines()[2].split() == ["shards", "3", "2", "0", "5"]
    assert saved.out.splitlines()[-1] == f"next:    repeat the command with --plan {file} instead of --save_plan"
    assert not output.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "plan.zip", "whole"]

    shutil.copy(
        SAMPLE / "test/hat" / sorted(path.name for path in (SAMPLE / "test/hat").iterdir())[0], photos / "new.jpg"
    )
    run = convert(beam_tfr, photos, output, "--plan", file, *flags)
    assert run.code == 0, run.err
    assert files_of(output) == files_of(tmp_path / "whole")


@pytest.mark.slow
def test_equal_plans_are_equal_files(beam_tfr: Command, photos: Path, tmp_path: Path, prism: Path) -> None:
    for engine, flags in (("threads", []), ("prism", on_prism(prism))):
        assert convert(beam_tfr, photos, tmp_path / "out", "--save_plan", tmp_path / engine, *flags).code == 0
    assert (tmp_path / "threads").read_bytes() == (tmp_path / "prism").read_bytes()


def test_the_summary_as_json_and_a_file_name_that_is_not_text(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    file = os.fsdecode(os.fsencode(tmp_path) + b"/p\xff\n")
    saved = convert(beam_tfr, photos, tmp_path / "out", "--save_plan", file, "--json")
    assert {name: value for name, value in saved.json.items() if name != "seconds"} == {
        "plan": file,
        "matched": 18,
        "splits": {
            split: {"matched": 3 * n, "num_shards": shards, "class_counts": {"hat": n, "shoes": n, "t-shirt": n}}
            for split, n, shards in (("train", 4, 3), ("test", 2, 2))
        },
    }
    run = convert(beam_tfr, photos, tmp_path / "out", "--plan", file, "--json")
    assert (run.code, run.json["written"]) == (0, 18)


def test_on_gs_only_the_needed_parts_are_read(beam_tfr: Command, fake: FakeGcs, tmp_path: Path) -> None:
    for number, path in enumerate(sorted((SAMPLE / "train").rglob("*.jpg"))[:12]):
        fake.put(f"photos/hat/{number}.jpg", path.read_bytes())
    there = ["convert", "--input", "gs://b/photos/**", "--num_shards", "2", "--name", "d"]
    assert beam_tfr(*there, "--output", "gs://b/out", "--save_plan", "gs://b/plan.zip").code == 0
    assert [name for name in fake.names() if name.startswith("out/")] == []
    fake.take_log()
    assert beam_tfr(*there, "--output", "gs://b/out", "--plan", "gs://b/plan.zip").code == 0
    assert not [one for one in fake.take_log() if (one.get("prefix") or "").startswith("photos")]
    assert verify("gs://b/out").examples == 12
    assert beam_tfr(*there, "--output", "gs://b/out", "--json").json["complete_already"]  # the plan of a run without
    missing = beam_tfr(*there, "--output", "gs://b/new", "--plan", "gs://b/nowhere.zip")
    assert (missing.code, missing.err.splitlines()[-1]) == (
        2,
        "beam-tfr convert: --plan gs://b/nowhere.zip: cannot be read: No such file or directory",
    )


def test_tables(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [
        f"{path.relative_to(photos)},{path.parent.name},{i},0.5" for i, path in enumerate(sorted(photos.rglob("*.jpg")))
    ]
    table.write_text("\n".join(["file,kind,number,share", *rows]) + "\n")
    columns = [
        "--uri_column",
        "file",
        "--label_column",
        "kind",
        "--feature_columns",
        "number,share",
        "--image_root",
        photos,
    ]
    for call in (columns, ["--label_column", "kind"]):  # photos, then the rows themselves
        command = ["convert", "--table", table, "--name", "d", "--num_shards", "2", *call]
        assert beam_tfr(*command, "--output", tmp_path / "whole").code == 0
        assert beam_tfr(*command, "--output", tmp_path / "out", "--save_plan", tmp_path / "p").code == 0
        assert beam_tfr(*command, "--output", tmp_path / "out", "--plan", tmp_path / "p").code == 0
        assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
        for name in ("whole", "out"):
            shutil.rmtree(tmp_path / name)
        (tmp_path / "p").unlink()


def test_a_run_without_a_plan_resumes_with_one(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    spoil(photos)
    assert convert(beam_tfr, photos, tmp_path / "out", "--max_rejects", "1").code == 1
    assert convert(beam_tfr, photos, tmp_path / "out", "--save_plan", tmp_path / "p").code == 0  # beside it
    run = convert(beam_tfr, photos, tmp_path / "out", "--plan", tmp_path / "p")
    assert run.code == 0
    assert "an earlier run has finished 6 of 6 shards" in run.err
    again = convert(beam_tfr, photos, tmp_path / "out", "--plan", tmp_path / "p")
    assert "already holds this complete dataset; nothing was written." in again.out


def test_a_plan_of_another_call_is_refused(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    file = tmp_path / "p"
    assert convert(beam_tfr, photos, tmp_path / "out", "--save_plan", file).code == 0
    run = convert(
        beam_tfr, photos, tmp_path / "out", "--plan", file, "--quality", "50", "--name", "e", "--exclude", "x"
    )
    assert run.code == 2
    assert run.err == (
        f"beam-tfr convert: --plan {file}: was saved with other options:\n"
        "  exclude: nothing there, x now\n  name: d there, e now\n  options.quality: 90 there, 50 now\n"
        "Use the same options, or save another plan\n"
    )
    other = convert(beam_tfr, photos / "train", tmp_path / "out", "--plan", file)
    assert other.code == 2
    assert "photos/ there, " in other.err
    assert "photos/train/ now" in other.err
    assert not (tmp_path / "out").exists()


def test_another_plan_is_replaced_only_with_overwrite(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    file = tmp_path / "p"
    before = Path(save(file)).read_bytes()
    refused = convert(beam_tfr, photos, tmp_path / "out", "--save_plan", file)
    assert (refused.code, refused.err) == (
        2,
        f"beam-tfr convert: --save_plan {file}: exists already; --overwrite replaces it, if it is a plan\n",
    )
    assert file.read_bytes() == before
    assert convert(beam_tfr, photos, tmp_path / "out", "--save_plan", file, "--overwrite").code == 0
    with SavedPlan(str(file)) as saved:
        assert saved.plan.matched == 18
    both = convert(beam_tfr, photos, tmp_path / "out", "--save_plan", file, "--plan", file)
    assert (both.code, both.err) == (
        2,
        "beam-tfr convert: --save_plan and --plan cannot be combined: the plan is already saved\n",
    )


PLACES = {
    "a file that is no plan": ("precious", "--overwrite does not replace it, since it is not a plan that --save_plan"),
    "a device": ("/dev/null", "--overwrite does not replace it, since it cannot be read: not a regular file"),
    "a folder": ("folder", "is a folder; give a file, such as "),
    "a folder that is not there": ("no/folder/p", "cannot be written: No such file or directory"),
    "in the output": ("out/p", "is inside --output; choose a file outside it"),
    "among the photos": (
        "photos/train/hat/p.jpg",
        "/photos/**/* also matches this file; choose one elsewhere",
    ),
    "a bucket": ("gs://b", "is a bucket; give a file, such as gs://b/plan.zip"),
    "a folder on gs": ("gs://b/folder/", "is a folder; give a file, such as gs://b/folder/plan.zip"),
    "no bucket": ("gs://nowhere/p", "cannot be written: no such bucket or object"),
}


@pytest.mark.parametrize("place", PLACES)
def test_only_plans_are_replaced_and_places_are_checked_first(
    beam_tfr: Command, photos: Path, tmp_path: Path, fake: FakeGcs, place: str
) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "folder").mkdir()
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    path, said = PLACES[place]
    path = path if path.startswith(("/", "gs://")) else str(tmp_path / path)
    run = convert(beam_tfr, photos, tmp_path / "out", "--save_plan", path, "--overwrite")
    assert run.code == 2
    assert run.err.startswith(f"beam-tfr convert: --save_plan {path}: ")
    assert said in run.err
    assert len(run.err.splitlines()) == 1
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before
    assert fake.names() == []


def test_photos_that_change_after_the_plan_was_saved_are_rejects(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    assert convert(beam_tfr, photos, tmp_path / "out", "--save_plan", tmp_path / "p").code == 0
    changed, gone = sorted((photos / "train/hat").iterdir())[:2]
    os.utime(changed, ns=(1, 1))
    gone.unlink()
    run = convert(beam_tfr, photos, tmp_path / "out", "--plan", tmp_path / "p", "--json")
    assert (run.json["written"], run.json["rejected"]) == (16, {"changed-while-reading": 1, "not-found": 1})
    rejects = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
    assert {reject["key"]: reject["reason"] for reject in rejects} == {
        f"train/hat/{changed.name}": "changed-while-reading",
        f"train/hat/{gone.name}": "not-found",
    }


def test_replacing_the_plan_of_a_run_ends_it(tmp_path: Path) -> None:
    path = save(tmp_path / "p")
    work = dict(assignment.every_shard(plans._open(None, path)))
    name = "train-00000-of-00002"
    read_refs = plans._ReadRefs(path, plans.Target(str(tmp_path), "mine"))
    read_refs.setup()
    assert [one.refs for one in read_refs.process((name, work[name]))] == [REFS[name]]
    read_refs.teardown()
    save(tmp_path / "p", make_plan(input_digest="cd" * 32))
    read_refs.setup()
    with pytest.raises(RunError, match=r"`plan=.*/p`: was replaced after this run started; run the same command again"):
        next(iter(read_refs.process((name, work[name]))))
    read_refs.teardown()


def test_codecs_are_those_of_the_converting_machine(tmp_path: Path) -> None:
    path = save(tmp_path / "p")
    assert plans._open(None, path) == dataclasses.replace(make_plan(), codecs=images.codec_versions())


def test_on_dataflow(service: FakeDataflow, beam_tfr: Command) -> None:
    saved = submit(beam_tfr, service, "--no_wait", "--save_plan=gs://b/plan.zip")
    assert saved.code == 0, saved.err
    assert steps_of(service) == {"MatchImages", "PlanShards", "SavePlan"}
    assert not [name for name in service.names() if name.startswith("out/")]  # not even a lock
    run = submit(beam_tfr, service, "--no_wait", "--plan=gs://b/later.zip")  # --no_auth: only the form is looked at
    assert run.code == 0, run.err
    assert steps_of(service) == {
        "ReadPlan",
        "ReadImages",
        "ResizeImages",
        "BuildExamples",
        "WriteShards",
        "WriteManifest",
    }
    grouping = ("beam:transform:group_by_key:v1", "beam:transform:reshuffle:v1", "beam:transform:combine_per_key:v1")
    shuffled = [t.unique_name for t in service.pipeline().components.transforms.values() if t.spec.urn in grouping]
    assert {name.split("/")[2] for name in shuffled} == {"SpreadShards"}
    local = submit(beam_tfr, service, "--plan=/plan.zip")
    assert (local.code, local.err) == (
        2,
        "beam-tfr convert: --plan /plan.zip: must be on gs://, where Dataflow's workers can reach it\n",
    )


def steps_of(service: FakeDataflow) -> set[str]:
    names = [t.unique_name.split("/") for t in service.pipeline().components.transforms.values()]
    return {name[1] for name in names if len(name) > 1}


# The file


def make_plan(**changes: Any) -> Plan:
    plan = Plan(
        name="d",
        suffix=".tfrecord.gz",
        options={"seed": 0, "encoding": "jpeg", "compression": "gzip", "gzip_level": "auto"},
        input_digest="ab" * 32,
        labels=["hat"],
        splits={
            "test": SplitPlan(matched=0, num_shards=1, cuts=[], class_counts={}),
            "train": SplitPlan(matched=5, num_shards=2, cuts=["80"], class_counts={"hat": 5}),
        },
        codecs={"pillow": "1"},
    )
    return dataclasses.replace(plan, **changes)


REFS = {
    "test-00000-of-00001": [],
    "train-00000-of-00002": [b"a", b"b\n"],
    "train-00001-of-00002": [b"", b"\0", b"c" * 999],
}


def packed(refs: dict[str, list[bytes]]) -> Iterable[tuple[str, bytes]]:
    return [(name, saved_plan.pack(of)) for name, of in refs.items()]


def save(path: Path, plan: Plan | None = None, shards: Iterable[tuple[str, bytes]] | None = None) -> str:
    saved_plan.write(
        str(path), plan or make_plan(), packed(REFS) if shards is None else shards, call=CALL, replace=True
    )
    return str(path)


def shards_of(plan: Plan) -> dict[str, Shard]:
    return {name: assignment.planned_shard(value) for name, value in assignment.every_shard(plan)}


def read(path: str) -> tuple[Plan, dict[str, Any], dict[str, list[bytes]]]:
    with SavedPlan(path) as saved:
        return saved.plan, dict(saved.call), {name: saved.refs(shard) for name, shard in shards_of(saved.plan).items()}


def test_shards_may_come_in_any_order(tmp_path: Path) -> None:
    path = save(tmp_path / "a")
    assert read(path) == (make_plan(), CALL, REFS)
    save(tmp_path / "b", shards=reversed([*packed(REFS)]))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["plan.json", *(f"{name}.gz" for name in REFS)]
        header = json.loads(archive.read("plan.json"))
    assert header == {
        "format_version": 1,
        "call": CALL,
        "plan": make_plan().fields(),
        "digest": sha256_hex(canonical_json({name: value for name, value in header.items() if name != "digest"})),
    }


@given(refs=st.lists(st.binary(max_size=300), max_size=20))
def test_any_references(refs: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any_references"
    plan = make_plan(splits={"train": SplitPlan(matched=len(refs), num_shards=1, cuts=[], class_counts={})})
    assert read(save(path, plan, packed({"train-00000-of-00001": refs})))[2] == {"train-00000-of-00001": refs}


def test_a_runner_that_loses_or_repeats_shards_saves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="shard train-00001-of-00002 did not arrive: this runner lost elements"):
        save(tmp_path / "p", shards=[*packed(REFS)][:-1])
    with pytest.raises(RunError, match="shard test-00000-of-00001 arrived twice: this runner repeated elements"):
        save(tmp_path / "p", shards=[*packed(REFS), *packed(REFS)])
    assert not [*tmp_path.iterdir()]


def edited(path: Path, change: Callable[[dict[str, Any]], Any]) -> str:
    """The plan at the path with another header."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(entries["plan.json"])
    change(header)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**entries, "plan.json": json.dumps(header).encode()}.items():
            archive.writestr(name, data)
    return str(path)


HEADERS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another version": (lambda h: h.update(format_version=2), "format_version is 2, this version reads only 1"),
    "a cut edited": (lambda h: h["plan"]["splits"]["train"].update(cuts=["81"]), "it was edited, or damaged"),
    "a number edited": (lambda h: h["plan"]["splits"]["train"].update(matched=6), "it was edited, or damaged"),
    "no plan": (lambda h: h.pop("plan"), "it was edited, or damaged"),
    "no digest": (lambda h: h.pop("digest"), "it was edited, or damaged"),
    "the call edited": (lambda h: h["call"].update(root="/q/"), "it was edited, or damaged"),
    "nested": (lambda h: h.update(call={"input": json.loads("[" * 400 + "]" * 400)}), "it was edited, or damaged"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_an_edited_header(tmp_path: Path, name: str) -> None:
    save(tmp_path / "p")
    change, message = HEADERS[name]
    path = edited(tmp_path / "p", change)
    with pytest.raises(UsageError, match=f"is not a plan that `save_plan=` wrote: {message}"):
        SavedPlan(path)


def test_not_a_plan(tmp_path: Path) -> None:
    for content in (b"", b"PK", b"something else", (SAMPLE.parent / "__init__.py").read_bytes()):
        (tmp_path / "p").write_bytes(content)
        with pytest.raises(UsageError, match="is not a plan that `save_plan=` wrote: File is not a zip file"):
            SavedPlan(str(tmp_path / "p"))
    for path, why in (("nowhere", "No such file or directory"), (".", "it is a folder")):
        with pytest.raises(UsageError, match=f"cannot be read: .*({why})"):
            SavedPlan(str(tmp_path / path))


def test_a_damaged_or_short_shard(tmp_path: Path) -> None:
    for shards in (
        [*packed({**REFS, "train-00001-of-00002": [b"x"]})],
        [*packed({**REFS, "train-00001-of-00002": [b"x"] * 4})],
        [(name, data[:-9] if name == "train-00001-of-00002" else data) for name, data in packed(REFS)],
    ):
        with pytest.raises(DataError, match=r"shard train-00001-of-00002 is damaged: .*; save the plan again"):
            read(save(tmp_path / "p", shards=shards))


def test_every_damaged_byte_is_noticed_without_a_stack_trace(tmp_path: Path) -> None:
    whole = Path(save(tmp_path / "p")).read_bytes()
    expected = read(str(tmp_path / "p"))
    rng, told, unchanged = random.Random(0), 0, 0
    for trial in range(240):
        data = bytearray(whole)
        if trial % 3:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            del data[rng.randrange(len(data)) :]
        (tmp_path / "q").write_bytes(data)
        try:
            found = read(str(tmp_path / "q"))
        except BeamTfrError as error:
            told += str(tmp_path / "q") in str(error)
        else:
            assert found == expected
            unchanged += 1
    assert told + unchanged == 240
    assert unchanged < 48  # bytes that mean nothing here: of times, of permissions
