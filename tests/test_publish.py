"""Totals that do not add up, statistics, and the files that are published."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.output import manifest_fields, publish, shard_totals, sidecars
from beam_tfr.output.claim import Claim
from beam_tfr.schema.dataset import NO_SPLIT, sha256_hex
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.schema.plan import Counts, Plan, Shard, ShardInfo, SplitPlan
from tests.publishing import (
    LABELS,
    NEW,
    build,
    files_of,
    generation,
    info_of,
    make_infos,
    make_plan,
    totals_of,
    write,
)


def test_totals_by_split_with_shards_in_order() -> None:
    plan = make_plan()
    infos = make_infos(plan)
    parts = [
        shard_totals.add_up_shards([info for info in infos.values() if info.shard.number == number])
        for number in (1, 0)
    ]
    twice = shard_totals.add_up_shards(reversed([*infos.values(), *infos.values()]))
    found = shard_totals.merge_totals(plan, [twice])
    assert found == shard_totals.merge_totals(plan, pickle.loads(pickle.dumps(parts)))
    assert list(found) == ["none", "test", "train"]
    assert {split: [*found.shards] for split, found in found.items()} == {
        "none": ["none-00000-of-00001"],
        "test": ["test-00000-of-00002", "test-00001-of-00002"],
        "train": ["train-00000-of-00002", "train-00001-of-00002"],
    }
    assert found["train"].counts == Counts(
        num_examples=9,
        num_bytes=946,
        rejected={"damaged-image": 1},
        class_counts={0: 5, 1: 4},
        adjusted={"rotated": 5},
        pixels=36,
        channel_sums=[90, 180, 360],
        channel_squares=[270, 1350, 4500],
        source_sizes={512: 9},
    )
    train = infos["train-00000-of-00002"]
    assert found["train"].shards[train.shard.name] == shard_totals.CommittedShard(
        file=train.file,
        num_examples=4,
        num_rejected=1,
        num_bytes=423,
        sha256=train.sha256,
        records_sha256=train.records_sha256,
        rejects_sha256=train.rejects_sha256,
        built="another file of the same content",
        generation=0,
        contents=None,
    )


def test_memory_per_shard_does_not_grow_with_the_classes() -> None:
    def held(classes: int, shards: int) -> int:
        plan = make_plan(
            labels=None,
            splits={
                "train": SplitPlan(
                    matched=classes * shards, num_shards=shards, cuts=[], class_counts={}
                )
            },
        )

        def infos() -> Iterator[ShardInfo]:
            for number in range(shards):
                counts = dict.fromkeys(range(classes), 1)
                yield info_of(plan, "train", number, classes, classes, class_counts=counts)

        tracemalloc.start()
        totals = shard_totals.add_up_shards(infos())
        shard_totals.merge_totals(plan, [totals])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    per_shard = (held(500, 200) - held(500, 100)) / 100
    assert per_shard < 1500  # the counts alone would be 50,000


def test_what_the_publisher_gets_of_a_shard_does_not_grow_with_the_classes() -> None:
    plan = make_plan(labels=None)
    counts = dict.fromkeys(range(1000), 1000)
    infos = [info_of(plan, "train", number, 9, 9, class_counts=counts) for number in range(100)]
    assert len(pickle.dumps(infos[0])) > 3000
    assert len(pickle.dumps(shard_totals.add_up_shards(infos))) < 100 * 700


def change(name: str, **changes: Any) -> Callable[[dict[str, ShardInfo]], None]:
    def apply(infos: dict[str, ShardInfo]) -> None:
        infos[name] = dataclasses.replace(infos[name], **changes)

    return apply


def foreign(infos: dict[str, ShardInfo]) -> None:
    shard = infos["train-00000-of-00002"].shard
    infos["x"] = ShardInfo(shard=shard._replace(number=2, num_shards=3, total=0))


def twice(infos: dict[str, ShardInfo]) -> None:
    infos["again"] = dataclasses.replace(infos["train-00000-of-00002"], sha256="0" * 64)


FAULTS: dict[str, tuple[Callable[[dict[str, ShardInfo]], Any], str]] = {
    "a shard is missing": (
        lambda infos: infos.pop("train-00001-of-00002"),
        "1 of 5 shards are missing at the end, such as train-00001-of-00002: the runner lost them",
    ),
    "an empty shard is missing": (
        lambda infos: infos.pop("test-00001-of-00002"),
        "1 of 5 shards are missing",
    ),
    "the shard without a split is missing": (
        lambda infos: infos.pop("none-00000-of-00001"),
        "1 of 5 shards are missing",
    ),
    "all are missing": (lambda infos: infos.clear(), "5 of 5 shards are missing"),
    "a shard too many": (foreign, "shard train-00002-of-00003 is not in the plan"),
    "a shard twice, not the same": (
        twice,
        "shard train-00000-of-00002 was written twice, with different content",
    ),
    "a record is lost": (
        change("train-00000-of-00002", num_examples=3),
        "split train: 10 images were matched, but 8 written and 1 rejected: the runner lost or "
        "repeated some",
    ),
    "a record too many": (
        change("test-00001-of-00002", num_examples=1),
        "split test: 4 images were matched, but 5 written and 0 rejected",
    ),
    "a reject is lost": (
        change("none-00000-of-00001", rejected={}),
        "split none: 2 images were matched, but 0 written and 0 rejected",
    ),
    "a shard of another plan": (
        change("train-00000-of-00002", shard=Shard("train", 0, 2, 5, "other")),
        "shard train-00000-of-00002 is not in the plan",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_runner(fault: str) -> None:
    plan = make_plan()
    infos = make_infos(plan)
    apply, message = FAULTS[fault]
    apply(infos)
    with pytest.raises(RunError, match=message) as told:
        totals_of(plan, infos)
    assert "othing is published" in str(told.value)


def test_too_many_rejects() -> None:
    plan = make_plan()
    infos = make_infos(plan)
    for allowed in (3, 4, 1.0, 0.1875):
        totals_of(plan, infos, allowed)
    for allowed, shown in ((2, 2), (0, 0), (0.18, 2), (0.0, 0)):
        with pytest.raises(DataError) as told:
            totals_of(plan, infos, allowed)
        assert str(told.value).startswith(
            "3 of 16 images were rejected (layout-mismatch 2, damaged-image 1), "
            f"`max_rejects={allowed}` allows {shown}. Nothing is published."
        )


@given(images=st.integers(1, 10_000), hundredths=st.integers(0, 100), data=st.data())
def test_a_share_of_rejects_is_exact(images: int, hundredths: int, data: st.DataObject) -> None:
    allowed = hundredths * images // 100
    rejected = data.draw(st.sampled_from([allowed, min(allowed + 1, images)]))
    plan = make_plan(
        labels=None,
        splits={NO_SPLIT: SplitPlan(matched=images, num_shards=1, cuts=[], class_counts={})},
    )
    info = info_of(plan, NO_SPLIT, 0, images, images - rejected)
    if rejected > allowed:
        with pytest.raises(DataError, match=rf"allows {allowed:,}\. Nothing"):
            totals_of(plan, {"": info}, float(f"0.{hundredths:02d}") if hundredths < 100 else 1.0)
    else:
        totals_of(plan, {"": info}, float(f"0.{hundredths:02d}") if hundredths < 100 else 1.0)


def test_a_lost_split_or_class_is_an_error() -> None:
    plan = make_plan()
    infos = make_infos(plan)
    change("test-00000-of-00002", num_examples=0, rejected={"not-found": 4}, class_counts={})(infos)
    with pytest.raises(
        DataError,
        match=r"split test would be empty: all of its images were rejected \(not-found 4\)\. ",
    ):
        totals_of(plan, infos, 1.0, ("hat",))
    totals_of(plan, infos, 1.0, ("test",))
    infos = make_infos(plan)
    change("test-00000-of-00002", num_examples=2, rejected={"not-found": 2}, class_counts={0: 2})(
        infos
    )
    with pytest.raises(
        DataError,
        match=r"class shoes would be lost from split test: all of its images in this split were "
        r"rejected \(2\)",
    ):
        totals_of(plan, infos, 1.0, ("hat",))
    totals_of(plan, infos, 1.0, ("shoes",))
    unused = make_plan(labels=[*LABELS, "unused"])
    totals_of(unused, make_infos(unused))


def test_rows_are_called_rows() -> None:
    plan = make_plan(options={"compression": "gzip", "encoding": "row", "seed": 0})
    infos = make_infos(plan)
    with pytest.raises(
        DataError,
        match=r"^3 of 16 rows were rejected .*\. Nothing is published\. Fix them, leave them out "
        r"of `table=`, or run again",
    ):
        totals_of(plan, infos, 0)
    change("test-00000-of-00002", num_examples=0, rejected={"bad-value": 4}, class_counts={})(infos)
    with pytest.raises(
        DataError,
        match=r"all of its rows were rejected \(bad-value 4\)\. Fix one, leave them out of "
        r"`table=`, or use `allow_empty=test`$",
    ):
        totals_of(plan, infos, 1.0)


# Statistics


def total(infos: Iterable[Counts]) -> Counts:
    counts = Counts()
    for info in infos:
        counts.add(info)
    return counts


@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 255), min_size=3, max_size=3), min_size=1, max_size=6),
        max_size=5,
    )
)
def test_statistics_are_those_of_numpy(shards: list[list[list[int]]]) -> None:
    plan = make_plan()
    infos = [ShardInfo(shard=Shard("train", 9, 10, 0, plan.digest))]
    for number, pixels in enumerate(shards):
        columns = list(zip(*pixels, strict=True))
        infos.append(
            ShardInfo(
                shard=Shard("train", number, 10, 1, plan.digest),
                pixels=len(pixels),
                channel_sums=[sum(column) for column in columns],
                channel_squares=[sum(value * value for value in column) for column in columns],
                source_sizes={1 << number: 1},
            )
        )
    found = manifest_fields.compute_statistics(total(infos), {"encoding": "jpeg"})
    assert found == manifest_fields.compute_statistics(total(infos[::-1]), {"encoding": "jpeg"})
    everything = np.array([pixel for shard in shards for pixel in shard], dtype=np.float64)
    assert found["pixels"] == len(everything)
    if shards:
        assert found["channel_mean"] == pytest.approx(everything.mean(0), abs=1e-6)
        assert found["channel_std"] == pytest.approx(everything.std(0), abs=2e-6)
    else:
        assert (found["channel_mean"], found["channel_std"], found["source_sizes"]) == (
            [],
            [],
            {},
        )


def test_statistics_of_very_many_equal_pixels_have_no_deviation() -> None:
    pixels = 10**15 + 7
    shard = Shard("train", 0, 1, 1, "p")
    info = ShardInfo(
        shard=shard, pixels=pixels, channel_sums=[255 * pixels], channel_squares=[255**2 * pixels]
    )
    assert manifest_fields.compute_statistics(info, {"encoding": "jpeg"})["channel_mean"] == [255.0]
    assert manifest_fields.compute_statistics(info, {"encoding": "jpeg"})["channel_std"] == [0.0]


# Publishing


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    plan = make_plan()
    infos = make_infos(plan)
    assert publish.find_published(str(tmp_path), plan, totals_of(plan, infos), NEW) is None
    published = write(tmp_path, plan, infos)
    assert published.counts == {
        "matched": 16,
        "written": 13,
        "rejected": {"damaged-image": 1, "layout-mismatch": 2},
        "adjusted": {"rotated": 5},
    }
    assert published.splits["train"].class_counts == {"hat": 5, "shoes": 4}
    assert (published.splits["none"].rejected, published.splits["none"].shards) == (2, ())
    assert [shard.num_examples for shard in published.splits["test"].shards] == [4, 0]
    assert (tmp_path / "labels.txt").read_text() == "hat\nshoes\n"
    lines = (tmp_path / "rejects.jsonl").read_bytes()
    assert [json.loads(line)["reason"] for line in lines.splitlines()] == [
        "layout-mismatch",
        "layout-mismatch",
        "damaged-image",
    ]
    assert published.fields["rejects"] == {"count": 3, "sha256": sha256_hex(lines)}
    assert {path.name for path in (tmp_path / ".beam_tfr").iterdir()} == {
        f"{name}.json" for name in infos
    }
    before = files_of(tmp_path)
    for claimed in (NEW, None):  # also after the work folder is gone
        assert (
            publish.find_published(str(tmp_path), plan, totals_of(plan, infos), claimed)
            == published
        )
    assert files_of(tmp_path) == before


def test_a_different_dataset_is_not_replaced(tmp_path: Path) -> None:
    plan = make_plan()
    write(tmp_path, plan, make_infos(plan))
    before = files_of(tmp_path)
    infos = make_infos(plan)
    change("train-00001-of-00002", sha256="0" * 64)(infos)
    for attempt in (
        write,
        lambda *_: publish.find_published(str(tmp_path), plan, totals_of(plan, infos), NEW),
    ):
        with pytest.raises(RunError, match="another run published a different dataset into"):
            attempt(tmp_path, plan, infos)
        assert files_of(tmp_path) == before
    assert not (tmp_path / ".beam_tfr" / "switch.json").exists()


def test_a_dataset_is_replaced_with_all_its_files(tmp_path: Path) -> None:
    plan = make_plan()
    write(tmp_path, plan, make_infos(plan))
    (tmp_path / "e-train-00000-of-00001.tfrecord.gz").write_bytes(b"of another name")
    (tmp_path / "notes.txt").write_text("the user's")
    smaller = make_plan(
        labels=None,
        splits={"train": SplitPlan(matched=10, num_shards=2, cuts=["80"], class_counts={})},
    )
    infos = {name: info for name, info in make_infos(plan).items() if info.shard.split == "train"}
    for info in infos.values():
        info.shard = info.shard._replace(plan_digest=smaller.digest)
    published = write(tmp_path, smaller, infos, Claim(generation(tmp_path), overwrite=True))
    assert read_manifest(str(tmp_path)) == published
    names = {shard.file for split in published.splits.values() for shard in split.shards}
    assert {*files_of(tmp_path)} == {
        *names,
        *("README.md", "croissant.json", "schema.pbtxt", "contents.sha256"),
        *("manifest.json", "rejects.jsonl", "notes.txt"),
    }


def test_files_that_were_changed_or_removed_are_not_published(tmp_path: Path) -> None:
    plan = make_plan()
    write(tmp_path, plan, make_infos(plan))
    before = files_of(tmp_path)
    for change in (
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: os.utime(path, (1, 1)),
    ):
        infos = build(tmp_path, plan, make_infos(plan))
        change(tmp_path / ".beam_tfr" / infos["train-00001-of-00002"].built)
        with pytest.raises(
            RunError,
            match=r"1 finished shard missing or not as written, such as d-train-00001-of-00002",
        ):
            publish.publish_dataset(
                str(tmp_path),
                plan,
                totals_of(plan, infos, 1.0),
                Claim(generation(tmp_path), True),
            )
    infos = build(tmp_path, plan, make_infos(plan))
    sidecars.write_sidecar(str(tmp_path), infos["none-00000-of-00001"], ["of another run"])
    with pytest.raises(
        RunError, match=r"none-00000-of-00001.json is missing, or another program or run changed it"
    ):
        publish.publish_dataset(
            str(tmp_path), plan, totals_of(plan, infos, 1.0), Claim(generation(tmp_path), True)
        )
    assert files_of(tmp_path) == before


def test_a_run_that_was_taken_over_publishes_nothing(tmp_path: Path) -> None:
    plan = make_plan()
    write(tmp_path, plan, make_infos(plan))
    before = files_of(tmp_path)

    def taken_over() -> None:
        raise RunError("taken over")

    with pytest.raises(RunError, match="taken over"):
        write(
            tmp_path,
            plan,
            make_infos(plan),
            Claim(generation(tmp_path), True),
            check_lock=taken_over,
        )
    assert files_of(tmp_path) == before
    assert not (tmp_path / ".beam_tfr" / "switch.json").exists()
    with pytest.raises(RunError, match="was taken over by another run"):
        write(tmp_path, plan, make_infos(plan), None)


def fields_of(
    plan: Plan, infos: dict[str, ShardInfo], rejects_sha256: str = "0" * 64
) -> dict[str, Any]:
    return manifest_fields.build_manifest_fields(
        plan, totals_of(plan, infos, 1.0), rejects_sha256=rejects_sha256
    )


COVERED: dict[str, Callable[[dict[str, ShardInfo]], None]] = {
    "a record": change("train-00001-of-00002", records_sha256="0" * 64),
    "the classes": change("train-00001-of-00002", class_counts={0: 2, 1: 3}),
    "the pixels": change("train-00001-of-00002", channel_sums=[51, 100, 200]),
    "what was adjusted": change("train-00001-of-00002", adjusted={"rotated": 4}),
    "the size of the sources": change("train-00001-of-00002", source_sizes={256: 5}),
    "a reason": change("none-00000-of-00001", rejected={"layout-mismatch": 1, "unknown-class": 1}),
    "a reject more": change("train-00001-of-00002", num_examples=4, rejected={"not-found": 1}),
}
NOT_COVERED: dict[str, Callable[[dict[str, ShardInfo]], None]] = {
    "the bytes of a file": change("train-00001-of-00002", sha256="0" * 64),
    "their number": change("train-00001-of-00002", num_bytes=7),
    "the name of a file": change("train-00001-of-00002", file="e-train-00001-of-00002.tfrecord.gz"),
}


def test_what_the_dataset_digest_covers() -> None:
    plan = make_plan()
    original = fields_of(plan, make_infos(plan))
    seen = {original["dataset_digest"]}
    for name, apply in COVERED.items():
        infos = make_infos(plan)
        apply(infos)
        digest = fields_of(plan, infos)["dataset_digest"]
        assert digest not in seen, name
        seen.add(digest)
    for labels in (["shoes", "hat"], [*LABELS, "unused"], None):
        other = make_plan(labels=labels)
        digest = fields_of(other, make_infos(other))["dataset_digest"]
        assert digest not in seen, labels
        seen.add(digest)
    for name, apply in NOT_COVERED.items():
        infos = make_infos(plan)
        apply(infos)
        fields = fields_of(plan, infos)
        assert fields["dataset_digest"] == original["dataset_digest"], name
        assert fields["manifest_digest"] != original["manifest_digest"], name
    for changes in (
        {"name": "e"},
        {"options": {"compression": "none", "encoding": "jpeg"}},
        {"input_digest": "0" * 64},
        {"codecs": {"pillow": "99"}},
    ):
        other = make_plan(**changes)
        assert (
            fields_of(other, make_infos(other))["dataset_digest"] == original["dataset_digest"]
        ), changes
    assert (
        fields_of(plan, make_infos(plan), "1" * 64)["dataset_digest"] == original["dataset_digest"]
    )
