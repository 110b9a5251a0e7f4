"""Claims of an output folder: what is resumed, refused, overwritten and left alone."""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import os
from pathlib import Path

import pytest

from beam_tfr.console.display import Progress
from beam_tfr.output import claim, sidecars
from beam_tfr.schema.dataset import json_digest
from beam_tfr.schema.errors import RunError, UsageError
from tests.claims import begin, built_file, finish_shard, make_plan
from tests.conftest import files_of
from tests.lock_fixtures import Other

STRAY = "d-train-00000-of-00002.tfrecord.gz"


def die(output: Path) -> None:
    """The run is killed: its lock stays, nobody holds it."""
    for file in (output / ".beam_tfr").glob("lock.*"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "process_start": "1"}))


def test_the_same_plan_resumes_and_another_is_refused(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    (tmp_path / ".beam_tfr" / ".tmp-0123").write_bytes(b"half a shard")
    die(tmp_path)
    before = files_of(tmp_path)
    with pytest.raises(
        UsageError,
        match=r"(?s)holds part of a dataset.*options.seed: 0 before, 1 now.*`overwrite=`",
    ):
        begin(tmp_path, make_plan(seed=1), run_id="second")
    assert {k: v for k, v in files_of(tmp_path).items() if "lock" not in k} == {
        k: v for k, v in before.items() if "lock" not in k
    }
    die(tmp_path)
    assert begin(tmp_path, run_id="third") == plan
    assert not list((tmp_path / ".beam_tfr").glob(".tmp-*"))
    assert sidecars.read_finished(str(tmp_path), info.shard) == info
    assert len(list(sidecars.read_rejects(str(tmp_path), info.shard.name))) == 1


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("run_id",), 5),
        (("replaces",), "0"),
        (("overwrite",), float("nan")),
        (("plan", "name"), ["d"]),
        (("plan", "options"), []),
        (("plan", "labels"), 1e308),
        (("plan", "labels"), [["a"]]),
        (("plan", "codecs"), None),
        (("plan", "codecs"), {"pillow": 1}),
        (("plan", "splits", "train"), []),
        (("plan", "splits", "train", "matched"), "3"),
        (("plan", "splits", "train", "num_shards"), None),
        (("plan", "splits", "train", "num_shards"), 10**9),
        (("plan", "splits", "train", "class_counts"), {"a": "1"}),
    ],
)
def test_a_plan_from_elsewhere_with_wrong_values_is_ignored(
    tmp_path: Path, place: tuple[str, ...], value: object
) -> None:
    """The digest of the plan is right."""
    plan = begin(tmp_path)
    die(tmp_path)
    path = tmp_path / ".beam_tfr" / "plan.json"
    fields = json.loads(path.read_text())
    *above, name = place
    functools.reduce(operator.getitem, above, fields)[name] = value
    fields["digest"] = json_digest(fields["plan"])
    path.write_text(json.dumps(fields))
    assert claim.read_progress(str(tmp_path)) is None
    assert claim.find_claim(str(tmp_path), "first") is None
    assert begin(tmp_path, run_id="second") == plan


@pytest.mark.parametrize(
    "content", [b"", b"[" * 99_999, b"{", b"\xff", bytes(99), b'{"plan', b"[]", b'{"plan":{}}']
)
def test_a_damaged_plan_is_ignored_with_its_shards(tmp_path: Path, content: bytes) -> None:
    plan = begin(tmp_path)
    finish_shard(tmp_path, plan)
    (tmp_path / ".beam_tfr" / "plan.json").write_bytes(content)
    die(tmp_path)
    assert begin(tmp_path, run_id="second") == plan
    assert sorted(path.name for path in (tmp_path / ".beam_tfr").iterdir()) == [
        "lock.1",
        "plan.json",
    ]
    assert json.loads((tmp_path / ".beam_tfr" / "plan.json").read_text())["digest"] == plan.digest


def test_a_plan_that_was_changed_is_ignored_with_its_shards(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    path = tmp_path / ".beam_tfr" / "plan.json"
    sound = json.loads(path.read_bytes())
    changed = [
        {**sound, "digest": "0"},
        *({**sound, "plan": {**sound["plan"], name: None}} for name in sound["plan"]),
    ]
    for number, content in enumerate(changed):
        info = finish_shard(tmp_path, plan)
        path.write_text(json.dumps(content))
        die(tmp_path)
        assert begin(tmp_path, run_id=f"{number}") == plan
        assert sidecars.read_finished(str(tmp_path), info.shard) is None


@pytest.mark.parametrize("name", ["labels.txt", "rejects.jsonl", STRAY])
def test_an_unrelated_file_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(UsageError, match=rf"holds files of an unknown dataset, such as {name}"):
        begin(tmp_path)
    begin(tmp_path, overwrite=True)
    assert (tmp_path / name).read_text() == "mine\n"  # until the new dataset is complete


@pytest.mark.parametrize("name", [".beam_tfr", ".sources", "contents"])
def test_a_folder_in_it_that_is_a_link_is_not_emptied(name: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "plan.json").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to("../elsewhere")
    with pytest.raises(UsageError, match=rf"contains a link, {name}, and files in its target"):
        begin(tmp_path / "out", overwrite=True)
    assert [path.read_text() for path in (tmp_path / "elsewhere").iterdir()] == ["mine"]


def test_a_retried_step_claims_once(tmp_path: Path) -> None:
    plan = begin(tmp_path, overwrite=True)
    info = finish_shard(tmp_path, plan)
    assert begin(tmp_path, overwrite=True) == plan  # a runner's retry, of the same run
    assert sidecars.read_finished(str(tmp_path), info.shard) == info
    die(tmp_path)
    # the same call again, as nothing is published
    assert begin(tmp_path, overwrite=True, run_id="second") == plan
    assert sidecars.read_finished(str(tmp_path), info.shard) == info


def test_what_was_begun_beside_a_dataset_is_resumed_only_while_it_stands(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("a dataset")
    plan = begin(tmp_path, overwrite=True)
    info = finish_shard(tmp_path, plan)
    die(tmp_path)
    assert begin(tmp_path, overwrite=True, run_id="second") == plan
    assert sidecars.read_finished(str(tmp_path), info.shard) == info
    assert claim.find_claim(str(tmp_path), "second") == (
        os.stat(tmp_path / "manifest.json").st_mtime_ns,
        True,
    )
    assert claim.find_claim(str(tmp_path), "mine") is None
    (tmp_path / "manifest.json").write_text("published since")
    os.utime(tmp_path / "manifest.json", (1, 1))
    die(tmp_path)
    assert begin(tmp_path, overwrite=True, run_id="third") == plan
    assert sidecars.read_finished(str(tmp_path), info.shard) is None
    assert not built_file(tmp_path, info).exists()


def test_shards_of_changed_input_stay_and_those_that_are_not_planned_go(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    kept, gone = finish_shard(tmp_path, plan), finish_shard(tmp_path, plan, split="none")
    (tmp_path / ".beam_tfr" / sidecars.unique_name("train-00001-of-00002")).write_bytes(
        b"its sidecar is missing"
    )
    die(tmp_path)
    fewer = dataclasses.replace(
        plan, splits={"train": plan.splits["train"]}, input_digest="cd" * 32
    )
    assert begin(tmp_path, fewer, run_id="second") == fewer
    assert sidecars.read_finished(str(tmp_path), kept.shard) == kept
    assert sidecars.read_sidecar(str(tmp_path), gone.shard.name) is None
    names = {path.name for path in (tmp_path / ".beam_tfr").iterdir()}
    assert kept.contents
    built = {kept.built, kept.contents.built}
    assert names == {"lock.1", "plan.json", *built, f"{kept.shard.name}.json"}


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    plan = dataclasses.replace(make_plan(), num_bytes=10**16)
    with pytest.raises(
        RunError,
        match=r"needs about 10,000,000,000.0 MB, but its disk has .* available .*; free disk space",
    ):
        begin(tmp_path, plan)
    assert [path.name for path in (tmp_path / ".beam_tfr").iterdir()] == ["lock.0"]


def test_progress_counts_committed_shards(tmp_path: Path) -> None:
    assert claim.read_progress(str(tmp_path)) is None
    plan = begin(tmp_path)
    total = sum(of.num_shards for of in plan.splits.values())
    assert claim.read_progress(str(tmp_path)) == Progress("converting", 0, plan.matched, 0, total)
    finish_shard(tmp_path, plan)
    assert claim.read_progress(str(tmp_path)) == Progress("converting", 0, plan.matched, 1, total)


def test_claiming_touches_no_file_of_a_dataset(tmp_path: Path) -> None:
    for name in ("manifest.json", "labels.txt", "rejects.jsonl", STRAY, "notes.txt"):
        (tmp_path / name).write_text("old")
    begin(tmp_path, make_plan(seed=1), overwrite=True)
    finish_shard(tmp_path, make_plan(seed=1))
    die(tmp_path)
    # another plan: what the first run finished goes
    begin(tmp_path, overwrite=True, run_id="second")
    assert sorted(path.name for path in (tmp_path / ".beam_tfr").iterdir()) == [
        "lock.1",
        "plan.json",
    ]
    assert {
        path.name for path in tmp_path.iterdir() if path.is_file() and path.read_text() == "old"
    } == {
        "manifest.json",
        "labels.txt",
        "rejects.jsonl",
        STRAY,
        "notes.txt",
    }


def test_another_run_that_holds_the_folder_keeps_its_files(
    others: list[Other], tmp_path: Path
) -> None:
    plan = begin(tmp_path)
    finish_shard(tmp_path, plan)
    die(tmp_path)
    others[0].ask(tmp_path, "other")
    assert others[0].answer() == "holds"
    before = files_of(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(RunError, match="another run holds"):
            begin(tmp_path, overwrite=overwrite, run_id="second")
    assert files_of(tmp_path) == before


def test_an_edited_manifest_is_refused_and_overwritten(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format_version": 2}')
    with pytest.raises(
        UsageError,
        match=r"does not match its content; copy the dataset again, or run `beam-tfr convert",
    ):
        begin(tmp_path)
    assert begin(tmp_path, overwrite=True) == make_plan()
