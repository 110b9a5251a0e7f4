"""Pascal VOC as people have it.

Pixels that count from 0, encodings, texts with spaces, objects without a box, files that are none.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import beam_tfr
from beam_tfr.features.boxes import Boxes
from beam_tfr.features.cells import BadCell
from beam_tfr.features.registry import parse_column
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import OBJECT_TEXT, SIDES, VISIBLE
from beam_tfr.tables.annotations import read_annotations
from beam_tfr.tables.annotations.voc import describe_origin
from beam_tfr.tables.annotations.voc_fields import describe_other_fields
from beam_tfr.tables.base import OtherColumn
from tests.voc_files import SIZE, bndbox, named, voc, write_picture

Found = dict[str, dict[str, Any]]


def row(data: bytes | str, path: str = "/t/1.xml") -> dict[str, Any]:
    content = data if isinstance(data, bytes) else data.encode()
    (found,) = read_annotations(path, io.BytesIO(content))
    return found


def write_set(folder: Path, files: dict[str, str | bytes], *, images: int = 3) -> dict[str, Any]:
    """Writes XML files and pictures 1.png, 2.png, ...; returns options of a conversion."""
    for number in range(1, images + 1):
        write_picture(folder / f"images/{number}.png", number)
    (folder / "xml").mkdir()
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / "xml" / name).write_bytes(data)
    return {
        "table": folder / "xml/*.xml",
        "image_root": folder / "images",
        "output": folder / "d",
        "resize": "none",
        "progress": False,
    }


def records(folder: Path) -> Found:
    found = {}
    for file in folder.glob("*.tfrecord*"):
        for record in map(parse_example, RecordFile(str(file))):
            found[record["image/filename"][0].decode()] = record
    return found


def rejects(folder: Path) -> dict[str, str]:
    lines = (folder / "rejects.jsonl").read_text().splitlines()
    return {line["key"]: line["detail"] for line in map(json.loads, lines)}


def sides_of(record: dict[str, Any]) -> list[list[float]]:
    columns = [record[side] for side in SIDES]
    return [[round(side, 4) for side in box] for box in zip(*columns, strict=True)]


# Pixels that count from 0


def test_boxes_are_moved_unless_one_begins_at_0() -> None:
    content = row(voc("1.png", (1, 1, 40, 30), (11, 11, 20, 20)))
    assert content["box"] == content["box_from_1"] == [[0, 0, 40, 30], [10, 10, 20, 20]]
    assert content["box_from_0"] == [[1, 1, 40, 30], [11, 11, 20, 20]]


@pytest.mark.parametrize("box", [(0, 5, 40, 12), (5, 0, 9, 9), ("0.0", 1, 9, 9), (0.5, 1, 9, 9)])
def test_a_box_that_begins_at_0_shows_that_its_file_counts_from_0(box: tuple[Any, ...]) -> None:
    content = row(voc("1.png", (10, 10, 20, 20), box))
    assert isinstance(content["box"], OtherColumn)
    assert content["box"].column == "box_from_0"
    assert content["box_from_0"] == [[10, 10, 20, 20], [float(side) for side in box]]


def test_one_box_at_0_means_that_all_files_count_from_0(
    tmp_path: Path, beam_tfr: Callable[..., Any]
) -> None:
    files: dict[str, str | bytes] = {
        "1.xml": voc("1.png", (10, 10, 20, 20)),
        "2.xml": voc("2.png", (0, 0, 40, 30)),
    }
    options = write_set(tmp_path, files)
    line = ["--table", options["table"], "--image_root", options["image_root"], "--resize", "none"]
    assert "count from 0" in beam_tfr("plan", *line).out
    run = beam_tfr("convert", *line, "--output", tmp_path / "d")
    assert run.code == 0
    assert "count from 0" in run.err
    assert "box_from_1" in run.err
    found = records(tmp_path / "d")
    assert sides_of(found["1.png"]) == [[0.25, 0.3333, 0.5, 0.6667]]
    assert found["2.png"][VISIBLE] == [1.0]
    sources = (options["table"], f"{options['image_root']}/")
    assert beam_tfr("verify", tmp_path / "d", "--sources", *sources).code == 0


def test_boxes_that_show_no_origin_are_told(tmp_path: Path) -> None:
    options = write_set(tmp_path, {"1.xml": voc("1.png", (2, 9, 20, 20)), "2.xml": voc("2.png")})
    places = {"table": options["table"], "image_root": options["image_root"]}
    assert any("assumed to count from 1" in line for line in beam_tfr.plan(**places).warnings)
    (tmp_path / "xml/3.xml").write_text(voc("3.png", (1, 9, 20, 20)))
    assert not any("count from 1" in line for line in beam_tfr.plan(**places).warnings)


def test_files_of_our_exports_count_from_1(tmp_path: Path) -> None:
    source = "<source><database>beam_tfr</database></source>"
    text = voc("1.png", (2, 9, 20, 20)).replace("<object>", f"{source}<object>")
    options = write_set(tmp_path, {"1.xml": text})
    places = {"table": options["table"], "image_root": options["image_root"]}
    assert not any("count from 1" in line for line in beam_tfr.plan(**places).warnings)


@pytest.mark.parametrize("placeholder", [(0, 0, 0, 0), (0, 0, 1, 1), (0, 5, 0, 9)])
def test_a_box_that_is_none_does_not_say_where_a_set_counts_from(
    tmp_path: Path, placeholder: tuple[int, ...]
) -> None:
    files: dict[str, str | bytes] = {
        "1.xml": voc("1.png", (1, 1, 40, 30)),
        "2.xml": voc("2.png", (6, 7, 25, 21), placeholder),
    }
    options = write_set(tmp_path, files, images=2)
    places = {"table": options["table"], "image_root": options["image_root"]}
    assert not any("count from" in line for line in beam_tfr.plan(**places).warnings)
    beam_tfr.convert(**options, bad_boxes="drop")
    found = records(tmp_path / "d")
    assert sides_of(found["1.png"]) == [[0, 0, 1, 1]]
    assert sides_of(found["2.png"]) == [[0.125, 0.2, 0.625, 0.7]]


def test_files_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    ends_at_width = voc("1.png", (6, 7, 40, 21)).replace("<object>", f"{SIZE}<object>")
    files: dict[str, str | bytes] = {"1.xml": ends_at_width, "2.xml": voc("2.png", (0, 3, 9, 9))}
    options = write_set(tmp_path, files, images=2)
    places = {"table": options["table"], "image_root": options["image_root"]}
    (line,) = [line for line in beam_tfr.plan(**places).warnings if "as if pixels" in line]
    assert line.startswith("1.png: the xmax of a box is the width 40")
    assert "box_from_1" in line
    (tmp_path / "xml/1.xml").write_text(voc("1.png", (6, 7, 39, 21)))
    assert not any("as if pixels" in line for line in beam_tfr.plan(**places).warnings)


def test_columns_say_where_a_set_counts_from(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"1.xml": voc("1.png", (0, 10, 20, 20))}
    options = write_set(tmp_path, files)
    beam_tfr.convert(**options, feature_columns="box_from_1:bbox[xyxy]")
    assert sides_of(records(tmp_path / "d")["1.png"]) == [[0, 0.3, 0.5, 0.6667]]
    options["output"] = tmp_path / "e"
    beam_tfr.convert(**options, feature_columns="box_from_0:bbox[xyxy]")
    assert sides_of(records(tmp_path / "e")["1.png"]) == [[0, 0.3333, 0.5, 0.6667]]


def test_a_later_file_that_contradicts_is_a_reject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beam_tfr.tables.first_rows.SAMPLE_TABLES", 2)
    files: dict[str, str | bytes] = {
        "1.xml": voc("1.png", (1, 1, 40, 30)),
        "2.xml": voc("2.png"),
        "3.xml": voc("3.png", (0, 0, 40, 30)),
    }
    beam_tfr.convert(**write_set(tmp_path, files), max_rejects=1)
    assert "its xmin is 0" in rejects(tmp_path / "d")["3.png"]
    assert "box_from_0" in rejects(tmp_path / "d")["3.png"]
    assert records(tmp_path / "d")["1.png"][VISIBLE] == [1.0]


# Encodings and texts

DECLARED = "<?xml version='1.0' encoding='{}'?>"


@pytest.mark.parametrize(
    ("declared", "written", "label"),
    [
        ("", "utf-8", "狗"),
        ("", "utf-8-sig", "狗"),
        ("", "utf-16", "狗"),
        ("gbk", "gbk", "狗"),
        ("gb2312", "gbk", "狗"),
        ("GB2312", "gbk", "鎔"),  # which GB 2312 does not have
        ("big5", "big5", "狗"),
        ("Shift_JIS", "cp932", "猫①"),
        ("iso-8859-1", "latin-1", "café"),
        ("windows-1251", "cp1251", "кот"),
        ("utf-16", "utf-16", "狗"),
        ("utf-16", "utf-16-le", "狗"),
        ("utf-16", "utf-16-be", "狗"),
        ("utf-16", "utf-8", "狗"),  # as .NET declares it
        ("gbk", "utf-8-sig", "狗"),
    ],
)
def test_the_encoding_is_that_which_a_file_has(declared: str, written: str, label: str) -> None:
    head = DECLARED.format(declared) if declared else ""
    data = (head + voc("1.png", label=label)).encode(written)
    assert row(data)["class"] == [label]


def test_a_file_that_is_not_in_its_encoding_is_no_file_of_another() -> None:
    data = voc("1.png", label="café").encode("latin-1")
    with pytest.raises(DataError, match="byte 0xe9 is not valid UTF-8"):
        row(data)
    for encoding in ("klingon", "unicode_escape", "raw_unicode_escape", "hex", "idna", "utf7"):
        with pytest.raises(DataError, match=f"encoding '{encoding}' is unknown"):
            row(DECLARED.format(encoding).encode() + data)


def test_spaces_around_texts_are_no_part_of_them() -> None:
    more = "<difficult> 1 </difficult><truncated>\n0.35\n</truncated>"
    found = row(voc("\n\t1.png\n", (" 6 ", "\n7", 25, 21), label=" cat\n", more=more))
    assert (found["file"], found["class"], found["box"]) == ("1.png", ["cat"], [[5, 6, 25, 21]])
    assert (found["image/object/difficult"], found["image/object/truncated"]) == (["1"], ["1"])


@pytest.mark.parametrize(
    ("text", "flag"),
    [("0", 0), ("1", 1), ("", 0), ("Unspecified", 0), ("0.0", 0), ("0.01", 1), ("1.0", 1)],
)
def test_flags_are_0_or_1(text: str, flag: int) -> None:
    found = row(voc("1.png", more=f"<truncated>{text}</truncated><pose>Unspecified</pose>"))
    values = parse_column("truncated", "int64[box]").parse(found["image/object/truncated"])
    assert values == [flag]


def test_a_flag_that_is_none_is_refused() -> None:
    found = row(voc("1.png", more="<truncated>perhaps</truncated>"))
    with pytest.raises(ValueError, match="perhaps"):
        parse_column("truncated", "int64[box]").parse(found["image/object/truncated"])


# Objects without a box


@pytest.mark.parametrize(
    "polygon",
    [
        "<x1>5</x1><y1>6</y1><x2>25</x2><y2>6</y2><x3>25</x3><y3>21</y3>",
        "<pt><x>5</x><y>6</y></pt><pt><x>25</x><y>6</y></pt><pt><x> 25 </x><y>21</y></pt>",
    ],
)
def test_a_polygon_gives_the_box_around_it(polygon: str) -> None:
    for inside in ("", "<bndbox/>"):
        text = f"<object><name>cat</name>{inside}<polygon>{polygon}</polygon></object>"
        found = row(f"<annotation>{named('1.png')}{text}</annotation>")
        assert found["box"] == found["box_from_0"] == [[5, 6, 25, 21]]


@pytest.mark.parametrize("database", ["roboflow.ai", "roboflow.com", "The VOC2007 Database"])
def test_roboflow_counts_all_sides_from_1(database: str) -> None:
    """Its boxes of whole images are 1, 1, width + 1, height + 1."""
    source = f"<source><database>{database}</database></source>"
    text = voc("1.png", (1, 1, 41, 31), (6, 7, 25, 21))
    found = row(text.replace("<object>", f"{source}<object>", 1))
    end = 1 if "roboflow" in database else 0
    assert found["box"] == [[0, 0, 41 - end, 31 - end], [5, 6, 25 - end, 21 - end]]
    assert found["box_from_0"] == [[1, 1, 41, 31], [6, 7, 25, 21]]


def test_deleted_objects_of_labelme_are_none() -> None:
    """LabelMe of the web keeps them in its files; its polygons count from nowhere."""
    polygon = "<polygon><pt><x>5</x><y>6</y></pt><pt><x>25</x><y>21</y></pt></polygon>"
    texts = [
        f"<object><name>{name}</name><deleted>{deleted}</deleted>{polygon}</object>"
        for name, deleted in (("cat", 0), ("dog", 1))
    ]
    found = row(f"<annotation>{named('1.png')}{''.join(texts)}</annotation>")
    assert found["class"] == ["cat"]
    assert found["box"] == [[5, 6, 25, 21]]
    assert not describe_origin({name: [cell] for name, cell in found.items()})
    plain = row(voc("1.png"))
    assert describe_origin({name: [cell] for name, cell in plain.items()})


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("", "no bndbox"),
        ("<bndbox></bndbox>", "no bndbox"),
        ("<robndbox><cx>15</cx><cy>12</cy></robndbox>", "no bndbox"),
        ("<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax></bndbox>", "no ymax"),
        (2 * bndbox((6, 7, 25, 21)), "more than one bndbox"),
        (bndbox((6, 7, 25, 21)).replace("<ymin>", "<xmin>6</xmin><ymin>"), "more than one xmin"),
        (bndbox(("a", 7, 25, 21)), "'a'"),
        (bndbox((6, "NaN", 25, 21)), "ymin is 'NaN'"),
        (bndbox((6, 7, "inf", 21)), "xmax is 'inf'"),
        (bndbox((0, 0, 0, 0)), r"\[0.0, 0.0, 0.0, 0.0\] has no area"),
        ("<polygon><x1>b</x1><y1>6</y1></polygon>", "'b'"),
        ("<polygon/>", "no corners"),
    ],
)
def test_a_box_that_is_none_is_named(inside: str, problem: str) -> None:
    good = f"<object><name>cat</name>{bndbox((6, 7, 25, 21))}</object>"
    bad = f"<object><name>cat</name>{inside}</object>"
    found = row(f"<annotation>{named('1.png')}{good}{bad}</annotation>")
    boxes = Boxes(name="box", text="bbox[xyxy]", form="xyxy")
    assert isinstance(found["box"][1], BadCell)
    with pytest.raises(ValueError, match=f"box 2: .*{problem}"):
        boxes.parse(found["box"])
    first, second = boxes.find_bad(found["box"])
    assert first == ""
    assert re.search(problem, second)


def test_the_only_file_without_a_box_is_an_error_without_advice_on_types(tmp_path: Path) -> None:
    text = f"<annotation>{named('1.png')}<object><name>a</name></object></annotation>"
    with pytest.raises(UsageError, match="no bndbox") as caught:
        beam_tfr.convert(**write_set(tmp_path, {"1.xml": text}))
    assert "another type" not in str(caught.value)


# Files that are none

UNREADABLE = {
    "empty": b"",
    "cut": voc("1.png").encode()[:60],
    "twice": voc("1.png").encode() * 2,
    "ampersand": voc("1.png", label="cat & dog").encode(),
    "doctype": b"<!DOCTYPE annotation [<!ELEMENT a ANY>]>" + voc("1.png").encode(),
    "page": b"<html><body>404 Not Found</body></html>",
    "of CVAT": b"<annotations><image id='0' name='1.png'/></annotations>",
    "no UTF-8": voc("1.png", label="caf\xe9").encode("latin-1"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_cannot_be_read_is_one_reject(tmp_path: Path, kind: str) -> None:
    files = {"1.xml": UNREADABLE[kind], "2.xml": voc("2.png"), "3.xml": voc("3.png")}
    done = beam_tfr.convert(**write_set(tmp_path, files), max_rejects=1)
    assert done.counts["matched"] == 3
    assert done.counts["rejected"] == {"bad-value": 1}
    assert sorted(records(tmp_path / "d")) == ["2.png", "3.png"]
    (detail,) = rejects(tmp_path / "d").values()
    assert detail.startswith("1.xml: cannot be read as Pascal VOC: ")


OBJECT = f"<name>cat</name>{bndbox((6, 7, 25, 21))}"
MISPLACED = {
    "in a list": (f"<objects><object>{OBJECT}</object></objects>", "<objects>"),
    "in capitals": (f"<Object>{OBJECT}</Object>", "<Object>"),
    "of another name": (f"<item>{OBJECT}</item>", "<item>"),
    "as attributes": ("<box xmin='6' ymin='7' xmax='25' ymax='21'/>", "<box>"),
    "as text": ("<box>6, 7, 25, 21, cat</box>", "<box>"),
    "in the root": (OBJECT, "<bndbox>"),
    "a side an element": (
        "<x1>6</x1><y1>7</y1><x2>25</x2><y2>21</y2>",
        "<x1>, <y1>, <x2>, and 1 more",
    ),
    "a class alone": ("<label>cat</label>", "<label>"),
}


@pytest.mark.parametrize("kind", MISPLACED)
def test_objects_elsewhere_are_not_taken_for_background(kind: str) -> None:
    content, tag = MISPLACED[kind]
    with pytest.raises(DataError, match=f"holds {tag}, but no <object>.*rename.*CSV"):
        row(f"<annotation>{named('1.png')}{SIZE}{content}</annotation>")


def test_objects_beside_those_of_voc_are_not_lost() -> None:
    for others in (f"<objects><object>{OBJECT}</object></objects>", f"<item>{OBJECT}</item>"):
        with pytest.raises(DataError, match="with a <bndbox>, next to <object>"):
            row(voc("1.png").replace("</annotation>", f"{others}</annotation>"))


def test_objects_elsewhere_end_the_run_or_are_one_reject(tmp_path: Path) -> None:
    content, _ = MISPLACED["in a list"]
    text = f"<annotation>{named('1.png')}{content}</annotation>"
    options = write_set(tmp_path, {"1.xml": text, "2.xml": text.replace("1.png", "2.png")})
    with pytest.raises(DataError, match=r"1\.xml`: .*holds <objects>, but no <object>"):
        beam_tfr.convert(**options)
    (tmp_path / "xml/2.xml").write_text(voc("2.png"))
    done = beam_tfr.convert(**options, max_rejects=1)
    assert done.counts["rejected"] == {"bad-value": 1}
    (detail,) = rejects(tmp_path / "d").values()
    assert "holds <objects>" in detail


def test_a_file_about_its_image_alone_is_background() -> None:
    about = (
        "<Folder>a</Folder><path>/a/1.png</path><source><database>b</database></source>"
        "<owner><name>c</name></owner><Size><Width>40</Width></Size><segmented>0</segmented>"
        "<imagesize><nrows>30</nrows></imagesize><weather>rain</weather><objects/>"
        "<time>2020-01-02 10:11:12</time>"
    )
    assert row(f"<annotation>{named('1.png')}{about}</annotation>")["box"] == []


@pytest.mark.parametrize("outer", ["", ' SYSTEM "none.dtd"', ' PUBLIC "-//a" "http://a/b.dtd"'])
def test_a_doctype_that_declares_nothing_is_no_harm(outer: str) -> None:
    assert row(f"<!DOCTYPE annotation{outer}>\n" + voc("1.png")) == row(voc("1.png"))


def test_an_object_with_two_names_has_no_class() -> None:
    text = f"<object><name>a</name><name>b</name>{bndbox((6, 7, 25, 21))}</object>"
    [name] = row(f"<annotation>{named('1.png')}{text}</annotation>")["class"]
    assert isinstance(name, BadCell)


def test_the_only_file_that_cannot_be_read_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1\.xml`: cannot be read as Pascal VOC: no element"):
        beam_tfr.convert(**write_set(tmp_path, {"1.xml": b""}))
    for number in (2, 3):
        (tmp_path / f"xml/{number}.xml").write_bytes(b"")
    options = {"table": tmp_path / "xml/*.xml", "output": tmp_path / "e", "progress": False}
    with pytest.raises(DataError, match=r"1\.xml`: cannot be read"):
        beam_tfr.convert(**options)


def test_a_link_to_nothing_and_a_folder_are_told(
    tmp_path: Path, beam_tfr: Callable[..., Any]
) -> None:
    options = write_set(tmp_path, {"2.xml": voc("2.png")})
    (tmp_path / "xml/1.xml").symlink_to("nowhere.xml")
    (tmp_path / "xml/3.xml").mkdir()
    line = ["--table", options["table"], "--image_root", options["image_root"], "--resize", "none"]
    run = beam_tfr("convert", *line, "--output", tmp_path / "d", "--max_rejects", "1")
    assert run.code == 0
    assert f"skipped: {tmp_path}/xml/3.xml" in run.err
    assert rejects(tmp_path / "d") == {
        "1.xml#1": "1.xml: cannot be read: No such file or directory"
    }
    assert records(tmp_path / "d")["2.png"][OBJECT_TEXT] == [b"cat"]


def test_images_without_an_xml_file_are_told(tmp_path: Path) -> None:
    files = {f"{number}.xml": voc(f"{number}.png") for number in (1, 2)}
    options = write_set(tmp_path, files, images=4)
    plan = beam_tfr.plan(**options)
    (warning,) = [text for text in plan.warnings if "left out" in text]
    assert warning.startswith("2 images ")
    assert f"{tmp_path}/images/3.png" in warning
    for number in (3, 4):
        (tmp_path / f"xml/{number}.xml").write_text(voc(f"{number}.png"))
    assert not any("left out" in text for text in beam_tfr.plan(**options).warnings)
    (tmp_path / "xml/1.xml").write_text(voc("2.png"))  # so names need not be those of the files
    (tmp_path / "xml/4.xml").rename(tmp_path / "xml/5.xml")
    assert not any("left out" in text for text in beam_tfr.plan(**options).warnings)


def classes_of_images(options: dict[str, Any]) -> dict[str, list[bytes]]:
    """Key -> classes, after a conversion."""
    beam_tfr.convert(**options)
    stored = records(Path(options["output"]))
    return {key: record[OBJECT_TEXT] for key, record in stored.items()}


def test_a_file_that_names_the_image_of_another_is_about_that_of_its_own_name(
    tmp_path: Path,
) -> None:
    files = {f"{number}.xml": voc("1.png", label=f"c{number}") for number in (1, 2, 3)}
    files["4.xml"] = voc("gone.png", label="c4")
    files["9.xml"] = voc("5.png", label="c5")  # no image has its own name
    options = write_set(tmp_path, files, images=5)
    warnings = beam_tfr.plan(**options).warnings
    (warning,) = [text for text in warnings if "the image of another file" in text]
    assert "2 of the first 5 XML files" in warning
    expected = {f"{number}.png": [f"c{number}".encode()] for number in range(1, 6)}
    assert classes_of_images(options) == expected


def test_files_that_are_numbered_otherwise_than_their_images_name_these(tmp_path: Path) -> None:
    names = {number: number % 4 + 1 for number in (1, 2, 3, 4)}
    files = {f"{n}.xml": voc(f"{image}.png", label=f"c{image}") for n, image in names.items()}
    options = write_set(tmp_path, files, images=4)
    expected = {f"{number}.png": [f"c{number}".encode()] for number in (1, 2, 3, 4)}
    assert classes_of_images(options) == expected


def test_images_without_an_xml_file_are_told_of_several_folders(tmp_path: Path) -> None:
    for year in ("2007", "2012"):
        for number in range(3):
            write_picture(tmp_path / year / f"JPEGImages/{number}.png", number)
        (tmp_path / year / "Annotations").mkdir()
        for number in range(2 if year == "2007" else 3):
            path = tmp_path / year / f"Annotations/{number}.xml"
            path.write_text(voc(f"{number}.png"))
    plan = beam_tfr.plan(table=tmp_path / "*/Annotations/*.xml", output=tmp_path / "d")
    (warning,) = [text for text in plan.warnings if "left out" in text]
    assert warning.startswith("1 image ")
    assert f"{tmp_path}/2007/JPEGImages/2.png" in warning


@pytest.mark.parametrize(
    ("field", "named_fields"),
    [
        ("<pose>Left</pose><occluded>1</occluded>", "pose, occluded"),
        ("<attributes><attribute><name>color</name></attribute></attributes>", "attributes"),
        ("<pose>Unspecified</pose><occluded>0</occluded><truncated>1</truncated>", ""),
        ("<polygon><x1>5</x1><y1>6</y1><x2>7</x2><y2>9</y2></polygon>", "polygon"),
        ("<robndbox><cx>9</cx></robndbox>", "robndbox"),
    ],
)
def test_fields_of_objects_that_are_not_stored_are_told(
    tmp_path: Path, field: str, named_fields: str
) -> None:
    path = tmp_path / "1.xml"
    path.write_text(voc("1.png", more=field))
    message = describe_other_fields([str(path), str(tmp_path / "none.xml")])
    assert bool(message) == bool(named_fields)
    assert f"fields {named_fields} of" in message or not named_fields
    assert ("COCO" in message) == (named_fields == "polygon")
