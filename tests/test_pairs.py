"""Images beside images.

Depth of 16 bits, heat of 8, and a mask, all of which follow the same pixels.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import beam_tfr
from beam_tfr import Records, cli
from beam_tfr.dataset import history
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.features.gray_png import gray_problems
from beam_tfr.first_look import early_warnings
from beam_tfr.images import convert_image
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.reader import load
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import RejectError, UsageError
from beam_tfr.sources import open_source
from beam_tfr.torch import ImageDataset
from tests.conftest import few_at_once
from tests.fake_gcs import FakeGcs
from tests.masks import COLORS, ids, pixels, place_image, png

PAIRS = ("depth=depth/{stem}.png[9]", "heat=heat/{stem}.png")
OPTIONS: dict[str, Any] = {
    "layout": "*",
    "name": "d",
    "encoding": "png",
    "resize": "pad",
    "image_size": 48,
    "num_shards": 2,
    "progress": False,
}


def write_images(folder: Path, number: int = 10) -> dict[str, dict[str, np.ndarray]]:
    """Photos of different sizes, some of them rotated, with files beside each.

    Returns what these hold, by stem.
    """
    found = {}
    for kind in ("photos", "depth", "heat", "masks"):
        (folder / kind).mkdir(parents=True)
    for at in range(number):
        values = ids(40 + at, 70 - at, at)
        beside = {
            "depth": values.astype(np.uint16) * 300 + 7,
            "heat": values * 50,
            "mask": values,
        }
        (folder / "photos" / f"{at:02d}.png").write_bytes(
            png(COLORS[values], orientation=1 + at % 8)
        )
        for kind, what in beside.items():
            (folder / kind.replace("mask", "masks") / f"{at:02d}.png").write_bytes(png(what))
        found[f"{at:02d}"] = beside
    return found


def patterns(folder: str) -> dict[str, Any]:
    pairs = [pair.replace("=", f"={folder}/", 1) for pair in PAIRS]
    return {"pair": [f"mask={folder}/masks/{{stem}}.png[255]", *pairs]}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write_images(folder)
    return folder


@pytest.fixture(scope="module")
def folder(sources: Path) -> Path:
    beam_tfr.convert(input=sources / "photos", output=sources / "d", **patterns(".."), **OPTIONS)
    return sources / "d"


def check_agreement(one: dict[str, Any], mask: np.ndarray) -> None:
    """Checks that each pixel of all companions is what `write_images` made of it.

    The class is that which the mask has there.
    """
    inside = mask != 255
    classes = np.where(inside, mask, 0)
    np.testing.assert_array_equal(one["depth"], np.where(inside, classes * 300 + 7, 9))
    np.testing.assert_array_equal(one["heat"], np.where(inside, classes * 50, 0))


def test_all_follow_the_pixels_and_keep_their_values(folder: Path) -> None:
    assert beam_tfr.verify(folder, progress=False).ok
    rows = beam_tfr.contents(folder).to_table().to_pylist()
    raws = Records(folder, split="train", output="raw_record")
    for one, row, raw in zip(
        Records(folder, split="train", output="dict"), rows, raws, strict=True
    ):
        for name in ("depth", "heat", "mask"):
            assert (one[name].shape, one[name].dtype) == ((48, 48), np.int32)
        check_agreement(one, one["mask"])
        assert 255 in one["mask"]
        values = parse_example(raw)
        for name in ("depth", "heat"):
            assert f"image/{name}/encoded" not in one
            stored = values[f"image/{name}/encoded"][0]
            np.testing.assert_array_equal(pixels(stored), one[name])
            assert row[f"{name}_bytes"] == len(stored)


@pytest.mark.slow
def test_readers_agree(folder: Path) -> None:
    keys = ("image", "depth", "heat", "mask")
    elements = [*ImageDataset(folder, split="train", streams=1, batch_size=5, output="dict")]
    dataset = load(folder, split="train", streams=1, batch_size=5, output="dict")
    assert dataset.element_spec["depth"] == tf.TensorSpec((5, 48, 48), tf.int32)
    for one, other in zip(dataset, elements, strict=True):
        for key in keys:
            np.testing.assert_array_equal(one[key], other[key])
    padded = [*load(folder, split="train", streams=1, batch_size=8, output="dict", remainder="pad")]
    assert [np.any(padded[1][key][2:]) for key in keys] == [False] * 4
    assert len([*load(folder, split="train", batch_size=5)]) == 2

    def blank(image: np.ndarray, features: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        return image * 0, {**features, "depth": features["depth"] + 1}

    changed = Records(folder, split="train", output="dict", transform=blank)[3]
    np.testing.assert_array_equal(
        changed["depth"], Records(folder, split="train", output="dict")[3]["depth"] + 1
    )


@pytest.mark.parametrize("crop", few_at_once([None, "center", "random"], "random"))
def test_crops_and_mirroring_move_all_alike(folder: Path, crop: str | None) -> None:
    dataset = load(
        folder,
        split="train",
        streams=1,
        batch_size=5,
        output="dict",
        crop=crop,
        image_size=(30, 40),
    )
    for batch in dataset:
        for at in range(5):
            one = {key: batch[key][at].numpy() for key in ("depth", "heat", "mask")}
            assert one["depth"].shape == (30, 40)
            check_agreement(one, one["mask"])


def test_sizes_that_differ_and_columns_of_a_table(sources: Path, tmp_path: Path) -> None:
    rows = [
        {
            "path": f"photos/{at:02d}.png",
            **{kind: f"{kind}/{at:02d}.png" for kind in ("depth", "heat")},
        }
        for at in range(10)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"depth": "pair[9]", "heat": "pair"}
    given = {
        "table": tmp_path / "t.jsonl",
        "image_root": sources,
        "uri_column": "path",
        "feature_columns": columns,
    }
    options = {
        name: value
        for name, value in OPTIONS.items()
        if name not in ("layout", "resize", "image_size")
    }
    beam_tfr.convert(output=tmp_path / "d", **given, **options, resize="none")
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok
    for one in Records(tmp_path / "d", split="train", output="dict"):
        stem = one["image/filename"].decode()[-6:]
        for kind in columns:
            np.testing.assert_array_equal(one[kind], pixels((sources / kind / stem).read_bytes()))
    (batch,) = load(
        tmp_path / "d", split="train", streams=1, batch_size=10, output="dict", sizes="padded"
    )
    assert batch["depth"].shape == batch["image"].shape[:3]
    (ragged,) = load(
        tmp_path / "d", split="train", streams=1, batch_size=10, output="dict", sizes="ragged"
    )
    for one, other in zip(ragged["depth"], ragged["image"], strict=True):
        assert one.to_tensor().shape == other.to_tensor().shape[:2]


def test_masks_and_pairs_in_gcs(folder: Path, sources: Path, fake: FakeGcs) -> None:
    for path in sources.rglob("*.png"):
        fake.put(f"data/{path.relative_to(sources)}", path.read_bytes())
    beam_tfr.convert(input="gs://b/data", output="gs://b/out", **patterns("gs://b/data"), **OPTIONS)
    assert beam_tfr.verify("gs://b/out", sources="gs://b/data", progress=False).ok
    ours, theirs = (
        {one["image/filename"][-6:]: one for one in Records(of, split="train", output="dict")}
        for of in ("gs://b/out", folder)
    )
    assert len(ours) == 10
    for key, one in ours.items():
        for kind in ("depth", "heat", "mask"):
            np.testing.assert_array_equal(one[kind], theirs[key][kind])


def test_masks_alone_are_as_before(folder: Path, sources: Path, tmp_path: Path) -> None:
    """The bytes of a mask do not depend on what lies beside it, and its dataset names no other."""
    mask = patterns("..")["pair"][0]
    beam_tfr.convert(input=sources / "photos", output=tmp_path / "d", pair=mask, **OPTIONS)
    assert read_manifest(str(tmp_path / "d")).options["pair"] == [mask]
    alone, beside = (
        [
            parse_example(raw)["image/segmentation/class/encoded"]
            for raw in Records(of, split="train", output="raw_record")
        ]
        for of in (tmp_path / "d", folder)
    )
    assert alone == beside


@pytest.mark.parametrize(
    "data",
    [
        png(np.zeros((30, 41), np.uint8)),
        png(np.zeros((30, 40, 3), np.uint8)),
        png(np.ones((30, 40), np.uint8))[:33],
        b"",
    ],
)
def test_verify_finds_what_is_no_such_image(data: bytes) -> None:
    (problem,) = gray_problems("depth", data, (30, 40))
    assert problem == "depth: not a valid gray PNG with (height, width) (30, 40)"
    assert not [*gray_problems("depth", png(np.ones((30, 40), np.uint8)), (30, 40))]


def bomb(width: int, height: int) -> bytes:
    """A PNG that states a size without its pixels."""
    header = struct.pack(">2I5B", width, height, 16, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"", "its depth .* it is not an image; it must be a PNG"),
        (
            b"\xff\xd8\xff",
            "its depth needs a dataset of its own.* if it is a color photo; it is a JPEG",
        ),
        (b"GIF89a", "its depth .* it is a GIF; it must be a PNG"),
        (png(np.zeros((40, 30), np.uint8)), r"has \(30, 40\) pixels, but the image has \(40, 30\)"),
        (png(np.zeros((30, 40), np.uint8), palette=True), "mode P; it must have one gray channel"),
        (
            png(np.full((30, 40, 3), (1, 2, 3), np.uint8)),
            r"has 1 color \(#010203\); it must have one gray channel",
        ),
        (png(np.zeros((30, 40, 4), np.uint8)), "has transparent pixels"),
        (
            png(np.random.default_rng(0).integers(0, 9, (30, 40), np.uint8))[:-300],
            "truncated|broken|not enough",
        ),
        (bomb(40, 30), "truncated|broken|not enough"),
        (bomb(60_000, 60_000), r"has \(60000, 60000\) pixels|exceeds limit"),
    ],
)
def test_wrong_files_are_refused(data: bytes, detail: str) -> None:
    image = convert_image(png(COLORS[ids(30, 40)]), resize="none", encoding="png")
    with pytest.raises(RejectError, match=detail) as caught:
        place_image(data, image, key="depth")
    assert caught.value.reason == "bad-value"


@pytest.mark.slow
def test_missing_files_repairs_and_updates(tmp_path: Path) -> None:
    write_images(tmp_path, 4)
    given = {"input": tmp_path / "photos", **patterns(".."), **OPTIONS, "num_shards": 1}
    depth, heat = tmp_path / "depth" / "00.png", tmp_path / "heat" / "01.png"
    kept = depth.read_bytes(), heat.read_bytes()
    depth.unlink()
    heat.write_bytes(png(np.zeros((9, 9), np.uint8)))
    done = beam_tfr.convert(output=tmp_path / "d", max_rejects=2, **given)
    found = [(one.key, one.reason, one.detail[:30]) for one in done.rejects]
    assert sorted(found) == [
        ("00.png", "not-found", "its depth ../depth/00.png: No "),
        ("01.png", "bad-value", "its heat has (9, 9) pixels, bu"),
    ]
    (shard,) = (tmp_path / "d").glob("d-train-*.tfrecord.gz")
    before = shard.read_bytes()
    shard.write_bytes(before[:-9])
    assert (
        cli.main(["repair", str(tmp_path / "d"), "--input", str(tmp_path / "photos"), "--quiet"])
        == 0
    )
    assert shard.read_bytes() == before
    assert beam_tfr.verify(tmp_path / "d", sources=tmp_path / "photos", progress=False).ok
    depth.write_bytes(kept[0])
    heat.write_bytes(kept[1])
    done = beam_tfr.update(tmp_path / "d", input=tmp_path / "photos", progress=False)
    assert done.changed == {"added": 2, "removed": 0, "changed": 0, "relabelled": 0}
    beam_tfr.convert(output=tmp_path / "fresh" / "d", **given)
    manifests = [(tmp_path / of / "manifest.json").read_text() for of in ("d", "fresh/d")]
    assert manifests[0] == manifests[1]
    # without an input: records are copied
    beam_tfr.update(tmp_path / "d", num_shards=2, progress=False)
    (tmp_path / "keys.txt").write_text("02.png\n")
    assert (
        cli.main(["remove", str(tmp_path / "d"), "--keys", str(tmp_path / "keys.txt"), "--quiet"])
        == 0
    )
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok
    for one in Records(tmp_path / "d", split="train", output="dict"):
        check_agreement(one, one["mask"])
        assert one["image/filename"] != b"02.png"


def test_updates_count_the_images_whose_masks_or_pixels_changed(tmp_path: Path) -> None:
    write_images(tmp_path, 6)
    photos = tmp_path / "photos"
    beam_tfr.convert(input=photos, output=tmp_path / "d", **patterns(".."), **OPTIONS)
    before = (tmp_path / "d" / "manifest.json").read_text()
    same = beam_tfr.update(tmp_path / "d", input=photos, progress=False)
    assert (same.changed, (tmp_path / "d" / "manifest.json").read_text()) == ({}, before)

    for folder in ("photos", "masks", "depth", "heat"):
        shutil.copy(tmp_path / folder / "01.png", tmp_path / folder / "07.png")
        (tmp_path / folder / "00.png").unlink()
    for number in ("02", "03"):
        mask = tmp_path / "masks" / f"{number}.png"
        mask.write_bytes(png(np.zeros_like(pixels(mask.read_bytes()))))
    done = beam_tfr.update(tmp_path / "d", input=photos, progress=False)
    assert done.changed == {"added": 1, "removed": 1, "changed": 2, "relabelled": 0}
    assert "update:  1 added, 1 removed, 2 changed" in str(done).splitlines()
    lines = [line.partition(" ")[2] for line in history.describe_updates(str(tmp_path / "d"))]
    assert lines == [
        "update: no image changed; 6 records",
        "update: 1 added, 1 removed, 2 changed; 6 records",
    ]

    # the records to compare with are not needed
    for path in (tmp_path / "d").glob("*.tfrecord*"):
        path.unlink()
    done = beam_tfr.update(tmp_path / "d", input=photos, image_size=20, progress=False)
    assert done.changed == {"added": 0, "removed": 0, "changed": 6, "relabelled": 0}
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pair": "depth/{stem}.png"}, "must be NAME=PATH, with {stem} or {path} in PATH"),
        ({"pair": "depth=depth.png"}, "must be NAME=PATH"),
        ({"pair": "a/b=depth/{stem}.png"}, "must be NAME=PATH"),
        (
            {"pair": ("a={stem}.png", "a={path}.png")},
            "`pair=a={path}.png a={stem}.png`: must use each pair name only once",
        ),
        (
            {"pair": "height={stem}.png"},
            "`pair=height={stem}.png`: must use each pair name only once, and none of: ",
        ),
        (
            {
                "input": (),
                "table": "t.csv",
                "uri_column": "path",
                "feature_columns": "a:int64,height:pair",
            },
            "`feature_columns=a:int64,height:pair`: must use each pair name only once, and none "
            "of: ",
        ),
        ({"pair": ["mask={stem}.png", "mask={path}.png"]}, "must use each pair name only once"),
        (
            {"input": (), "table": "t.csv", "uri_column": "path", "feature_columns": "mask:pair"},
            "`feature_columns=mask:pair`: must not name a pair mask; declare a mask with mask:mask",
        ),
        ({"pair": "a={stem}.png", "encoding": "bytes"}, "has no effect with `encoding=bytes`"),
        (
            {"pair": "a={stem}.png", "input": (), "table": "t.csv", "uri_column": "path"},
            "specify its columns of such images",
        ),
    ],
)
def test_wrong_calls(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        beam_tfr.convert(
            **{"input": tmp_path, "output": tmp_path / "d", "progress": False, **given}
        )
    assert message in str(caught.value)


def test_flags(sources: Path, tmp_path: Path) -> None:
    flags = [
        "--pair",
        f"depth={sources}/depth/{{stem}}.png",
        "--pair",
        f"heat={sources}/heat/{{path}}.png",
    ]
    command = [
        "convert",
        "--input",
        f"{sources}/photos",
        "--output",
        str(tmp_path / "d"),
        "--layout",
        "*",
        "--quiet",
    ]
    assert cli.main([*command, *flags]) == 0
    one = Records(tmp_path / "d", split="train", output="dict")[0]
    assert (one["depth"].shape, one["heat"].shape, "mask" in one) == ((224, 224), (224, 224), False)


@pytest.fixture(scope="module")
def day_and_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two datasets of photos with the same keys; those of the night have red and blue swapped."""
    folder = tmp_path_factory.mktemp("both")
    write_images(folder, 30)
    (folder / "night").mkdir()
    for at in range(30):
        swapped = COLORS[ids(40 + at, 70 - at, at)][:, :, ::-1].copy()
        (folder / "night" / f"{at:02d}.png").write_bytes(png(swapped, orientation=1 + at % 8))
    for kind in ("photos", "night"):
        beam_tfr.convert(
            input=folder / kind, output=folder / "out" / kind, seed=3, max_rejects=0, **OPTIONS
        )
    return folder / "out"


@pytest.mark.parametrize(
    ("shuffle", "crop"), [(True, "random"), pytest.param(False, None, marks=pytest.mark.slow)]
)
def test_two_datasets_with_the_same_keys_make_pairs(
    day_and_night: Path, shuffle: bool, crop: str | None
) -> None:
    options = {
        "split": "train",
        "batch_size": 5,
        "shuffle": shuffle,
        "seed": 7,
        "repeat": 2,
        "output": "dict",
    }
    options |= {"crop": crop, "image_size": (24, 24)} if crop else {}
    both = tf.data.Dataset.zip(
        tuple(load(day_and_night / kind, **options) for kind in ("photos", "night"))
    )
    keys = []
    for day, night in both:
        np.testing.assert_array_equal(day["image/filename"], night["image/filename"])
        np.testing.assert_array_equal(day["image"], night["image"][..., ::-1])
        assert np.any(day["image"] != night["image"])
        keys += [*day["image/filename"].numpy()]
    assert (len(keys), len({*keys})) == (60, 30)


def test_masks_without_an_image_are_told(tmp_path: Path) -> None:
    write_images(tmp_path, 2)
    given = {
        "input": tmp_path / "photos",
        "layout": "*",
        "output": tmp_path / "d",
        "pair": "mask=../masks/{stem}.png",
    }
    assert not [text for text in beam_tfr.plan(**given).warnings if "left out" in text]
    (tmp_path / "photos/01.png").unlink()
    (text,) = [text for text in beam_tfr.plan(**given).warnings if "left out" in text]
    assert f"1 file left out, such as {tmp_path}/masks/01.png" in text
    (tmp_path / "masks/00.png").rename(tmp_path / "masks/00_mask.png")
    (tmp_path / "masks/01.png").unlink()
    source = open_source(from_values(given, ConvertOptions))
    (text,) = [text for text in early_warnings(source) if "left out" in text]
    assert text.endswith("; {stem}_mask.png names it by its image")


def test_masks_beside_the_folder_of_each_image(tmp_path: Path) -> None:
    for split in ("train", "val"):
        for name in ("images/1.png", "masks/1.png"):
            (tmp_path / "in" / split / name).parent.mkdir(parents=True)
            (tmp_path / "in" / split / name).write_bytes(png(np.full((8, 8), 3, np.uint8)))
    result = beam_tfr.convert(
        input=tmp_path / "in",
        output=tmp_path / "d",
        pair=["mask={folder}/../masks/{stem}.png"],
        layout="{split}/*/*",
        resize="none",
        progress=False,
    )
    assert {name: split.num_examples for name, split in result.manifest.splits.items()} == {
        "train": 1,
        "val": 1,
    }
    assert result.manifest.statistics["masks"]
    strays = beam_tfr.plan(
        input=tmp_path / "in",
        output=tmp_path / "d2",
        pair=["mask={folder}/../masks/{stem}.png"],
        layout="{split}/*/*",
        progress=False,
    ).warnings
    assert not any("left out" in warning for warning in strays)
