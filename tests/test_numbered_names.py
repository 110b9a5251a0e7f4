"""Labels that are numbers of names in the file of `classes`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.options import from_values
from beam_tfr.options.convert import ConvertOptions
from beam_tfr.schema.errors import UsageError
from beam_tfr.sources import open_source
from tests.conftest import Run
from tests.table_files import open_input, references, write_images

NAMES = [f"name {number}" for number in range(200)]
FILES = {
    "classes.txt": "\n".join(NAMES),
    "list.json": json.dumps(NAMES),
    "by_number.json": json.dumps({str(number): name for number, name in enumerate(NAMES)}),
    "by_name.json": json.dumps({name: number for number, name in enumerate(NAMES)}),
}


def write_table(path: Path, labels: list[Any]) -> Path:
    frame = pandas.DataFrame({"image": [f"{n}.jpg" for n in range(len(labels))], "label": labels})
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    return path


def options_for(table: Path, classes: Path, **others: Any) -> dict[str, Any]:
    given = {"table": str(table), "uri_column": "image", "label_column": "label"}
    return {**given, "classes": str(classes), **others}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("start", [0, 1])
def test_numbers_stand_for_lines(tmp_path: Path, file: str, form: str, start: int) -> None:
    (tmp_path / file).write_text(FILES[file])
    table = write_table(tmp_path / f"t.{form}", [start, start + 7, start + 199])
    options = {"output": "/o", **options_for(table, tmp_path / file)}
    source = open_source(from_values(options, ConvertOptions))
    assert source.plan.options["classes"] == [str(number) for number in range(start, start + 200)]
    names = [source.renames[ref.labels[0]] for ref in references(source.origin)]  # type: ignore[arg-type]
    assert names == [NAMES[0], NAMES[7], NAMES[199]]
    assert any(f"{start} is name 0" in line for line in open_input(**options).warnings)


@pytest.mark.parametrize(
    ("labels", "is_told"),
    [([1, 2, 3], True), ([0, 200], False), ([5, "name 3"], False), (["a", 0], False)],
)
def test_other_labels_are_rejected_as_before(
    tmp_path: Path, labels: list[Any], is_told: bool
) -> None:
    (tmp_path / "classes.txt").write_text(FILES["classes.txt"])
    table = write_table(tmp_path / "t.csv", labels)
    tables = open_input(**options_for(table, tmp_path / "classes.txt"))
    assert not tables.numbered_names
    assert any("it is unclear whether" in line for line in tables.warnings) == is_told
    reasons = {str(ref.labels[0]): ref.reason for ref in references(tables)}
    assert reasons == {str(label): "" if label in NAMES else "unknown-class" for label in labels}


@pytest.mark.parametrize("text", ["id,name\n0,cat\n1,dog", "0 cat\n1 dog", "classes\ncat\ndog"])
def test_lines_that_may_be_no_names_get_no_numbers(tmp_path: Path, text: str) -> None:
    (tmp_path / "classes.txt").write_text(text)
    table = write_table(tmp_path / "t.csv", [0, 1])
    assert not open_input(**options_for(table, tmp_path / "classes.txt")).numbered_names


def test_a_dataset_of_numbers_has_the_names_and_their_ids(tmp_path: Path, beam_tfr: Any) -> None:
    (tmp_path / "classes.txt").write_text("zebra\ncat\nape\n")
    write_images(tmp_path, "0.jpg", "1.jpg", "2.jpg")
    table = write_table(tmp_path / "t.csv", [2, 0, 1])
    out = tmp_path / "out"
    options = options_for(table, tmp_path / "classes.txt", output=out)
    flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    run: Run = beam_tfr("convert", *flags)
    assert run.code == 0
    assert read_manifest(str(out)).class_names == ("zebra", "cat", "ape")
    more = write_table(tmp_path / "t.csv", [2, 0, 0])
    assert beam_tfr("update", out, "--table", more, "--allow_empty", "cat").code == 0
    assert read_manifest(str(out)).class_names == ("zebra", "cat", "ape")


def test_classes_and_renames_have_an_effect_on_implied_columns(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("dog\ncat\n")
    table = tmp_path / "boxes.csv"
    table.write_text("filename,class,xmin,ymin,xmax,ymax\n0.jpg,cat,0,0,2,2\n1.jpg,cow,0,0,2,2\n")
    tables = open_input(table=str(table), classes=str(tmp_path / "classes.txt"))
    assert [ref.reason for ref in references(tables)] == ["", "unknown-class"]
    assert open_input(table=str(table), rename="cat=dog").options.label_column == "class"
    plain = write_table(tmp_path / "t.csv", ["a"])
    for option in ({"classes": str(tmp_path / "classes.txt")}, {"rename": "a=b"}):
        with pytest.raises(UsageError, match="has no effect without `label_column=`"):
            open_input(table=str(plain), **option)


@pytest.mark.parametrize(
    ("form", "start"), [("train/{}", 0), ("train/0{}", 0), ("{}", 1), ("train/{}/summer", 0)]
)
def test_folders_that_are_numbers_stand_for_names(tmp_path: Path, form: str, start: int) -> None:
    (tmp_path / "classes.txt").write_text("zebra\ncat\nape\n")
    for number in range(start, start + 3):
        write_images(tmp_path / "in", f"{form.format(number)}/a.jpg")
    classes = str(tmp_path / "classes.txt")
    options: dict[str, Any] = {"input": str(tmp_path / "in"), "output": "/o", "classes": classes}
    if form.endswith("summer"):
        options["layout"] = "{split}/{label}/**"
    source = open_source(from_values(options, ConvertOptions))
    assert [*source.renames.values()] == ["zebra", "cat", "ape"]
    assert any(line.startswith("folders: labels are the numbers") for line in source.notes)


def test_numbers_of_the_file_say_where_folders_begin(tmp_path: Path) -> None:
    write_images(tmp_path / "in", "2/a.jpg", "2/b.jpg")
    options = {"input": str(tmp_path / "in"), "output": "/o"}
    for start in (0, 1):
        names = {name: number for number, name in enumerate(["a", "b", "c", "d"], start)}
        (tmp_path / "names.json").write_text(json.dumps(names))
        options["classes"] = str(tmp_path / "names.json")
        source = open_source(from_values(options, ConvertOptions))
        assert source.renames["2"] == "abcd"[2 - start]
        assert any("counts from 1" in note for note in source.notes) == (start == 1)
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n")
    options["classes"] = str(tmp_path / "names.txt")
    source = open_source(from_values(options, ConvertOptions))
    assert not source.renames
    assert any("it is unclear whether 2 is b or c" in note for note in source.notes)


def test_names_of_folders_are_kept_in_updates(tmp_path: Path, beam_tfr: Any) -> None:
    (tmp_path / "classes.txt").write_text("zebra\ncat\nape\n")
    write_images(tmp_path / "in", "0/a.jpg", "1/a.jpg")
    out = tmp_path / "out"
    command = ("convert", "--input", tmp_path / "in", "--output", out)
    run: Run = beam_tfr(*command, "--classes", tmp_path / "classes.txt")
    assert run.code == 0
    assert "changes nothing" not in run.out
    write_images(tmp_path / "in", "1/b.jpg")
    assert beam_tfr("update", out, "--input", tmp_path / "in").code == 0
    manifest = read_manifest(str(out))
    assert manifest.class_names == ("zebra", "cat", "ape")
