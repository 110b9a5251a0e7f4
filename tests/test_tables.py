"""Tables that name the images, and tables that are the data.

Whole conversions, and what is wrong in a table.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from beam_tfr import convert, storage
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.features.inference import infer_declaration
from beam_tfr.features.registry import parse_column
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.records.examples import parse_example
from beam_tfr.records.repeats import divide_by_hash, find_repeats, hash_key, number_keys
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.tables import declarations, first_rows
from beam_tfr.tables.base import RowAtLine, name_row
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.formats import read_rows
from beam_tfr.tables.opening import open_tables
from beam_tfr.verification import verify
from tests.conftest import Run, files_of
from tests.converted import converted_photos
from tests.table_rows import Rows, as_csv, records_of

Command = Callable[..., Run]


def as_jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_parquet(rows: Rows) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), file, row_group_size=5)
    return file.getvalue()


KINDS: dict[str, Callable[[Rows], bytes]] = {
    "t.csv": as_csv,
    "t.tsv": lambda rows: as_csv(rows, "\t"),
    "t.jsonl": as_jsonl,
    "t.parquet": as_parquet,
    "t.csv.gz": lambda rows: gzip.compress(as_csv(rows)),
    "t.ndjson.gz": lambda rows: (
        gzip.compress(as_jsonl(rows[:7])) + gzip.compress(as_jsonl(rows[7:]))
    ),
    "windows.csv": lambda rows: (
        b"\xef\xbb\xbf" + as_csv(rows, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
    ),
}


def rows_of(photos: Path) -> list[dict[str, Any]]:
    paths = sorted(path.relative_to(photos) for path in photos.rglob("*.jpg"))
    return [
        {
            "path": str(path),
            "class": path.parts[1],
            "split": path.parts[0],
            "age": i,
            "score": i / 4,
            "name": f'a "name",\nof {path.stem}',
            "good": i % 3 == 0,
            "marks": [i / 2] * (i % 4),
        }
        for i, path in enumerate(paths)
    ]


def references(
    *paths: Path | str, features: Any = None, classes: Any = None, **options: Any
) -> dict[str, ImageRef]:
    """Key -> reference of each row of the tables."""
    values = {"table": paths, "feature_columns": features, "output": "/o", **options}
    checked = ConvertOptions(**values)
    tables = open_tables(find_content(checked), classes)
    return {ref.key: ref for file in tables.files for ref in tables.read(file)}


def features_of(ref: ImageRef) -> dict[str, list[Any]]:
    """The features that the columns of a row become."""
    return parse_example(ref.columns or b"")


COLUMNS = {"uri_column": "path", "label_column": "class", "split_column": "split"}
ROLES = ["--uri_column", "path", "--label_column", "class", "--split_column", "split"]
FEATURES = ["--feature_columns", "age,score,name,good,marks:float[]"]


def rejects_of(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "rejects.jsonl").read_text().splitlines()]


def test_every_kind_of_table_gives_the_same_references(photos: Path, tmp_path: Path) -> None:
    rows = rows_of(photos)
    features = {"age": "", "score": "", "name": "", "good": "", "marks": "float[]"}
    found = []
    for name, write in KINDS.items():
        (tmp_path / name).write_bytes(write(rows))
        found.append(
            references(tmp_path / name, image_root=str(photos), features=features, **COLUMNS)
        )
    assert len(found[0]) == 18
    for row in rows:
        ref = found[0][row["path"]]
        assert (ref.split, ref.labels) == (row["split"], (row["class"],))
        assert features_of(ref) == {
            "age": [row["age"]],
            "score": [row["score"]],
            "name": [row["name"].encode()],
            "good": [int(row["good"])],
            "marks": row["marks"],
        }
    assert all(other == found[0] for other in found[1:])


def test_a_table_and_its_parts_give_the_same_dataset(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    rows = rows_of(photos)
    (tmp_path / "t.csv").write_bytes(as_csv(rows))
    flags = [
        "--image_root",
        photos,
        *ROLES,
        *FEATURES,
        "--name",
        "d",
        "--num_shards",
        "train=2,test=1",
    ]
    whole = beam_tfr(
        "convert", "--table", tmp_path / "t.csv", "--output", tmp_path / "whole", "--json", *flags
    )
    assert whole.json["columns"] == {
        "age": "int64",
        "score": "float",
        "name": "bytes",
        "good": "int64",
        "marks": "float[]",
    }
    parts = tmp_path / "parts"
    parts.mkdir()
    random.Random(1).shuffle(rows)
    for i, (name, write) in enumerate(KINDS.items()):
        (parts / f"{i}-{name}").write_bytes(write(rows[i :: len(KINDS)]))
    patterns = [parts / "*.jsonl", parts / "*.{csv,tsv,parquet}", parts / "*.gz", parts / "0*"]
    run = beam_tfr(
        "convert",
        "--table",
        *patterns,
        "--output",
        tmp_path / "o",
        "--json",
        *flags,
        "--direct_num_workers=2",
    )
    assert run.json["dataset_digest"] == whole.json["dataset_digest"]
    assert files_of(tmp_path / "o") == files_of(tmp_path / "whole")
    assert verify(str(tmp_path / "o")).problems == ()

    dataset = read_manifest(str(tmp_path / "o"))
    assert dataset.features["marks"] == {"dtype": "float", "shape": [-1]}
    assert dataset.features["age"] == {"dtype": "int64", "shape": []}
    records = records_of(tmp_path / "o")
    for row in rows:
        record = records[row["path"]]
        assert (record["age"], record["marks"]) == ([row["age"]], row["marks"])
        assert record["image/class/text"] == [row["class"].encode()]


def test_table_and_patterns_of_the_same_files_give_the_same_dataset(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    table = photos / "labels.csv"
    table.write_bytes(as_csv(rows_of(photos)))
    flags = [*ROLES, "--name", "d", "--json", "--output", tmp_path / "o"]
    first = beam_tfr("convert", "--table", table, *flags)
    assert first.json["dataset_digest"] == read_manifest(str(converted_photos())).dataset_digest
    rows = rows_of(photos)
    for row in rows:
        row["path"] = f"{photos}/{row['path']}"
    (tmp_path / "absolute.csv").write_bytes(as_csv(rows))
    again = beam_tfr("convert", "--table", tmp_path / "absolute.csv", *flags)
    assert again.json["complete_already"]
    changed = as_csv(rows).replace(b",hat,", b",shoes,", 1)
    (tmp_path / "absolute.csv").write_bytes(changed)
    refused = beam_tfr("convert", "--table", tmp_path / "absolute.csv", *flags)
    assert refused.code == 2
    assert "the input: different or changed rows" in refused.err
    told = beam_tfr(
        "convert", "--table", tmp_path / "absolute.csv", *flags, "--feature_columns", "age"
    ).err
    assert "options.feature_columns.age: not given before, int64 now" in told
    assert "the input" not in told.partition("different input or options:")[2]


def test_tables_and_images_on_gs(beam_tfr: Command, gcs: str, photos: Path, tmp_path: Path) -> None:
    rows = rows_of(photos)
    for row in rows:
        storage.write_bytes(
            f"{gcs}/photos/{row['path']}", (photos / row["path"]).read_bytes(), scratch=""
        )
    (photos / "labels.csv").write_bytes(as_csv(rows))
    local = references(photos / "labels.csv", **COLUMNS)
    whole = [{**row, "path": f"{gcs}/photos/{row['path']}"} for row in rows]
    for name, data, image_root in (
        ("t.parquet", as_parquet(rows), f"{gcs}/photos"),
        ("t.csv.gz", gzip.compress(as_csv(whole)), ""),
        ("photos/t.jsonl", as_jsonl(rows), ""),
    ):
        storage.write_bytes(f"{gcs}/{name}", data, scratch="")
        assert references(f"{gcs}/{name}", image_root=image_root, **COLUMNS) == local
    storage.delete(f"{gcs}/photos/{rows[0]['path']}")
    table = ["--table", f"{gcs}/photos/t.jsonl", *ROLES]
    run = beam_tfr("convert", *table, "--output", f"{gcs}/less", "--json", "--max_rejects", "1")
    assert (run.json["written"], run.json["rejected"]) == (17, {"not-found": 1})
    assert verify(f"{gcs}/less").ok


# Labels


def test_several_labels(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    labels = [["hat", "red"], [], ["red"], ["blue", "hat", "red"]]
    rows = [{"path": row["path"], "class": labels[i % 4]} for i, row in enumerate(rows_of(photos))]
    lines = [{**row, "class": "|".join(row["class"])} for row in rows]
    roles: dict[str, Any] = {
        "uri_column": "path",
        "label_column": "class",
        "image_root": str(photos),
    }
    (tmp_path / "l.jsonl").write_bytes(as_jsonl(rows))
    (tmp_path / "l.parquet").write_bytes(as_parquet(rows))
    (tmp_path / "l.csv").write_bytes(as_csv(lines))
    expected = {row["path"]: tuple(row["class"]) for row in rows}
    for name, separator in (("l.jsonl", ""), ("l.parquet", ""), ("l.csv", "|")):
        found = references(tmp_path / name, label_separator=separator, **roles)
        assert {key: ref.labels for key, ref in found.items()} == expected
    known = references(tmp_path / "l.jsonl", classes=frozenset({"red", "hat"}), **roles)
    assert [ref.reason for ref in known.values()].count("unknown-class") == 4

    flags = [
        "--image_root",
        photos,
        "--uri_column",
        "path",
        "--label_column",
        "class",
        "--label_separator",
        "|",
    ]
    run = beam_tfr("convert", "--table", tmp_path / "l.csv", *flags, "--output", tmp_path / "o")
    assert run.code == 0, run.err
    assert verify(str(tmp_path / "o")).problems == ()
    dataset = read_manifest(str(tmp_path / "o"))
    assert dataset.class_names == ("blue", "hat", "red")
    assert dataset.splits["train"].class_counts == {"blue": 4, "hat": 9, "red": 13}
    assert dataset.features["image/class/label"] == {"dtype": "int64", "shape": [-1]}
    records = records_of(tmp_path / "o")
    for row in rows:
        assert records[row["path"]]["image/class/text"] == [
            label.encode() for label in row["class"]
        ]
        assert records[row["path"]]["image/class/label"] == [
            ["blue", "hat", "red"].index(x) for x in row["class"]
        ]


def test_numeric_classes_sort_by_number_and_empty_cells_are_unlabelled(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    rows = [
        {"path": row["path"], "class": None if i == 5 else i % 11}
        for i, row in enumerate(rows_of(photos))
    ]
    expected = {row["path"]: ("" if row["class"] is None else str(row["class"]),) for row in rows}
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        (tmp_path / name).write_bytes(KINDS[name](rows))
        found = references(
            tmp_path / name, image_root=str(photos), uri_column="path", label_column="class"
        )
        assert {key: ref.labels for key, ref in found.items()} == expected
    flags = ["--image_root", photos, "--uri_column", "path", "--label_column", "class"]
    run = beam_tfr("convert", "--table", tmp_path / "t.csv", *flags, "--output", tmp_path / "o")
    assert run.code == 0, run.err
    assert verify(str(tmp_path / "o")).problems == ()
    dataset = read_manifest(str(tmp_path / "o"))
    assert dataset.class_names == tuple(map(str, range(11)))
    assert sum(dataset.splits["train"].class_counts.values()) == 17
    records = records_of(tmp_path / "o")
    for row in rows:
        assert records[row["path"]]["image/class/label"] == [
            -1 if row["class"] is None else row["class"]
        ]
    assert records[rows[5]["path"]]["image/class/text"] == [b""]


def test_groups_fall_into_one_split(photos: Path) -> None:
    rows = [{**row, "person": i // 3} for i, row in enumerate(rows_of(photos))]
    (photos / "t.jsonl").write_bytes(as_jsonl(rows))
    splits = {"train": Fraction(3, 5), "test": Fraction(2, 5)}
    options: dict[str, Any] = {"uri_column": "path", "splits": splits, "feature_columns": "split"}
    by_key = references(photos / "t.jsonl", **options)
    by_group = references(photos / "t.jsonl", **options, group_column="person")
    assert {ref.split for ref in by_group.values()} == {"train", "test"}
    assert [ref.split for ref in by_key.values()] != [ref.split for ref in by_group.values()]
    assert len({(row["person"], by_group[row["path"]].split) for row in rows}) == 6


# Rows as records


def structured(number: int) -> list[dict[str, Any]]:
    return [
        {"id": f"r{i}", "age": i % 90, "city": "Köln", "score": i / 8, "kind": "ab"[i % 2]}
        for i in range(number)
    ]


def test_rows_themselves_become_records(beam_tfr: Command, tmp_path: Path) -> None:
    rows = structured(300)
    features = dict.fromkeys(("age", "city", "score"), "")
    found = []
    for name, write in KINDS.items():
        (tmp_path / name).write_bytes(write(rows))
        found.append(
            references(tmp_path / name, key_column="id", label_column="kind", features=features)
        )
        stem = name.partition(".")[0]
        assert [*references(tmp_path / name, features=features)] == [
            f"{stem}#{i}" for i in range(1, 301)
        ]
    assert all(other == found[0] for other in found[1:])

    base = ["convert", "--table", tmp_path / "t.csv", "--output"]
    run = beam_tfr(*base, tmp_path / "numbers", "--splits", "train=0.5,test=0.5", "--json")
    assert (run.code, run.json["written"]) == (0, 300), run.err
    assert run.json["splits"].keys() == {"train", "test"}
    run = beam_tfr(*base, tmp_path / "keys", "--key_column", "id", "--label_column", "kind")
    assert run.code == 0
    assert "column:  age int64\ncolumn:  city bytes\ncolumn:  score float\n" in run.out
    for name in ("numbers", "keys"):
        assert verify(str(tmp_path / name)).problems == ()
    assert records_of(tmp_path / "numbers")["t#18"] == {
        "row/key": [b"t#18"],
        "id": [b"r17"],
        "age": [17],
        "city": ["Köln".encode()],
        "score": [17 / 8],
        "kind": [b"b"],
    }
    assert records_of(tmp_path / "keys")["r17"] == {
        "row/key": [b"r17"],
        "age": [17],
        "city": ["Köln".encode()],
        "score": [17 / 8],
        "class/label": [1],
        "class/text": [b"b"],
    }


def test_equal_rows_are_allowed_but_equal_numbers_are_not(
    beam_tfr: Command, tmp_path: Path
) -> None:
    rows = [{"id": "same", "age": 1}] * 5
    (tmp_path / "a.csv").write_bytes(as_csv(rows))
    (tmp_path / "b.csv").write_bytes(as_csv(rows))
    base = ["convert", "--table", tmp_path / "?.csv", "--output"]
    assert beam_tfr(*base, tmp_path / "o", "--json").json["written"] == 10
    assert sorted(records_of(tmp_path / "o")) == [
        f"{name}#{i}" for name in "ab" for i in range(1, 6)
    ]
    keyed = beam_tfr(*base, tmp_path / "p", "--key_column", "id", "--json").json
    assert (keyed["written"], keyed["repeated_rows"]) == (1, 1)
    (tmp_path / "b.jsonl").write_bytes(as_jsonl(rows))
    run = beam_tfr("convert", "--table", tmp_path / "b.*", "--output", tmp_path / "q")
    assert run.code == 1
    assert (
        f"{tmp_path}/b.jsonl, row 1: its number is that of row 1 of {tmp_path}/b.csv; 5 keys "
        f"have several rows" in run.err
    )


def test_two_rows_for_one_file_are_a_reject_in_any_table(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    rows = rows_of(photos)
    (photos / "a.csv").write_bytes(as_csv(rows))
    (photos / "b.csv").write_bytes(
        as_csv([{**rows[3], "path": f"./{rows[3]['path']}", "split": "other"}])
    )
    base = ["convert", "--table", photos / "*.csv", *ROLES, "--output", tmp_path / "o"]
    run = beam_tfr(*base, "--max_rejects", "1", "--allow_empty", "other", "--json")
    assert run.json["matched"] == len(rows)
    (reject,) = rejects_of(tmp_path / "o")
    assert reject["key"] == rows[3]["path"]
    assert "a.csv, row 4 after the header and b.csv, row 1" in reject["detail"]


@given(st.lists(st.integers(0, 60), max_size=80))
def test_repeats_are_found_in_every_order(keys: list[int]) -> None:
    found = []
    parts: dict[int, list[bytes]] = {}
    for table in range(3):
        hashes = [hash_key(b"k%d" % key) for key in keys[table::3]]
        for first, some in ((1, hashes[:9]), (10, hashes[9:])):
            for part, rows in divide_by_hash(number_keys(table, b"".join(some), first)):
                parts.setdefault(part, []).append(rows)
    for rows_of_part in parts.values():
        repeats = find_repeats(b"".join(rows_of_part))
        assert repeats == find_repeats(b"".join(rows_of_part[::-1]))
        found += repeats
    places: dict[int, list[tuple[int, int]]] = {}
    for table in range(3):
        for row, key in enumerate(keys[table::3], 1):
            places.setdefault(key, []).append((table, row))
    later = sorted(
        (place, of[i]) for of in map(sorted, places.values()) for i, place in enumerate(of[1:])
    )
    assert sorted(found) == later


# Values


def place_of(table: str, number: int) -> str:
    """What messages call a row of `rows_of`, which takes two lines of CSV."""
    is_at_line = table.endswith(".csv") and number > 1
    return name_row(table, RowAtLine(number, 2 * number) if is_at_line else number)


def test_values_that_do_not_fit_are_rejects_with_column_and_row(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    rows = [{**row, "split": "train", "class": "hat"} for row in rows_of(photos)[:14]]
    rows[0] |= {"path": ""}
    rows[1] |= {"class": "h\x07at"}
    rows[2] |= {"split": "my split"}
    rows[3] |= {"age": "seven"}
    rows[4] |= {"age": None}
    rows[5] |= {"score": 1e39}
    rows[6] |= {"marks": ["x"]}
    rows[7] |= {"path": "https://example.org/1.jpg"}
    rows[8] |= {"path": "nowhere.jpg"}
    rows[9] |= {"path": "class\x00.jpg"}
    rule = (
        "it must be one line of UTF-8 text, without control characters or spaces at either end, of "
        "at most 1,000 letters"
    )
    missing = "has no value; declare a default, such as int64=-1, or a list: int64[]"
    for name in ("t.csv", "t.jsonl"):
        (photos / name).write_bytes(KINDS[name](rows))
        features = {"age": "int64", "score": "float", "marks": "float[]"}
        found = references(photos / name, features=features, **COLUMNS)
        details = {ref.detail for ref in found.values() if ref.reason == "bad-value"}
        assert details == {
            f"{place_of(name, int(detail.partition(':')[0]))}:{detail.partition(':')[2]}"
            for detail in (
                "10: column 'path': has a NUL character",
                "1: column 'path': has no value",
                f"2: column 'class': 'h\\x07at' cannot be a class: {rule}",
                "3: column 'split': 'my split' cannot be a split: letters, digits and _ only, "
                "and not none",
                "4: column 'age': 'seven' is not a whole number",
                f"5: column 'age': {missing}",
                f"6: column 'score': {'1e+39' if name == 't.jsonl' else repr('1e+39')} does not "
                f"fit into 32 bits",
                "7: column 'marks': 'x' is not a number",
                "8: column 'path': 'https://example.org/1.jpg': only local paths and gs:// are "
                "read; download the files, and write their paths instead of the URLs",
            )
        }
    flags = [
        "--feature_columns",
        "age:int64,score:float,marks:float[]",
        "--max_rejects",
        "10",
        "--json",
    ]
    run = beam_tfr(
        "convert", "--table", photos / "t.csv", *ROLES, *flags, "--output", tmp_path / "o"
    )
    assert (run.json["written"], run.json["rejected"]) == (4, {"bad-value": 9, "not-found": 1}), (
        run.err
    )
    assert verify(str(tmp_path / "o")).problems == ()
    assert {reject["stage"] for reject in rejects_of(tmp_path / "o")} == {"ReadTable", "ReadImages"}


@pytest.mark.parametrize(
    ("kind", "cell", "values"),
    [
        ("int64", "7", [7]),
        ("int64", -7, [-7]),
        ("int64", "3.0", [3]),
        ("int64", 3.0, [3]),
        ("int64", True, [1]),
        ("int64", "False", [0]),
        ("int64", str((1 << 63) - 1), [(1 << 63) - 1]),
        ("int64=-1", "", [-1]),
        ("int64=-1", None, [-1]),
        ("int64=-1", "5", [5]),
        ("float", "1e3", [1000.0]),
        ("float", 7, [7.0]),
        ("float", "-inf", [float("-inf")]),
        ("float=0", None, [0.0]),
        ("bytes", "", [b""]),
        ("bytes", "ü", ["ü".encode()]),
        ("bytes", b"\xff\0", [b"\xff\0"]),
        ("bytes=", None, [b""]),
        ("int64[]", "", []),
        ("int64[]", None, []),
        ("int64[]", "[1, 2]", [1, 2]),
        ("int64[]", "1|2", [1, 2]),
        ("int64[]", 5, [5]),
        ("bytes[]", ["a", b"b"], [b"a", b"b"]),
        ("enum(s|m|l)", "m", [1]),
        ("enum(s|m|l)=s", "", [0]),
        ("enum(s|m|l)[]", "l|s", [2, 0]),
    ],
)
def test_a_value_that_fits(kind: str, cell: Any, values: list[Any]) -> None:
    assert parse_column("c", kind).parse(cell) == values
    assert parse_column("c", kind).text == kind
    assert [type(value) for value in parse_column("c", kind).parse(cell)] == [
        type(value) for value in values
    ]


@pytest.mark.parametrize(
    ("kind", "cell", "problem"),
    [
        ("int64", "7.5", "'7.5' is not a whole number"),
        ("int64", 7.5, "7.5 is not a whole number"),
        ("int64", "1_000", "'1_000' is not a whole number"),
        ("int64", float("nan"), "nan is not a whole number"),
        ("int64", str(1 << 63), f"'{1 << 63}' does not fit into 64 bits"),
        ("int64", "9" * 5000, "'99999"),
        (
            "int64",
            None,
            "has no value; declare a default, such as int64=-1, or a list: int64[]",
        ),
        ("int64", [1], "[1] is not a whole number"),
        ("float", "1e39", "'1e39' does not fit into 32 bits"),
        ("float", "1e999", "'1e999' does not fit into 32 bits"),
        ("float", 10**400, "does not fit into 32 bits"),
        ("float", True, "True is not a number"),
        (
            "float",
            "",
            "has no value; declare a default, such as float=nan, or a list: float[]",
        ),
        ("bytes", 5, "5 is not text"),
        ("bytes", None, "has no value"),
        ("bytes", "\ud800", "cannot be encoded in UTF-8"),
        ("bytes[]", [None], "None is not text"),
        ("int64[]", "[1, 2", "begins like a JSON list but is not one"),
        ("int64[]", "[[1]]", "[1] is not a whole number"),
        ("enum(s|m)", "x", "'x' is not one of s, m"),
        ("enum(s|m)", "", "has no value"),
    ],
)
def test_a_value_that_does_not_fit(kind: str, cell: Any, problem: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_column("c", kind).parse(cell)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("cells", "typed", "kind"),
    [
        (["1", "", "-20"], False, "int64"),
        (["1", "2.5"], False, "float"),
        (["1e3", "nan"], False, "float"),
        (["true", "False"], False, "int64"),
        (["true", "1"], False, "bytes"),
        (["00501", "12345"], False, "bytes"),  # a postal code
        (["12345678901234567890"], False, "bytes"),
        (["1", "x"], False, "bytes"),
        (["", ""], False, "bytes"),
        ([], False, "bytes"),
        (["[1, 2, 3]", "", "[]"], False, "int64[]"),
        (["[1, 2.5]", "3"], False, "float[]"),
        (['["a", "b|c"]'], False, "bytes[]"),
        (["[1]", "[sic]", "x"], False, "bytes"),
        (["[1]"], True, "bytes"),
        (["1", "2"], True, "bytes"),
        ([1, None], True, "int64"),
        ([1, 2.5], True, "float"),
        ([True, False], True, "int64"),
        ([b"\xff", "x"], True, "bytes"),
        ([[1], [], None], True, "int64[]"),
        ([[1, 2.5]], True, "float[]"),
        ([["a"]], True, "bytes[]"),
    ],
)
def test_types_are_inferred(cells: list[Any], typed: bool, kind: str) -> None:
    assert infer_declaration(cells, typed=typed) == kind


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ([1, "x"], "holds integers and texts"),
        ([True, 1], "holds booleans and integers"),
        ([{"a": 1}], "holds objects"),
        ([[[1]]], "holds lists in lists"),
        ([[None]], "holds lists with holes"),
        ([[1], ["x"]], "holds integers and texts in lists"),
        (['[1, "x"]'], "holds integers and texts in lists"),
        (["[1]", "true"], "holds booleans and integers in lists"),
    ],
)
def test_columns_without_a_type(cells: list[Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        infer_declaration(cells, typed=not isinstance(cells[0], str))


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_mixed_lists_are_refused_with_the_spelling_that_stores_them(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(KINDS[name]([{"age": [1, 2], "note": [1, "x"]}]))
    with pytest.raises(
        UsageError, match="column 'note' holds integers and texts in lists"
    ) as caught:
        references(path, features={"*": ""})
    assert "--feature_columns '*,note:bytes' stores it as text" in spell_as_flags(str(caught.value))
    assert features_of(references(path, features={"*": "", "note": "bytes"})["t#1"]) == {
        "age": [1, 2],
        "note": [b'[1, "x"]'],
    }


# Advice


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"box": [103, 221, 243, 387]}, "box"),
        ({"faceLandmarks": [5, 5], "age": 3}, "faceLandmarks"),
        ({"bbox": "[0.5, 0.5, 9, 9]"}, "bbox"),
        ({"XMin": 0.1, "XMax": 0.5, "YMin": 0.2}, "XMin; XMax; YMin"),
        ({"box_x": 1, "box_y": 2, "nose_x1": 5, "nose": 6}, "box_x; box_y; nose_x1"),
        ({"embedding": [4, 3, 2, 1], "prices": [1, 2, 3]}, ""),
        ({"x": 1, "box_count": 3, "landmark": "Eiffel Tower", "max": 1, "may": 2}, ""),
    ],
)
def test_features_that_look_like_coordinates(
    tmp_path: Path, row: dict[str, Any], told: str
) -> None:
    (tmp_path / "t.jsonl").write_bytes(as_jsonl([{"path": "1.jpg"} | row]))
    for resized in (True, False):
        how: dict[str, Any] = {} if resized else {"resize": "none", "ignore_orientation": True}
        given = {
            "table": (f"{tmp_path}/t.jsonl",),
            "uri_column": "path",
            "feature_columns": "*",
            "output": "/o",
        }
        warnings = open_tables(find_content(from_values(given | how, ConvertOptions))).warnings
        expected = (
            "features that look like coordinates are not adjusted when images are resized or "
            f"turned: {told}; declare boxes and their points, "
            "such as --feature_columns 'box:bbox[xyxy],outline:points[xy]'"
        )
        assert [*map(spell_as_flags, warnings)] == [expected] * bool(told and resized)


def test_plan_and_convert_tell_what_the_columns_look_like(
    beam_tfr: Command, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.jpg"))
    rows = [
        {"path": path, "tags": "ab"[i % 2], "box": [i, 21, 243, 387]}
        for i, path in enumerate(paths)
    ]
    (photos / "t.csv").write_bytes(as_csv(rows))
    flags = [
        "--table",
        photos / "t.csv",
        "--uri_column",
        "path",
        "--label_column",
        "tags",
        "--feature_columns",
        "*",
    ]
    box = (
        "features that look like coordinates are not adjusted when images are resized or turned: "
        "box; declare boxes and their points, such as "
    )
    assert box in beam_tfr("plan", *flags).out
    done = beam_tfr("convert", *flags, "--output", tmp_path / "o")
    assert (done.code, box in done.err) == (0, True)
    assert "column:  box int64[]" in done.out
    again = beam_tfr(
        "plan",
        *flags,
        "--label_separator",
        "|",
        "--resize",
        "none",
        "--ignore_orientation",
        "--json",
    )
    assert not [text for text in again.json["warnings"] if "look" in text]
    convert(
        table=photos / "t.csv",
        uri_column="path",
        feature_columns={"box": ""},
        output=tmp_path / "p",
        progress=False,
    )
    assert box in capsys.readouterr().err


def test_defaults_enums_and_lists_accept_rows_without_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,age,size\na,1,m\nb,,\nc,3,s\n")
    for age, size, values in (
        ("int64=-1", "enum(s|m)=s", {"a": ([1], [1]), "b": ([-1], [0]), "c": ([3], [0])}),
        ("float[]", "bytes", {"a": ([1.0], [b"m"]), "b": ([], [b""]), "c": ([3.0], [b"s"])}),
        ("int64", "", {"a": ([1], [b"m"]), "c": ([3], [b"s"])}),
    ):
        refs = references(tmp_path / "t.csv", key_column="id", features={"age": age, "size": size})
        rows = {key: features_of(ref) for key, ref in refs.items() if not ref.reason}
        assert {key: (row["age"], row["size"]) for key, row in rows.items()} == values


# What is wrong in a table


def _twice() -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(
        pyarrow.table([pyarrow.array(["a"]), *[pyarrow.array([1])] * 2], ["id", "age", "age"]),
        buffer,
    )
    return buffer.getvalue()


TWICE = _twice()


def test_rows_with_too_many_cells_are_left_out_by_the_line_that_is_offered(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,id\na.jpg,007\n" + "b.jpg,1,5\n" * 11 + "c.jpg,NA\n")
    with pytest.raises(DataError, match="with pandas: read_csv") as error:
        [*read_rows(str(table), ("path", "id"))]
    line = str(error.value).partition("with pandas: ")[2].replace("FILE", "table")
    with contextlib.chdir(tmp_path):
        eval(line, {"read_csv": pandas.read_csv, "table": table})
    assert (tmp_path / "sound.csv").read_text() == "path,id\na.jpg,007\nc.jpg,NA\n"


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("t.csv", b"", "is empty; its first line must name the columns"),
        ("t.csv", b"id,age\n", "there are no rows"),
        ("t.csv", b"id,name\na,1\n", "there is no column 'age'; the columns are: id, name"),
        ("t.csv", b"id,age,id\na,1,b\n", "has 2 columns named 'id'; rename all but one"),
        (
            "t.csv",
            b"id,age\nb\na,1\n",
            "row 1 after the header: has 1 cell, but the header has 2; is a quote missing?",
        ),
        (
            "t.csv",
            b"id,age\nb,2,3\na,1\n",
            "row 1 after the header: has 3 cells, but the header has 2; is a column name missing",
        ),
        (
            "t.csv",
            b'id,age\n"b,2\n',
            "row 1 after the header: unexpected end of data; is a quote not closed",
        ),
        ("t.csv", b'id,age\n"b"x,2\n', "row 1 after the header: ',' expected after '\"'"),
        (
            "t.csv",
            b"id,age\nb\xe9,2\n",
            "row 1 after the header: byte 0xe9 is not valid UTF-8; if it is 'é' in CP1252",
        ),
        (
            "t.csv",
            "id,age\na,1\n".encode("utf-16"),
            "t.csv: byte 0xff is not valid UTF-8; the text is UTF-16: iconv",
        ),
        ("t.csv", b"id,age\na,1\rb,2\n", "has carriage returns within a line"),
        (
            "t.csv.gz",
            gzip.compress(b"id,age\n" + b"a,1\n" * 50, mtime=0)[:-9],
            "the compressed data is damaged: Compressed",
        ),
        (
            "t.jsonl",
            b'{"id": \n{"id": "a", "age": 1}\n',
            "row 1: is not valid JSON: Expecting value (character 9); write one object on each "
            "line",
        ),
        ("t.jsonl", b'[1]\n{"id": "a", "age": 1}\n', "row 1: is not a JSON object"),
        (
            "t.jsonl",
            b"[" * 100_000 + b"\n",
            "is not valid JSON: its lists and objects are nested too deeply",
        ),
        (
            "t.jsonl",
            b'{"id": "b", "age": ' + b"9" * 5000 + b"}\n",
            "t.jsonl, row 1: is not valid JSON: a whole number has more than 4,300 digits",
        ),
        ("t.jsonl", b'{"id": "a"}\n', "there is no column 'age'; the columns are: id"),
        (
            "t.jsonl",
            b'{"id": "a", "age": {"years": 1}}\n',
            "column 'age' holds objects in the first rows",
        ),
        ("t.parquet", b"PAR1, they say", "is not a Parquet file: "),
        ("t.parquet", TWICE, "has 2 columns named 'age'; rename all but one"),
        (
            "t.parquet",
            as_parquet([{"id": "a", "ages": 1}]),
            "there is no column 'age'; the columns are: id, ages",
        ),
        (
            "t.xlsx",
            b"PK",
            "is not a TFRecord, and the names of other tables must end in .csv, .tsv, .jsonl, ",
        ),
        ("n02_1", b"<annotation><folder>02", "rename VOC files so that their names end in .xml"),
        ("output.manifest", b'{"source-ref": "a.jpg"}\n', "is JSON Lines: name it .jsonl"),
        ("info.labels", b'{\n  "version": 1}', "it is JSON: name it .json"),
        ("train.lst", b"0\t0.0\tcat/a.jpg\n", "number<TAB>label<TAB>path"),
        ("t.parquet.gz", b"", "is compressed as a whole: decompress it first"),
        ("train.csv.zip", b"PK\3\4", "; unzip it first"),
    ],
)
def test_broken_table_error_names_file_and_row(
    tmp_path: Path, name: str, data: bytes, problem: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises((UsageError, DataError)) as caught:
        references(path, key_column="id", features={"age": ""})
    message = spell_as_flags(str(caught.value))
    assert message.startswith(f"--table {path}")
    assert problem in message


def test_errors_after_the_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_rows, "SAMPLE_ROWS", 3)
    monkeypatch.setattr("beam_tfr.tables.text_lines.MAX_ROW_BYTES", 1000)
    path = tmp_path / "t.csv"
    path.write_text("age\n1\n2\n3\n4.5\n")
    last = references(path, features={"age": ""})["t#4"]
    assert (last.reason, last.detail) == (
        "bad-value",
        "t.csv, row 4 after the header: column 'age': '4.5' is not a whole number; "
        "`feature_columns='*,age:float'` stores fractional numbers",
    )
    path.write_text("age\n1\n2\n3\n" + "4" * 2000)
    problem = "has more than 1,000 bytes"
    with pytest.raises(DataError, match=f"^`table={path}, row 4 after the header`: {problem}"):
        references(path, features={"age": ""})
    path.write_text("age\n1\n2\n3\n")
    (tmp_path / "u.csv").write_text("age,more\n1,2\n")
    with pytest.raises(
        UsageError, match="column 'more' is not in the first rows of the first table"
    ):
        references(path, tmp_path / "u.csv", features={"*": ""})


def test_a_file_outside_of_the_root_is_a_reject(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    rows = rows_of(photos)
    rows[2]["path"] = "../elsewhere.jpg"
    (photos / "t.csv").write_bytes(as_csv(rows))
    call = ("convert", "--table", photos / "t.csv", *ROLES, "--output", tmp_path / "o")
    run = beam_tfr(*call, "--max_rejects", 1)
    assert run.code == 0
    (reject,) = rejects_of(tmp_path / "o")
    assert (reject["key"], reject["reason"]) == ("t.csv#3", "bad-value")
    assert (
        f"t.csv, line 6: column 'path': {tmp_path}/elsewhere.jpg is not in "
        f"{photos}/; if other files are, give the folder" in reject["detail"]
    )


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--uri_column", "path"], "--uri_column has no effect without --table"),
        (["--feature_columns", "a"], "--feature_columns has no effect without --table"),
        (["--table", "T", "--input", "/a/*"], "--input and --table cannot be combined"),
        (["--table", "T", "--exclude", "/a/*"], "--exclude and --table cannot be combined"),
        (["--table", "T", "--layout", "*"], "--layout and --table cannot be combined"),
        (["--table", "T", "--classes", "T"], "has no effect without --label_column"),
        (["--table", "T", "--image_root", "/a"], "--image_root has no effect without --uri_column"),
        (
            ["--table", "T", "--label_separator", "|"],
            "--label_separator has no effect without --label_column",
        ),
        (["--table", "T", "--group_column", "id"], "--group_column has no effect without --splits"),
        (
            ["--table", "T", "--uri_column", "p", "--key_column", "id"],
            "--key_column and --uri_column cannot be",
        ),
        (
            ["--table", "T", "--split_column", "s", "--splits", "a=1"],
            "cannot be combined with --split_column s",
        ),
        (
            ["--table", "T", "--layout", "{label}/*"],
            "--layout and --table cannot be combined: columns of the table give labels and splits",
        ),
        (
            ["--table", "T", "--encoding", "png"],
            "--encoding png: without --uri_column the rows become the records; name the column "
            "with the paths, or use row",
        ),
        (
            ["--table", "T", "--encoding", "jpeg"],
            "--encoding jpeg: without --uri_column the rows become",
        ),
        (
            ["--table", "T", "--quality", "5"],
            "--quality has no effect with --encoding row: it applies to images only",
        ),
        (["--input", "/a/*", "--encoding", "row"], "--encoding row: is for rows of a --table"),
        (
            ["--input", "/a/*", "--encoding", "bytes", "--image_size", "9"],
            "--image_size has no effect with --encoding",
        ),
        (
            ["--table", "s3://b/t.csv"],
            "--table s3://b/t.csv: only local paths and gs:// are supported",
        ),
        (["--table", "/no/t.csv"], "--table /no/t.csv: matches no file; there is no folder /no"),
        (
            ["--table", "/no/[t.csv"],
            "--table /no/[t.csv: [ is not closed; write [[] for the character itself",
        ),
        (["--table", "/"], "--table /: names no file; use '/**'"),
        (
            ["--table", "T", "--uri_column", "pfad"],
            "there is no column 'pfad'; the columns are: id, age, image/encoded",
        ),
        (
            ["--table", "T", "--feature_columns", "age:int32"],
            "'int32' is not a type; use int64, float, bytes",
        ),
        (["--table", "T", "--feature_columns", "age,age"], "names age twice"),
        (
            ["--table", "T", "--feature_columns", "age:int64=x"],
            "its default 'x' is not a whole number",
        ),
        (["--table", "T", "--feature_columns", "age:int64[]=1"], "a list has no default"),
        (
            ["--table", "T", "--feature_columns", "age:enum(a|a)"],
            "the members of an enum must be distinct",
        ),
        (
            ["--table", "T", "--uri_column", "id", "--feature_columns", "image/encoded"],
            "--feature_columns image/encoded: records or readers already have a feature with this "
            "name; rename the column",
        ),
    ],
)
def test_wrong_table_options(
    beam_tfr: Command, tmp_path: Path, flags: list[str], problem: str
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("id,age,image/encoded\na,1,x\n")
    run = beam_tfr(
        "convert",
        "--output",
        tmp_path / "o",
        *(str(table) if flag == "T" else flag for flag in flags),
    )
    assert (run.code, run.out) == (2, "")
    assert problem in run.err


def test_an_encoding_of_images_needs_their_column(tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "1.jpg", "label": "cat"}\n')
    for pattern in ("metadata.jsonl", "meta*"):
        places = {"input": (), "table": (f"{tmp_path}/{pattern}",), "output": f"{tmp_path}/d"}
        with pytest.raises(UsageError, match="uri_column=") as error:
            find_content(ConvertOptions(**places, encoding="keep"))
        assert ("`uri_column=file_name`" in str(error.value)) == (pattern == "metadata.jsonl")


@pytest.mark.parametrize(
    ("cells", "kind", "reason"),
    [
        (
            [None] * 3,
            "",
            "as bytes would reject all of the first 3 rows (row 1: has no value; declare a",
        ),
        (["a", "4.5", ""], "int64", "as int64 would reject all of the first 3 rows (row 1: 'a' "),
        ([None, "4.5"], "enum(s|l)", "as enum(s|l) would reject all of the first 2 rows (row 1"),
    ],
)
def test_column_that_no_row_fits_is_refused_before_the_run(
    tmp_path: Path, cells: list[Any], kind: str, reason: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(as_jsonl([{"age": 1, "note": cell} for cell in cells]))
    with pytest.raises(UsageError) as caught:
        references(path, features={"note": kind, "*": ""})
    assert str(caught.value).startswith(f"`table={path}`: column 'note' {reason}")
    assert "; give another type, `feature_columns=note:TYPE`, or choose the columns" in str(
        caught.value
    )
    assert references(path, features={"note": "bytes=", "*": ""})["t#1"].reason == ""


def test_rows_must_not_mix_local_files_and_objects(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path\n/a/1.jpg\ngs://b/2.jpg\n")
    with pytest.raises(
        UsageError,
        match=r"^`table=`: the files that its rows name must all be local or all on gs://",
    ):
        references(tmp_path / "t.csv", uri_column="path")


def test_no_more_columns_become_features_than_readers_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n")
    # of which five are other features of a row
    monkeypatch.setattr(declarations, "MAX_FEATURES", 7)
    with pytest.raises(
        UsageError, match="3 columns would become features, but readers accept 7; choose fewer with"
    ):
        references(tmp_path / "t.csv", features={"*": ""})
    assert references(tmp_path / "t.csv", features={"a": "", "b": ""})


def test_column_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",age\n0,1\n")
    with pytest.raises(UsageError, match="a column has no name; choose features"):
        references(tmp_path / "t.csv", features={"*": ""})
    assert features_of(references(tmp_path / "t.csv", features={"age": ""})["t#1"]) == {"age": [1]}


def test_a_column_that_is_named_like_a_feature_is_blamed_itself(tmp_path: Path) -> None:
    """Nobody gave `feature_columns=`."""
    (tmp_path / "t.csv").write_text("image,caption\na.jpg,Dogs\n")
    with pytest.raises(UsageError, match=r"column 'image': .*`uri_column=image`") as error:
        references(tmp_path / "t.csv")
    assert "feature_columns" not in str(error.value)
