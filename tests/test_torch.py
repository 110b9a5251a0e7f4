"""`beam_tfr.torch` by its contents: keys over whole epochs, pixels against `beam_tfr.reader`.

Without PyTorch: processes of their own do what the workers of its DataLoader do.
test_torch_dataloader.py has the rest.
"""

from __future__ import annotations

import importlib.util
import io
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import simplejpeg

from beam_tfr import reader, storage
from beam_tfr.dataset.elements import ExampleDecoder, decode_image
from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest, read_manifest
from beam_tfr.reader.images import ImageDecoder
from beam_tfr.records.examples import example_class, parse_example
from beam_tfr.records.tfrecords import MAX_RECORD_BYTES, RecordFile
from beam_tfr.schema.dataset import FORMAT_VERSION, MANIFEST_FILE
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import ENCODED, LABEL, TEXT
from beam_tfr.schema.items import Image, ImageRef
from beam_tfr.torch import ImageDataset
from beam_tfr.verification import verify
from tests.conftest import few_at_once, files_of
from tests.converted import CONVERSIONS, FAST, converted, converted_photos
from tests.fixtures import build_example, save, smooth
from tests.reader_fixtures import edit_records, encode, photo, records_of, write_dataset
from tests.torch_fixtures import (
    LISTS,
    batches,
    classes_of,
    labels,
    write_damaged,
    write_few,
    write_lists,
    write_many,
)
from tests.worker_shares import in_turn, read_by_workers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_few(tmp_path_factory.mktemp("few") / "d")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_many(tmp_path_factory.mktemp("many") / "d")


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lists(tmp_path_factory.mktemp("listed") / "d")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_damaged(tmp_path_factory.mktemp("damaged") / "d")


def test_the_order_is_the_same_for_every_number_of_workers(many: Path) -> None:
    dataset = ImageDataset(
        many, split="train", batch_size=12, shuffle=True, seed=3, start_step=5, output="encoded"
    )
    alone = batches(dataset)
    assert len(alone) == len(dataset) == 104
    for workers in (1, 2, 3, 5, 8, 12, 16, 150):
        assert (
            batches(in_turn([dataset.share_of_worker(w, workers) for w in range(workers)])) == alone
        )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes(many: Path, tmp_path: Path, method: str) -> None:
    dataset = ImageDataset(many, split="train", batch_size=12, shuffle=True)
    dataset.set_epoch(4)  # reaches them
    expected = list(ImageDataset(many, split="train", batch_size=12, shuffle=True, epoch=4))
    found = read_by_workers(dataset, 2, method, tmp_path)
    assert len(found) == len(expected) == 109
    for ours, (images, numbers) in zip(found, expected, strict=True):
        assert (len(ours), ours[0].dtype, ours[1].dtype) == (2, np.uint8, np.int64)
        np.testing.assert_array_equal(ours[0], images)
        np.testing.assert_array_equal(ours[1], numbers)


def test_a_resume_goes_on_exactly_there(folder: Path) -> None:
    def read(**options: Any) -> list[list[int]]:
        return batches(
            ImageDataset(folder, split="train", batch_size=5, shuffle=True, seed=1, **options)
        )

    epochs = [read(epoch=epoch) for epoch in (2, 3, 4)]
    for step in (0, 1, 7, 8, 19, 23):
        assert read(epoch=2, start_step=step) == epochs[step // 8][step % 8 :]
    dataset = ImageDataset(
        folder, split="train", batch_size=5, shuffle=True, seed=1, epoch=2, start_step=11
    )
    assert (dataset.epoch, len(dataset), dataset.steps_per_epoch) == (3, 5, 8)
    assert batches(dataset) == batches(dataset) == epochs[1][3:]
    dataset.set_epoch(4)
    assert (batches(dataset), len(dataset)) == (epochs[2], 8)


@pytest.mark.parametrize("flags", few_at_once(CONVERSIONS, *FAST))
def test_pixels_of_every_encoding_are_those_of_the_tensorflow_reader(flags: str) -> None:
    folder = converted(flags)
    dataset = read_manifest(str(folder))
    decode = ImageDecoder(options=dataset.image_options)
    records = records_of(folder)
    for image, label in ImageDataset(folder, split="train"):
        assert (image.dtype, image.flags.writeable, type(label)) == (np.uint8, True, int)
        name = dataset.class_names[label]
        record = records.pop(name)
        kept = record["image/format"] if dataset.image_options.encoding == "keep" else None
        expected = decode(record.get("image/encoded") or record["image/raw"], kept, (0, 0))
        np.testing.assert_array_equal(image, expected, err_msg=name)
    assert not records


def test_kept_files_that_are_turned_or_of_rare_kinds(tmp_path: Path) -> None:
    import tensorflow as tf

    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    picture = smooth(20, 31)
    files = {
        "png": save(picture, "PNG", exif=exif),
        "webp": save(picture, "WEBP", lossless=True, exif=exif),
        "jpeg": save(picture, "JPEG", exif=exif),
        "411": save(picture, "JPEG", subsampling="4:1:1"),
        "gray": save(picture.convert("L"), "JPEG"),
    }
    for name, data in files.items():
        form = name if name in ("png", "webp") else "jpeg"
        if form == "jpeg":
            expected = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
        else:
            expected = (
                tf.io.decode_png(data, channels=3)
                if form == "png"
                else tf.io.decode_webp(data)[0, :, :, :3]
            )
        np.testing.assert_array_equal(decode_image(data, form, 3), expected, err_msg=name)


def test_photos() -> None:
    folder = converted_photos("--num_shards 2")
    ours = ImageDataset(folder, split="train", batch_size=16, shuffle=True)
    theirs = {
        image.tobytes(): int(label)
        for image, label in reader.load(folder, split="train").as_numpy_iterator()
    }
    found = {
        image.tobytes(): int(label)
        for images, batch in ours
        for image, label in zip(images, batch, strict=True)
    }
    assert found == theirs
    assert len(found) == 12
    assert ours.class_names == read_manifest(str(folder)).class_names


def test_from_cloud_storage(gcs: str) -> None:
    folder = converted_photos("--num_shards 2")
    for name, data in files_of(folder).items():
        storage.write_bytes(f"{gcs}/out/{name}", data, scratch="")
    options: dict[str, Any] = {"split": "train", "batch_size": 5, "shuffle": True}
    found = [list(ImageDataset(path, **options)) for path in (folder, f"{gcs}/out")]
    assert len(found[0]) == len(found[1]) == 3
    for (images, numbers), (other_images, other_numbers) in zip(*found, strict=True):
        np.testing.assert_array_equal(images, other_images)
        np.testing.assert_array_equal(numbers, other_numbers)
    with pytest.raises(DataError, match="is not a complete dataset"):
        ImageDataset(f"{gcs}/nothing", split="train")


def test_encoded_bytes(folder: Path) -> None:
    ((images, numbers),) = ImageDataset(folder, split="test", batch_size=4, output="encoded")
    assert images == [encode(photo(int(number)), "jpeg") for number in numbers]
    single = [image for image, _ in ImageDataset(folder, split="test", output="encoded")]
    assert single == images


def test_outputs(folder: Path) -> None:
    options: dict[str, Any] = {"split": "train", "batch_size": 10, "shuffle": True}
    pairs = list(ImageDataset(folder, **options))
    alone = list(ImageDataset(folder, output="image", **options))
    dicts = list(ImageDataset(folder, output="dict", **options))
    names = set(read_manifest(str(folder)).features) - {"image/encoded"} | {"image"}
    for (images, numbers), same, element in zip(pairs, alone, dicts, strict=True):
        assert element.keys() == names
        np.testing.assert_array_equal(same, images)
        np.testing.assert_array_equal(element["image"], images)
        np.testing.assert_array_equal(element[LABEL], numbers)
        assert element[LABEL].dtype == element["image/height"].dtype == np.int64
        assert element["image/height"].tolist() == [8] * len(numbers)
        assert element["image/filename"] == [b"%d.jpg" % number for number in numbers]
        assert element[TEXT] == [b"class%05d" % number for number in numbers]
    ours = {one["image/filename"]: one for one in ImageDataset(folder, split="test", output="dict")}
    for theirs in reader.load(folder, split="test", output="dict").as_numpy_iterator():
        one = ours.pop(theirs["image/filename"])
        assert one.keys() == theirs.keys()
        for name, value in theirs.items():
            assert np.array_equal(one[name], value), name
            assert type(one[name]) in (np.ndarray, int, bytes)
    assert not ours


def test_fillers_of_dicts(folder: Path) -> None:
    dataset = ImageDataset(folder, split="test", batch_size=3, remainder="pad", output="dict")
    first, last = dataset
    assert first["weight"].tolist() == [1, 1, 1]
    assert last["weight"].tolist() == [1, 0, 0]
    assert last["weight"].dtype == np.float32
    assert last["image/filename"] == [b"40.jpg", b"", b""]
    assert last["image/width"].tolist() == [12, 0, 0]
    assert not last["image"][1:].any()


def test_lists_of_any_length(listed: Path) -> None:
    options: dict[str, Any] = {"split": "train", "shuffle": True, "output": "dict"}
    batched = ImageDataset(listed, batch_size=8, remainder="pad", **options)
    singles = iter(ImageDataset(listed, **options, streams=1))
    seen = []
    for element in batched:
        for index, name in enumerate(element["image/filename"]):
            found = {feature: element[feature][index] for feature in (*LISTS, LABEL)}
            number = int(name.split(b".")[0]) if name else None
            expected = {
                feature: of(number) if name else []
                for feature, of in {**LISTS, LABEL: classes_of}.items()
            }
            assert {feature: list(values) for feature, values in found.items()} == expected
            assert (found["boxes"].dtype, found["ids"].dtype, found[LABEL].dtype) == (
                np.float32,
                np.int64,
                np.int64,
            )
            seen.append(number)
    assert (sorted(seen[:20]), seen[20:]) == (list(range(20)), [None] * 4)
    for one in singles:
        number = int(one["image/filename"].split(b".")[0])
        assert {name: list(one[name]) for name in LISTS} == {
            name: of(number) for name, of in LISTS.items()
        }


def test_several_labels(listed: Path) -> None:
    rows = [
        row
        for _, batch in ImageDataset(listed, split="train", batch_size=8, streams=1)
        for row in batch
    ]
    assert [row.tolist() for row in rows] == [classes_of(number) for number in range(20)]
    hot = list(
        ImageDataset(listed, split="train", batch_size=8, streams=1, one_hot=True, remainder="pad")
    )
    assert {(batch.shape, batch.dtype) for _, batch, _ in hot} == {((8, 20), np.dtype(np.float32))}
    for number, row in enumerate(np.concatenate([batch for _, batch, _ in hot])):
        expected = classes_of(number) if number < 20 else []
        assert np.flatnonzero(row).tolist() == sorted(expected)
        assert row.sum() == len(expected)
    (first, *_) = ImageDataset(listed, split="train", one_hot=True)
    assert first[1].shape == (20,)
    with pytest.raises(UsageError, match='`one_hot=True`: has no effect with `output="image"`'):
        ImageDataset(listed, split="train", one_hot=True, output="image")


def test_transform(folder: Path) -> None:
    def shrink(image: np.ndarray) -> np.ndarray:
        assert image.shape == (8, 12, 3)
        return image[:4, :4, 0].astype(np.float32) / 255

    ((images, numbers),) = ImageDataset(folder, split="test", batch_size=4, transform=shrink)
    assert (images.dtype, images.shape) == (np.float32, (4, 4, 4))
    for image, number in zip(images, numbers, strict=True):
        expected = simplejpeg.decode_jpeg(encode(photo(int(number)), "jpeg"))[
            :4, :4, 0
        ] / np.float32(255)
        np.testing.assert_array_equal(image, expected)
    ((lengths, _),) = ImageDataset(
        folder, split="test", batch_size=4, output="encoded", transform=lambda d: np.array(len(d))
    )
    assert lengths.tolist() == [len(encode(photo(number), "jpeg")) for number in range(37, 41)]


def test_images_of_different_sizes() -> None:
    folder = converted("--encoding webp --resize none")
    with pytest.raises(
        UsageError,
        match=r"`batch_size=4`: the images of .* have different sizes .`resize=none`.*transform",
    ):
        ImageDataset(folder, split="train", batch_size=4)
    crops = list(
        ImageDataset(folder, split="train", batch_size=4, transform=lambda image: image[:16, :16])
    )
    assert [len(images) for images, _ in crops] == [4, 4, 4, 2]
    with pytest.raises(
        UsageError, match=r"`transform=`: returned images with the shapes .* resize them in"
    ):
        list(
            ImageDataset(folder, split="train", batch_size=4, transform=lambda image: image[:, :16])
        )
    padded = list(ImageDataset(folder, split="train", remainder="pad", rank=2, world_size=3))
    assert [weight for _, _, weight in padded] == [1, 1, 1, 1, 0]
    assert padded[-1][0].shape == (1, 1, 3)


def test_unlabelled(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [5]}, labelled=False)
    expected = {
        simplejpeg.decode_jpeg(encode(photo(number), "jpeg")).tobytes() for number in range(5)
    }
    assert {image.tobytes() for image in ImageDataset(folder, split="train")} == expected
    batches = list(ImageDataset(folder, split="train", batch_size=3, remainder="pad"))
    assert [weights.tolist() for _, weights in batches] == [[1, 1, 1], [1, 1, 0]]
    assert {
        image.tobytes() for images, weights in batches for image in images[weights == 1]
    } == expected


@pytest.mark.slow
def test_set_epoch_reaches_other_processes(folder: Path) -> None:
    dataset = ImageDataset(folder, split="train")
    worker = multiprocessing.get_context("spawn").Process(
        target=ImageDataset.set_epoch, args=(dataset, 7)
    )
    worker.start()
    worker.join(60)
    assert dataset.epoch == 7


def ask_for_ever(dataset: ImageDataset) -> None:
    while True:
        assert dataset.epoch >= 0


@pytest.mark.slow
def test_a_killed_worker_does_not_keep_others_from_the_next_epoch(folder: Path) -> None:
    dataset = ImageDataset(folder, split="train")
    for epoch in range(5):
        worker = multiprocessing.get_context("fork").Process(target=ask_for_ever, args=(dataset,))
        worker.start()
        time.sleep(0.1)
        worker.kill()
        worker.join()
        setter = threading.Thread(target=dataset.set_epoch, args=(epoch,), daemon=True)
        setter.start()
        setter.join(100)
        assert not setter.is_alive()


def test_pytorch_is_there_where_it_is_asked_for() -> None:
    assert not os.environ.get("BEAM_TFR_TORCH") or importlib.util.find_spec("torch"), (
        "pip install torch"
    )


def test_rank_of_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = batches(ImageDataset(folder, split="train", batch_size=4, rank=2, world_size=4))
    assert len(expected) == 9
    monkeypatch.setenv("RANK", "2")
    assert len(ImageDataset(folder, split="train", batch_size=4)) == 10
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert batches(ImageDataset(folder, split="train", batch_size=4)) == expected
    assert len(ImageDataset(folder, split="train", batch_size=4, rank=0, world_size=1)) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 1}, "give both `rank=` and `world_size=`, or neither: got 1 and None"),
        (
            {"rank": 2, "world_size": 2},
            "`rank=2`: must be less than `world_size=2`: ranks are numbered from 0",
        ),
        (
            {"rank": 0, "world_size": 2, "batch_size": 5},
            "`batch_size=5`: is not a multiple of the 2 hosts",
        ),
    ],
    ids=str,
)
def test_wrong_calls_say_what_is_allowed(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ImageDataset(folder, **{"split": "train", **options})


def test_an_image_that_does_not_decode_is_named(damaged: Path) -> None:
    for options in ({}, {"shuffle": True, "batch_size": 4, "remainder": "pad"}):
        with pytest.raises(
            DataError,
            match=r"d-train-00000-of-00002.tfrecord: record 3: the image cannot be decoded as jpeg"
            r".*; run `",
        ):
            list(ImageDataset(damaged, split="train[:10]", **options))


def test_datasets_of_another_version(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"test": [1]})
    fields = json.loads((folder / MANIFEST_FILE).read_text())
    fields["format_version"] = FORMAT_VERSION + 1
    (folder / MANIFEST_FILE).write_bytes(
        manifest_bytes(fields | {"manifest_digest": manifest_digest(fields)})
    )
    with pytest.raises(
        DataError,
        match=rf"has format version {FORMAT_VERSION + 1}, .* reads version {FORMAT_VERSION}: inst",
    ):
        ImageDataset(folder, split="test")


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_every_truncation_of_a_shard_is_found_and_named(tmp_path: Path, compression: str) -> None:
    folder = write_dataset(
        tmp_path / "d", {"train": [2]}, image_size=(2, 2), compression=compression
    )
    dataset = ImageDataset(folder, split="train", batch_size=2)
    (shard,) = folder.glob("*.tfrecord*")
    data = shard.read_bytes()
    # without gzip's trailer all records are there
    lengths = len(data) - (8 if compression == "gzip" else 0)
    for length in range(0, lengths, 7):
        shard.write_bytes(data[:length])
        with pytest.raises(
            DataError,
            match=rf"^{shard}.*; run `beam-tfr repair` on its folder, with .*; `beam-tfr verify` "
            rf"names",
        ):
            list(dataset)


def test_a_small_shard_fills_no_memory(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [2]})
    (shard,) = folder.glob("*.tfrecord*")

    def inflate(number: int, example: Any) -> None:
        if number == 1:
            example.features.feature[ENCODED].bytes_list.value[0] = bytes(MAX_RECORD_BYTES)

    edit_records(shard, inflate)
    assert shard.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(
            DataError,
            match=rf"record 1 at byte .*: its length is .*, but at most {MAX_RECORD_BYTES} are ",
        ):
            list(ImageDataset(folder, split="train"))
        assert any("are allowed" in problem.message for problem in verify(str(folder)).problems)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    fields = json.loads((folder / MANIFEST_FILE).read_text())
    split = fields["splits"]["train"]
    split["num_examples"] = split["shards"][0]["num_examples"] = 1_000_000
    (folder / MANIFEST_FILE).write_bytes(
        manifest_bytes(fields | {"manifest_digest": manifest_digest(fields)})
    )
    with pytest.raises(DataError, match=rf"{shard} cannot hold 1000000 records in \d+ bytes: copy"):
        ImageDataset(folder, split="train")


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [3, 5]}, compression="none")
    shard = folder / "d-train-00001-of-00002.tfrecord"
    data = shard.read_bytes()
    sizes = [len(record) + 16 for record in RecordFile(str(shard))]
    changed = bytearray(data)
    changed[sum(sizes[:3]) + 100] ^= 1
    dataset = ImageDataset(folder, split="train", shuffle=True)
    shard.write_bytes(changed)
    message = (
        rf"^{shard}: record 3 at byte {sum(sizes[:3])}: its data does not match the "
        rf"checksum of the data; run .*repair"
    )
    with pytest.raises(DataError, match=message):
        list(dataset)
    shard.write_bytes(data[: sum(sizes[:4])])
    with pytest.raises(
        DataError, match=rf"^{shard} ends after 4 of its 5 records; run `beam-tfr repair"
    ):
        list(dataset)
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=shard.name):
        list(dataset)


def test_records_that_are_not_what_the_manifest_says(folder: Path) -> None:
    decode = ExampleDecoder(read_manifest(str(folder)), output="pair")
    sound = next(iter(RecordFile(str(next(folder.glob("*train-00000*"))))))
    assert decode(sound)[1] == {"image/class/label": 0}
    assert parse_example(sound)["image/class/label"] == [0]

    def record(label: int = 0, size: tuple[int, int] = (8, 12), data: bytes | None = None) -> bytes:
        encoded = encode(photo(0, *size), "jpeg") if data is None else data
        about: dict[str, Any] = {
            "format": "jpeg",
            "channels": 3,
            "colorspace": "RGB",
            "source_format": "jpeg",
        }
        sides = {"height": 8, "width": 12, "source_height": 8, "source_width": 12}
        rest = {"source_sha256": "0" * 64, "channel_sums": (), "channel_squares": ()}
        return build_example(
            ImageRef("k", 1, 0, "train", ("c",), (label,)),
            Image(encoded=encoded, **about, **sides, **rest),
        )

    assert np.array_equal(decode(record())[0], decode(sound)[0])
    for wrong, message in (
        (record(41), "image/class/label is 41, but there are 41 classes"),
        (record(-1), "image/class/label is -1, but there are 41 classes"),
        (record(size=(8, 16)), r"the image has \(height, width\) \(8, 16\) instead of \(8, 12\)"),
        (record(data=b"no image"), "the image cannot be decoded as jpeg: UnidentifiedImageError"),
        (b"\xff", "not a tf.train.Example"),
    ):
        with pytest.raises(ValueError, match=message):
            decode(wrong)
    for form in ("png", "webp"):
        with pytest.raises(ValueError, match=f"the image cannot be decoded as {form}"):
            decode_image(b"no image", form, 3)


def test_too_many_pixels_are_told_whatever_decodes_them() -> None:
    message = "^the image has 96 pixels, but images in this dataset have at most 95$"
    for form in ("jpeg", "png", "webp", "gif"):  # which Pillow decodes, as it does odd JPEGs
        data = io.BytesIO()
        PIL.Image.new("RGB", (12, 8)).save(data, form)
        assert decode_image(data.getvalue(), form, 3, 96).shape == (8, 12, 3)
        with pytest.raises(ValueError, match=message):
            decode_image(data.getvalue(), form, 3, 95)


def test_raw_tensors_that_do_not_fit() -> None:
    folder = converted("--encoding raw --resize stretch")
    decode = ExampleDecoder(read_manifest(str(folder)), output="pair")
    (file,) = folder.glob("*.tfrecord*")
    record = next(iter(RecordFile(str(file))))
    tensor = parse_example(record)["image/raw"][0]
    assert decode(record)[0].tobytes() == tensor[-32 * 40 * 3 :]
    example = example_class().FromString(record)
    for data in (tensor[:3000], tensor + bytes(64)):
        example.features.feature["image/raw"].bytes_list.value[0] = data
        with pytest.raises(
            ValueError, match=r"image/raw is not a uint8 tensor \[height, width, channels\]"
        ):
            decode(example.SerializeToString())


def test_memory_is_flat(many: Path) -> None:
    dataset = ImageDataset(many, split="train", batch_size=16, shuffle=True)

    def peak() -> int:
        tracemalloc.reset_peak()
        assert sum(len(numbers) for _, numbers in dataset) == 1300
        return tracemalloc.get_traced_memory()[1]

    peak_of_first = 0
    tracemalloc.start()
    try:
        peak()
        peak_of_first = peak()
        later = [(dataset.set_epoch(epoch), peak())[1] for epoch in range(1, 4)]
    finally:
        tracemalloc.stop()
    assert max(later) < 1.3 * peak_of_first < 12 << 20


@pytest.mark.slow
def test_needs_neither_tensorflow_nor_beam_nor_torch(folder: Path) -> None:
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(name, *_):\n"
        "        if name == 'torch': raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, NoTorch)\n"
        "from beam_tfr.torch import ImageDataset\n"
        f"elements = list(ImageDataset({str(folder)!r}, split='train', batch_size=5, "
        f"shuffle=True, seed=7, epoch=3))\n"
        "print([int(label) for _, batch in elements for label in batch])\n"
        "heavy = {'tensorflow', 'apache_beam', 'keras', 'beam_tfr.images', "
        "'google.cloud.storage'}\n"
        "assert not heavy & {*sys.modules}\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    expected = ImageDataset(folder, split="train", batch_size=5, shuffle=True, seed=7, epoch=3)
    assert json.loads(run.stdout) == labels(expected)
