from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image as PillowImage

from beam_tfr import books
from beam_tfr import manifest as manifests
from beam_tfr.examples import build_example, example_class
from beam_tfr.records import masked_crc
from beam_tfr.schema import NO_SPLIT, DataError, Image, ImageRef, Plan, Reject, Shard, ShardInfo, SplitPlan
from beam_tfr.verify import Report, verify

LABELS = ["daisy", "tulipán"]
HEIGHT, WIDTH = 12, 16
REJECT = Reject("train/broken.jpg", "/photos/train/broken.jpg", "ResizeImages", "damaged-image", "ends early")

Change = Callable[[bytes], bytes]


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def picture(seed: int, encoding: str, size: tuple[int, int] = (HEIGHT, WIDTH)) -> Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    PillowImage.fromarray(pixels).save(buffer, encoding, quality=50)
    return Image(
        encoded=buffer.getvalue(),
        format=encoding,
        height=size[0],
        width=size[1],
        channels=3,
        colorspace="RGB",
        source_height=40,
        source_width=30,
        source_sha256=hashlib.sha256(b"%d" % seed).hexdigest(),
        channel_sums=tuple(int(s) for s in pixels.sum((0, 1))),
        channel_squares=tuple(int(s) for s in (pixels.astype(int) ** 2).sum((0, 1))),
    )


def make_dataset(
    folder: pathlib.Path,
    *,
    labels: list[str] | None = LABELS,
    encoding: str = "jpeg",
    compression: str = "gzip",
    shards: dict[str, int] | None = None,
    change_record: Change = bytes,
    change_image: Callable[[Image], Image] | None = None,
    same_keys: bool = False,
    **options: object,
) -> pathlib.Path:
    """A small dataset: per shard three records, and in all one reject without a split.

    Args:
        change_record, change_image: what becomes of the second record of the first shard, before it is counted.
        same_keys: the last record has the key of the first.
        options: of the manifest, beside those it has.
    """
    shards = shards or {"train": 2, "test": 1}
    suffix = ".tfrecord.gz" if compression == "gzip" else ".tfrecord"
    order = [(split, index) for split, count in sorted(shards.items()) for index in range(count)]
    ledger: dict[str, list[ShardInfo]] = {split: [] for split in sorted(shards)}
    (folder / ".beam_tfr").mkdir(parents=True)
    for position, (split, index) in enumerate(order):
        shard = Shard(split, index, shards[split], 3, "plan")
        info = ShardInfo(shard=shard, file=f"tiny-{shard.name}{suffix}", num_examples=3, source_sizes={64: 3})
        info.channel_sums = info.channel_squares = [0, 0, 0]
        records = []
        for number in range(3):
            seed = 3 * position + number
            image = picture(seed, encoding)
            if seed == 1 and change_image:
                image = change_image(image)
            label = -1 if labels is None else number % len(labels)
            name = 0 if same_keys and seed == 3 * len(order) - 1 else seed
            ref = ImageRef(f"{name}.jpg", 1, 0, split, "" if labels is None else labels[label], label)
            record = build_example(ref, image)
            records.append(change_record(record) if seed == 1 else record)
            info.pixels += image.height * image.width
            info.channel_sums = [a + b for a, b in zip(info.channel_sums, image.channel_sums, strict=True)]
            info.channel_squares = [a + b for a, b in zip(info.channel_squares, image.channel_squares, strict=True)]
            if labels is not None:
                info.class_counts[label] = info.class_counts.get(label, 0) + 1
        data = b"".join(map(frame, records))
        data = gzip.compress(data, 0, mtime=0) if suffix.endswith(".gz") else data
        (folder / info.file).write_bytes(data)
        info.num_bytes, info.sha256 = len(data), hashlib.sha256(data).hexdigest()
        info.records_sha256 = hashlib.sha256(
            b"".join(len(record).to_bytes(8, "little") + record for record in records)
        ).hexdigest()
        ledger[split].append(info)
    ledger[NO_SPLIT] = [ShardInfo(shard=Shard(NO_SPLIT, 0, 1, 1, "plan"), rejected={REJECT.reason: 1})]
    plan = Plan(
        name="tiny",
        suffix=suffix,
        options={"compression": compression, "resize": "stretch", "image_size": [HEIGHT, WIDTH], **options},
        input_digest="",
        labels=labels,
        splits={
            split: SplitPlan(
                matched=1 if split == NO_SPLIT else 3 * len(infos), num_shards=len(infos), cuts=[], class_counts={}
            )
            for split, infos in ledger.items()
        },
        codecs={},
    )
    books.publish(str(folder), plan, ledger, lambda _: iter([f"{REJECT.to_json()}\n".encode()]))
    shutil.rmtree(folder / ".beam_tfr")
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return make_dataset(tmp_path_factory.mktemp("sound") / "tiny")


@pytest.fixture
def dataset(sound: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(sound, tmp_path / "tiny"))


TRAIN_0, TRAIN_1 = "tiny-train-00000-of-00002.tfrecord.gz", "tiny-train-00001-of-00002.tfrecord.gz"
TEST_0 = "tiny-test-00000-of-00001.tfrecord.gz"


def told(folder: pathlib.Path) -> list[str]:
    return [str(problem) for problem in verify(str(folder), threads=1).problems]


def edit(folder: pathlib.Path, change: Callable[[dict[str, object]], object]) -> None:
    """Changes the manifest the way its writer would: with a digest that fits."""
    path = folder / "manifest.json"
    fields = json.loads(path.read_bytes())
    change(fields)
    fields["manifest_digest"] = manifests.manifest_digest(fields)
    path.write_bytes(manifests.to_bytes(fields))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"labels": None},
        {"encoding": "png"},
        {"compression": "none"},
        {"shards": {"all": 1}},
        {"shards": {"train": 7}, "labels": ["one"]},
    ],
    ids=str,
)
def test_a_sound_dataset(tmp_path: pathlib.Path, options: dict[str, object]) -> None:
    folder = make_dataset(tmp_path / "tiny", **options)  # type: ignore[arg-type]
    calls: list[tuple[int, int]] = []
    report = verify(str(folder), progress=lambda done, total: calls.append((done, total)))
    files = list(folder.glob("*.tfrecord*"))
    assert report == Report(
        folder=str(folder),
        problems=(),
        num_problems=0,
        examples=3 * len(files),
        shards=len(files),
        num_bytes=sum(file.stat().st_size for file in files),
        seconds=report.seconds,
        dataset_digest=manifests.read(str(folder)).dataset_digest,
    )
    assert report.ok
    assert calls[-1] == (3 * len(files), 3 * len(files))
    assert all(threads == report.examples for threads in [verify(str(folder), threads=n).examples for n in (1, 5)])


def mutate(content: bytes, chance: random.Random) -> bytes:
    """One bit flipped, or the end cut off, or something put behind it."""
    kind = chance.random()
    if kind < 0.1:
        return content[: chance.randrange(len(content))]
    if kind < 0.15:
        return content + chance.randbytes(chance.randrange(1, 30))
    changed = bytearray(content)
    changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def is_sound(folder: pathlib.Path) -> bool:
    try:
        return verify(str(folder), threads=1).ok
    except DataError:
        return False


def test_every_mutation_is_found(dataset: pathlib.Path) -> None:
    """A few hundred; BEAM_TFR_MUTATIONS=20000 for more."""
    chance = random.Random(20)
    files = sorted(dataset.iterdir())
    assert len(files) == 6
    for trial in range(int(os.environ.get("BEAM_TFR_MUTATIONS", "400"))):
        file = files[trial % len(files)]
        content = file.read_bytes()
        changed = mutate(content, chance)
        file.write_bytes(changed)
        assert not is_sound(dataset), (trial, file.name)
        file.write_bytes(content)
    assert is_sound(dataset)


def test_every_truncation_of_a_shard_is_found(tmp_path: pathlib.Path) -> None:
    dataset = make_dataset(tmp_path / "tiny", shards={"all": 1}, labels=None)
    (file,) = dataset.glob("*.gz")
    content = file.read_bytes()
    for size in range(len(content)):
        file.write_bytes(content[:size])
        assert not is_sound(dataset), size


def test_flipped_bit_is_told_with_its_place_and_the_rest_is_read(dataset: pathlib.Path) -> None:
    file = dataset / TRAIN_0
    content = bytearray(file.read_bytes())
    stream = gzip.decompress(content)
    (length,) = struct.unpack_from("<Q", stream)
    position = content.index(b"4.jpg")  # the second record of this shard
    content[position] ^= 1
    file.write_bytes(content)
    report = verify(str(dataset))
    assert [(p.file, p.record, p.offset) for p in report.problems] == [
        (TRAIN_0, 1, length + 16),
        (TRAIN_0, 3, len(stream)),
    ]
    assert "its data does not fit the checksum" in report.problems[0].message
    assert "incorrect data check" in report.problems[1].message
    assert report.examples == 8


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: (d / TEST_0).unlink(), f"{TEST_0}: is missing"),
        (lambda d: (d / "labels.txt").unlink(), "labels.txt: is missing"),
        (lambda d: (d / "rejects.jsonl").unlink(), "rejects.jsonl: is missing"),
        (lambda d: (d / "labels.txt").write_text("daisy\nrose\n"), "labels.txt: line 2 is not the class"),
        (lambda d: (d / "labels.txt").write_text("daisy\n"), "labels.txt: line 2 is not the class"),
        (lambda d: (d / "rejects.jsonl").write_bytes(b""), "rejects.jsonl: its SHA-256 is e3b0c442"),
        (
            lambda d: (d / "rejects.jsonl").write_text(REJECT._replace(reason="bored").to_json() + "\n"),
            "rejects.jsonl, record 0 at byte 0: is not a reject: ",
        ),
        (
            lambda d: shutil.copy(d / TEST_0, d / "tiny-test-00001-of-00002.tfrecord.gz"),
            "tiny-test-00001-of-00002.tfrecord.gz: has the name of a shard, but the manifest does not have it",
        ),
        (lambda d: shutil.copy(d / TRAIN_0, d / TRAIN_1), f"{TRAIN_1}: its SHA-256 is"),
        (lambda d: shutil.copy(d / TRAIN_0, d / TRAIN_1), f"{TRAIN_1}, record 0: has the key of record 0 of {TRAIN_0}"),
        (lambda d: [(d / TEST_0).unlink(), (d / TEST_0).mkdir()], f"{TEST_0}: "),
        (
            lambda d: [(d / TEST_0).unlink(), subprocess.run(["mkfifo", d / TEST_0], check=True)],
            f"{TEST_0}: cannot be read: not a regular file",
        ),
        (lambda d: (d / "manifest.json").write_text((d / "manifest.json").read_text() + "\n"), "manifest.json: line 1"),
        (
            lambda d: (d / TEST_0).write_bytes((d / TEST_0).read_bytes() + bytes(5)),
            "something that is not gzip follows the end of the gzip stream",
        ),
    ],
)
def test_what_is_changed_on_disk_is_told(
    dataset: pathlib.Path, change: Callable[[pathlib.Path], object], expected: str
) -> None:
    change(dataset)
    messages = told(dataset)
    assert any(expected in message for message in messages), messages


def test_swapped_shards(dataset: pathlib.Path) -> None:
    first, second = (dataset / name for name in (TRAIN_0, TRAIN_1))
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    assert {message.partition(":")[0] for message in told(dataset)} >= {TRAIN_0, TRAIN_1}


def test_a_link_out_of_the_folder_is_not_followed(dataset: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for name in (TEST_0, "labels.txt", "rejects.jsonl"):
        shutil.move(dataset / name, tmp_path / name)
        (dataset / name).symlink_to(tmp_path / name)
    messages = told(dataset)
    assert [message.partition(":")[0] for message in messages] == ["labels.txt", "rejects.jsonl", TEST_0]
    assert all("is a link that leads out of the folder, to " in message for message in messages)


def test_no_manifest_or_an_edited_one_is_an_error(dataset: pathlib.Path) -> None:
    path = dataset / "manifest.json"
    path.write_text(path.read_text().replace('"train"', '"trial"'))
    with pytest.raises(DataError, match="was changed after it was written"):
        verify(str(dataset))
    path.unlink()
    with pytest.raises(DataError, match=r"manifest\.json is missing"):
        verify(str(dataset))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda f: f["counts"].update(matched=11), "counts.matched is 11, expected 10"),
        (lambda f: f["counts"].update(written=11), "counts.written is 11, expected 9"),
        (lambda f: f["counts"]["rejected"].update({"not-found": 1}), "the sum of counts.rejected is 2, expected 1"),
        (lambda f: f["counts"]["rejected"].update(bored=0), "counts.rejected has the reason 'bored', known are"),
        (lambda f: f["rejects"].update(count=0), "rejects.count is 0, expected 1"),
        (lambda f: f["rejects"].update(sha256="0"), "expected '0'"),
        (lambda f: f["options"].update(quality=91), "options_digest is"),
        (lambda f: f["labels"].update(digest=""), "labels.digest is ''"),
        (lambda f: f["labels"].update(names=["daisy", "daisy"]), "labels.names: a class is there twice"),
        (lambda f: f["features"].update(extra={"dtype": "int64", "shape": []}), "feature 'extra' is missing"),
        (lambda f: f["splits"]["train"].update(matched=7), "split 'train': matched is 7, expected 6"),
        (lambda f: f["splits"]["train"].update(num_bytes=7), "split 'train': num_bytes is 7"),
        (lambda f: f["splits"]["train"]["class_counts"].update(daisy=5), "the sum of class_counts is 7, expected 6"),
        (
            lambda f: f["splits"]["train"].update(class_counts={"daisy": 2, "tulipán": 4}),
            "the number of records of class 'daisy' is 2, but the records have 4",
        ),
        (lambda f: f["splits"]["train"]["shards"].reverse(), "split 'train': shard 0 is"),
        (lambda f: f["statistics"].update(pixels=5), "statistics.pixels is 5, but the records have 1728"),
        (lambda f: f["statistics"].update(channel_std=[300]), "statistics.channel_std is [300]"),
        (lambda f: f["statistics"]["source_sizes"].update({"64": 1}), "the sum of statistics.source_sizes is 1"),
        (lambda f: f.update(dataset_digest="0" * 64), "dataset_digest is '000"),
        (lambda f: f["options"].update(image_size=[12, 17]), "the image is 12x16 by its record, expected 12x17"),
        (lambda f: f["options"].update(compression="none"), "shard 0 is"),
        (lambda f: f["splits"]["test"]["shards"][0].update(num_bytes=5), "bytes, expected 5"),
        (lambda f: f["splits"]["test"]["shards"][0].update(sha256=None), "expected None"),
    ],
)
def test_a_manifest_that_does_not_fit_is_told(
    dataset: pathlib.Path, change: Callable[[dict[str, object]], object], expected: str
) -> None:
    edit(dataset, change)
    messages = told(dataset)
    assert any(expected in message for message in messages), messages


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("image/width", None),
        ("image/width", {"dtype": "bytes", "shape": []}),
        ("image/encoded", {"dtype": "bytes", "shape": [0]}),
        ("image/class/text", None),
    ],
)
def test_the_features_of_an_image_are_fixed(dataset: pathlib.Path, name: str, feature: object) -> None:
    edit(dataset, lambda f: f["features"].update({name: feature}))  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"manifest\.json is not a manifest: (a )?feature"):
        verify(str(dataset))


@pytest.mark.parametrize("count", [4, 2, 10**18])
def test_another_number_of_records(dataset: pathlib.Path, count: int) -> None:
    def change(fields: dict[str, object]) -> None:
        test = fields["splits"]["test"]  # type: ignore[index]
        test["num_examples"] = test["shards"][0]["num_examples"] = count

    edit(dataset, change)
    expected = "it has more than the 2 records" if count == 2 else f"it has 3 records, expected {count}"
    assert any(message.startswith(TEST_0) and expected in message for message in told(dataset))


DEEP: object = 0
for _ in range(200):
    DEEP = [DEEP]


@pytest.mark.parametrize("value", [None, 1, -1, 1.5, "x" * 10**6, [], [[]], {}, {"a": "\x1b[2J"}, DEEP, True], ids=type)
@pytest.mark.parametrize(
    "place",
    [
        *("name", "options", "labels", "features", "counts", "rejects", "splits", "statistics", "dataset_digest"),
        *("labels.names", "labels.digest", "options.image_size", "options.compression", "features.image/width"),
        *("features.image/width.shape", "features.image/width.dtype", "counts.rejected", "counts.matched"),
        *("rejects.sha256", "rejects.count", "splits.train", "splits.train.class_counts", "splits.train.shards"),
        *("statistics.pixels", "statistics.channel_mean", "statistics.source_sizes", "options_digest"),
    ],
)
def test_hostile_values_are_told_and_harmless(dataset: pathlib.Path, place: str, value: object) -> None:
    def change(fields: dict[str, object]) -> None:
        *path, last = place.split(".")
        for name in path:
            fields = fields[name]  # type: ignore[assignment]
        fields[last] = value

    before = (dataset / "manifest.json").read_bytes()
    edit(dataset, change)
    try:
        messages = told(dataset)
    except DataError as error:
        messages = [str(error)]
    assert messages or (dataset / "manifest.json").read_bytes() == before  # in two places the value is the right one
    assert all(len(message) < 1500 and message.isprintable() for message in messages)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda image: dataclasses.replace(image, height=11), "the image is 11x16 by its record, expected 12x16"),
        (lambda image: dataclasses.replace(image, channels=1), "image/channels is 1, but the image has 3"),
        (lambda image: dataclasses.replace(image, format="png"), "image/format is 'png', but the image is a jpeg"),
        (
            lambda image: dataclasses.replace(image, source_sha256="?"),
            "image/key/sha256 is '?', expected 64 hex digits",
        ),
        (lambda image: dataclasses.replace(image, encoded=b"GIF89a"), "image/encoded begins with 47 49 46 38 39 61"),
        (lambda image: dataclasses.replace(image, encoded=b""), "image/encoded begins with nothing"),
        (lambda image: dataclasses.replace(image, encoded=image.encoded[:-40]), "does not decode to the end"),
        (
            lambda _: dataclasses.replace(picture(5, "jpeg", (7, 9)), height=HEIGHT, width=WIDTH),
            "image/height is 12, but the image has 7",
        ),
        (
            lambda _: dataclasses.replace(picture(5, "png"), format="jpeg"),
            "image/format is 'jpeg', but the image is a png",
        ),
        (
            lambda _: dataclasses.replace(picture(5, "png"), encoded=picture(5, "png").encoded[:-200]),
            "does not decode to the end",
        ),
    ],
)
def test_a_wrong_image_is_told(tmp_path: pathlib.Path, change: Callable[[Image], Image], expected: str) -> None:
    report = verify(str(make_dataset(tmp_path / "tiny", change_image=change, shards={"all": 2})))
    assert {(p.file, p.record) for p in report.problems if p.record is not None} == {
        ("tiny-all-00000-of-00002.tfrecord.gz", 1)
    }
    assert any(expected in problem.message for problem in report.problems), report.problems


HOSTILE_NAME: dict[str, tuple[str, list[object]] | None] = {"\x1b[2J" * 100: ("int64_list", [1])}


def features(**changes: tuple[str, list[object]] | None) -> Change:
    """Changes features of a record: name -> (list, values), None to remove it."""

    def change(record: bytes) -> bytes:
        example = example_class().FromString(record)
        for name, value in changes.items():
            name = name.replace("__", "/")
            example.features.feature[name].Clear()
            if value is None:
                del example.features.feature[name]
            else:
                getattr(example.features.feature[name], value[0]).value.extend(value[1])
        return bytes(example.SerializeToString(deterministic=True))

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: b"\xff\xff\xff", "not a tf.train.Example"),
        (lambda _: b"", "feature 'image/channels' is missing"),
        (features(image__width=None), "feature 'image/width' is missing"),
        (features(depth=("int64_list", [1])), "feature 'depth' is not in the manifest"),
        (features(**HOSTILE_NAME), "is not in the manifest"),
        (features(image__width=("float_list", [16.0])), "feature 'image/width' is 1 of float, expected 1 of int"),
        (features(image__width=("int64_list", [16, 16])), "feature 'image/width' is 2 of int, expected 1 of int"),
        (features(image__width=("int64_list", [])), "feature 'image/width' is empty, expected 1 of int"),
        (features(image__class__label=("int64_list", [2])), "image/class/label is 2, expected 0 to 1"),
        (features(image__class__label=("int64_list", [-1])), "image/class/label is -1, expected 0 to 1"),
        (features(image__class__label=("int64_list", [0])), "is 'tulipán', but class 0 is 'daisy' by the manifest"),
        (features(image__height=("int64_list", [2**62])), "the image is 4611686018427387904x16 by its record"),
    ],
)
def test_a_wrong_record_is_told(tmp_path: pathlib.Path, change: Change, expected: str) -> None:
    report = verify(str(make_dataset(tmp_path / "tiny", change_record=change, shards={"all": 1})))
    found = [p.message for p in report.problems if (p.file, p.record) == ("tiny-all-00000-of-00001.tfrecord.gz", 1)]
    assert any(expected in message for message in found), report.problems
    assert all(str(problem).isprintable() for problem in report.problems)
    assert report.examples == 3


def test_a_repeated_key_is_told(tmp_path: pathlib.Path) -> None:
    folder = make_dataset(tmp_path / "tiny", same_keys=True)
    assert told(folder) == [f"{TRAIN_1}, record 2: has the key of record 0 of {TEST_0}"]


def test_large_images_and_records_are_not_decoded(sound: pathlib.Path, tmp_path: pathlib.Path) -> None:
    report = verify(str(sound), max_pixels=100)
    assert report.num_problems == 9
    assert report.problems[0].message == "the image has 12x16 pixels, more than the 100 that are decoded"
    report = verify(str(make_dataset(tmp_path / "png", encoding="png")), max_pixels=100)
    assert report.num_problems == 9
    report = verify(str(sound), max_record_bytes=100)
    assert [problem.record for problem in report.problems] == [0, 0, 0]


def test_problems_are_kept_up_to_a_limit_in_one_order_and_all_counted(tmp_path: pathlib.Path) -> None:
    folder = make_dataset(tmp_path / "tiny", shards={"all": 50}, image_size=[1, 1])
    reports = [verify(str(folder), threads=threads) for threads in (1, 8)]
    for report in reports:
        assert report.num_problems == 150
        assert len(report.problems) == 100
        assert report.problems == reports[0].problems
    assert [p.record for p in reports[0].problems[:4]] == [0, 1, 2, 0]


def test_a_million_broken_records_are_not_all_told(dataset: pathlib.Path) -> None:
    (dataset / TEST_0).write_bytes(gzip.compress(frame(b"") * 100_000))
    edit(dataset, lambda f: f["splits"]["test"]["shards"][0].update(num_examples=10**18))  # type: ignore[index]
    edit(dataset, lambda f: f["splits"]["test"].update(num_examples=10**18))  # type: ignore[index]
    report = verify(str(dataset))
    assert 1000 < report.num_problems < 1100
    assert report.examples < 1000


def test_an_interrupt_ends_it(sound: pathlib.Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(str(sound), progress=interrupt)
