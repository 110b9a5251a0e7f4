"""Claims of an output folder: what is resumed, refused, overwritten and left alone."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from beam_tfr import claim, lock, sidecars, storage
from beam_tfr.naming import shard_name
from beam_tfr.schema import Plan, Reject, RunError, Shard, ShardInfo, SplitPlan, UsageError, sha256_hex
from tests.conftest import files_of
from tests.test_lock import Other, others, pool

__all__ = ["others", "pool"]

DONE = "d-train-00000-of-00002.tfrecord.gz"


def make_plan(seed: int = 0, name: str = "d") -> Plan:
    return Plan(
        name=name,
        suffix=".tfrecord.gz",
        options={"seed": seed, "image_size": [224, 224]},
        input_digest="ab" * 32,
        labels=["hat"],
        splits={
            "train": SplitPlan(matched=4, num_shards=2, cuts=["80"], class_counts={"hat": 4}),
            "none": SplitPlan(matched=1, num_shards=1, cuts=[], class_counts={}),
        },
        codecs={"pillow": "12"},
    )


def begin(output: Path, plan: Plan | None = None, *, overwrite: bool = False, run_id: str = "mine") -> Plan:
    return claim.claim(str(output), plan or make_plan(), run_id=run_id, overwrite=overwrite)


def shard_of(plan: Plan, number: int = 0, split: str = "train") -> Shard:
    of = plan.splits[split]
    return Shard(split, number, of.num_shards, 2 if split == "train" else 1, plan.digest)


def finish_shard(output: Path, plan: Plan, number: int = 0, split: str = "train") -> ShardInfo:
    """A shard as WriteShards leaves it."""
    shard = shard_of(plan, number, split)
    reject = Reject("a\u2028\n.jpg", "ReadImages", "not-found", "gone")
    info = ShardInfo(shard=shard, rejected={"not-found": 1})
    if split == "train":
        data = shard.name.encode() * 100
        info = dataclasses.replace(
            info,
            file=f"{plan.name}-{shard.name}.tfrecord.gz",
            num_examples=1,
            sha256=sha256_hex(data),
            num_bytes=len(data),
        )
        (output / info.file).write_bytes(data)
        os.utime(output / info.file, (1e9, 1e9))  # a test that changes it may do so within the same tick of the clock
    generation = (output / info.file).stat().st_mtime_ns if info.file else 0
    sidecars.write(str(output), info, [reject.to_json()], generation=generation)
    return info


def sidecar(output: Path, number: int = 0) -> Path:
    return output / ".beam_tfr" / f"{shard_name('train', number, 2)}.json"


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
    with pytest.raises(UsageError, match=r"(?s)holds part of a dataset.*options.seed: 0 there, 1 now.*`overwrite=`"):
        begin(tmp_path, make_plan(seed=1), run_id="second")
    assert {k: v for k, v in files_of(tmp_path).items() if "lock" not in k} == {
        k: v for k, v in before.items() if "lock" not in k
    }
    die(tmp_path)
    assert begin(tmp_path, run_id="third") == plan
    assert not list((tmp_path / ".beam_tfr").glob(".tmp-*"))
    assert sidecars.read_finished(str(tmp_path), info.shard) == info
    assert len(list(sidecars.read_rejects(str(tmp_path), info.shard.name))) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", bytes(99), b'{"plan', b"[]", b'{"plan":{}}'])
def test_a_damaged_plan_is_ignored(tmp_path: Path, content: bytes) -> None:
    plan = begin(tmp_path)
    finish_shard(tmp_path, plan, split="none")
    (tmp_path / ".beam_tfr" / "plan.json").write_bytes(content)
    die(tmp_path)
    assert begin(tmp_path, run_id="second") == plan
    assert sorted(path.name for path in (tmp_path / ".beam_tfr").iterdir()) == ["lock.1", "plan.json"]
    assert json.loads((tmp_path / ".beam_tfr" / "plan.json").read_text())["digest"] == plan.digest


def test_a_plan_that_was_changed_is_refused_with_the_cure(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    finish_shard(tmp_path, plan)
    path = tmp_path / ".beam_tfr" / "plan.json"
    sound = json.loads(path.read_bytes())
    die(tmp_path)
    changed = [{**sound, "digest": "0"}, *({**sound, "plan": {**sound["plan"], name: None}} for name in sound["plan"])]
    for number, content in enumerate(changed):
        path.write_text(json.dumps(content))
        with pytest.raises(UsageError, match=r"holds files of an unknown dataset, such as .*`overwrite=`"):
            begin(tmp_path, run_id=f"{number}")
        lock.release(str(tmp_path), f"{number}")


def test_shards_without_a_plan_are_not_reused(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    finish_shard(tmp_path, plan)
    (tmp_path / ".beam_tfr" / "plan.json").unlink()
    die(tmp_path)
    with pytest.raises(UsageError, match=rf"holds files of an unknown dataset, such as {DONE}"):
        begin(tmp_path, run_id="second")
    assert begin(tmp_path, run_id="second", overwrite=True) == plan
    assert not (tmp_path / DONE).exists()
    assert sidecars.read_finished(str(tmp_path), shard_of(plan)) is None


@pytest.mark.parametrize("name", ["labels.txt", "rejects.jsonl"])
def test_an_unrelated_file_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(UsageError, match=rf"holds files of an unknown dataset, such as {name}"):
        begin(tmp_path)
    assert (tmp_path / name).read_text() == "mine\n"
    begin(tmp_path, overwrite=True)
    assert not (tmp_path / name).exists()


def test_a_work_folder_that_is_a_link_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "plan.json").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".beam_tfr").symlink_to("../elsewhere")
    with pytest.raises(UsageError, match=r"\.beam_tfr in it is a link, and would be emptied; remove it"):
        begin(tmp_path / "out", overwrite=True)
    assert [path.read_text() for path in (tmp_path / "elsewhere").iterdir()] == ["mine"]


def test_a_retried_step_claims_once(tmp_path: Path) -> None:
    plan = begin(tmp_path, overwrite=True)
    info = finish_shard(tmp_path, plan)
    assert begin(tmp_path, overwrite=True) == plan  # a runner's retry, of the same run
    assert sidecars.read_finished(str(tmp_path), info.shard) == info
    die(tmp_path)
    assert begin(tmp_path, overwrite=True, run_id="second") == plan  # the same call again, as nothing is published
    assert sidecars.read_finished(str(tmp_path), info.shard) == info


def test_a_published_dataset_is_overwritten_also_by_its_own_plan(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    (tmp_path / "manifest.json").write_text("published by a run that was killed before it removed its work folder")
    die(tmp_path)
    assert begin(tmp_path, overwrite=True, run_id="second") == plan
    assert sidecars.read_finished(str(tmp_path), info.shard) is None
    info = finish_shard(tmp_path, plan)
    (tmp_path / "manifest.json").write_text("published by the second run")
    assert begin(tmp_path, overwrite=True, run_id="second") == plan  # its own retry
    assert sidecars.read_finished(str(tmp_path), info.shard) == info


def test_progress_counts_committed_shards(tmp_path: Path) -> None:
    assert claim.read_progress(str(tmp_path)) is None
    plan = begin(tmp_path)
    total = sum(of.num_shards for of in plan.splits.values())
    assert claim.read_progress(str(tmp_path)) == claim.Progress(0, total, 0, plan.matched)
    finish_shard(tmp_path, plan)
    images = plan.splits["train"].matched // plan.splits["train"].num_shards
    assert claim.read_progress(str(tmp_path)) == claim.Progress(1, total, images, plan.matched)


# Overwriting


class Killed(BaseException):
    pass


def old_dataset(output: Path, plan: Plan) -> None:
    """A dataset with all its files, of a run killed before it removed its work folder, and a file of the user's."""
    output.mkdir()
    begin(output, plan)
    for number in (0, 1):
        finish_shard(output, plan, number)
    finish_shard(output, plan, split="none")
    (output / ".beam_tfr" / ".tmp-9").write_bytes(b"half")
    for name in ("manifest.json", "labels.txt", "rejects.jsonl", "notes.txt"):
        (output / name).write_text("old")
    die(output)


@pytest.mark.parametrize("old", [make_plan(seed=0), make_plan(seed=1)], ids=["another plan", "the same plan"])
def test_overwriting_that_is_killed_never_leaves_a_mixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: Plan
) -> None:
    new = make_plan(seed=1)
    really_delete = storage.delete
    for step in range(100):
        output = tmp_path / str(step)
        old_dataset(output, old)
        left = [step]

        def delete(path: str, left: list[int] = left) -> None:
            really_delete(path)
            if "lock" not in path:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed

        monkeypatch.setattr(storage, "delete", delete)
        try:
            begin(output, new, overwrite=True, run_id="second")
            killed = False
        except Killed:
            killed = True
        monkeypatch.setattr(storage, "delete", really_delete)
        assert (output / "manifest.json").exists() == (step == 0)  # the first to go is plan.json
        assert (output / "notes.txt").read_text() == "old"
        die(output)
        # Whatever comes next, no shard of the old dataset is taken for one of the new.
        for overwrite in (False, True):
            try:
                begin(output, new, overwrite=overwrite, run_id=f"third {overwrite}")
            except UsageError:
                assert not overwrite
                assert killed
            else:
                for split, number in (("train", 0), ("train", 1), ("none", 0)):
                    assert sidecars.read_finished(str(output), shard_of(new, number, split)) is None
            die(output)
        assert sorted(path.name for path in output.iterdir()) == [".beam_tfr", "notes.txt"]
        assert {path.name.split(".")[0] for path in (output / ".beam_tfr").iterdir()} == {"lock", "plan"}
        if not killed:
            break
    assert 6 < step < 99


def test_another_run_that_holds_the_folder_keeps_its_files(others: list[Other], tmp_path: Path) -> None:
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
    (tmp_path / "manifest.json").write_text('{"format_version": 1}')
    with pytest.raises(
        UsageError, match=r"does not match its content; copy the dataset again, or run `beam-tfr convert"
    ):
        begin(tmp_path)
    assert begin(tmp_path, overwrite=True) == make_plan()
    assert not (tmp_path / "manifest.json").exists()
