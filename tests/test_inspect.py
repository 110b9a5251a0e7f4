"""`inspect`: what is in a dataset, or in any TFRecord files."""

from __future__ import annotations

import collections
import contextlib
import gzip
import io
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageColor, ImageOps

import beam_tfr
from beam_tfr import reader, storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.conditions import features_named, fits_conditions, value_text
from beam_tfr.features.shapes import Dots, Outline, Rectangle
from beam_tfr.inspection import InspectedRecord, fonts, inspect, pictures, sheets
from beam_tfr.records.examples import serialize
from beam_tfr.records.tensors import serialize_tensor
from beam_tfr.records.tfrecords import frame
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import ENCODED, OBJECT_MASK, RAW
from tests.conftest import Run
from tests.converted import (
    converted,
    converted_photos,
    converted_sample,
    converted_spoiled_photos,
    spoiled_photos,
)
from tests.cpu_limit import bounded_cpu
from tests.fixtures import save

Command = Callable[..., Run]
RED = save(Image.new("RGB", (30, 20), "red"), "PNG")
FOREIGN = [
    {
        "img": ("bytes", [RED]),
        "y": ("int64", [7]),
        "box": ("float", [0.5, 1.25]),
        "tags": ("bytes", [b"a", b"b"]),
    },
    {
        "img": ("bytes", [b"\xff\x00"]),
        "y": ("int64", [8]),
        "box": ("float", [1, 2]),
        "tags": ("bytes", [b"\x1b[0m"]),
    },
]


def foreign(folder: Path, name: str = "x.tfrecord") -> Path:
    """A file of two Examples of another program, and a record that is none."""
    data = b"".join(map(frame, [*map(serialize, FOREIGN), b"no example \xff"]))
    (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return folder / name


def test_a_dataset(beam_tfr: Command) -> None:
    folder = converted_photos()
    run = beam_tfr("inspect", folder, "--where", "label=hat", "--records", 1)
    lines = run.out.splitlines()
    assert (run.code, run.err) == (0, "")
    assert lines[:4] == [
        f"{folder}: 18 records in 2 files",
        "  train: 12 records (hat 4, shoes 4, t-shirt 4)",
        "  test: 6 records (hat 2, shoes 2, t-shirt 2)",
        "features:",
    ]
    features = dict(
        line.split()
        for line in lines[4 : lines.index(next(x for x in lines if x.startswith("record")))]
    )
    assert features == {
        name: about["dtype"] for name, about in reader.open(folder).features.items()
    }
    assert sum(line.startswith("record") for line in lines) == 1
    assert "  image/class/text         'hat'" in lines
    assert any(
        line.startswith("  image/encoded            jpeg image, height 224, width 224, ")
        for line in lines
    )


def test_all_conditions_must_fit(beam_tfr: Command) -> None:
    folder = converted_photos()
    hat = inspect(folder, where="label=hat").records[0].values["image/filename"][0].decode()
    run = beam_tfr(
        "inspect",
        folder,
        "--where",
        "label=hat",
        "--where",
        f"filename={hat}",
        "--where",
        "label=hat",
    )
    shown = [line for line in run.out.splitlines() if line.startswith("  image/filename ")]
    assert (run.code, shown[1:]) == (0, [f"  image/filename           {hat!r}"])
    run = beam_tfr("inspect", folder, "--where", "label=shoes", "--where", f"filename={hat}")
    message = f"beam-tfr inspect: --where label=shoes,filename={hat}: matches no record\n"
    assert (run.code, run.out, run.err) == (2, "", message)


def test_no_record_matches(beam_tfr: Command, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    run = beam_tfr("inspect", converted_photos(), "--where", "label=cap", "--contact_sheet", sheet)
    assert (run.code, run.out, run.err) == (
        2,
        "",
        "beam-tfr inspect: --where label=cap: matches no record\n",
    )
    assert not sheet.exists()


def test_any_record_of_a_dataset() -> None:
    folder = converted_photos()
    every = inspect(folder, records=18).records
    assert [record.number for record in every] == [*range(18)]
    assert len({record.values["image/filename"][0] for record in every}) == 18
    assert {Path(record.file).name.split("-")[1] for record in every[12:]} == {"test"}
    for number in (0, 11, 12, 17):
        assert inspect(folder, record=number).records == (every[number],)
    assert inspect(every[12].file, record=3).records[0].data == every[15].data


@pytest.mark.parametrize(
    ("names", "number"),
    [
        (["label"], 6),
        (["class", "key"], 1),
        (["class/label", "width"], 6),
        (["image/filename"], 1),
        (["key/sha256", "label"], 1),
        (["format", "encoded"], 1),
    ],
    ids=str,
)
def test_a_condition_finds_its_records(names: list[str], number: int) -> None:
    folder = converted_photos()
    every = inspect(folder, records=18).records
    values = every[13].values
    where = {name: value_text(values[max(features_named(values, name))][0]) for name in names}
    expected = [record.number for record in every if fits_conditions(record.values, where)]
    assert len(expected) == number
    found = inspect(folder, where=where, records=18)
    assert found.records == tuple(every[number] for number in expected)
    assert [record.number for record in inspect(folder, where=where, record=9).records] == [
        number for number in expected if number >= 9
    ][:1]


def test_only_the_shard_of_a_record_is_opened(tmp_path: Path) -> None:
    folder = converted_photos()
    every = inspect(folder, records=18).records
    told: list[Progress] = []
    hats = inspect(folder, where="label=hat", progress=told.append).records
    assert hats == tuple(
        record for record in every if record.values["image/class/text"] == [b"hat"]
    )
    assert len(hats) == 6
    assert told[0] == Progress("reading", 1, 18, 0, 2, len(every[0].data))
    with pytest.raises(
        UsageError,
        match="`where=lable`: unknown feature; known are image/channels, image/class/label, ",
    ):
        inspect(folder, where="lable=hat")
    copy = shutil.copytree(folder, tmp_path / "d")
    shutil.rmtree(copy / "contents")
    told.clear()
    found = inspect(copy, record=13, progress=told.append)
    assert (found.problem, [record.data for record in found.records]) == ("", [every[13].data])
    assert {progress.shards for progress in told} == {1}
    shard = copy / Path(every[8].file).name
    data = bytearray(shard.read_bytes())
    data[-30] ^= 1
    shard.write_bytes(data)
    found = inspect(copy, record=11)
    assert (found.records, found.problem[: len(str(shard)) + 11]) == ((), f"{shard}: record 11")


@pytest.mark.parametrize("name", ["x.tfrecord.gz", "data"])
def test_files_of_others(name: str, tmp_path: Path, beam_tfr: Command) -> None:
    path = foreign(tmp_path, name)
    run = beam_tfr("inspect", path)
    assert run.out.splitlines() == [
        f"{path}: 3 records in 1 file",
        "features:",
        "  box                      float [2]",
        "  img                      bytes",
        "  tags                     bytes [any]",
        "  y                        int64",
        f"record 0: {path}, byte 0, {len(serialize(FOREIGN[0]))} bytes",
        "  box                      0.5, 1.25",
        f"  img                      png image, height 20, width 30, {len(RED)} bytes",
        "  tags                     'a', 'b'",
        "  y                        7",
        f"record 1: {path}, byte {len(serialize(FOREIGN[0])) + 16}, {len(serialize(FOREIGN[1]))} "
        f"bytes",
        "  box                      1, 2",
        "  img                      2 bytes: ff 00",
        r"  tags                     '\x1b[0m'",
        "  y                        8",
        f"record 2: {path}, byte {len(serialize(FOREIGN[0])) + len(serialize(FOREIGN[1])) + 32}, "
        f"12 bytes",
        "                           not a tf.train.Example: 12 bytes: 6e 6f 20 65 78 61 6d 70 …",
    ]


def test_folders_and_patterns_of_others(tmp_path: Path) -> None:
    for name in ("a.tfrecord-0", "a.tfrecord-1"):
        foreign(tmp_path, name)
    for path in (tmp_path, tmp_path / "a.tfrecord-*"):
        found = inspect(path, where={"y": 8}, records=9)
        assert (found.num_files, found.num_records) == (2, 6)
        assert [record.number for record in found.records] == [1, 4]
    told: list[Progress] = []
    inspect(tmp_path / "a.tfrecord-1", progress=told.append)
    assert told == [Progress("reading", 1, 0, 0, 1, len(serialize(FOREIGN[0])))]
    assert repr(inspect(tmp_path)).startswith(
        f"{tmp_path}: 6 records in 2 files\nfeatures:\n  box  "
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jpg", RED),
        ("a.csv.gz", gzip.compress(b"file,label\n" * 9, mtime=0)),
        ("a.json", b"[]" * 9),
    ],
)
def test_a_file_that_holds_no_records(
    name: str, content: bytes, tmp_path: Path, beam_tfr: Command
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    run = beam_tfr("inspect", path)
    said = "its length does not match the checksum of the length; is it a TFRecord file?"
    assert (run.code, run.err) == (1, "")
    assert run.out.splitlines() == [
        f"{path}: 0 records in 1 file",
        f"problem: {path}: record 0 at byte 0: {said}",
    ]


def test_damage_is_told(tmp_path: Path, beam_tfr: Command) -> None:
    path = foreign(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    run = beam_tfr("inspect", path)
    assert run.code == 1
    assert run.out.startswith(f"{path}: 2 records in 1 file\n")
    assert run.out.splitlines()[-1].startswith(f"problem: {path}: record 2 at byte ")


def test_an_unfinished_dataset_is_shown_and_told(tmp_path: Path, beam_tfr: Command) -> None:
    folder = Path(shutil.copytree(converted_photos(), tmp_path / "d"))
    foreign(folder)
    there = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(there.replace(b'"train"', b'"trial"'))
    edited = beam_tfr("inspect", folder)
    assert edited.code == 1
    assert "manifest.json was changed after it was written" in edited.out.splitlines()[-1]
    (folder / "manifest.json").unlink()
    (folder / ".beam_tfr").mkdir()
    assert beam_tfr("inspect", folder).code == 0  # any program's files
    (folder / ".beam_tfr" / "plan.json").touch()
    run = beam_tfr("inspect", folder)
    assert (run.code, run.out.splitlines()[0]) == (1, f"{folder}: 21 records in 3 files")
    said = (
        f"{folder} is not a complete dataset: manifest.json is missing. A conversion into "
        f"this folder has not finished; run the same"
    )
    assert run.out.splitlines()[-1] == f"problem: {said} convert command again to resume it"
    assert f"problem: {said} convert" in inspect(folder)._repr_html_()


def test_a_split(beam_tfr: Command, tmp_path: Path) -> None:
    folder = converted_photos()
    run = beam_tfr("inspect", folder, "--split", "test", "--contact_sheet", tmp_path / "a.png")
    assert (run.code, run.out, run.err) == (0, f"wrote {tmp_path / 'a.png'}: 6 records\n", "")
    found = inspect(folder, split="test", record=2)
    assert [*found.lines()][:2] == [
        f"{folder}: 6 records in 1 file",
        "  test: 6 records (hat 2, shoes 2, t-shirt 2)",
    ]
    assert found.records[0].data == inspect(folder, record=14).records[0].data
    both = beam_tfr("inspect", folder, "--records", 13, "--contact_sheet", tmp_path / "both.png")
    assert both.out == f"wrote {tmp_path / 'both.png'}: 13 records\n"
    for path, split, said in (
        (folder, "trian", r"`split=trian`: is not in .*; the splits are: train, test$"),
        (found.records[0].file, "test", "`split=test`: needs a complete dataset"),
    ):
        with pytest.raises(UsageError, match=said):
            inspect(path, split=split)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--record", "3"], "--record 3: there are 3 records, numbered from 0"),
        (["--where", "label=hat"], "--where label: unknown feature; known are box, img, tags, y\n"),
        (["--where", "label"], "--where label: must be NAME=VALUE, such as label=hat"),
        (["--where", "y=8", "--where", "y"], "--where y: must be NAME=VALUE, such as label=hat"),
        (
            ["--where", "y=8", "--where", "y=9"],
            "--where y=9: another condition requires y=8, and records must meet all conditions: "
            "specify one value for each name\n",
        ),
        (["--record", "-1"], "--record=-1: must be a whole number from 0"),
        (
            ["--contact_sheet", "sheet.docx"],
            "--contact_sheet sheet.docx: cannot be written: unknown file extension",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_wrong_calls(arguments: list[str], message: str, tmp_path: Path, beam_tfr: Command) -> None:
    run = beam_tfr("inspect", foreign(tmp_path), *arguments)
    assert run.code == 2
    assert message in run.err


def test_nothing_there(tmp_path: Path) -> None:
    for name in ("none", "none.tfrecord"):
        with pytest.raises(FileNotFoundError, match=f"{name}: there is no such file or folder"):
            inspect(tmp_path / name)
    with pytest.raises(UsageError, match=r"`path=.*/\*.xyz`: matches no file"):
        inspect(tmp_path / "*.xyz")
    with pytest.raises(DataError, match="is not a complete dataset"):
        inspect(tmp_path)
    with pytest.raises(UsageError, match="`record='x'`: must be a whole number from 0"):
        inspect(tmp_path, record="x")


def test_raw_pixels_are_pictures() -> None:
    found = inspect(converted("--encoding raw --resize stretch"), record=0)
    feature = next(line for line in found.lines() if "uint8 tensor" in line)
    assert feature.startswith("  image/raw                uint8 tensor [32, 40, 3], ")
    (expected, *_) = reader.load(
        found.path, split="train", output="image", streams=1
    ).as_numpy_iterator()
    thumbnail = ImageOps.pad(
        Image.fromarray(np.asarray(expected)), (pictures.SIDE, pictures.SIDE), color=pictures.GROUND
    )
    sheet = found.contact_sheet().crop((8, 8, 8 + pictures.SIDE, 8 + pictures.SIDE))
    np.testing.assert_array_equal(np.asarray(sheet), np.asarray(thumbnail))


def test_a_contact_sheet_in_a_notebook_has_as_many_records_as_that_of_the_command(
    tmp_path: Path,
) -> None:
    found = inspect(converted_sample())
    assert len(found.records) == 40
    assert found.contact_sheet(columns=10).size == (10 * 120 + 8, 4 * 138 + 8)
    assert sum(line.startswith("record ") for line in found.lines()) == 3


def test_a_contact_sheet_shows_some_of_each_class(tmp_path: Path, beam_tfr: Command) -> None:
    path = converted_sample()
    found = inspect(path)
    labels = [record.values["image/class/text"][0] for record in found.sheet_records]
    assert collections.Counter(labels) == dict.fromkeys(labels, 4)
    assert len({*labels}) == 10
    assert labels == sorted(labels)
    assert found.sheet_records == inspect(path).sheet_records
    numbers = [record.number for record in found.sheet_records]
    assert max(numbers) > 40
    (again,) = inspect(path, record=numbers[7]).records
    assert again.data == found.sheet_records[7].data
    some = inspect(path, records=4, split="test")
    assert len({record.values["image/class/text"][0] for record in some.sheet_records}) == 4
    assert len(some.sheet_records) == 4
    chosen = inspect(path, where="label=hat")
    assert chosen.sheet_records == chosen.records
    run = beam_tfr("inspect", path, "--contact_sheet", tmp_path / "x.png", "--names")
    assert run.out == f"wrote {tmp_path / 'x.png'}: 40 records\n"
    with Image.open(tmp_path / "x.png") as sheet:  # with a line for the keys
        assert sheet.size == (8 * 120 + 8, 5 * (112 + 2 * 18 + 8) + 8)


def test_a_contact_sheet_without_contents_shows_the_first_records(tmp_path: Path) -> None:
    shutil.copytree(converted_photos(), tmp_path / "d")
    shutil.rmtree(tmp_path / "d" / "contents")
    found = inspect(tmp_path / "d")
    assert found.sheet_records == found.records
    assert "first records" in found.sheet_note
    assert inspect(converted_photos()).sheet_note == ""


def test_rejects_of_a_run_that_failed_because_of_them(tmp_path: Path, beam_tfr: Command) -> None:
    output = tmp_path / "d"
    call = ("--input", spoiled_photos(), "--output", output, "--layout", "*")
    assert beam_tfr("convert", *call).code == 1
    shown = beam_tfr("inspect", output, "--rejects")
    assert shown.code == 1
    assert "not a complete dataset" in shown.out
    number = len((output / ".beam_tfr" / "rejects.jsonl").read_text().splitlines())
    assert shown.out.startswith(f"{output}: {number} rejected\n")
    sheet = tmp_path / "rejects.png"
    assert beam_tfr("inspect", output, "--rejects", "--contact_sheet", sheet).code == 1
    assert sheet.exists()


def test_rejects_on_a_contact_sheet(tmp_path: Path, beam_tfr: Command) -> None:
    path = converted_spoiled_photos()
    rejected = json.loads((path / "manifest.json").read_text())["counts"]["rejected"]
    lines = beam_tfr("inspect", path, "--rejects").out.splitlines()
    for reason, number in rejected.items():
        assert any(line.startswith(f"{reason}: {number}") for line in lines)
    sheets_bytes = []
    for sources in ([], ["--sources", spoiled_photos()]):
        sheet = tmp_path / "rejects.png"
        run = beam_tfr("inspect", path, "--rejects", "--contact_sheet", sheet, *sources)
        assert (run.code, ("--sources" in run.out)) == (0, not sources)
        sheets_bytes.append(sheet.read_bytes())
    assert sheets_bytes[0] != sheets_bytes[1]  # one of them decodes


@pytest.mark.parametrize(
    "flags",
    [["--names"], ["--sources", "x"], ["--rejects", "--where", "label=hat"]],
)
def test_flags_that_need_others(flags: list[str], beam_tfr: Command) -> None:
    assert beam_tfr("inspect", converted_photos(), *flags).code == 2


def test_colors_of_classes_differ_and_their_texts_are_readable() -> None:
    colors = [np.array(ImageColor.getrgb(color)) for color in pictures.BOX_COLORS]
    for one, other in itertools.combinations(colors, 2):
        assert np.abs(one - other).sum() > 100
    for color in pictures.BOX_COLORS:
        assert contrast(color, pictures.ink_on(color)) >= 4.5


def contrast(one: str, other: str) -> float:
    """Of https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    shares = [value / 255 for value in ImageColor.getrgb(color)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contact_sheet(tmp_path: Path, beam_tfr: Command) -> None:
    path = foreign(tmp_path)
    assert beam_tfr("inspect", path, "--contact_sheet", tmp_path / "sheet.png").code == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        centers = [sheet.getpixel((8 + 56 + 120 * place, 8 + 56)) for place in range(3)]
        assert (sheet.size, centers) == (
            (368, 146),
            [(255, 0, 0), (208, 215, 222), (208, 215, 222)],
        )
    shown = inspect(path)._repr_html_()
    assert shown.startswith(f"<pre>{path}: 3 records in 1 file\nfeatures:\n")
    assert " png image, height 20, width 30" in shown
    assert '<img alt="records" src="data:image/png;base64,' in shown


def test_captions_escape_what_no_font_has(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("hat", "Ku\u0308che", "帽子", "a\nb\x1b")
    told = ["hat", "Küche", r"\u5e3d\u5b50", r"a b\x1b"]
    monkeypatch.setattr(fonts, "_load_fonts_of_system", lambda size: [])
    for text, shown in zip(texts, told, strict=True):
        label = {"class/text": ("bytes", [text.encode()])}
        caption = sheets.caption(InspectedRecord(7, "x", 0, serialize(label)))
        assert fonts.choose_lettering(caption, 12)[0] == f"7: {shown}"


def test_captions_are_in_a_font_of_the_machine_if_it_has_what_the_bundled_lack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Chinese:
        def getmask(self, char: str) -> bytes:
            return char.encode() if char in "帽子 hat" else b"absent"

    font = Chinese()
    monkeypatch.setattr(fonts, "_load_fonts_of_system", lambda size: [font])
    assert fonts.choose_lettering("帽子 hat", 12) == ("帽子 hat", font)
    assert fonts.choose_lettering("모자", 12)[0] == r"\ubaa8\uc790"
    assert fonts.choose_lettering("hat", 12)[1] != font
    assert fonts.drawable("帽") == r"\u5e3d"  # within images, the same everywhere


def test_the_font_has_what_is_not_escaped() -> None:
    font = fonts.find_font("ü", 12)
    absent = bytes(font.getmask("\uffff"))
    for char in "üößéçńőğřśΩяЖ…€":
        assert fonts.drawable(char) == char
        assert bytes(font.getmask(char)) != absent


def test_records_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beam_tfr.inspection.searching.MAX_KEPT_BYTES", 100)
    with pytest.raises(
        UsageError, match="the records take more than 100 bytes of memory; choose fewer"
    ):
        inspect(foreign(tmp_path))
    num_values = sum(len(values) for _, values in FOREIGN[0].values())
    needed = len(serialize(FOREIGN[0])) + 40 * num_values
    monkeypatch.setattr("beam_tfr.inspection.searching.MAX_KEPT_BYTES", needed)
    assert len(inspect(foreign(tmp_path), records=1).records) == 1
    with pytest.raises(UsageError, match="bytes of memory; choose fewer"):
        inspect(foreign(tmp_path), records=2)


def test_objects(gcs: str, tmp_path: Path) -> None:
    storage.write_bytes(f"{gcs}/x.tfrecord", foreign(tmp_path).read_bytes(), scratch=str(tmp_path))
    found: Any = beam_tfr.inspect(f"{gcs}/x.tfrecord", where="y=8")
    assert (found.num_records, [record.number for record in found.records]) == (3, [1])


def test_a_thumbnail_shows_the_image_whatever_lies_beside_it() -> None:
    image, mask = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (9, 7), "red").save(image, "PNG")
    Image.new("L", (9, 7), 3).save(mask, "PNG")
    values = {
        ENCODED: [image.getvalue()],
        "image/depth/encoded": [mask.getvalue()],
        OBJECT_MASK: [mask.getvalue()],
    }
    for names in itertools.permutations(values):
        pixels = pictures._pixels({name: values[name] for name in names}, 9)
        assert pixels is not None
        assert pixels.shape == (7, 9, 3)


@pytest.mark.parametrize("size", [(1, 1), (2000, 3), (3, 2000)])
def test_a_thumbnail_of_a_line_is_a_square(size: tuple[int, int]) -> None:
    """Its shorter side was scaled to nothing, which Pillow refuses."""
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, "PNG")
    record = serialize({ENCODED: ("bytes", [file.getvalue()])})
    thumbnail = pictures.draw_thumbnail(InspectedRecord(0, "", 0, record), 128)
    assert thumbnail.size == (128, 128)
    assert (255, 0, 0) in {color for _, color in thumbnail.getcolors() or ()}
    source = pictures.draw_source(file.getvalue(), 128)
    assert source
    assert source.size == (128, 128)


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3)])
def test_a_thumbnail_of_no_pixels_is_gray(shape: tuple[int, int, int]) -> None:
    record = serialize({RAW: ("bytes", [serialize_tensor("uint8", shape, b"")])})
    thumbnail = pictures.draw_thumbnail(InspectedRecord(0, "", 0, record), 128)
    assert len(thumbnail.getcolors() or ()) == 1


@pytest.mark.parametrize("far", [float("nan"), float("inf"), float("-inf"), 3e38])
def test_shapes_that_leave_the_image_take_no_time(far: float) -> None:
    points = np.array([(0.1, 0.2), (0.5, far), (far, 0.5)])
    sides = [(far, 0.2, 0.5, 0.5), (0.2, far, 0.5, 0.5), (0.2, 0.2, far, 0.5), (0.2, 0.2, 0.5, far)]
    rectangles = [Rectangle(corners, 1, b"cat") for corners in sides]
    shapes = [*rectangles * 4, Dots(points, 1), Outline(points, 1)]
    image = Image.new("RGB", (224, 224))
    with bounded_cpu():
        for shape in shapes:
            with contextlib.suppress(ValueError):  # corners in the wrong order
                pictures.draw_shape(image, shape)
