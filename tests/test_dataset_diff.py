"""`diff`: what differs between two datasets, by their contents."""

from __future__ import annotations

import collections
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfr as package
from beam_tfr.comparison.classification import DifferenceKind, classify_rows, match_values
from beam_tfr.schema.errors import DataError, NotFoundError, UsageError
from tests.conftest import Run
from tests.converted import SAMPLE, converted_photos
from tests.fake_gcs import FakeGcs

Command = Callable[..., Run]


@pytest.fixture
def convert(beam_tfr: Command, tmp_path: Path) -> Callable[..., Path]:
    """Converts `photos` as `converted_photos` does, into a folder of this name."""

    def run(name: str, *flags: object, layout: str = "{split}/{label}/*") -> Path:
        source = (
            []
            if "--table" in flags
            else ["--input", f"{tmp_path}/photos/**/*.jpg", "--layout", layout]
        )
        done = beam_tfr("convert", *source, "--output", tmp_path / name, "--name", "d", *flags)
        assert done.code == 0, done.err
        return tmp_path / name

    return run


def digest(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["dataset_digest"][:16])


def other_photo(number: int = 0) -> bytes:
    """A photo that `write_photos` does not take."""
    return sorted((SAMPLE / "train" / "shorts").iterdir())[number].read_bytes()


def test_photos_added_removed_replaced_renamed_and_moved(
    beam_tfr: Command, photos: Path, convert: Callable[..., Path], tmp_path: Path
) -> None:
    old, train = converted_photos(), photos / "train"
    names = sorted(path.name for path in (train / "hat").iterdir())
    (train / "hat" / names[0]).unlink()
    (train / "hat" / names[1]).write_bytes(other_photo())
    (train / "hat" / names[2]).rename(train / "shoes" / names[2])
    (train / "hat" / names[3]).rename(photos / "test" / "hat" / names[3])
    (train / "cap").mkdir()
    (train / "cap" / "new\n\x1b.jpg").write_bytes(other_photo(1))
    (train / "cap" / "text.jpg").write_text("no image")
    new = convert("new", "--max_rejects", 1)
    run = beam_tfr("diff", old, new)
    assert (run.code, run.out) == (
        1,
        f"""\
old: {old}: 18 records, digest {digest(old)}
new: {new}: 18 records, digest {digest(new)}
  splits.test: 6 before, 7 now
  splits.train: 12 before, 11 now
  classes.cap: 0 before, 1 now
  classes.hat: 6 before, 4 now
  classes.shoes: 6 before, 7 now
  rejected.not-an-image: 0 before, 1 now
  class ids: hat 0 -> 1, shoes 1 -> 2, t-shirt 2 -> 3, new: cap
added: 1 record
  train/cap/new\\n\\x1b.jpg
removed: 1 record
  train/hat/{names[0]}
renamed: 2 records
  train/hat/{names[3]} -> test/hat/{names[3]}
  train/hat/{names[2]} -> train/shoes/{names[2]}
changed: 1 record
  train/hat/{names[1]}
relabelled: 1 record
  train/shoes/{names[2]}: class hat -> shoes
split: 1 record
  test/hat/{names[3]}: split train -> test
unchanged: 14 records
""",
    )
    moved, relabelled = f"test/hat/{names[3]}", f"train/shoes/{names[2]}"
    differing = [
        {"kind": "added", "key": "train/cap/new\n\x1b.jpg"},
        {"kind": "removed", "key": f"train/hat/{names[0]}"},
        {
            "kind": "renamed",
            "key": moved,
            "old": {"key": f"train/hat/{names[3]}"},
            "new": {"key": moved},
        },
        {
            "kind": "renamed",
            "key": relabelled,
            "old": {"key": f"train/hat/{names[2]}"},
            "new": {"key": relabelled},
        },
        {"kind": "changed", "key": f"train/hat/{names[1]}"},
        {
            "kind": "relabelled",
            "key": relabelled,
            "old": {"class": "hat"},
            "new": {"class": "shoes"},
        },
        {"kind": "split", "key": moved, "old": {"split": "train"}, "new": {"split": "test"}},
    ]
    assert beam_tfr("diff", old, new, "--json").json == {
        "old": str(old),
        "new": str(new),
        "equal": False,
        "digest": [
            package.diff(old, new).old.dataset_digest,
            package.diff(old, new).new.dataset_digest,
        ],
        "records": {
            "added": 1,
            "removed": 1,
            "renamed": 2,
            "changed": 1,
            "relabelled": 1,
            "split": 1,
            "columns": 0,
            "pixels": 0,
            "unchanged": 14,
        },
        "differing": differing,
    }
    assert (
        beam_tfr("diff", old, new, "--json", "--most", 1).json["differing"]
        == differing[:3] + differing[4:]
    )


def test_other_options_and_how_much_is_shown(
    beam_tfr: Command, photos: Path, convert: Callable[..., Path]
) -> None:
    old, small, coarse = (
        converted_photos(),
        convert("small", "--image_size", 32),
        convert("coarse", "--quality", 50),
    )
    lines = beam_tfr("diff", old, small, "--most", 1).out.splitlines()[2:]
    (key,) = package.diff(old, small).records("pixels", 1)
    assert lines == [
        "  options.image_size: 224x224 before, 32x32 now",
        "pixels: 18 records",
        f"  {key['key']}",
        "  and 17 more",
        "unchanged: 0 records",
    ]
    run = beam_tfr("diff", old, coarse, "--most", 0)
    assert (run.code, run.out.splitlines()[2:]) == (
        1,
        [
            "  options.quality: 90 before, 50 now",
            "pixels: 18 records",
            "unchanged: 0 records",
        ],
    )
    assert str(package.diff(old, coarse)).count("\n") == 2 + 1 + 1 + 10 + 1


def test_equal_records_need_no_contents(
    beam_tfr: Command, photos: Path, convert: Callable[..., Path], fake: FakeGcs, tmp_path: Path
) -> None:
    old = converted_photos()
    fake.put_folder(old, "d")
    shutil.copytree(old, tmp_path / "copy", ignore=shutil.ignore_patterns("contents"))
    run = beam_tfr("diff", "gs://b/d", tmp_path / "copy")
    assert (run.code, run.out.splitlines()[2:]) == (
        0,
        ["equal: the same records, made with the same options"],
    )
    found = package.diff(tmp_path / "copy", old)
    assert (found.equal, found.unchanged, sum(found.counts.values())) == (True, 18, 0)
    assert not [*found.records("columns"), *found.records("added")]
    packed = beam_tfr("diff", old, convert("packed", "--compression", "none"))
    shown = ["  options.compression: gzip before, none now", "unchanged: 18 records"]
    assert (packed.code, packed.out.splitlines()[2:]) == (1, shown)


def test_on_gs(photos: Path, convert: Callable[..., Path], fake: FakeGcs) -> None:
    (photos / "train" / "hat" / "new.jpg").write_bytes(other_photo())
    new = convert("new")
    fake.put_folder(converted_photos("--num_shards 3 --compression gzip:6"), "d")
    seen: list[Any] = []
    found = package.diff("gs://b/d", new, progress=seen.append)
    assert [*found.records("added")] == [{"kind": "added", "key": "train/hat/new.jpg"}]
    assert (found.unchanged, sum(found.counts.values())) == (18, 1)
    assert (seen[-1].stage, seen[-1].done, seen[-1].total) == ("comparing", 37, 37)


TABLE_FLAGS = ("--uri_column", "path", "--label_column", "kind", "--split_column", "part")


def table(photos: Path, name: str, change: Callable[[int, dict[str, Any]], object]) -> Path:
    """A table of the photos, each row of which was changed."""
    rows = []
    for number, path in enumerate(sorted(photos.rglob("*.jpg"))):
        row = {
            "path": str(path),
            "kind": path.parent.name,
            "part": "train",
            "age": number,
            "tags": ["a"] * number,
        }
        change(number, row)
        rows.append(row)
    file = photos.with_name(name)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_classes_splits_and_columns_of_a_table(
    beam_tfr: Command, photos: Path, convert: Callable[..., Path]
) -> None:
    def change(number: int, row: dict[str, Any]) -> None:
        row["kind"] = (
            {"shoes": "boots"}.get(row["kind"], row["kind"]) if number < 12 else row["kind"]
        )
        row["part"] = "test" if number == 3 else "train"
        row["age"] += number == 5
        row["tags"] = ["b\n"] if number in (5, 6) else row["tags"]
        row["mass"] = 1.5

    columns = ["--feature_columns", "age:int64,tags:bytes[]"]
    tables = [table(photos, "old.jsonl", lambda *_: None), table(photos, "new.jsonl", change)]
    old = convert("old", "--table", tables[0], *TABLE_FLAGS, *columns)
    new = convert("new", "--table", tables[1], *TABLE_FLAGS, columns[0], columns[1] + ",mass:float")
    keys = [str(path.relative_to(photos)) for path in sorted(photos.rglob("*.jpg"))]
    run = beam_tfr("diff", old, new)
    lines = run.out.splitlines()[2:]
    found = package.diff(old, new)
    assert sorted(record["key"] for record in found.records("relabelled")) == [
        key for number, key in enumerate(keys) if "/shoes/" in key and number < 12
    ]
    assert lines[:7] == [
        "  options.feature_columns.mass: not given before, float now",
        "  splits.test: 0 before, 1 now",
        "  splits.train: 18 before, 17 now",
        f"  classes.boots: 0 before, {found.counts['relabelled']} now",
        f"  classes.shoes: 6 before, {6 - found.counts['relabelled']} now",
        "  class ids: hat 0 -> 1, shoes 1 -> 2, t-shirt 2 -> 3, new: boots",
        f"relabelled: {found.counts['relabelled']} records",
    ]
    assert f"  {next(found.records('relabelled'))['key']}: class shoes -> boots" in lines
    assert lines[lines.index("split: 1 record") + 1] == f"  {keys[3]}: split train -> test"
    shown = lines[lines.index("columns: 2 records") :]
    assert sorted(shown[1:3]) == sorted(
        [
            f"  {keys[5]}: age 5 -> 6, tags a,a,a,a,a -> b\\n",
            f"  {keys[6]}: tags a,a,a,a,a,a -> b\\n",
        ]
    )
    assert sorted(found.records("columns"), key=lambda record: record["key"])[0] == {
        "kind": "columns",
        "key": keys[5],
        "old": {"age": 5, "tags": ["a"] * 5},
        "new": {"age": 6, "tags": ["b\n"]},
    }
    assert (run.code, found.counts["pixels"], found.counts["renamed"]) == (1, 0, 0)


@pytest.mark.slow
def test_several_labels_are_other_labels_than_one(
    photos: Path, convert: Callable[..., Path]
) -> None:
    one = table(photos, "one.jsonl", lambda *_: None)
    several = table(photos, "several.jsonl", lambda _, row: row.update(kind=[row["kind"], "all"]))
    found = package.diff(
        *(convert(file.stem, "--table", file, *TABLE_FLAGS) for file in (one, several))
    )
    record = next(found.records("relabelled"))
    assert (found.counts["relabelled"], record["new"]["class"]) == (
        18,
        [record["old"]["class"], "all"],
    )
    bare = convert("bare", layout="{split}/*/*")
    assert next(package.diff(convert("labels"), bare).records("relabelled"))["new"] == {
        "class": None
    }


@pytest.mark.parametrize("encoding", ["bytes", "row"])
def test_files_and_rows(beam_tfr: Command, tmp_path: Path, encoding: str) -> None:
    folders = []
    for name, change in (("old", 0), ("new", 1)):
        source = tmp_path / name
        source.mkdir()
        for number in range(5):
            (source / f"{number}.bin").write_bytes(b"x" * (number + (number == 3) * change + 1))
        rows = [
            {"id": str(number), "n": number + (number == 3) * change}
            for number in range(5 + change)
        ]
        (source / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        read = ["--input", f"{source}/*.bin", "--layout", "*"]
        if encoding == "row":
            read = [
                "--table",
                source / "rows.jsonl",
                "--key_column",
                "id",
                "--feature_columns",
                "n",
            ]
        folders.append(tmp_path / f"{name}-{encoding}")
        assert beam_tfr("convert", *read, "--encoding", encoding, "--output", folders[-1]).code == 0
    found = package.diff(*folders)
    counts = {kind: count for kind, count in found.counts.items() if count}
    if encoding == "bytes":
        assert (counts, [*found.records("changed")]) == (
            {"changed": 1},
            [{"kind": "changed", "key": "3.bin"}],
        )
    else:
        assert (counts, next(found.records("added"))["key"]) == ({"added": 1, "columns": 1}, "5")
        assert [*found.records("columns")] == [
            {"kind": "columns", "key": "3", "old": {"n": 3}, "new": {"n": 4}}
        ]
    assert found.unchanged == 4


def test_keys_of_any_bytes_and_length(
    photos: Path, convert: Callable[..., Path], tmp_path: Path
) -> None:
    hat = photos / "train" / "hat"
    deep = hat / "/".join(["d" * 200] * 6)
    deep.mkdir(parents=True)
    (deep / "far.jpg").write_bytes(other_photo(0))
    (deep / "gone.jpg").write_bytes(other_photo(1))
    Path(os.fsdecode(os.fsencode(hat) + b"/\xff.jpg")).write_bytes(other_photo(2))
    (hat / "\\xff.jpg").write_bytes(other_photo(3))
    layout = "*"
    old = convert("old", layout=layout)
    (deep / "gone.jpg").unlink()
    (hat / "\\xff.jpg").unlink()
    found = package.diff(old, convert("new", layout=layout))
    assert {kind: count for kind, count in found.counts.items() if count} == {"removed": 2}
    assert {record["key"] for record in found.records("removed")} == {None, "train/hat/\\xff.jpg"}
    assert found.unchanged == 20


def test_what_cannot_be_compared(
    beam_tfr: Command, photos: Path, convert: Callable[..., Path], tmp_path: Path
) -> None:
    old = converted_photos()
    next((photos / "test" / "hat").iterdir()).unlink()
    new = convert("new")
    (damaged,) = new.glob("contents/d-test-*.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(DataError, match=f"^{damaged} is damaged: .*`beam-tfr repair` rebuilds it$"):
        package.diff(old, new)
    with pytest.raises(
        NotFoundError, match="nowhere is not a complete dataset: the folder does not exist"
    ):
        package.diff(old, tmp_path / "nowhere")
    with pytest.raises(DataError, match="photos is not a complete dataset: "):
        package.diff(photos, old)
    with pytest.raises(UsageError, match="`kind='moved'`: must be "):
        next(package.diff(old, old).records("moved"))
    for call, said in (
        (
            [old],
            "beam-tfr diff: the following arguments are required: NEW; see beam-tfr diff --help\n",
        ),
        (["s3://a", old], "beam-tfr diff: s3://a: only local paths and gs:// are supported\n"),
        ([old, old, "--most", -1], "beam-tfr diff: --most=-1: must be a whole number from 0"),
        ([old, old, old], "beam-tfr diff: unknown: "),
    ):
        run = beam_tfr("diff", *call)
        assert (run.code, run.out) == (2, "")
        assert said in run.err


# Rows against an oracle

HASH = st.none() | st.integers(0, 6)
ROW = st.fixed_dictionaries(
    {"source": HASH, "class": st.sampled_from(["a", "b", None]), "split": st.sampled_from("xy")}
    | {"n": st.none() | st.integers(0, 1), "phash": st.integers(0, 1)}
)
ROWS = st.dictionaries(st.text("ab", max_size=4), ROW, max_size=20)


def as_table(rows: dict[str, dict[str, Any]], order: list[str], chunk: int) -> pa.Table:
    """The rows in this order, in chunks."""

    def column(kind: pa.DataType, values: list[Any]) -> pa.ChunkedArray:
        return pa.chunked_array(
            [values[at : at + chunk] for at in range(0, len(values), chunk)], kind
        )

    of = [rows[key] for key in order]
    null = pa.nulls(len(of))
    return pa.table(
        {
            "key": column(pa.large_string(), order),
            "source_sha256": column(
                pa.binary(32),
                [None if row["source"] is None else bytes([row["source"]] * 32) for row in of],
            ),
            **{name: column(pa.string(), [row[name] for row in of]) for name in ("class", "split")},
            "table n": column(pa.int64(), [row["n"] for row in of]),
            "table both": column(pa.list_(pa.int64()), [[row["n"]] for row in of]),
            "phash": column(pa.binary(32), [bytes([row["phash"]] * 32) for row in of]),
            **dict.fromkeys(("bytes", "mean", "std"), null),
        }
    )


def oracle(
    old: dict[str, Any], new: dict[str, Any], renamed: dict[str, str]
) -> dict[str, set[str]]:
    """Kind -> keys in the new rows (of removed ones, in the old), given which key became which."""
    found: dict[str, set[str]] = {kind: set() for kind in DifferenceKind}
    found["removed"] = old.keys() - new.keys() - renamed.keys()
    found["added"] = new.keys() - old.keys() - {*renamed.values()}
    found["renamed"] = {*renamed.values()}
    for before, after in [*renamed.items(), *((key, key) for key in old.keys() & new.keys())]:
        a, b = old[before], new[after]
        same = None in (a["source"], b["source"]) or a["source"] == b["source"]
        differs = {
            "changed": not same,
            "relabelled": a["class"] != b["class"],
            "split": a["split"] != b["split"],
            "columns": a["n"] != b["n"],
            "pixels": same and a["phash"] != b["phash"],
        }
        for kind, differing in differs.items():
            if differing:
                found[kind].add(after)
    return found


@given(old=ROWS, new=ROWS, random=st.randoms(use_true_random=False), chunk=st.integers(1, 9))
def test_kinds_are_those_of_an_oracle(
    old: dict[str, Any], new: dict[str, Any], random: Any, chunk: int
) -> None:
    orders = [random.sample(sorted(rows), len(rows)) for rows in (old, new)]
    pairs, unchanged = classify_rows(
        *(as_table(rows, order, chunk) for rows, order in zip((old, new), orders, strict=True))
    )
    renamed = {orders[0][a]: orders[1][b] for a, b in zip(*pairs["renamed"], strict=True)}
    sources = [
        collections.Counter(
            row["source"]
            for key, row in rows.items()
            if key not in others and row["source"] is not None
        )
        for rows, others in ((old, new), (new, old))
    ]
    assert collections.Counter(old[key]["source"] for key in renamed) == sources[0] & sources[1]
    assert all(old[before]["source"] == new[after]["source"] for before, after in renamed.items())
    found = {
        kind: {orders[0][at] for at in there}
        if kind == "removed"
        else {orders[1][at] for at in now}
        for kind, (there, now) in pairs.items()
    }
    expected = oracle(old, new, renamed)
    assert found == expected
    assert all((np.diff(now) > 0).all() for _, now in pairs.values())
    assert unchanged == len(
        new.keys() - set().union(*(keys for kind, keys in expected.items() if kind != "removed"))
    )


@given(old=st.lists(st.integers(0, 5)), new=st.lists(st.integers(0, 5)))
def test_values_that_repeat_are_matched_once_each(old: list[int], new: list[int]) -> None:
    there, now = match_values(np.array(old, np.int64), np.array(new, np.int64))
    assert [old[at] for at in there] == [new[at] for at in now]
    assert len({*there.tolist()}) == len({*now.tolist()}) == len(there)
    assert collections.Counter(old[at] for at in there) == collections.Counter(
        old
    ) & collections.Counter(new)
