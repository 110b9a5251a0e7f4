"""Parquet files that hold images.

Of bytes, or of Hugging Face's structs with its names of classes.
"""

from __future__ import annotations

import errno
import functools
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import PIL.Image
import pyarrow as pa
import pytest
from pyarrow import parquet as arrow

import beam_tfr as package
from beam_tfr import storage
from beam_tfr.inputs import parquet, read_ahead, reading
from beam_tfr.inputs.read_ahead import ReadAhead
from beam_tfr.inputs.reading import read_embedded, read_image
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import BeamTfrError, RejectError, UsageError
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.tables.class_orders import warn_of_class_orders
from beam_tfr.tables.finding import find_content, find_tables
from beam_tfr.tables.formats import read_class_names, read_rows
from tests.conftest import Run, few_at_once, files_of, wait_for
from tests.fake_gcs import FakeGcs
from tests.image_tables import FLAGS, JPEG, NAMES, STRUCT, images_of, photos, write
from tests.portable_runners import PROCESSES, own_prism

Convert = Callable[..., Run]
FORMS: dict[str, tuple[pa.DataType, dict[str, Any]]] = {
    "structs": (STRUCT, {"compression": "none"}),
    "snappy": (STRUCT, {"compression": "snappy", "row_group_size": 2}),
    "zstd": (STRUCT, {"compression": "zstd", "use_dictionary": False, "data_page_version": "2.0"}),
    "bytes": (pa.binary(), {"compression": "snappy"}),
    "large": (pa.large_binary(), {"compression": "gzip", "row_group_size": 3}),
    "dictionary": (pa.dictionary(pa.int32(), pa.binary()), {"compression": "snappy"}),
    "large structs": (pa.struct([("path", pa.string()), ("bytes", pa.large_binary())]), {}),
}


def write_photos(folder: Path, form: str = "snappy", first: int = 0) -> None:
    """Two tables of the photos."""
    kind, options = FORMS[form]
    for number in (0, 1):
        some = photos()[first + number :: 2]
        labels = [NAMES.index(label) for _, label, _ in some]
        name = f"train-{number:05}-of-00002.parquet"
        write(folder / name, [data for *_, data in some], labels, kind=kind, **options)


def entry(path: Path | str, row: int = 0, column: str = "image.bytes") -> storage.Entry:
    listed = storage.find(str(path))
    assert listed
    return parquet.image_entry(listed, column, row, 1)


@pytest.fixture
def unpacked(beam_tfr: Convert, tmp_path: Path) -> Path:
    """The dataset of the photos as files."""
    for name, label, data in photos():
        path = tmp_path / "photos" / label / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert (
        beam_tfr("convert", "--input", tmp_path / "photos", "--output", tmp_path / "unpacked").code
        == 0
    )
    return tmp_path / "unpacked"


@pytest.mark.parametrize("form", few_at_once(FORMS, "snappy", "zstd", "dictionary"))
def test_the_records_are_those_of_the_photos(
    form: str, beam_tfr: Convert, tmp_path: Path, unpacked: Path
) -> None:
    write_photos(tmp_path, form)
    flags = [*FLAGS, "--feature_columns", "number:int64", "--allow_empty", "unused"]
    run = beam_tfr(
        "convert", "--table", tmp_path / "train-*.parquet", *flags, "--output", tmp_path / "d"
    )
    assert run.code == 0, run.err
    assert images_of(tmp_path / "d") == images_of(unpacked)
    assert package.Records(tmp_path / "d", split="train").class_names == tuple(NAMES)
    rows = package.contents(tmp_path / "d", "train").to_table().to_pylist()
    assert {(row["key"], row["number"], row["class"], row["label"]) for row in rows} == {
        (f"train-0000{table}-of-00002/{number:08}", number, label, NAMES.index(label))
        for table in (0, 1)
        for number, (_, label, _) in enumerate(photos()[table::2])
    }
    assert not (tmp_path / "d/.beam_tfr").exists()


def test_a_plan_reads_only_its_sample_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [JPEG + bytes([number]) for number in range(40)]
    table = write(tmp_path / "t.parquet", images, [0] * 40, row_group_size=10)
    read: list[int] = []

    def spy(opened: Any, column: str, max_bytes: int, group: int) -> Any:
        read.append(group)
        return read_images(opened, column, max_bytes, group)

    read_images = parquet._read_images
    monkeypatch.setattr(parquet, "_read_images", spy)
    plan = package.plan(
        table=str(table),
        uri_column="image",
        label_column="label",
        output=str(tmp_path / "d"),
        sample_size=2,
        allow_empty=["dress", "unused"],
    )
    assert sorted(read) == [0, 1, 2, 3]  # each once: none is too large to be kept
    assert plan.listing.num_bytes == pytest.approx(40 * len(JPEG), rel=0.05)
    assert not (tmp_path / "d").exists()


def test_copies_need_room_too(
    beam_tfr: Convert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write(tmp_path / "t.parquet", [JPEG] * 40, [0] * 40, use_dictionary=False)
    call = ["convert", "--table", table, *FLAGS, "--image_size", 8, "--output", tmp_path / "d"]
    # enough for the dataset
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=39 * len(JPEG)))
    run = beam_tfr(*call)
    assert run.code == 1
    assert (
        "needs about 1.1 MB, but its disk has 1.0 MB available (this includes copies of images "
        "in Parquet files" in run.err
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=80 * len(JPEG)))
    assert beam_tfr(*call).code == 0


def test_rows_without_an_image_and_others_are_rejects(beam_tfr: Convert, tmp_path: Path) -> None:
    without = [None, {"bytes": None, "path": "1.jpg"}, {"bytes": b"", "path": None}]
    images = [JPEG, *without, b"text", JPEG + b"0" * 100_000, JPEG]
    table = write(tmp_path / "t.parquet", images, [0, 0, 0, 0, 0, 0, 3], row_group_size=3)
    limits = [
        "--max_file_bytes",
        str(len(JPEG) + 1000),
        "--max_rejects",
        "1.0",
        "--allow_empty",
        "unused",
        "dress",
    ]
    run = beam_tfr("convert", "--table", table, *FLAGS, *limits, "--output", tmp_path / "d")
    assert run.code == 0, run.err
    rejects = [json.loads(line) for line in (tmp_path / "d/rejects.jsonl").read_text().splitlines()]
    empty = "t.parquet, row {}: column 'image.bytes' holds no bytes"
    assert {reject["key"]: (reject["reason"], reject["detail"]) for reject in rejects} == {
        **{f"t/0000000{row}": ("bad-value", empty.format(row + 1)) for row in (1, 2, 3)},
        "t/00000004": ("not-an-image", "text"),
        "t/00000005": ("file-too-large", f"more than {len(JPEG) + 1000} bytes"),
        "t/00000006": (
            "bad-value",
            "t.parquet, row 7: column 'label': 3 is not the number of a class",
        ),
    }


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        ({"names": ["b", "a"], "_type": "ClassLabel"}, ["b", "a"]),
        ({"feature": {"names": ["b", "a"], "_type": "ClassLabel"}, "_type": "List"}, ["b", "a"]),
        ([{"names": ["b", "a"], "_type": "ClassLabel"}], ["b", "a"]),
        ({"dtype": "int64", "_type": "Value"}, []),
        ([], []),
        ("text", []),
    ],
)
def test_names_of_classes(feature: Any, expected: list[str], tmp_path: Path) -> None:
    metadata = {"huggingface": json.dumps({"info": {"features": {"label": feature}}})}
    lists = isinstance(feature, list) or "feature" in feature
    labels: list[Any] = [[1, 0], [], None] if lists else [1, -1, None]
    table = pa.table({"label": labels}).replace_schema_metadata(metadata)
    arrow.write_table(table, tmp_path / "t.parquet")
    path = str(tmp_path / "t.parquet")
    assert read_class_names(path, "label") == expected
    cells = [cell for _, (cell,) in read_rows(path, ["label"], label="label")]
    named: list[Any] = [["a", "b"], [], None] if lists else ["a", None, None]
    assert cells == (named if expected else labels)
    assert [cell for _, (cell,) in read_rows(path, ["label"])] == labels


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (NAMES, ""),
        (NAMES[:1], ""),
        (["dress", "unused", "hat"], "class 'dress' is 0 in the former, and 2 in the latter"),
        ([*NAMES, "bag"], "class 'bag' is 3 in the former, and missing in the latter"),
        ([], "the former has no names of classes"),
    ],
)
def test_other_numbers_of_classes_are_told(tmp_path: Path, others: list[str], words: str) -> None:
    for number in range(40):  # of which not all are read
        write(tmp_path / f"test-{number:03}.parquet", [JPEG], [0])
    last = write(tmp_path / "train.parquet", [JPEG], [0], names=others)
    tables = str(tmp_path / "*.parquet")
    columns: Any = {"uri_column": "image", "label_column": "label", "output": "/o"}
    lines = [*warn_of_class_orders(find_content(ConvertOptions(table=(tables,), **columns)))]
    assert len(lines) == bool(words)
    assert all(words in line and str(last) in line for line in lines)
    (tmp_path / "names.txt").write_text("hat\nunused\ndress\nbag\n")
    given = ConvertOptions(table=(tables,), classes=str(tmp_path / "names.txt"), **columns)
    assert not [*warn_of_class_orders(find_content(given))]


def test_names_of_classes_differ(tmp_path: Path) -> None:
    table = write(tmp_path / "t.parquet", [JPEG], [0], names=["hat", "dress", "hat"])
    with pytest.raises(
        BeamTfrError, match="two classes in column 'label' have the name 'hat'; rename one"
    ):
        package.plan(
            table=str(table), uri_column="image", label_column="label", output=str(tmp_path / "d")
        )


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1.5], "double"),
        ([[{"bytes": JPEG}]], "list<element: struct<bytes: binary>>"),
        ([[JPEG]], "list<element: binary>"),
    ],
)
def test_a_column_of_another_type_holds_no_images(
    cells: list[Any], kind: str, tmp_path: Path
) -> None:
    arrow.write_table(pa.table({"image": cells}), tmp_path / "t.parquet")
    with pytest.raises(BeamTfrError) as caught:
        package.plan(
            table=str(tmp_path / "t.parquet"), uri_column="image", output=str(tmp_path / "d")
        )
    assert str(caught.value) == (
        f"`table={tmp_path}/t.parquet`: column 'image' has the type {kind}; images must be "
        "bytes, structs with bytes, or paths"
    )


def test_a_column_without_any_value_holds_no_images(tmp_path: Path) -> None:
    arrow.write_table(pa.table({"image": [None]}), tmp_path / "t.parquet")
    with pytest.raises(BeamTfrError, match="column 'image': has no value"):
        package.plan(
            table=str(tmp_path / "t.parquet"), uri_column="image", output=str(tmp_path / "d")
        )


@pytest.mark.parametrize(
    "metadata", [None, {"huggingface": "{"}, {"huggingface": "[]"}, {"pandas": "{}"}]
)
def test_without_names_numbers_are_classes(
    metadata: Any, beam_tfr: Convert, tmp_path: Path
) -> None:
    table = pa.table(
        {"image": pa.array([JPEG] * 4), "label": [10, 9, 9, 10]}
    ).replace_schema_metadata(metadata)
    arrow.write_table(table, tmp_path / "t.parquet")
    assert (
        beam_tfr(
            "convert", "--table", tmp_path / "t.parquet", *FLAGS, "--output", tmp_path / "d"
        ).code
        == 0
    )
    assert package.Records(tmp_path / "d", split="train").class_names == ("9", "10")


def test_masks_of_the_same_row(beam_tfr: Convert, tmp_path: Path) -> None:
    import cv2
    import numpy as np

    image, mask = np.zeros((8, 8, 3), np.uint8), np.arange(64, dtype=np.uint8).reshape(8, 8)
    cells = [
        [{"bytes": cv2.imencode(".png", array)[1].tobytes(), "path": None}]
        for array in (image, mask)
    ]
    columns = {
        name: pa.array(cell, STRUCT)
        for name, cell in zip(("image", "annotation"), cells, strict=True)
    }
    arrow.write_table(pa.table(columns), tmp_path / "t.parquet")
    flags = ["--uri_column", "image", "--feature_columns", "annotation:mask", "--resize", "none"]
    assert (
        beam_tfr(
            "convert", "--table", tmp_path / "t.parquet", *flags, "--output", tmp_path / "d"
        ).code
        == 0
    )
    (record,) = package.Records(tmp_path / "d", split="train", output="dict")
    assert (record["mask"].reshape(8, 8) == mask).all()


def test_a_column_of_images_needs_its_role(tmp_path: Path) -> None:
    table = write(tmp_path / "t.parquet", [JPEG], [0])
    with pytest.raises(BeamTfrError, match=r"column 'image' holds images; .*`uri_column=image`"):
        package.plan(table=str(table), output=str(tmp_path / "d"))


def test_a_damaged_file_ends_the_run(beam_tfr: Convert, tmp_path: Path) -> None:
    table = write(tmp_path / "t.parquet", [JPEG] * 6, [0] * 6, row_group_size=3, compression="zstd")
    group = arrow.ParquetFile(table).metadata.row_group(1).column(0)
    data = bytearray(table.read_bytes())
    start = group.dictionary_page_offset or group.data_page_offset
    data[start : start + 200] = bytes(200)
    table.write_bytes(data)
    run = beam_tfr(
        "convert",
        "--table",
        table,
        *FLAGS,
        "--allow_empty",
        "unused",
        "dress",
        "--output",
        tmp_path / "d",
    )
    assert run.code == 1
    assert f"{table}, row 4: this or one of the next" in run.err
    assert not (tmp_path / "d/manifest.json").exists()
    table.write_bytes(b"PAR1 is no Parquet file")
    run = beam_tfr("plan", "--table", table, *FLAGS, "--output", tmp_path / "d")
    assert run.code == 1
    assert f"{table}: is not a Parquet file: " in spell_as_flags(run.err)


def copying(folder: str) -> Callable[[storage.Entry, int], bytes]:
    """Reads images from copies in a folder; none for an empty one."""
    return functools.partial(read_embedded, copies=folder)


@pytest.mark.parametrize("copies", [False, True])
def test_images_are_read_ahead_by_their_sizes_and_not_by_their_mean(
    copies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "SLOW_DISK_S", -1.0)  # all reads are those of slow disks
    sizes = [1_000] * 300 + [100_000] * 30
    table = write(tmp_path / "t.parquet", [bytes(size) for size in sizes], [0] * len(sizes))
    begun = list[int]()

    def read(image: storage.Entry, max_bytes: int, copies: str) -> bytes:
        begun.append(image.size_bytes)
        return read_embedded(image, max_bytes, copies)

    ahead = ReadAhead(
        images=16,
        ahead_bytes=400_000,
        read_embedded=read,
        copies=str(tmp_path) if copies else "",
    )
    most = 0
    for number, content in enumerate(ahead.read(entry(table, row) for row in range(len(sizes)))):
        assert isinstance(content, bytes)
        assert len(content) == sizes[number]
        if copies and len(sizes) - 30 <= number < len(sizes) - 4:
            wait_for(lambda: len(begun) > number + 2)  # noqa: B023 - within this turn
        most = max(most, sum(sizes[number + 1 : len(begun)]))
    ahead.close()
    assert most <= 400_000
    assert (most > 100_000) == copies  # without copies, each is read by itself


@pytest.mark.parametrize("copies", [False, True])
def test_a_file_that_changes_after_it_was_listed(copies: bool, tmp_path: Path) -> None:
    table = write(tmp_path / "t.parquet", [JPEG], [0])
    image = entry(table)
    folder = str(tmp_path) if copies else ""
    os.utime(table, ns=(1, 1))
    with pytest.raises(RejectError) as caught:
        read_image(image, read_embedded=copying(folder))
    assert caught.value.reason == "changed-while-reading"
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    assert read_image(entry(table), read_embedded=copying(folder)) == JPEG
    (tmp_path / "other").touch()
    table.unlink()
    if not copies:
        parquet._kept.clear()
        with pytest.raises(RejectError) as caught:
            read_image(image)
        assert caught.value.reason == "not-found"


def test_memory_for_images_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [bytes([number]) * 1000 for number in range(50)]
    table = write(tmp_path / "t.parquet", images, [0] * 50, row_group_size=10)
    monkeypatch.setattr(parquet, "_kept", {})
    monkeypatch.setattr(parquet, "KEPT_BYTES", 7500)
    for row in (0, 9, 25, 49, 10, 0):
        assert read_image(entry(table, row)) == images[row]
        assert sum(map(len, parquet._kept.values())) <= 7500


def test_a_copy_is_made_once_and_again_if_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [b"a", b"", b"ccc"]
    table, folder = write(tmp_path / "t.parquet", images, [0, 0, 0]), tmp_path / "work"
    folder.mkdir()
    assert read_image(entry(table, 2), read_embedded=copying(str(folder))) == b"ccc"
    copy, places = sorted(folder.iterdir())
    assert copy.read_bytes() == b"accc"
    assert places.name == f"{copy.name}.places"
    assert read_image(entry(table, 0), read_embedded=copying(str(folder))) == b"a"
    with pytest.raises(RejectError, match="holds no bytes"):
        read_image(entry(table, 1), read_embedded=copying(str(folder)))
    shutil.rmtree(folder)
    folder.mkdir()
    assert read_image(entry(table, 0), read_embedded=copying(str(folder))) == b"a"
    parquet._copies.clear()  # as another process
    monkeypatch.setattr(parquet, "_read_images", lambda *_: pytest.fail("it is read again"))
    assert read_image(entry(table, 2), read_embedded=copying(str(folder))) == b"ccc"
    places.unlink()  # as in a process that was killed
    monkeypatch.undo()
    parquet._copies.clear()
    assert read_image(entry(table, 2), read_embedded=copying(str(folder))) == b"ccc"


def test_a_run_resumes_with_the_copies_of_one_that_failed(
    beam_tfr: Convert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacked: Path
) -> None:
    write_photos(tmp_path)
    flags = ["--table", tmp_path / "train-*.parquet", *FLAGS, "--allow_empty", "unused"]

    def fail(image: storage.Entry, max_bytes: int, copies: str) -> bytes:
        data = parquet.read_in_parquet(image, max_bytes, copies)
        if copies and image.place.split(":")[4] == "3":
            raise OSError(errno.EIO, "a passing failure")
        return data

    with monkeypatch.context() as patched:
        patched.setattr(reading, "read_in_parquet", fail)
        run = beam_tfr("convert", *flags, "--output", tmp_path / "d")
    assert run.code == 1
    assert "a passing failure" in run.err
    work = tmp_path / "d/.beam_tfr"
    assert len([*work.glob("images-*.places")]) == 2
    parquet._copies.clear()  # as in another process

    monkeypatch.setattr(parquet, "_Copier", lambda *_: pytest.fail("it is copied again"))
    run = beam_tfr("convert", *flags, "--output", tmp_path / "d")
    assert run.code == 0, run.err
    assert images_of(tmp_path / "d") == images_of(unpacked)
    assert not work.exists()


@pytest.mark.slow
def test_an_update_takes_new_rows_and_copies_the_others(
    beam_tfr: Convert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_photos(tmp_path)
    flags = [*FLAGS, "--allow_empty", "unused"]
    tables = ["--table", tmp_path / "*.parquet"]
    assert beam_tfr("convert", *tables, *flags, "--output", tmp_path / "d").code == 0
    with monkeypatch.context() as patched:
        patched.setattr(parquet, "_find_copy", lambda *_: pytest.fail("images are copied"))
        run = beam_tfr("update", tmp_path / "d", *tables)
    assert run.code == 0, run.err
    assert not (tmp_path / "d/.beam_tfr").exists()
    write(tmp_path / "train-more.parquet", [JPEG], [0])
    run = beam_tfr("update", tmp_path / "d", *tables)
    assert run.code == 0, run.err
    assert "update:  1 added" in run.out
    os.utime(tmp_path / "train-more.parquet", ns=(1, 1))  # so that its images are compared
    run = beam_tfr("update", tmp_path / "d", *tables)
    assert run.code == 0, run.err
    assert (
        beam_tfr("convert", *tables, *flags, "--output", tmp_path / "fresh", "--name", "d").code
        == 0
    )
    updated = files_of(tmp_path / "d")
    assert updated.pop("history.jsonl")
    assert updated == files_of(tmp_path / "fresh")
    run = beam_tfr("update", tmp_path / "d", "--image_size", "32")
    assert run.code == 2
    run = beam_tfr("update", tmp_path / "d", *tables, "--image_size", "32")
    assert run.code == 0, run.err
    assert {image.shape for image, _ in package.Records(tmp_path / "d", split="train")} == {
        (32, 32, 3)
    }


def test_an_update_counts_the_images_that_changed_alone(beam_tfr: Convert, tmp_path: Path) -> None:
    """Of a file that is written again, with other sizes of its groups of rows."""
    images = [data for _, _, data in photos()]
    table, labels = tmp_path / "t.parquet", [0] * len(images)
    flags = [*FLAGS, "--allow_empty", "unused", "dress"]
    write(table, images, labels, row_group_size=4)
    assert beam_tfr("convert", "--table", table, *flags, "--output", tmp_path / "d").code == 0
    other = io.BytesIO()
    PIL.Image.new("RGB", (700, 500), "red").save(other, "png")
    write(table, [other.getvalue(), *images[1:]], labels, row_group_size=4)
    run = beam_tfr("update", tmp_path / "d", "--table", table)
    assert run.code == 0, run.err
    assert "update:  1 changed\n" in run.out
    assert (
        beam_tfr(
            "convert", "--table", table, *flags, "--output", tmp_path / "fresh", "--name", "d"
        ).code
        == 0
    )
    updated = files_of(tmp_path / "d")
    assert updated.pop("history.jsonl")
    assert updated == files_of(tmp_path / "fresh")


def test_rejects_are_read_again_and_shards_are_repaired(beam_tfr: Convert, tmp_path: Path) -> None:
    table = write(tmp_path / "t.parquet", [JPEG, None, JPEG], [0, 0, 0])
    flags = [*FLAGS, "--allow_empty", "unused", "dress", "--max_rejects", "1"]
    assert beam_tfr("convert", "--table", table, *flags, "--output", tmp_path / "d").code == 0
    run = beam_tfr("update", tmp_path / "d", "--table", table, "--max_rejects", "1")
    assert run.code == 0, run.err
    written = files_of(tmp_path / "d")
    (shard,) = (tmp_path / "d").glob("*.tfrecord.gz")
    shard.unlink()
    run = beam_tfr("repair", tmp_path / "d", "--table", table)
    assert run.code == 0, run.err
    assert files_of(tmp_path / "d") == written
    assert not (tmp_path / "d/.beam_tfr").exists()


def test_from_and_to_a_bucket(beam_tfr: Convert, tmp_path: Path, fake: FakeGcs) -> None:
    (tmp_path / "hub").mkdir()
    write_photos(tmp_path / "hub")
    fake.put_folder(tmp_path / "hub", "hub")
    flags = [*FLAGS, "--allow_empty", "unused", "--name", "d"]
    for place, output in ((tmp_path / "hub", tmp_path / "d"), ("gs://b/hub", "gs://b/d")):
        run = beam_tfr("convert", "--table", f"{place}/*.parquet", *flags, "--output", output)
        assert run.code == 0, run.err
    assert images_of("gs://b/d") == images_of(tmp_path / "d")
    assert not storage.list_folder("gs://b/d/.beam_tfr")
    image = entry("gs://b/hub/train-00000-of-00002.parquet", 1)
    assert read_image(image) == photos()[2][2]
    fake.put("hub/train-00000-of-00002.parquet", b"another")
    parquet._kept.clear()
    with pytest.raises(RejectError) as caught:
        read_image(image)
    assert caught.value.reason == "changed-while-reading"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["processes", "prism"])
def test_every_engine_writes_the_same_bytes(
    engine: str, beam_tfr: Convert, tmp_path: Path, prism: Path
) -> None:
    write_photos(tmp_path)
    flags = [
        "--table",
        tmp_path / "*.parquet",
        *FLAGS,
        "--allow_empty",
        "unused",
        "--num_shards",
        "3",
        "--name",
        "d",
    ]
    prisms = own_prism(prism)
    for name, others in (("here", []), ("there", PROCESSES if engine == "processes" else prisms)):
        run = beam_tfr("convert", *flags, *others, "--output", tmp_path / name)
        assert run.code == 0, run.err
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")


@pytest.mark.slow
def test_a_killed_run_resumes(beam_tfr: Convert, tmp_path: Path) -> None:
    rows = photos() * 60
    labels = [NAMES.index(label) for _, label, _ in rows]
    write(tmp_path / "t.parquet", [data for *_, data in rows], labels, row_group_size=50)
    flags = [
        "--table",
        str(tmp_path / "t.parquet"),
        *FLAGS,
        "--allow_empty",
        "unused",
        "--name",
        "d",
    ]
    command = [sys.executable, "-m", "beam_tfr", "convert", *flags, "--output", str(tmp_path / "d")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: [*tmp_path.glob("d/.beam_tfr/images-*.places")])
        process.kill()
    assert process.returncode == -signal.SIGKILL
    for name in ("d", "fresh"):
        run = beam_tfr("convert", *flags, "--output", tmp_path / name)
        assert run.code == 0, run.err
    assert files_of(tmp_path / "d") == files_of(tmp_path / "fresh")
    assert not (tmp_path / "d/.beam_tfr").exists()


@pytest.mark.parametrize("pattern", ["*", "*.parquet", "**/*.parquet"])
def test_files_that_systems_write_beside_tables_are_skipped(pattern: str, tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", [JPEG, JPEG], [0, 1])
    (tmp_path / ".ipynb_checkpoints").mkdir()
    for name in ("._train.parquet", "_SUCCESS", ".train.parquet.crc", "_metadata"):
        (tmp_path / name).write_bytes(b"\0\5\x16\7")
    write(tmp_path / ".ipynb_checkpoints" / "train.parquet", [JPEG], [0])
    found = find_tables([f"{tmp_path}/{pattern}"])
    assert found.files == (f"{tmp_path}/train.parquet",)
    (warning,) = found.warnings
    assert f"{tmp_path}/._train.parquet" in warning
    assert find_tables([f"{tmp_path}/._train.parquet"]).files == (f"{tmp_path}/._train.parquet",)
    with pytest.raises(UsageError, match=r"matches only .*_train\.parquet"):
        find_tables([f"{tmp_path}/._*"])
