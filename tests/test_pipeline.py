"""Whole conversions of real photos.

What is written, that it is the same everywhere, what ends without a dataset.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import msgspec
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner

from beam_tfr import images, pipeline, transforms
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.engine.failures import translate_error
from beam_tfr.options import ConvertOptions, ImageOptions
from beam_tfr.planning.survey import order_key
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.items import Item
from beam_tfr.schema.plan import ShardInfo
from beam_tfr.sources import open_source
from beam_tfr.verification import verify
from tests.conftest import Run, files_of, finished_shards
from tests.converted import converted_photos, spoil

Command = Callable[..., Run]
LAYOUT = "{split}/{label}/*"


def arguments(photos: Path, output: Path, *more: object) -> list[object]:
    name = [] if "--name" in more else ["--name", "d"]
    return [
        "convert",
        "--input",
        f"{photos}/**/*.jpg",
        "--output",
        output,
        *name,
        "--layout",
        LAYOUT,
        *more,
    ]


def records_of(folder: Path, split: str) -> list[dict[str, list[Any]]]:
    dataset = read_manifest(str(folder))
    return [
        parse_example(record)
        for shard in dataset.splits[split].shards
        for record in RecordFile(str(folder / shard.file))
    ]


def test_every_photo_is_a_record_with_its_own_content(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    run = beam_tfr(*arguments(photos, output, "--json", "--num_shards", "train=2,test=1"))
    assert run.code == 0
    assert run.json["splits"]["train"]["class_counts"] == {"hat": 4, "shoes": 4, "t-shirt": 4}
    assert (run.json["matched"], run.json["written"], run.json["rejected"]) == (18, 18, {})
    assert sorted(path.name for path in output.iterdir()) == [
        ".sources",
        "README.md",
        "contents",
        "contents.sha256",
        "croissant.json",
        "d-test-00000-of-00001.tfrecord.gz",
        "d-train-00000-of-00002.tfrecord.gz",
        "d-train-00001-of-00002.tfrecord.gz",
        "labels.txt",
        "manifest.json",
        "rejects.jsonl",
        "schema.pbtxt",
    ]
    assert (output / "labels.txt").read_text() == "hat\nshoes\nt-shirt\n"
    assert (output / "rejects.jsonl").read_text() == ""
    for split, number in (("train", 12), ("test", 6)):
        records = records_of(output, split)
        assert len(records) == number
        for record in records:
            key = record["image/filename"][0].decode()
            source = (photos / key).read_bytes()
            converted = images.convert_image(source)
            label = key.split("/")[1]
            assert record == {
                "image/encoded": [converted.encoded],
                "image/format": [b"jpeg"],
                "image/height": [224],
                "image/width": [224],
                "image/channels": [3],
                "image/colorspace": [b"RGB"],
                "image/filename": [key.encode()],
                "image/key/sha256": [converted.source_sha256.encode()],
                "image/source/height": [converted.source_height],
                "image/source/width": [converted.source_width],
                "image/source/format": [b"jpeg"],
                "image/class/label": [["hat", "shoes", "t-shirt"].index(label)],
                "image/class/text": [label.encode()],
            }
        keys = {record["image/filename"][0].decode() for record in records}
        assert keys == {str(path.relative_to(photos)) for path in (photos / split).rglob("*.jpg")}
    assert verify(str(output)).ok


def test_photos_moved_to_a_folder_that_is_not_utf8_give_the_same_bytes(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere" / os.fsdecode(b"caf\xe9\xff") / "photos"
    shutil.copytree(photos, moved)
    for path in moved.rglob("*.jpg"):
        os.utime(path, (1, random.Random(path.name).randrange(10**9)))
    patterns = [f"{moved}/train/**/*.jpg", f"{moved}/test/*/*.jpg", f"{moved}/test/**/*.jpg"]
    command = [*arguments(photos, tmp_path / "moved", "--num_shards", "3")]
    command[2:3] = patterns
    assert beam_tfr(*command).code == 0
    assert files_of(tmp_path / "moved") == files_of(converted_photos("--num_shards 3"))


def digest_of(folder: Path) -> str:
    assert verify(str(folder)).ok
    return read_manifest(str(folder)).dataset_digest


def test_compression_and_name_do_not_change_the_dataset_digest(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    stored, plain, packed = (
        converted_photos(),
        converted_photos("--compression none"),
        tmp_path / "packed",
    )
    assert (
        beam_tfr(*arguments(photos, packed, "--compression", "gzip:6", "--name", "other")).code == 0
    )
    assert digest_of(stored) == digest_of(plain) == digest_of(packed)
    sizes = [
        sum(path.stat().st_size for path in folder.glob("*.tfrecord*"))
        for folder in (stored, plain, packed)
    ]
    assert 0 < sizes[0] - sizes[1] < 1000
    assert sizes[2] < sizes[1]


@pytest.mark.parametrize(
    "flags",
    [
        "--image_size 32x48 --encoding png",
        "--seed 1",
        "--num_shards 3",
        "--num_shards 20",
        "--examples_per_shard 5",
        "--target_shard_bytes 40KiB",
    ],
)
def test_each_option_changes_the_dataset(flags: str) -> None:
    assert digest_of(converted_photos(flags)) != digest_of(converted_photos())


def test_a_limit_takes_the_first_images_of_the_order(photos: Path) -> None:
    keys = [str(path.relative_to(photos)) for path in photos.rglob("*.jpg")]
    first = sorted(keys, key=lambda key: order_key(0, key))[:7]
    dataset = read_manifest(str(converted_photos("--limit 7")))
    records = [
        *records_of(Path(dataset.folder), "train"),
        *records_of(Path(dataset.folder), "test"),
    ]
    assert sorted(record["image/filename"][0].decode() for record in records) == sorted(first)
    assert (dataset.options["limit"], dataset.counts["matched"]) == (7, 7)
    assert "limit" not in read_manifest(str(converted_photos())).options


def test_other_options_are_refused_and_named_unless_overwritten(
    beam_tfr: Command, photos: Path, finished: Path
) -> None:
    before = files_of(finished)
    flags = ["--quality", "50", "--image_size", "32x48", "--seed", "1", "--examples_per_shard", "5"]
    refused = beam_tfr(*arguments(photos, finished, *flags))
    assert refused.code == 2
    for difference in (
        "options.quality: 90 before, 50 now",
        "options.image_size: 224x224 before, 32x48 now",
        "options.seed: 0 before, 1 now",
        "options.examples_per_shard: not given before, 5 now",
    ):
        assert difference in refused.err
    assert "--overwrite" in refused.err
    assert files_of(finished) == before


def test_options_of_the_image_show_in_the_records() -> None:
    record = records_of(converted_photos("--image_size 32x48 --encoding png"), "test")[0]
    assert (record["image/height"], record["image/width"], record["image/format"]) == (
        [32],
        [48],
        [b"png"],
    )
    assert record["image/encoded"][0].startswith(b"\x89PNG")


def test_shard_sizes() -> None:
    dataset = read_manifest(str(converted_photos("--examples_per_shard 5")))
    assert [shard.num_examples for shard in dataset.splits["train"].shards] == [4, 4, 4]
    assert [shard.num_examples for shard in dataset.splits["test"].shards] == [3, 3]
    folder = converted_photos("--num_shards 20")
    shards = read_manifest(str(folder)).splits["test"].shards
    assert [shard.num_examples for shard in shards].count(0) == 14
    empty = next(shard.file for shard in shards if shard.num_examples == 0)
    assert gzip.decompress((folder / empty).read_bytes()) == b""
    sizes = [
        shard.num_bytes
        for shard in read_manifest(str(converted_photos("--target_shard_bytes 40KiB")))
        .splits["train"]
        .shards
    ]
    assert len(sizes) > 2
    assert all(size < 60 << 10 for size in sizes)


def test_splits_by_hash_of_the_group(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    command = [
        "convert",
        "--input",
        f"{photos}/**/*.jpg",
        "--output",
        tmp_path / "c",
        "--layout",
        "{group}/*",
    ]
    assert beam_tfr(*command, "--splits", "a=0.5,b=0.5").code == 0
    dataset = read_manifest(str(tmp_path / "c"))
    assert dataset.class_names == ()
    groups = {
        split: {
            record["image/filename"][0].split(b"/")[-2]
            for record in records_of(tmp_path / "c", split)
        }
        for split in dataset.splits
    }
    assert not set.intersection(*groups.values())
    assert set.union(*groups.values()) == {b"hat", b"shoes", b"t-shirt"}


def test_bad_files_are_listed_with_a_reason(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    expected = spoil(photos)
    output = tmp_path / "out"
    run = beam_tfr(*arguments(photos, output, "--json", "--max_rejects", "7"))
    assert run.code == 0
    assert (run.json["matched"], run.json["written"]) == (25, 18)
    rejects = [json.loads(line) for line in (output / "rejects.jsonl").read_text().splitlines()]
    assert {reject["key"]: reject["reason"] for reject in rejects} == expected
    for reject in rejects:
        assert reject.keys() == {"key", "stage", "reason", "detail"}
        assert os.path.lexists(photos / reject["key"])
        assert str(photos) not in str(reject)  # a home folder, say
        assert reject["detail"]
    assert {reject["key"]: reject["stage"] for reject in rejects} == {
        "train/hat/truncated.jpg": "ResizeImages",
        "train/hat/empty.jpg": "ReadImages",
        "train/hat/text.jpg": "ResizeImages",
        "train/hat/gone.jpg": "ReadImages",
        "train/hat/pipe.jpg": "ReadImages",
        "loose.jpg": "MatchImages",
        "my split/hat/a.jpg": "MatchImages",
    }
    assert read_manifest(str(output)).splits["none"].rejected == 2
    assert verify(str(output)).ok
    assert "Traceback" not in run.err


def test_too_many_rejects_publish_nothing_and_the_shards_are_kept(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    spoil(photos)
    output = tmp_path / "out"
    run = beam_tfr(*arguments(photos, output, "--max_rejects", "6"))
    assert run.code == 1
    assert "7 of 25 images were rejected (layout-mismatch 2, " in run.err
    assert "--max_rejects 6 allows 6" in run.err
    assert not (output / "manifest.json").exists()
    named = Path(run.err.strip().rpartition("all of them, with reasons: ")[2].partition("\n")[0])
    assert named == output / ".beam_tfr" / "rejects.jsonl"
    assert len(named.read_text().splitlines()) == 7
    times = {name: path.stat().st_mtime_ns for name, path in finished_shards(output).items()}
    assert len(times) == 2
    # nothing is published yet
    again = beam_tfr(*arguments(photos, output, "--max_rejects", "0.28", "--overwrite"))
    assert again.code == 0
    assert "convert: an earlier run has finished 3 of 3 shards" in again.err
    assert {
        name: path.stat().st_mtime_ns for name, path in finished_shards(output).items()
    } == times
    assert not (output / ".beam_tfr").exists()


def test_a_class_file_freezes_order_and_rejects_others(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    classes = tmp_path / "classes.txt"
    classes.write_text("unused\nt-shirt\nhat\n")
    flags = ["--classes", classes, "--max_rejects", "0.5"]
    assert beam_tfr(*arguments(photos, tmp_path / "o", *flags)).code == 0
    assert read_manifest(str(tmp_path / "o")).class_names == ("unused", "t-shirt", "hat")
    labels = {
        (r["image/class/text"][0], r["image/class/label"][0])
        for r in records_of(tmp_path / "o", "train")
    }
    assert labels == {(b"t-shirt", 1), (b"hat", 2)}
    rejects = [
        json.loads(line) for line in (tmp_path / "o" / "rejects.jsonl").read_text().splitlines()
    ]
    assert {reject["key"].split("/")[1] for reject in rejects} == {"shoes"}
    assert {reject["reason"] for reject in rejects} == {"unknown-class"}
    classes.write_text("t-shirt\nunused\nhat\n")
    run = beam_tfr(*arguments(photos, tmp_path / "o", *flags))
    assert run.code == 2
    assert "options.classes: unused,t-shirt,hat before, t-shirt,unused,hat now" in run.err


def test_a_lost_class_fails(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    for path in (photos / "test" / "shoes").iterdir():
        path.write_bytes(b"broken")
    run = beam_tfr(*arguments(photos, tmp_path / "o", "--max_rejects", "1.0"))
    assert run.code == 1
    assert "class shoes would be lost from split test" in run.err
    assert not (tmp_path / "o" / "manifest.json").exists()


def test_the_same_command_again_rewrites_nothing(
    beam_tfr: Command, photos: Path, finished: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.iterdir()}
    again = beam_tfr(*arguments(photos, finished))
    assert again.code == 0
    assert again.out.startswith(
        "This folder already holds this complete dataset; nothing was written.\nIts files "
    )
    assert {path: path.stat().st_mtime_ns for path in finished.iterdir()} == before
    photo = next((photos / "train" / "hat").iterdir())
    data = photo.read_bytes()
    for path, content, said in (
        (photo, data + b"x", "the input: different or changed images"),
        (photo.with_name("new.jpg"), data, "the input: 18 images before, 19 now"),
    ):
        path.write_bytes(content)
        changed = beam_tfr(*arguments(photos, finished))
        assert changed.code == 2
        assert changed.err.endswith(
            f"holds a dataset with different input or options:\n  {said}\nChoose another --output, "
            "or use --overwrite to replace it; `beam-tfr update` copies unchanged records\n"
        )


def test_a_finished_dataset_with_a_cut_or_missing_shard_is_not_called_complete(
    beam_tfr: Command, photos: Path, finished: Path
) -> None:
    shard = next(finished.glob("d-test-*"))
    whole = shard.read_bytes()
    for change, message in (
        (whole[:-1], f"has {len(whole) - 1} bytes instead of {len(whole)}"),
        (None, "is missing"),
    ):
        shard.unlink() if change is None else shard.write_bytes(change)
        run = beam_tfr(*arguments(photos, finished))
        assert (run.code, run.out) == (1, "")
        assert (
            f"{shard} {message}: run `beam-tfr repair` on its folder, with its original input, or "
            "copy" in run.err
        )


def test_overwrite_without_labels_leaves_nothing_of_the_old_dataset(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    output = Path(shutil.copytree(converted_photos("--num_shards 20"), tmp_path / "out"))
    (output / "notes.txt").write_text("mine")
    flags = ["--num_shards", "2", "--overwrite=true", "--layout", "*"]
    assert (
        beam_tfr("convert", "--input", f"{photos}/**/*.jpg", "--output", output, *flags).code == 0
    )
    names = [f"out-train-0000{i}-of-00002.parquet" for i in range(2)]
    assert sorted(path.name for path in (output / "contents").iterdir()) == names
    assert sorted(path.name for path in output.iterdir()) == [
        ".sources",
        "README.md",
        "contents",
        "contents.sha256",
        "croissant.json",
        "manifest.json",
        "notes.txt",
        "out-train-00000-of-00002.tfrecord.gz",
        "out-train-00001-of-00002.tfrecord.gz",
        "rejects.jsonl",
        "schema.pbtxt",
    ]
    assert "image/class/label" not in records_of(output, "train")[0]
    assert read_manifest(str(output)).name == "out"
    assert verify(str(output)).ok


@pytest.mark.slow
def test_shards_of_an_unknown_dataset_are_not_mixed(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "old-train-00000-of-00009.tfrecord.gz").write_bytes(b"")
    run = beam_tfr(*arguments(photos, output))
    assert run.code == 2
    assert "old-train-00000-of-00009.tfrecord.gz" in run.err
    assert beam_tfr(*arguments(photos, output, "--overwrite")).code == 0
    assert not list(output.glob("old*"))


# Runners that lose, repeat or tear apart


def run_steps(
    photos: Path,
    output: Path,
    *,
    items: beam.PTransform | None = None,
    infos: beam.PTransform | None = None,
    max_rejects: float = 0.0,
) -> None:
    """The conversion with a step of one's own before or after WriteShards."""
    options = ConvertOptions(
        input=(f"{photos}/**/*.jpg",),
        output=str(output),
        name="d",
        layout=LAYOUT,
        num_shards=3,
        max_rejects=max_rejects,
    )
    run_id = uuid.uuid4().hex
    source = open_source(options)
    step = pipeline.Convert(options, source, run_id=run_id)
    nothing = beam.Map(lambda x: x)
    try:
        with beam.Pipeline(runner=fn_runner.FnApiRunner(), options=PipelineOptions([])) as p:
            refs = p | transforms.MatchImages(options.input, source.origin)
            plan, work = refs | step.plan_shards()
            (
                work
                | transforms.ReadImages(source.root)
                | transforms.ResizeImages(options.restricted_to(ImageOptions))
                | transforms.BuildExamples()
                | "Items" >> (items or nothing)
                | transforms.WriteShards(str(output), name="d", suffix=".tfrecord.gz", level=0)
                | "Infos" >> (infos or nothing)
                | transforms.WriteManifest(
                    str(output), plan=plan, run_id=run_id, max_rejects=max_rejects
                )
            )
    except RuntimeError as error:
        raise translate_error(error) from error


def test_steps_composed_by_hand_give_the_same_dataset_though_shards_come_twice(
    photos: Path, tmp_path: Path
) -> None:
    run_steps(photos, tmp_path / "a", infos=beam.FlatMap(lambda info: [info, info]))
    assert files_of(tmp_path / "a") == files_of(converted_photos("--num_shards 3"))


def _without_first_train(info: ShardInfo) -> bool:
    return info.shard.name != "train-00000-of-00003"


def _edited_twin(info: ShardInfo) -> Iterable[ShardInfo]:
    yield info
    yield msgspec.json.decode(
        info.to_json().replace('"num_examples":4', '"num_examples":3'), type=ShardInfo
    )


def _one_less(info: ShardInfo) -> ShardInfo:
    return msgspec.json.decode(
        info.to_json().replace('"num_examples":4', '"num_examples":3'), type=ShardInfo
    )


class Shuffled(beam.PTransform):
    def expand(self, items: beam.PCollection[list[Item]]) -> beam.PCollection[list[Item]]:
        keyed = items | beam.FlatMap(lambda batch: [(item.position % 2, [item]) for item in batch])
        return keyed | beam.GroupByKey() | beam.FlatMap(lambda group: list(group[1]))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (
            {"infos": beam.Filter(_without_first_train)},
            "1 of 6 shards are missing at the end, such as train-00000",
        ),
        ({"infos": beam.FlatMap(_edited_twin)}, "was written twice, with different content"),
        (
            {"infos": beam.Map(_one_less)},
            r"images were matched, but \d+ written and 0 rejected: the runner lost",
        ),
        ({"items": Shuffled()}, "did not keep the images of a shard together"),
    ],
)
def test_a_runner_that_loses_or_reorders_items_fails(
    photos: Path, tmp_path: Path, steps: dict[str, beam.PTransform], expected: str
) -> None:
    with pytest.raises(RunError, match=expected):
        run_steps(photos, tmp_path / "o", **steps)
    assert not (tmp_path / "o" / "manifest.json").exists()


def test_a_custom_step_may_reject(photos: Path, tmp_path: Path) -> None:
    from beam_tfr.schema.errors import RejectError
    from beam_tfr.schema.items import ImageRef, Record

    rejected = sorted(f"train/hat/{path.name}" for path in (photos / "train" / "hat").iterdir())[:2]

    def some_hats(record: Record, ref: ImageRef) -> Record:
        if ref.key in rejected:
            raise RejectError("unreadable", f"{record.image.width} wide")
        return record

    run_steps(
        photos,
        tmp_path / "o",
        items=transforms.MapImages(some_hats, stage="SomeHats"),
        max_rejects=0.5,
    )
    lines = [
        json.loads(line) for line in (tmp_path / "o" / "rejects.jsonl").read_text().splitlines()
    ]
    assert sorted((line["key"], line["stage"], line["detail"]) for line in lines) == [
        (key, "SomeHats", "224 wide") for key in rejected
    ]
