"""JSON whose rows are in lists below keys is told with a command that writes JSON Lines."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import DataError
from beam_tfr.tables.annotations.json_files import read_json
from beam_tfr.tables.annotations.json_kinds import describe_kind
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables

CAT = {"image": "a.jpg", "label": "cat"}
DOG = {"image": "it's.jpg", "label": "dog"}
SPLITS = [CAT | {"split": "train"}, DOG | {"split": "test"}]
ROLES = "`uri_column=image` and `label_column=label`"
PATHS = [{"path": "a.jpg", "label": "cat"}, {"path": "b.jpg", "label": "it's"}]
# kind -> the content of a file, the rows that the command writes, and the options for these
FILES: dict[str, tuple[Any, list[Any], str]] = {
    "one list": ({"data": [CAT, DOG]}, [CAT, DOG], ROLES),
    "beside others": ({"info": {"v": 1}, "the rows": [CAT]}, [CAT], ROLES),
    "images that are not COCO's": ({"images": [CAT, DOG]}, [CAT, DOG], ROLES),
    "splits": ({"train": [CAT], "test": [DOG]}, SPLITS, "`split_column=split`"),
    "splits beside others": (
        {"v": 1, "train": [CAT], "test": [DOG], "classes": [{"name": "cat"}]},
        SPLITS,
        "`split_column=split`",
    ),
    "classes": (
        {"cat": [{"file": "a.jpg"}], "dog": [{"file": "b.jpg"}]},
        [{"file": "a.jpg", "label": "cat"}, {"file": "b.jpg", "label": "dog"}],
        "`uri_column=file` and `label_column=label`",
    ),
    "batches of rows with classes": (
        {"batch 1": [CAT], "batch 2": [DOG]},
        [CAT | {"key": "batch 1"}, DOG | {"key": "batch 2"}],
        ROLES,
    ),
    "splits of rows with other splits": (
        {"train": [CAT | {"split": "a"}], "test": [DOG | {"split": "b"}]},
        [CAT | {"split": "a", "key": "train"}, DOG | {"split": "b", "key": "test"}],
        "`split_column=key`",
    ),
    "names by class": ({"cat": ["a.jpg"], "it's": ["b.jpg"]}, PATHS, "`uri_column=path`"),
    "names by split": (
        {"train": ["a.jpg"], "val": ["b.jpg"]},
        [{"path": "a.jpg", "split": "train"}, {"path": "b.jpg", "split": "val"}],
        "`split_column=split`",
    ),
    "names by split and class": (
        {"train": {"cat": ["a.jpg"], "dog": []}, "test": {"dog": ["b.jpg"]}},
        [
            {"path": "a.jpg", "split": "train", "label": "cat"},
            {"path": "b.jpg", "split": "test", "label": "dog"},
        ],
        "`label_column=label` and `split_column=split`",
    ),
    "rows by id": (
        {"x 1": CAT, "x 2": DOG},
        [{"id": "x 1"} | CAT, {"id": "x 2"} | DOG],
        ROLES,
    ),
    "rows as lists, as in CoOp's split_zhou_OxfordPets.json": (
        {"train": [["a.jpg", 0, "cat"]], "test": [["b.jpg", 1, "dog"]]},
        [
            {"path": "a.jpg", "label": "cat", "split": "train"},
            {"path": "b.jpg", "label": "dog", "split": "test"},
        ],
        "`label_column=label` and `split_column=split`",
    ),
    "names as keys by split": (
        {"train": {"a.jpg": "cat"}, "test": {"b.jpg": "dog"}},
        [
            {"path": "a.jpg", "label": "cat", "split": "train"},
            {"path": "b.jpg", "label": "dog", "split": "test"},
        ],
        "`label_column=label` and `split_column=split`",
    ),
    "rows two keys deep": ({"v": 1, "the data": {"n": 2, "rows": [CAT, DOG]}}, [CAT, DOG], ROLES),
    "splits two keys deep": (
        {"images": {"train": [CAT], "test": [DOG]}},
        SPLITS,
        "`split_column=split`",
    ),
    "lists in splits": (
        {"v": 1, "train": {"images": [CAT]}, "test": {"images": [DOG], "more": [7]}},
        SPLITS,
        "`split_column=split`",
    ),
    "columns": ({"image": ["a.jpg", "it's.jpg"], "label": ["cat", "dog"]}, [CAT, DOG], ROLES),
    "names": (["a.jpg", "b.jpg"], [{"path": "a.jpg"}, {"path": "b.jpg"}], "`uri_column=path`"),
    "boxes by image": (
        {"a.jpg": [[1, 2, 3, 4]]},
        [{"path": "a.jpg", "box": [[1, 2, 3, 4]]}],
        "`feature_columns='box:bbox[xyxy]'`",
    ),
    "objects of one image": (
        {"form": [{"box": [1, 2, 3, 4], "text": "hi"}]},
        [{"image": "a", "objects": [{"box": [1, 2, 3, 4], "text": "hi"}]}],
        "`uri_column=image`",
    ),
}


def run_jq(message: str, folder: Path) -> str:
    """Runs the last command of a message in a folder, and returns what it writes to a.jsonl."""
    command = message[message.rindex("jq -c") :].partition(" > a.jsonl")[0]
    run = subprocess.run(
        command, cwd=folder, shell=True, check=True, capture_output=True, text=True
    )
    return run.stdout


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize("kind", [*FILES])
def test_the_command_writes_rows(kind: str, tmp_path: Path) -> None:
    content, rows, options = FILES[kind]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError) as caught:
        open_tables(find_content(ConvertOptions(table=(str(path),), output="/o")))
    message = str(caught.value)
    assert options in message
    lines = run_jq(message, tmp_path).splitlines()
    assert [*map(json.loads, lines)] == rows


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_the_command_replaces_no_value_of_a_row(tmp_path: Path) -> None:
    rows = {"cat": [{"image": "a.jpg"}, {"image": "b.jpg", "label": "dog"}], "owl": []}
    rows["owl"] += [{"image": "c.jpg"}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(rows))
    with pytest.raises(DataError) as caught:
        open_tables(find_content(ConvertOptions(table=(str(path),), output="/o")))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_jq(str(caught.value), tmp_path)
    assert "a row has label already" in failed.value.stderr


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_files_of_coco_for_each_split_are_told_apart(tmp_path: Path) -> None:
    coco = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": []}
    (tmp_path / "a.json").write_text(json.dumps({"train": coco, "val": coco}))
    message = describe_kind((tmp_path / "a.json").read_bytes())
    commands = message.partition("file: ")[2].split(", ")
    assert len(commands) == 2
    for command, split in zip(commands, ["train", "val"], strict=True):
        subprocess.run(command, cwd=tmp_path, shell=True, check=True)
        assert json.loads((tmp_path / f"only-{split}.json").read_text()) == coco


@pytest.mark.parametrize("content", [{}, {"a": 1}, {"a": [], "b": ["x"]}, {"a": {"b": [1]}}])
def test_other_json_is_told_what_to_write(content: Any) -> None:
    data = json.dumps(content).encode()
    with pytest.raises(ValueError, match=r"\.jsonl"):
        read_json("a.json", io.BytesIO(data), lambda _: None)


@pytest.mark.parametrize(
    "content",
    [
        {"images": [{"id": "x", "file_name": 7}], "annotations": []},
        {"images": [], "categories": []},
        {"images": [{"id": 1, "file_name": "a.jpg"}, {"file_name": 7}]},
        {"annotations": [{"image_id": 1, "bbox": [1, 2, 3, 4]}]},
    ],
)
def test_files_of_coco_are_no_other_kind(content: Any) -> None:
    assert not describe_kind(msgspec.json.encode(content))
