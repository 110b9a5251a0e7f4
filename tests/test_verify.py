from __future__ import annotations

import dataclasses
import gzip
import os
import pathlib
import random
import shutil
import struct
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage

from beam_tfr.console.display import Progress
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.images import limits
from beam_tfr.options import ImageOptions
from beam_tfr.records.examples import example_class, parse_example
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import Image, ImageRef
from beam_tfr.verification import Report, verify
from beam_tfr.verification.image_check import image_problems, option_problems
from beam_tfr.verification.payload_check import tensor_problems
from beam_tfr.verification.record_check import MAX_PIXELS
from tests.conftest import few_at_once
from tests.converted import CONVERSIONS, FAST, SOURCES, converted
from tests.fixtures import build_example, chunk, save
from tests.handmade_dataset import (
    HEIGHT,
    TEST_0,
    TRAIN_0,
    TRAIN_1,
    WIDTH,
    Change,
    edit,
    encoded,
    frame,
    make_dataset,
    picture,
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return make_dataset(tmp_path_factory.mktemp("sound") / "tiny")


@pytest.fixture
def dataset(sound: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(sound, tmp_path / "tiny"))


def told(folder: pathlib.Path) -> list[str]:
    return [str(problem) for problem in verify(str(folder), threads=1).problems]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"labels": None},
        {"encoding": "png"},
        {"encoding": "webp"},
        {"encoding": "raw"},
        {"encoding": "keep"},
        {"compression": "none"},
        {"shards": {"all": 1}},
        {"shards": {"train": 7}, "labels": ["one"]},
    ],
    ids=str,
)
def test_valid_datasets(tmp_path: pathlib.Path, options: dict[str, object]) -> None:
    folder = make_dataset(tmp_path / "tiny", **options)  # type: ignore[arg-type]
    calls: list[Progress] = []
    report = verify(str(folder), progress=calls.append)
    files = list(folder.glob("*.tfrecord*"))
    assert report == Report(
        folder=str(folder),
        problems=(),
        kinds={},
        broken=(),
        notes=report.notes,
        counts={
            "shards": len(files),
            "records_read": 3 * len(files),
            "bytes_read": sum(file.stat().st_size for file in files),
            "sources_read": None,
            "problems": 0,
        },
        seconds=report.seconds,
        dataset_digest=read_manifest(str(folder)).dataset_digest,
    )
    assert report.ok
    records, num_bytes = report.counts["records_read"], report.counts["bytes_read"]
    assert calls[-1] == Progress("verifying", records, records, len(files), len(files), num_bytes)
    assert all(verify(str(folder), threads=threads).counts == report.counts for threads in (1, 5))


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


@pytest.mark.slow
def test_every_mutation_is_found(dataset: pathlib.Path) -> None:
    """A few of each file; BEAM_TFR_MUTATIONS=20000 for more."""
    chance = random.Random(20)
    files = sorted(path for path in dataset.rglob("*") if path.is_file())
    files.remove(dataset / "README.md")  # which is somebody's own without its mark
    assert len(files) == 12
    for trial in range(int(os.environ.get("BEAM_TFR_MUTATIONS", "150"))):
        file = files[trial % len(files)]
        content = file.read_bytes()
        changed = mutate(content, chance)
        file.write_bytes(changed)
        assert not is_sound(dataset), (trial, file.name)
        file.write_bytes(content)
    assert is_sound(dataset)


def test_a_truncated_shard_is_found(tmp_path: pathlib.Path) -> None:
    dataset = make_dataset(tmp_path / "tiny", shards={"all": 1}, labels=None)
    (file,) = dataset.glob("*.gz")
    content = file.read_bytes()
    for size in range(0, len(content), 13):  # tests/test_records.py tries them all
        file.write_bytes(content[:size])
        assert not is_sound(dataset), size


def test_flipped_bit_is_located_and_the_rest_is_read(dataset: pathlib.Path) -> None:
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
    assert "its data does not match the checksum" in report.problems[0].message
    assert "incorrect data check" in report.problems[1].message
    assert report.counts["records_read"] == 8


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: (d / TEST_0).unlink(), f"{TEST_0}: is missing"),
        (lambda d: (d / "labels.txt").unlink(), "labels.txt: is missing"),
        (lambda d: (d / "rejects.jsonl").unlink(), "rejects.jsonl: is missing"),
        (lambda d: (d / "labels.txt").write_text("daisy\nrose\n"), "labels.txt: its SHA-256 is"),
        (lambda d: (d / "labels.txt").write_text("daisy\n"), "labels.txt: its SHA-256 is"),
        (
            lambda d: (d / "rejects.jsonl").write_bytes(b""),
            "rejects.jsonl: its SHA-256 is e3b0c442",
        ),
        (
            lambda d: shutil.copy(d / TEST_0, d / "tiny-test-00001-of-00002.tfrecord.gz"),
            "tiny-test-00001-of-00002.tfrecord.gz: is not in the manifest, but readers that use "
            "patterns take it for part of the dataset: move it out of the folder",
        ),
        (lambda d: shutil.copy(d / TRAIN_0, d / TRAIN_1), f"{TRAIN_1}: its SHA-256 is"),
        (
            lambda d: shutil.copy(d / TRAIN_0, d / TRAIN_1),
            f"{TRAIN_1}, record 0: has the same key as record 0 of {TRAIN_0}",
        ),
        (lambda d: [(d / TEST_0).unlink(), (d / TEST_0).mkdir()], f"{TEST_0}: "),
        (
            lambda d: [(d / TEST_0).unlink(), subprocess.run(["mkfifo", d / TEST_0], check=True)],
            f"{TEST_0}: cannot be read: it is a pipe, not a file",
        ),
        (
            lambda d: (d / "manifest.json").write_text((d / "manifest.json").read_text() + "\n"),
            "manifest.json: its SHA-256 is",
        ),
        (
            lambda d: (d / TEST_0).write_bytes((d / TEST_0).read_bytes() + bytes(5)),
            "the gzip stream is followed by something else",
        ),
    ],
)
def test_changes_on_disk_are_found(
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


def test_links_are_followed_as_in_the_caches_of_hubs(
    dataset: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for name in (TEST_0, "labels.txt", "manifest.json", "rejects.jsonl"):
        shutil.move(dataset / name, tmp_path / name)
        (dataset / name).symlink_to(tmp_path / name)
    shutil.move(dataset / TRAIN_0, dataset / "here")
    (dataset / TRAIN_0).symlink_to("here")
    assert told(dataset) == []


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
        (lambda f: f["counts"].update(matched=11), "dataset_digest is '"),
        (lambda f: f["counts"].update(written=11), "dataset_digest is '"),
        (lambda f: f["counts"]["rejected"].update({"not-found": 1}), "dataset_digest is '"),
        (lambda f: f["counts"]["rejected"].update(bored=1), "dataset_digest is '"),
        (lambda f: f["rejects"].update(count=0), "rejects.count is 0, expected 1"),
        (lambda f: f["rejects"].update(sha256="0" * 64), "expected '000"),
        (lambda f: f["options"].update(quality=91), "options_digest is"),
        (lambda f: f["labels"].update(digest="0" * 64), "dataset_digest is '"),
        (
            lambda f: f["features"].update(extra={"dtype": "int64", "shape": []}),
            "feature 'extra' is missing",
        ),
        (lambda f: f["splits"]["train"].update(matched=7), "dataset_digest is '"),
        (lambda f: f["splits"]["train"].update(num_bytes=7), "split 'train': num_bytes is 7"),
        (lambda f: f["splits"]["train"]["class_counts"].update(daisy=5), "dataset_digest is '"),
        (
            lambda f: f["splits"]["train"].update(class_counts={"daisy": 2, "tulipán": 4}),
            "the number of records of class 'daisy' is 2, but the records have 4",
        ),
        (lambda f: f["splits"]["train"]["shards"].reverse(), "split 'train': shard 0 is"),
        (
            lambda f: f["statistics"].update(pixels=5),
            "statistics.pixels is 5, but the records have 1728",
        ),
        (lambda f: f["statistics"].update(channel_mean=[1, 2]), "dataset_digest is '"),
        (
            lambda f: f["statistics"]["source_sizes"].update({"64": 1}),
            "statistics.source_sizes is {'64': 1}, but the records",
        ),
        (
            lambda f: f["statistics"].update(source_sizes={"32": 1, "64": 8}),
            "statistics.source_sizes is {'32': 1, '64': 8}, but the records have {'64': 9}",
        ),
        (lambda f: f.update(dataset_digest="0" * 64), "dataset_digest is '000"),
        (
            lambda f: f["options"].update(image_size=[12, 17]),
            "image/width is 16, expected 17 according to the options",
        ),
        (lambda f: f["options"].update(compression="none"), "shard 0 is"),
        (lambda f: f["splits"]["test"]["shards"][0].update(num_bytes=5), "bytes, expected 5"),
        (lambda f: f["splits"]["test"]["shards"][0].update(sha256="0" * 64), "expected '000"),
    ],
)
def test_inconsistent_manifests(
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
def test_the_features_of_an_image_are_fixed(
    dataset: pathlib.Path, name: str, feature: object
) -> None:
    edit(dataset, lambda f: f["features"].update({name: feature}))  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"manifest\.json is not a manifest: (manifest\.)?feature"):
        verify(str(dataset))


@pytest.mark.parametrize("count", [4, 2, 10**18])
def test_wrong_number_of_records(dataset: pathlib.Path, count: int) -> None:
    def change(fields: dict[str, object]) -> None:
        test = fields["splits"]["test"]  # type: ignore[index]
        test["num_examples"] = test["shards"][0]["num_examples"] = count

    edit(dataset, change)
    expected = (
        "it has more than the 2 records" if count == 2 else f"it has 3 records, expected {count}"
    )
    assert any(message.startswith(TEST_0) and expected in message for message in told(dataset))


DEEP: object = 0
for _ in range(200):
    DEEP = [DEEP]


PLACES = (
    *(
        "name",
        "options",
        "labels",
        "features",
        "counts",
        "rejects",
        "splits",
        "statistics",
        "dataset_digest",
    ),
    *(
        "labels.names",
        "labels.digest",
        "options.image_size",
        "options.compression",
        "features.image/width",
    ),
    *(
        "features.image/width.shape",
        "features.image/width.dtype",
        "counts.rejected",
        "counts.matched",
    ),
    *(
        "rejects.sha256",
        "rejects.count",
        "splits.train",
        "splits.train.class_counts",
        "splits.train.shards",
    ),
    *("statistics.pixels", "statistics.channel_mean", "statistics.source_sizes", "options_digest"),
)


@pytest.mark.parametrize(
    "value", [None, 1, -1, 1.5, "x" * 10**6, [], [[]], {}, {"a": "\x1b[2J"}, DEEP, True], ids=type
)
def test_hostile_manifest_values_are_reported_and_harmless(
    dataset: pathlib.Path, value: object
) -> None:
    path = dataset / "manifest.json"
    before = path.read_bytes()
    for spot in PLACES:
        path.write_bytes(before)

        def change(fields: dict[str, object], spot: str = spot) -> None:
            *parents, last = spot.split(".")
            for name in parents:
                fields = fields[name]  # type: ignore[assignment]
            fields[last] = value

        edit(dataset, change)
        try:
            messages = told(dataset)
        except DataError as error:
            messages = [str(error)]
        # in two places the value is the right one
        assert messages or path.read_bytes() == before, spot
        assert all(len(message) < 1500 and message.isprintable() for message in messages)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda image: dataclasses.replace(image, height=11),
            "image/height is 11, expected 12 according to the options",
        ),
        (
            lambda image: dataclasses.replace(image, width=17),
            "image/width is 17, expected 16 according to the image",
        ),
        (
            lambda image: dataclasses.replace(image, channels=1),
            "image/channels is 1, expected 3 according to the image",
        ),
        (
            lambda image: dataclasses.replace(image, channels=1),
            "image/channels is 1, expected 3 according to the options",
        ),
        (
            lambda image: dataclasses.replace(image, colorspace="Gray"),
            "image/colorspace is 'Gray', expected 'RGB' according to the options",
        ),
        (
            lambda image: dataclasses.replace(image, format="gif"),
            "is 'gif', expected 'jpeg' according to the options",
        ),
        (
            lambda image: dataclasses.replace(image, source_height=0),
            "the source is 0x30 according to the record, expected at least",
        ),
        (
            lambda image: dataclasses.replace(image, source_width=-7),
            "the source is 40x-7 according to the record, expected at least",
        ),
        (
            lambda image: dataclasses.replace(image, source_format="exe"),
            "image/source/format is 'exe', expected 'jpeg' or 'png' or",
        ),
        (
            lambda image: dataclasses.replace(image, format="png"),
            "image/format is 'png', expected 'jpeg' according to the image",
        ),
        (
            lambda image: dataclasses.replace(image, source_sha256="?"),
            "image/key/sha256 is '?', expected 64 hex digits",
        ),
        (
            lambda image: dataclasses.replace(image, encoded=b"%PDF-1.7"),
            "image/encoded begins with 25 50 44 46 2d 31 2e 37, expected an image (jpeg, png, "
            "webp)",
        ),
        (
            lambda image: dataclasses.replace(
                image, encoded=encoded(PillowImage.new("RGB", (16, 12)), "tiff")
            ),
            "image/encoded begins with 49 49 2a 00 08 00 00 00, expected an image",
        ),
        (
            lambda image: dataclasses.replace(image, encoded=b""),
            "image/encoded begins with nothing",
        ),
        (
            lambda image: dataclasses.replace(image, encoded=image.encoded[:-40]),
            "cannot be decoded to its end",
        ),
        (
            lambda _: dataclasses.replace(picture(5, "jpeg", (7, 9)), height=HEIGHT, width=WIDTH),
            "image/height is 12, expected 7 according to the image",
        ),
        (
            lambda _: dataclasses.replace(picture(5, "png"), format="jpeg"),
            "image/format is 'jpeg', expected 'png' according to the image",
        ),
        (
            lambda _: dataclasses.replace(
                picture(5, "png"), encoded=picture(5, "png").encoded[:-200]
            ),
            "cannot be decoded to its end",
        ),
    ],
)
def test_wrong_images(
    tmp_path: pathlib.Path, change: Callable[[Image], Image], expected: str
) -> None:
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
        (
            features(image__width=("float_list", [16.0])),
            "feature 'image/width' is 1 of float, expected 1 of int",
        ),
        (
            features(image__width=("int64_list", [16, 16])),
            "feature 'image/width' is 2 of int, expected 1 of int",
        ),
        (
            features(image__width=("int64_list", [])),
            "feature 'image/width' is empty, expected 1 of int",
        ),
        (
            features(image__class__label=("int64_list", [2])),
            "its labels are [2], ['tulipán'], which do not match the manifest",
        ),
        (
            features(image__class__label=("int64_list", [-1])),
            "its labels are [-1], ['tulipán'], which do not match the manifest",
        ),
        (
            features(image__class__label=("int64_list", [0])),
            "its labels are [0], ['tulipán'], which do not match the manifest",
        ),
        (
            features(image__height=("int64_list", [2**62])),
            "image/height is 4611686018427387904, expected 12 according to the options",
        ),
    ],
)
def test_wrong_records(tmp_path: pathlib.Path, change: Change, expected: str) -> None:
    report = verify(str(make_dataset(tmp_path / "tiny", change_record=change, shards={"all": 1})))
    found = [
        p.message
        for p in report.problems
        if (p.file, p.record) == ("tiny-all-00000-of-00001.tfrecord.gz", 1)
    ]
    assert any(expected in message for message in found), report.problems
    assert all(str(problem).isprintable() for problem in report.problems)
    assert report.counts["records_read"] == 3


def problems_of(image: Image, **options: object) -> list[str]:
    """What is told of one record, by its options and its content."""
    example = parse_example(build_example(ImageRef("a", 1, 0, "train"), image))
    record = {name: values[0] for name, values in example.items()}
    checked = ImageOptions(**{"image_size": (HEIGHT, WIDTH), **options})  # type: ignore[arg-type]
    return [
        *option_problems(record, checked),
        *image_problems(record, checked, ImageOptions(max_pixels=MAX_PIXELS)),
    ]


def tensor(pixels: object) -> bytes:
    return bytes(tf.io.serialize_tensor(pixels).numpy())


PIXELS = np.arange(HEIGHT * WIDTH * 3, dtype=np.uint8).reshape(HEIGHT, WIDTH, 3)
TENSOR = tensor(PIXELS)


@pytest.mark.parametrize(
    "data",
    [
        tensor(PIXELS[1:]),
        tensor(PIXELS[..., :1]),
        tensor(PIXELS[..., 0]),
        tensor(PIXELS[None]),
        tensor(PIXELS.astype(np.int8)),
        TENSOR.replace(b"\x08\x04", b"\x08\x01", 1),
        TENSOR.replace(b"\xc0\x04", b"\xbf\x04")[:-1],
        TENSOR[:-1],
        TENSOR + b"\0",
        TENSOR * 2,
        b"\xff" * 20,
        b"",
    ],
)
def test_wrong_tensors(data: bytes) -> None:
    sound = dataclasses.replace(picture(1, "raw"), encoded=TENSOR)
    assert problems_of(sound, encoding="raw") == []
    (problem,) = problems_of(dataclasses.replace(sound, encoded=data), encoding="raw")
    assert problem == "image/raw is not a serialized 'uint8' tensor of shape [12, 16, 3]"


@given(data=st.binary(max_size=200), shape=st.lists(st.integers(1, 20), min_size=3, max_size=3))
def test_random_tensors_are_reported(data: bytes, shape: list[int]) -> None:
    for start in (b"", b"\x08\x04", TENSOR[:16], TENSOR[:20]):
        assert list(tensor_problems("image/raw", start + data, "uint8", shape))


@given(shape=st.tuples(st.integers(1, 300), st.integers(1, 300), st.sampled_from([1, 3])))
def test_tensors_written_by_tensorflow_are_valid(shape: tuple[int, int, int]) -> None:
    assert (
        list(tensor_problems("image/raw", tensor(np.zeros(shape, np.uint8)), "uint8", shape)) == []
    )


def stored(form: str, data: bytes, **changes: object) -> Image:
    about = {"source_height": HEIGHT, "source_width": WIDTH, **changes}
    return dataclasses.replace(picture(1, "png"), encoded=data, format=form, **about)  # type: ignore[arg-type]


def small(mode: str = "RGB") -> PillowImage.Image:
    return PillowImage.fromarray(PIXELS).convert(mode)


def turned() -> bytes:
    exif = PillowImage.Exif()
    exif[0x0112] = 6
    return save(small(), "JPEG", exif=exif)


KEEP: dict[str, object] = {"encoding": "keep"}
BYTES = {form: encoded(small(), form) for form in ("jpeg", "png", "webp")}
TURNED, GRAY, CMYK = turned(), encoded(small("L"), "jpeg"), encoded(small("CMYK"), "jpeg")
DEEP = save(PillowImage.fromarray(PIXELS[..., 0].astype(np.uint16) * 257), "PNG")
CLEAR = save(PillowImage.fromarray(np.dstack([PIXELS, PIXELS[..., 0]])), "PNG")
SCANS = save(small(), "JPEG", progressive=True)
NUM_SCANS = SCANS.count(b"\xff\xda")


@pytest.mark.parametrize("form", BYTES)
def test_kept_formats_are_decoded_to_the_end(form: str) -> None:
    data = BYTES[form]
    assert problems_of(stored(form, data, source_format=form), **KEEP) == []
    assert problems_of(stored(form, data[:-12], source_format=form), **KEEP)
    (message,) = problems_of(stored(form, data[: len(data) * 2 // 3], source_format=form), **KEEP)
    assert message.startswith("the image cannot be decoded to its end: ")


@pytest.mark.parametrize(
    ("image", "options", "expected"),
    [
        (
            stored("jpeg", BYTES["png"]),
            KEEP,
            ["image/format is 'jpeg', expected 'png' according to the image"],
        ),
        (
            stored("tiff", BYTES["png"]),
            KEEP,
            [
                "image/format is 'tiff', expected 'jpeg' or 'png' according to the options",
                "image/format is 'tiff', expected 'png' according to the image",
            ],
        ),
        (
            stored("png", BYTES["png"]),
            {},
            ["image/format is 'png', expected 'jpeg' according to the options"],
        ),
        (stored("jpeg", TURNED), KEEP, ["the image has EXIF orientation 6"]),
        (stored("jpeg", TURNED), {**KEEP, "ignore_orientation": True}, []),
        (
            stored("png", BYTES["png"], source_height=WIDTH, source_width=HEIGHT),
            {**KEEP, "resize": "none"},
            [
                "image/height is 12, expected 16 according to the options",
                "image/width is 16, expected 12 according to the options",
            ],
        ),
        (stored("png", CLEAR), KEEP, ["the image has transparent pixels"]),
        (
            stored("png", DEEP, channels=1, colorspace="Gray"),
            KEEP,
            ["the image has 16 bits per sample"],
        ),
        (stored("jpeg", GRAY, channels=1, colorspace="Gray"), KEEP, []),
        (stored("jpeg", GRAY, channels=1, colorspace="Gray"), {"color": "keep"}, []),
        (stored("jpeg", GRAY, channels=1, colorspace="Gray"), {"color": "gray"}, []),
        (
            stored("jpeg", GRAY, channels=1, colorspace="Gray"),
            {},
            ["image/channels is 1, expected 3 according to the options"],
        ),
        (stored("jpeg", GRAY), KEEP, ["image/channels is 3, expected 1 according to the image"]),
        (
            stored("jpeg", BYTES["jpeg"]),
            {**KEEP, "color": "gray"},
            ["image/channels is 3, expected 1 according to the options"],
        ),
        (
            stored("webp", BYTES["webp"], channels=1, colorspace="Gray"),
            {**KEEP, "color": "gray"},
            [
                "image/format is 'webp', expected 'jpeg' or 'png' according to the options",
                "image/channels is 1, expected 3 according to the image",
            ],
        ),
        (
            stored("jpeg", CMYK, channels=4, colorspace="CMYK"),
            KEEP,
            [
                "image/channels is 4, expected 1 or 3 according to the options",
                "image/colorspace is 'CMYK', expected 'RGB' according to the options",
            ],
        ),
        (
            stored("jpeg", BYTES["jpeg"]),
            {"max_pixels": 10},
            [],  # of the sources; the result may have image_size
        ),
    ],
)
def test_what_is_stored_must_fit_its_options(
    image: Image, options: dict[str, object], expected: list[str]
) -> None:
    assert problems_of(image, **options) == expected


@pytest.mark.parametrize("encoding", ["png", "keep"])
def test_texts_that_readers_would_inflate(encoding: str) -> None:
    texts = chunk(b"zTXt", b"k\0\0") * 17
    data = save(small(), "PNG")
    image = stored("png", data[:33] + texts + data[33:], source_format="png")
    assert problems_of(image, **KEEP | {"encoding": encoding}) == [
        "the image has more than 16 zTXt or iTXt chunks, which inflate when decoded"
    ]


def test_progressive_images_of_too_many_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SCAN_PIXELS", 300)
    told = (
        f"the image cannot be decoded to its end: '{NUM_SCANS} scans of 16 x 12 pixels, more "
        f"than 300 in total'"
    )
    assert problems_of(stored("jpeg", SCANS), **KEEP) == [told]


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        (
            (12, 17),
            {"resize": "stretch"},
            ["image/width is 17, expected 16 according to the options"],
        ),
        ((12, 17), {"resize": "crop"}, ["image/width is 17, expected 16 according to the options"]),
        ((12, 17), {"resize": "pad"}, ["image/width is 17, expected 16 according to the options"]),
        ((12, 12), {"resize": "fit"}, ["image/width is 12, expected 9 according to the options"]),
        (
            (9, 12),
            {"resize": "shortest", "image_size": (12, 12)},
            ["image/height is 9, expected 16 according to the options"],
        ),
        (
            (30, 40),
            {"resize": "none"},
            [
                "image/height is 30, expected 40 according to the options",
                "image/width is 40, expected 30 according to the options",
            ],
        ),
    ],
)
def test_wrong_sizes(
    size: tuple[int, int], options: dict[str, object], expected: list[str]
) -> None:
    image = picture(1, "jpeg", size)
    image = dataclasses.replace(
        image, height=size[0], width=size[1], source_height=40, source_width=30
    )
    assert problems_of(image, **options) == expected


@pytest.mark.parametrize("flags", few_at_once(CONVERSIONS, *FAST))
def test_real_conversions_verify(flags: str) -> None:
    report = verify(str(converted(flags)))
    assert report.problems == ()
    assert report.counts["records_read"] == len(SOURCES)


def test_repeated_keys(tmp_path: pathlib.Path) -> None:
    folder = make_dataset(tmp_path / "tiny", same_keys=True)
    assert told(folder) == [f"{TRAIN_1}, record 2: has the same key as record 0 of {TEST_0}"]


def test_large_images_and_records_are_not_decoded(
    sound: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beam_tfr.verification.record_check.MAX_PIXELS", 100)
    report = verify(str(sound))
    assert report.counts["problems"] == 9
    told_pixels = (
        "the image cannot be decoded to its end: '16 x 12 pixels, more than --max_pixels 100'"
    )
    assert report.problems[0].message == told_pixels
    report = verify(str(make_dataset(tmp_path / "png", encoding="png")))
    assert report.counts["problems"] == 9
    monkeypatch.undo()
    options = {"resize": "none", "image_size": [2, 2], "max_pixels": 100}
    messages = told(make_dataset(tmp_path / "limited", **options))  # type: ignore[arg-type]
    assert sum(message.endswith(told_pixels) for message in messages) == 9
    monkeypatch.setattr(
        "beam_tfr.verification.shard_check.max_record_bytes_in", lambda file_bytes: 100
    )
    report = verify(str(sound))
    assert [problem.record for problem in report.problems if problem.file.endswith(".gz")] == [
        0,
        0,
        0,
    ]


def test_records_that_take_much_memory_are_noted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, sound: pathlib.Path
) -> None:
    monkeypatch.setattr("beam_tfr.verification.dataset_check._MUCH_BYTES", 1 << 20)
    monkeypatch.setattr("beam_tfr.verification.dataset_check._MUCH_RATIO", 0)

    def pad(image: Image) -> Image:
        return dataclasses.replace(image, encoded=image.encoded + bytes(4 << 20))

    folder = make_dataset(tmp_path / "padded", change_image=pad)
    (note,) = (note for note in verify(str(folder)).notes if note.startswith("uncompressed"))
    assert "on average" in note
    assert not any(note.startswith("uncompressed") for note in verify(str(sound)).notes)


def test_problems_are_kept_up_to_a_limit_in_dataset_order_and_all_counted(
    tmp_path: pathlib.Path,
) -> None:
    folder = make_dataset(tmp_path / "tiny", shards={"all": 50}, image_size=[HEIGHT, 1])
    reports = [verify(str(folder), threads=threads) for threads in (1, 8)]
    for report in reports:
        assert report.counts["problems"] == 150
        assert len(report.problems) == 100
        assert report.problems == reports[0].problems
    assert [p.record for p in reports[0].problems[:4]] == [0, 1, 2, 0]


def test_a_million_broken_records_are_not_all_reported(dataset: pathlib.Path) -> None:
    (dataset / TEST_0).write_bytes(gzip.compress(frame(b"") * 100_000))
    edit(dataset, lambda f: f["splits"]["test"]["shards"][0].update(num_examples=10**18))  # type: ignore[index]
    edit(dataset, lambda f: f["splits"]["test"].update(num_examples=10**18))  # type: ignore[index]
    report = verify(str(dataset))
    assert 1000 < report.counts["problems"] < 1100
    assert report.counts["records_read"] < 1000


def test_an_interrupt_ends_it(sound: pathlib.Path) -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(str(sound), progress=interrupt)
