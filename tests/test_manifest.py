"""Manifests of real conversions fit their schema, and an edit anywhere shows.

Their figures are those of the pixels.
"""

from __future__ import annotations

import copy
import io
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from PIL import Image as PillowImage

from beam_tfr import __version__
from beam_tfr.dataset import manifest
from beam_tfr.dataset.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    manifest_bytes,
    manifest_digest,
    parse_manifest,
    read_manifest,
)
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.dataset import canonical_json, sha256_hex
from beam_tfr.schema.errors import DataError, UsageError
from tests.conftest import Run
from tests.converted import converted_photos

Command = Callable[..., Run]
SCHEMA = json.loads((Path(manifest.__file__).parent / "manifest.schema.json").read_text())


def convert(beam_tfr: Command, photos: Path, output: Path, *more: object) -> dict[str, Any]:
    run = beam_tfr(
        "convert", "--input", f"{photos}/**/*.jpg", "--output", output, "--name", "d", *more
    )
    assert run.code == 0, run.err
    return json.loads((output / "manifest.json").read_text())


def check(fields: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(fields, SCHEMA)


@pytest.fixture
def fields() -> dict[str, Any]:
    return json.loads((converted_photos("--num_shards 3") / "manifest.json").read_text())


def lose_some(photos: Path) -> None:
    """A damaged photo, one that has no split, one whose name is no UTF-8."""
    (photos / "train" / "hat" / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (photos / "loose.jpg").write_bytes(b"")
    (photos / "train" / "hat" / os.fsdecode(b"\xff\n.jpg")).write_bytes(b"x")


def test_a_labelled_dataset_with_rejects_fits_the_schema(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    lose_some(photos)
    layout = [
        "--layout",
        "{split}/{label}/*",
        "--max_rejects",
        "3",
        "--num_shards",
        "train=20,test=2",
    ]
    fields = convert(beam_tfr, photos, tmp_path / "o", *layout)
    check(fields)
    assert fields["counts"] == {
        "matched": 21,
        "written": 18,
        "rejected": {"damaged-image": 1, "layout-mismatch": 1, "not-an-image": 1},
        "adjusted": {},
    }
    assert fields["statistics"]["cropped"] == 0.2565
    assert fields["splits"]["none"] == {
        "matched": 1,
        "rejected": 1,
        "num_examples": 0,
        "num_bytes": 0,
        "class_counts": {},
        "shards": [],
    }
    assert fields["splits"]["train"]["class_counts"] == {"hat": 4, "shoes": 4, "t-shirt": 4}
    assert len(fields["splits"]["train"]["shards"]) == 20
    for split in fields["splits"].values():
        assert split["matched"] == split["num_examples"] + split["rejected"]
        assert split["num_bytes"] == sum(shard["num_bytes"] for shard in split["shards"])
        for shard in split["shards"]:
            data = (tmp_path / "o" / shard["file"]).read_bytes()
            assert (shard["num_bytes"], shard["sha256"]) == (len(data), sha256_hex(data))
    assert fields["rejects"] == {
        "count": 3,
        "sha256": sha256_hex((tmp_path / "o" / "rejects.jsonl").read_bytes()),
    }
    assert fields["labels"]["digest"] == sha256_hex((tmp_path / "o" / "labels.txt").read_bytes())


def test_manifest_has_no_place_clock_or_machine() -> None:
    folder = converted_photos()
    text = (folder / "manifest.json").read_text()
    for known in ("image/", "class/", "key/", "source/", "{split}/{label}/*"):
        text = text.replace(known, "")
    for word in (str(folder), os.uname().nodename, "/"):
        assert word not in text


def test_an_unlabelled_png_dataset_fits_the_schema_and_its_statistics_are_those_of_its_pixels(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    flags = ["--layout", "*", "--encoding", "png", "--image_size", "40x30", "--num_shards", "3"]
    fields = convert(beam_tfr, photos, tmp_path / "o", *flags)
    check(fields)
    assert fields["labels"] == {"names": [], "digest": sha256_hex(b"")}
    assert fields["splits"]["train"]["class_counts"] == {}
    pixels, sizes, cut = [], {}, []
    for shard in fields["splits"]["train"]["shards"]:
        for record in RecordFile(str(tmp_path / "o" / shard["file"])):
            features = parse_example(record)
            pixels.append(np.asarray(PillowImage.open(io.BytesIO(features["image/encoded"][0]))))
            with PillowImage.open(photos / features["image/filename"][0].decode()) as source:
                like = source.width / source.height * 40 / 30
                cut.append(1 - min(like, 1 / like))
                size = str(1 << math.ceil(math.log2(max(source.size))))
            sizes[size] = sizes.get(size, 0) + 1
    every = np.stack(pixels).reshape(-1, 3).astype(np.float64)
    assert fields["statistics"] == {
        "pixels": 18 * 40 * 30,
        "channel_mean": [round(float(value), 6) for value in every.mean(0)],
        "channel_std": pytest.approx(list(every.std(0)), abs=1e-6),
        "source_sizes": sizes,
        "cropped": pytest.approx(np.mean(cut), abs=0.003),
    }


def test_every_field_is_required_and_described(fields: dict[str, Any]) -> None:
    """All but `duplicates`, which only datasets with copies have."""
    assert sorted(SCHEMA["required"]) == sorted(fields)
    assert SCHEMA["properties"].keys() - SCHEMA["required"] == {"duplicates"}
    for name in fields:
        less = {key: value for key, value in fields.items() if key != name}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(less, SCHEMA)
        with pytest.raises(
            DataError,
            match=r"not a JSON object with a format_version|manifest_digest does not match",
        ):
            parse_manifest(manifest_bytes(less), "o")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**fields, "more": 1}, SCHEMA)


def signed(fields: dict[str, Any]) -> bytes:
    """With a digest that fits: somebody who wants to get through can compute it too."""
    return manifest_bytes({**fields, "manifest_digest": manifest_digest(fields)})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def replaced(fields: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(fields)
    spot = changed
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = value
    return changed


def test_any_edit_is_detected(fields: dict[str, Any]) -> None:
    assert isinstance(parse_manifest(signed(fields), "o"), Manifest)
    for path in places(fields)[1:]:
        changed = replaced(fields, path, "edited")
        with pytest.raises(
            DataError,
            match=r"manifest_digest does not match its content|has format version 'edited'",
        ):
            parse_manifest(manifest_bytes(changed), "o")


def test_any_field_value_gives_a_manifest_or_a_data_error(fields: dict[str, Any]) -> None:
    refused = 0
    for path in places(fields)[1:]:
        for value in (
            None,
            True,
            -1,
            1.5,
            10**30,
            "",
            "../x",
            "\ud800",
            [],
            [[]],
            {},
            {"": None},
            ["a", 1],
        ):
            try:
                found = parse_manifest(signed(replaced(fields, path, value)), "o")
            except DataError:
                refused += 1
                continue
            assert isinstance(found.name, str), path
            assert isinstance(found.dataset_digest, str), path
            assert found.compression in ("gzip", "none"), path
            assert all(isinstance(name, str) for name in found.class_names)
            for split in found.splits.values():
                assert all(type(count) is int for count in split.class_counts.values())
                assert all("/" not in shard.file for shard in split.shards), path
    assert refused > 500


NO_OBJECT = "it is not a JSON object with a format_version"
CURE = "; copy the dataset again, or run `beam-tfr convert … --overwrite`"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", f"is not a manifest: Expecting value: line 1 column 1 (char 0){CURE}"),
        (
            b'{\n "name"',
            f"is not a manifest: Expecting ':' delimiter: line 2 column 8 (char 9){CURE}",
        ),
        (b"null", f"is not a manifest: {NO_OBJECT}{CURE}"),
        (b"[]", f"is not a manifest: {NO_OBJECT}{CURE}"),
        (b'"x"', f"is not a manifest: {NO_OBJECT}{CURE}"),
        (b"{\xff", "is not a manifest: 'utf-8' codec can't decode byte 0xff in position 1"),
        (b"[" * 100_000, "is not a manifest: its lists and objects are nested too deeply"),
        (b"{}", f"is not a manifest: {NO_OBJECT}{CURE}"),
        (
            b'{"format_version": 2}',
            "was changed after it was written: its manifest_digest does not match its content",
        ),
        (
            b'{"a": ' + b"1" * 5000 + b"}",
            "is not a manifest: a whole number has more than 4,300 digits",
        ),
        (
            b"\0" * (MAX_MANIFEST_BYTES + 1),
            f"is not a manifest: it has more than 33554432 bytes{CURE}",
        ),
        (b"[],", "is not a manifest: Extra data"),
        (
            b"[]," * 300_000,
            f"is not a manifest: it has more than 250000 objects and lists, or 2000000 "
            f"values{CURE}",
        ),
        (
            b"0," * 2_000_001,
            f"is not a manifest: it has more than 250000 objects and lists, or 2000000 "
            f"values{CURE}",
        ),
        (
            b'{"format_version": 1e999, "manifest_digest": ""}',
            f"has format version '1e999', but beam_tfr {__version__} reads version 2: install",
        ),
        (
            b'{"format_version": 3, "manifest_digest": ""}',
            f"has format version 3, but beam_tfr {__version__} reads version 2: install the "
            f"beam_tfr version that wrote it",
        ),
        (
            b'{"format_version": 2, "manifest_digest": ""}',
            f"was changed after it was written: its manifest_digest does not match its "
            f"content{CURE}",
        ),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_other_files_are_data_errors(data: bytes, message: str) -> None:
    with pytest.raises(DataError) as error:
        parse_manifest(data, "o")
    assert str(error.value).startswith(f"o/manifest.json {message}")


COUNTS = ("matched", "rejected", "num_examples", "num_bytes")
EMPTY_SPLIT = {**dict.fromkeys(COUNTS, 0), "class_counts": {}, "shards": []}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("labels",), None, "manifest.labels must be object"),
        (("labels", "names"), {}, "manifest.labels.names must be array"),
        (("labels", "names"), ["hat\n"], "a class has the invalid name 'hat\\n'"),
        (("name",), 5, "manifest.name must be string"),
        (("splits", "\u202e"), EMPTY_SPLIT, "a split has the invalid name '\\u202e'"),
        (
            ("counts",),
            {"matched": 1, "written": 1, "rejected": {}},
            "manifest.counts must contain ['adjusted'",
        ),
        (
            ("counts", "adjusted"),
            {"rotated": True},
            "manifest.counts.adjusted.rotated must be integer",
        ),
        (("counts", "written"), -1, "manifest.counts.written must be bigger than or equal to 0"),
        (
            ("splits", "train", "shards", 1, "num_bytes"),
            "5",
            "manifest.splits.train.shards[1].num_bytes must be integer",
        ),
        (
            ("splits", "train", "shards", 0, "more"),
            5,
            "manifest.splits.train.shards[0] must not contain {'more'} properties",
        ),
        (
            ("splits", "train", "shards", 0, "file"),
            "../x",
            "manifest.splits.train.shards[0].file must match pattern ^[A-Za-z0-9_]+-",
        ),
        (
            ("splits", "train", "num_examples"),
            5,
            "splits.train.num_examples is 5, but its shards have 12",
        ),
        (
            ("statistics", "channel_mean"),
            [1, "2"],
            "manifest.statistics.channel_mean[1] must be number",
        ),
        (
            ("options", "compression"),
            "zip",
            "manifest.options.compression must be one of ['gzip', 'none']",
        ),
        (("options", "encoding"), "raw", "feature image/raw is None"),
        (
            ("features", "image/width"),
            {"dtype": "int64", "shape": [-1]},
            "feature image/width is {'dtype': 'int64', 'shape': [-1]}",
        ),
        (("features", "\x1b[2J"), 5, "manifest.features.\\x1b[2J must be object"),
        (
            ("features", "more"),
            {"dtype": "int64", "shape": [1 << 20, 512]},
            "manifest.features.more.shape must be one of [[], [-1]]",
        ),
        (
            ("features",),
            {f"more{number}": {"dtype": "int64", "shape": []} for number in range(100_001)},
            "it has 100,001 features, more than 100,000",
        ),
        (
            ("splits", "train", "shards", 1, "file"),
            "d-train-00000-of-00003.tfrecord.gz",
            "the shard d-train-00000-of-00003.tfrecord.gz occurs twice",
        ),
        (
            ("splits", "test", "shards", 0, "file"),
            "d-train-00002-of-00003.tfrecord.gz",
            "the shard d-train-00002-of-00003.tfrecord.gz occurs twice",
        ),
    ],
    ids=lambda value: f"{value!s:.40}",
)
def test_broken_manifest_errors(
    fields: dict[str, Any], path: tuple[Any, ...], value: Any, message: str
) -> None:
    with pytest.raises(DataError) as error:
        parse_manifest(signed(replaced(fields, path, value)), "o")
    assert str(error.value).startswith(f"o/manifest.json is not a manifest: {message}")
    assert str(error.value).endswith(CURE)


def test_option_of_a_later_version(fields: dict[str, Any]) -> None:
    with pytest.raises(DataError) as error:
        parse_manifest(signed(replaced(fields, ("options", "resize"), "\n")), "o")
    assert str(error.value) == (
        f"o/manifest.json: this beam_tfr {__version__} does not know `resize=\\n`: must be one "
        f"of: crop, pad, stretch, "
        "fit, shortest, none; update beam_tfr"
    )


def test_canonical_json_is_the_text_of_the_digests(fields: dict[str, Any]) -> None:
    rest = {name: value for name, value in fields.items() if name != "manifest_digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    assert canonical_json(rest) == text
    assert fields["manifest_digest"] == manifest_digest(fields) == sha256_hex(text)
    assert fields["options_digest"] == sha256_hex(canonical_json(fields["options"]))
    # The order of the fields in the file means nothing.
    assert isinstance(
        parse_manifest(json.dumps(dict(reversed(fields.items()))).encode(), "o"), Manifest
    )


def test_the_file_is_ascii_sorted_and_ends_with_a_line_end(tmp_path: Path) -> None:
    data = manifest_bytes({"b": "ü", "a": [1]})
    assert data == b'{\n "a": [\n  1\n ],\n "b": "\\u00fc"\n}\n'


def test_error_without_manifest_says_what_is_there(tmp_path: Path) -> None:
    for make, message in (
        (lambda: None, r"manifest\.json is missing, and the folder is empty"),
        ((tmp_path / "dog").mkdir, r"the folder holds other files, such as dog/"),
        (
            lambda: (tmp_path / "a.txt").write_text(""),
            r"is missing, which convert writes last; the folder holds other files, such as a\.txt",
        ),
        (
            lambda: (
                (tmp_path / ".beam_tfr").mkdir()
                or (tmp_path / ".beam_tfr" / "plan.json").write_text("")
            ),
            "has not finished",
        ),
    ):
        make()
        with pytest.raises(DataError, match=message):
            read_manifest(str(tmp_path))
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(DataError, match=r"manifest\.json cannot be read: it is a folder"):
        read_manifest(str(tmp_path))
    with pytest.raises(UsageError, match="the name of the dataset's folder is empty"):
        read_manifest("")
