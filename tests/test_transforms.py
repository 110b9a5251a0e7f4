"""Every PTransform alone on a real runner, and all of them on one that retries.

The same bytes, nothing left over.
"""

from __future__ import annotations

import gzip
import inspect
import itertools
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline as Construction
from apache_beam.typehints import typehints
from apache_beam.typehints.decorators import TypeCheckError

from beam_tfr import transforms
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.engine import interrupt
from beam_tfr.engine.runs import handling_interrupts
from beam_tfr.images import convert_image
from beam_tfr.inputs.labels import Labeler
from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.options import ConvertOptions, ImageOptions
from beam_tfr.output import claim, sidecars
from beam_tfr.pipeline import Convert
from beam_tfr.planning import packing
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.dataset import NO_SPLIT, sha256_hex
from beam_tfr.schema.errors import RejectError, RunError, UsageError
from beam_tfr.schema.items import Image, ImageRef, Item, Record, Reject, ShardWork
from beam_tfr.schema.plan import Plan, Shard, ShardInfo, SplitPlan
from beam_tfr.sources import open_source
from beam_tfr.transforms import references
from beam_tfr.transforms.plans import PlanShards, Target
from tests import cheap_pipelines
from tests.conftest import Run, files_of, let_runs_end
from tests.local_pipeline import run

Command = Callable[..., Run]


@pytest.fixture(autouse=True)
def _types_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cheap_pipelines, "checks_types", True)


def test_an_interrupt_ends_with_the_launch_that_it_ended() -> None:
    let_runs_end()  # of tests before
    with handling_interrupts():
        interrupt.requested.set()
    assert not interrupt.requested.is_set()  # or these steps would fail in a pipeline of one's own


def shard_of(total: int, split: str = "train", number: int = 0) -> Shard:
    return Shard(split, number, 2, total, "plan")


def refs_of(photos: Path) -> list[ImageRef]:
    paths = sorted((photos / "train").rglob("*.jpg"))
    return [
        ImageRef(
            str(path.relative_to(photos)),
            path.stat().st_size,
            path.stat().st_mtime_ns,
            "train",
            (path.parent.name,),
            (0,),
        )
        for path in paths
    ]


def test_a_pipeline_may_have_several_steps_that_map_images(photos: Path, tmp_path: Path) -> None:
    def keep(value: Any, ref: ImageRef) -> Any:
        return value

    def hold(value: Any, ref: ImageRef) -> Any:
        return value

    options = ConvertOptions(input=(f"{photos}/test/**",), output=str(tmp_path / "o"))
    steps = [
        transforms.MapImages(keep),
        transforms.MapImages(hold),
        transforms.MapImages(keep, stage="Keep"),
        transforms.MapImages(keep, stage="KeepAgain"),
    ]
    assert [step.label for step in steps] == [
        "MapImages(keep)",
        "MapImages(hold)",
        "Keep",
        "KeepAgain",
    ]
    run(lambda pipeline: pipeline | Convert(options, on_images=steps))
    assert read_manifest(str(tmp_path / "o")).counts["rejected"] == {}


# Types


@pytest.mark.parametrize(
    ("given", "step", "said"),
    [
        (
            [1],
            transforms.ReadImages("/x/"),
            "expected <class 'beam_tfr.schema.items.ShardWork'>, got <class 'int'>",
        ),
        (
            [1],
            transforms.BuildExamples(),
            r"expected List\[<class 'beam_tfr.schema.items.Item'>\], got <class 'int'>",
        ),
        (["a"], transforms.WriteShards("/x", name="d", suffix="", level=None), "got <class 'str'>"),
        (
            ["/data"],
            transforms.ReadRejects(),
            "expected <class 'beam_tfr.dataset.manifest.Manifest'>, got <class 'str'>",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_step_after_the_wrong_one_is_refused_at_construction(
    given: list[Any], step: Any, said: str
) -> None:
    with pytest.raises(TypeCheckError, match=f"Input type hint violation at .*{said}"):
        Construction() | beam.Create(given) | step


def test_every_step_says_what_it_takes_and_gives(photos: Path) -> None:
    options = ConvertOptions(input=(f"{photos}/**/*.jpg",), output="/x")
    pipeline = Construction()
    made = pipeline | Convert(options)
    rejects = made | transforms.ReadRejects()
    assert (made.element_type, rejects.element_type) == (Manifest, Reject)
    with pytest.raises(
        UsageError,
        match=r"^Convert lists its own input: apply it to the pipeline itself, not to a PC",
    ):
        rejects | "Again" >> Convert(options)
    for step in vars(transforms).values():
        if isinstance(step, type) and issubclass(step, beam.PTransform):
            hints = object.__new__(step).default_type_hints()
            known = [
                of not in (None, ((typehints.Any,), {}))
                for of in (hints.input_types, hints.output_types)
            ]
            takes = "begin" not in inspect.signature(step.expand).parameters
            gives = not str(inspect.signature(step.expand).return_annotation).startswith("tuple")
            assert [takes, gives] == known, step


# Each step alone


def test_match_images_gives_each_file_once_with_its_label_and_split(photos: Path) -> None:
    step = transforms.MatchImages(
        [f"{photos}/train/**/*.jpg", f"{photos}/*/*/*.jpg", f"{photos}/train/hat/*"],
        Labeler(parse_layout("{split}/{label}/*")),
    )
    found = [
        ImageRef.decode(ref)
        for packed in run(lambda p: p | step)
        for ref in packing.unpack_values(packed)
    ]
    expected = {str(path.relative_to(photos)): path for path in photos.rglob("*.jpg")}
    assert sorted(ref.key for ref in found) == sorted(expected)
    for ref in found:
        split, label, _ = ref.key.split("/")
        info = expected[ref.key].stat()
        assert ref == ImageRef(ref.key, info.st_size, info.st_mtime_ns, split, (label,))


def make_plan(split: str, matched: int, num_shards: int, cuts: list[str]) -> Plan:
    splits = {
        split: SplitPlan(
            matched=matched, num_shards=num_shards, cuts=cuts, class_counts={"hat": matched}
        )
    }
    return Plan(
        name="d",
        suffix=".tfrecord",
        options={"seed": 0},
        input_digest="0" * 64,
        labels=["hat"],
        splits=splits,
        codecs={},
    )


def drafted(survey: Any) -> Plan:
    return make_plan("train", sum(survey.counts.values()), 3, [])


def test_plan_shards_gives_the_plan_and_every_shard_with_its_references_in_order(
    tmp_path: Path,
) -> None:
    refs = [ImageRef(f"{number}.jpg", number, 1, "train", ("hat",)) for number in range(20)]

    def build(p: beam.Pipeline) -> beam.PCollection[Any]:
        plan, work = (
            p
            | beam.Create([*packing.pack_batches(ref.encode() for ref in refs)])
            | PlanShards(Target(str(tmp_path), run_id="mine"), draft=drafted, seed=0)
        )
        return (plan, work) | beam.Flatten()

    first, again = run(build), run(build)
    plans = [element for element in first if isinstance(element, Plan)]
    work = sorted(element for element in first if isinstance(element, ShardWork))
    assert len(plans) == 1
    assert [one.shard.total for one in work] == [6, 7, 7]
    assert all(one.shard.plan_digest == plans[0].digest and one.finished is None for one in work)
    placed = [ImageRef.decode(ref) for one in work for ref in one.refs]
    assert sorted(placed) == sorted(ref._replace(label_ids=(0,)) for ref in refs)
    assert sorted(element for element in again if isinstance(element, ShardWork)) == work
    assert (tmp_path / ".beam_tfr" / "plan.json").exists()


def test_read_images_gives_an_item_for_every_reference_in_its_place(photos: Path) -> None:
    refs = refs_of(photos)[:3]
    gone = refs[0]._replace(key="train/hat/gone.jpg")
    odd = refs[0]._replace(key="odd.jpg", reason="unknown-class", detail="class 'x'")
    shard = shard_of(5)
    finished = ShardInfo(shard=shard_of(9, number=1))
    empty = Shard("test", 0, 1, 0, "plan")
    work = [
        ShardWork(shard, [ref.encode() for ref in (refs[0], gone, refs[1], odd, refs[2])]),
        ShardWork(finished.shard, [refs[0].encode()] * 9, finished),
        ShardWork(empty, []),
    ]
    items = joined(
        run(lambda p: p | beam.Create(work, reshuffle=False) | transforms.ReadImages(f"{photos}/"))
    )
    mine = [item for item in items if item.shard == shard]
    assert [item.position for item in mine] == [0, 1, 2, 3, 4]
    assert [item.uri for item in mine] == [
        f"{photos}/{ref.key}" for ref in (refs[0], gone, refs[1], odd, refs[2])
    ]
    contents = [(photos / ref.key).read_bytes() for ref in refs]
    assert [mine[i].value for i in (0, 2, 4)] == contents
    assert mine[1].value == Reject(gone.key, "ReadImages", "not-found", mine[1].value.detail)
    assert mine[3].value == Reject("odd.jpg", "MatchImages", "unknown-class", "class 'x'")
    assert [item for item in items if item.shard != shard and item.value] == [
        Item(finished.shard, 0, "", None, finished)
    ]
    assert [item for item in items if item.shard == empty] == [Item(empty, 0, "", None, None)]


def joined(lists: Iterable[list[Item]]) -> list[Item]:
    return [*itertools.chain.from_iterable(lists)]


def mapped_by(step: beam.PTransform, items: list[Item]) -> list[Item]:
    return joined(run(lambda p: p | beam.Create([items], reshuffle=False) | step))


def items_of(photos: Path, *values: Any, total: int | None = None) -> list[Item]:
    refs = refs_of(photos)
    shard = shard_of(len(values) if total is None else total)
    return [item_of(shard, i, refs[i], value) for i, value in enumerate(values)]


def item_of(shard: Shard, position: int, ref: ImageRef, value: Any) -> Item:
    return Item(shard, position, f"/{position}", ref, value)


def test_resize_images_and_build_examples_are_their_functions_and_pass_the_rest_on(
    photos: Path,
) -> None:
    refs = refs_of(photos)
    data = (photos / refs[0].key).read_bytes()
    reject = Reject("k", "ReadImages", "not-found", "gone")
    finished = Item(shard_of(3, number=1), 0, "", None, ShardInfo(shard=shard_of(3, number=1)))
    empty = Item(Shard("test", 0, 1, 0, "plan"), 0, "", None, None)
    given = [*items_of(photos, data, reject, b"no image"), finished, empty]
    options = ImageOptions(image_size=(20, 30))
    resized = mapped_by(transforms.ResizeImages(options), given)
    image = convert_image(data, options)
    broken = Reject(refs[2].key, "ResizeImages", "not-an-image", "text")
    assert resized == [*items_of(photos, image, reject, broken), finished, empty]
    built = mapped_by(transforms.BuildExamples(), resized)
    record = built[0].value
    assert isinstance(record, Record)
    assert record.image == image
    assert parse_example(record.serialized)["image/encoded"] == [image.encoded]
    assert built == [*items_of(photos, record, reject, broken), finished, empty]


def double(value: int, ref: ImageRef) -> int:
    if value == 13:
        raise RejectError("unreadable", f"unlucky {ref.labels[0]}")
    return 2 * value


def test_map_images_applies_a_function_and_passes_rejects_on(photos: Path) -> None:
    reject = Reject("k", "ReadImages", "not-found", "gone")
    given = items_of(photos, 1, reject, 13, ShardInfo(shard=shard_of(1)))
    step = "Double" >> transforms.MapImages(double, stage="Doubling")
    unlucky = Reject(
        given[2].ref.key, "Doubling", "unreadable", f"unlucky {given[2].ref.labels[0]}"
    )
    assert mapped_by(step, given) == items_of(photos, 2, reject, unlucky, given[3].value)


def test_an_error_in_a_custom_function_is_not_a_reject(photos: Path) -> None:
    given = items_of(photos, "text")
    with pytest.raises(RunError, match=r"'>' not supported|TypeError"):
        mapped_by(transforms.MapImages(lambda value, _: value > 1), given)


def write(output: Path, items: list[Item], level: int | None = 0) -> list[ShardInfo]:
    (output / ".beam_tfr").mkdir(parents=True, exist_ok=True)
    suffix = ".tfrecord" if level is None else ".tfrecord.gz"
    step = transforms.WriteShards(str(output), name="d", suffix=suffix, level=level)
    infos = run(lambda p: p | beam.Create([items[:2], items[2:]], reshuffle=False) | step)
    for info in infos:  # as WriteManifest does
        if info.built:
            assert not (output / info.file).exists()
            shutil.copy2(output / ".beam_tfr" / info.built, output / info.file)
    return infos


IMAGE = Image(b"x", "png", 1, 2, 3, "RGB", 3, 4, "jpeg", "", (1, 2, 3), (4, 5, 6))


@pytest.mark.parametrize("level", [None, 0, 6])
def test_write_shards_writes_what_beam_reads(
    photos: Path, tmp_path: Path, level: int | None
) -> None:
    output = tmp_path / "out"
    records = [os.urandom(n) for n in (0, 1, 70_000)]
    reject = Reject("k", "ReadImages", "not-found", "gone")
    items = items_of(photos, *(Record(record, IMAGE) for record in records), reject)
    other = Shard("none", 0, 1, 1, "plan")
    empty = Shard("test", 0, 1, 0, "plan")
    finished = ShardInfo(shard=shard_of(7, number=1))
    items += [
        Item(finished.shard, 0, "", None, finished),
        Item(empty, 0, "", None, None),
        item_of(other, 0, refs_of(photos)[0], reject),
    ]
    infos = {info.shard: info for info in write(output, items, level)}
    assert len(infos) == 4
    assert infos[finished.shard] == finished
    info = infos[items[0].shard]
    suffix = ".tfrecord" if level is None else ".tfrecord.gz"
    assert info.file == f"d-train-00000-of-00002{suffix}"
    assert (info.num_examples, info.rejected, info.class_counts) == (3, {"not-found": 1}, {0: 3})
    lines = sha256_hex(f"{reject.to_json()}\n".encode())
    assert infos[other] == ShardInfo(shard=other, rejected={"not-found": 1}, rejects_sha256=lines)
    assert sorted(path.name for path in output.iterdir()) == [
        ".beam_tfr",
        f"d-test-00000-of-00001{suffix}",
        info.file,
    ]
    data = (output / info.file).read_bytes()
    assert (info.num_bytes, list(RecordFile(str(output / info.file)))) == (len(data), records)
    assert run(lambda p: p | beam.io.ReadFromTFRecord(str(output / info.file))) == records
    test = (output / f"d-test-00000-of-00001{suffix}").read_bytes()
    assert (test if level is None else gzip.decompress(test)) == b""
    for one in infos.values():
        refs = [item.ref.encode() for item in items if item.shard == one.shard and item.ref]
        kept = sidecars.read_finished(str(output), one.shard, refs)
        assert kept == (None if one == finished else one)
    assert not list((output / ".beam_tfr").glob(".tmp-*"))


@pytest.mark.parametrize("num_shards", [1, 3])
def test_files_are_named_and_framed_as_beams_own_sink_does(
    photos: Path, tmp_path: Path, num_shards: int
) -> None:
    records = [b"%d" % number for number in range(6)]
    for folder, options in (
        ("gz", {"file_name_suffix": ".tfrecord.gz"}),
        ("plain", {"file_name_suffix": ".tfrecord"}),
    ):
        theirs, ours = tmp_path / f"theirs {folder}", tmp_path / f"ours {folder}"
        sink = beam.io.WriteToTFRecord(f"{theirs}/d-train", num_shards=num_shards, **options)
        run(lambda p, sink=sink: p | beam.Create(records) | sink)
        items = []
        for number in range(num_shards):
            mine = records[number::num_shards]
            shard = Shard("train", number, num_shards, len(mine), "plan")
            items += [
                Item(shard, i, "", refs_of(photos)[0], Record(one, IMAGE))
                for i, one in enumerate(mine)
            ]
        write(ours, items, 0 if folder == "gz" else None)
        names = sorted(path.name for path in theirs.iterdir())
        assert [name for name in files_of(ours) if "/" not in name] == names
        for folder_of in (ours, theirs):
            assert (
                sorted(record for name in names for record in RecordFile(str(folder_of / name)))
                == records
            )
        if num_shards == 1:  # one frame after the other: the order is the only difference
            assert len((ours / names[0]).read_bytes()) == sum(map(len, records)) + 16 * len(
                records
            ) + 23 * (folder == "gz")


def test_items_without_a_record_are_an_error(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="/0: WriteShards takes a Record or a Reject, got bytes"):
        write(tmp_path, items_of(photos, b"forgot BuildExamples"))
    with pytest.raises(RunError, match="got NoneType"):
        write(tmp_path, items_of(photos, None))
    assert not list(tmp_path.glob("d-*"))


def test_a_bundle_that_ends_within_a_shard_fails_and_writes_nothing(
    photos: Path, tmp_path: Path
) -> None:
    records = [Record(b"a", IMAGE), Record(b"b", IMAGE)]
    with pytest.raises(RunError, match="shard train-00000-of-00002 ended at 2 of 3 images"):
        write(tmp_path, items_of(photos, *records, total=3))
    assert not list(tmp_path.glob("d-*"))


# All of them


def arguments(photos: Path, output: Path, *more: object) -> list[object]:
    flags = ["--name", "d", "--layout", "{split}/{label}/*", "--max_rejects", "7", *more]
    engine = ["--direct_running_mode=in_memory", "--direct_num_workers=1"]
    return ["convert", "--input", f"{photos}/**/*.jpg", "--output", output, *flags, *engine]


def test_the_pipeline_reads_like_the_drawing(photos: Path, tmp_path: Path) -> None:
    p = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    options = ConvertOptions(input=(f"{photos}/**/*.jpg",), output=str(tmp_path / "o"), name="d")
    p | "Convert" >> Convert(options, open_source(options), run_id="r")
    step = p.transforms_stack[0].parts[0]
    assert [part.full_label for part in step.parts] == [
        f"Convert/{name}"
        for name in (
            "MatchImages",
            "PlanShards",
            "ReadImages",
            "ResizeImages",
            "BuildExamples",
            "WriteShards",
            "WriteManifest",
        )
    ]
    exported = {
        value.__name__
        for value in vars(transforms).values()
        if isinstance(value, type)
        and issubclass(value, beam.PTransform)
        and not value.__name__.startswith("_")
    }
    others = {"MapImages", "ReadTable", "ParseArrays", "ReadRejects"}
    assert exported == {part.full_label.split("/")[1] for part in step.parts} | others


def test_the_next_run_tidies_up_after_one_killed_after_its_manifest(
    beam_tfr: Command, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "o"
    with monkeypatch.context() as patch:
        patch.setattr(claim, "remove_work_folder", lambda *_: None)
        assert beam_tfr(*arguments(photos, output)).code == 0
    assert (output / ".beam_tfr" / "plan.json").exists()
    assert read_manifest(str(output)).counts["written"] == 18
    again = beam_tfr(*arguments(photos, output))
    assert again.code == 0
    assert "already holds this complete dataset" in again.out
    assert not (output / ".beam_tfr").exists()
    assert NO_SPLIT not in read_manifest(str(output)).splits


def test_ranges_are_shared_evenly_by_two_and_four_workers() -> None:
    batches = {0: 0, 1: 1, 5: 2, 15: 4, 31: 4, 50: 12, 99: 24, 500: 124}  # of ranges
    assert {ranges: references.count_batches(ranges) for ranges in batches} == batches
