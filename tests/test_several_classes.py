"""Several classes in a cell: lists as programs write them, and texts with a separator."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from beam_tfr.features.cells import parse_list, split_cell
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables
from beam_tfr.tables.several_classes import warn_of_several_classes
from tests.cpu_limit import bounded_cpu

OPTIONS = ConvertOptions(table=("t.csv",), output="/o", uri_column="path", label_column="class")


def opened(path: Path, **columns: Any) -> Tables:
    options = ConvertOptions(
        table=(path,), output="/o", uri_column="path", label_column="class", **columns
    )
    return open_tables(find_content(options))


@pytest.mark.parametrize(
    "value",
    [
        [],
        ["cat", "dog"],
        ["it's", 'a "cat"', "a, b] | c", "Hündin", "line\nend", "back\\slash", "\x07", "\u2028"],
        [1, -2, 3],
        [0.5, 1.0, 1e-7],
        ["cat", None, True],
        np.array(["cat", "hot dog"]),
        np.array([1, 20]),
        np.array([0.0, 834.5]),
        np.array([f"class {number}" for number in range(100)]),  # on several lines
        [np.float64(5.0), np.int64(7), np.str_("cat"), np.True_],
        ("cat", "dog"),
        ("cat",),
        (),
        {"cat"},
        [(5, 6, 20, 15), (1, 2.5, 3, 4)],
        [[5.0, math.inf], [-1, 0]],
    ],
)
def test_a_list_is_read_as_pandas_writes_it(value: Any) -> None:
    text = str(value)
    members = [[*member] if isinstance(member, tuple) else member for member in value]
    assert parse_list(text) == members
    assert split_cell(text) == members


@pytest.mark.parametrize("show", [str, repr])
@pytest.mark.parametrize("shape", [(0,), (4,), (1, 4), (40, 4), (2, 2, 2)])
def test_arrays_are_read_as_numpy_shows_them(show: Any, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape) / 3
    with np.printoptions(floatmode="unique"):
        text = show(array)
    np.testing.assert_array_equal(np.array(parse_list(text), np.float32), array)


def test_tensors_are_read_as_pytorch_shows_them() -> None:
    text = "tensor([[5., 6.],\n        [1., 2.]], device='cuda:0', dtype=torch.float64)"
    assert parse_list(text) == [[5, 6], [1, 2]]
    assert parse_list("[tensor([1.]), tensor(2.)]") == [[1], 2]


@pytest.mark.parametrize(
    "text",
    [
        *("cat", "[cat]", "['a' 'b", "['a''b']", "['a'] x", "[007]", r"['\d']", "[f('x')]"),
        *("(cat)", "('cat')", "(2021)", "{'a': 1}", "[1,, 2]", "[1 2)", "[1] [2]", "[[1][2]]"),
        *("array(5)", "array([1], [2])", "[1 ... 2]", "[,1]", "(" * 9 + "," + ")" * 9, "(", "]"),
    ],
)
def test_other_texts_are_no_lists(text: str) -> None:
    assert parse_list(text) is None


@pytest.mark.parametrize("wrap", [list, np.array], ids=["lists", "arrays"])
def test_lists_of_classes_in_csv(tmp_path: Path, wrap: Any) -> None:
    classes = [wrap(["cat", "dog"]), wrap(["cat"]), wrap([])]
    frame = pandas.DataFrame({"path": ["0.jpg", "1.jpg", "2.jpg"], "class": classes})
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    tables = opened(path, label_separator="|")
    refs = [*tables.read(str(path))]
    assert [ref.labels for ref in refs] == [("cat", "dog"), ("cat",), ()]
    assert not [line for line in tables.warnings if "list" in line]
    warnings = [line for line in opened(path).warnings if "list" in line]
    assert len(warnings) == 1
    assert "`label_separator=" in warnings[0]


@pytest.mark.parametrize(
    ("names", "separator"),
    [
        (["Mass|Nodule", "Mass", "Nodule"], "|"),
        (["a; b", "a", "b"], ";"),
        (["16 0", "0", "16"], " "),
        (["clear primary", "primary water", "clear primary water"], " "),
        (["1,5", "1", "5"], ","),
        # No part is a class of its own, as of Planet's Amazon and the Human Protein Atlas.
        (["haze primary", "agriculture clear primary water", "clear primary"], " "),
        (["agriculture clear primary", "clear primary", "haze primary water"], " "),
        (["16 0", "7 1 2 0", "5 0"], " "),
        (["b;a", "a;c", "c;b"], ";"),
        # Few parts move, as in tables of a few films or of Planet.
        (["Animation|Adventure|Comedy", "Comedy|Romance", "Drama|Comedy", "Drama", "War"], "|"),
        (["Animation, Adventure, Comedy", "Comedy, Romance", "Drama, Comedy", "Drama"], ","),
        (
            [
                *("haze primary", "agriculture clear primary water", "clear primary", "cloudy"),
                "agriculture clear habitation primary road",
            ],
            " ",
        ),
        (["African elephant", "Asian elephant", "brown bear", "big brown bear"], ""),
        (["red fox", "fox squirrel", "gray fox"], ""),
        (["great white shark", "white shark", "tiger shark"], ""),
        (["Audi A4 Sedan 2012", "Audi A5 Coupe 2012", "BMW Z4 2012"], ""),
        (["the dog runs to the cat", "a cat", "cat a", "dog a"], ""),  # captions
        (["1,5", "2", "3,25"], ""),
        (["Mass|Nodule", "Mass"], "|"),
        (["hot dog", "dog"], ""),
        (["red apple", "red pear", "green apple", "green pear"], ""),
        (["Paris, Texas", "Paris, France", "Austin, Texas"], ""),
        (["animal|cat", "animal|dog", "plant|tree"], ""),
        # As in ImageNet.
        (["tench, Tinca tinca", "jaguar, panther, Panthera onca", "puma, cougar, panther, F"], ""),
        (["missile", "projectile, missile", "maillot", "maillot, tank suit", "cow, ox"], ""),
        (["a |", "a"], ""),
        ([1, 2.5, None], ""),
    ],
)
def test_a_class_that_is_made_up_of_others_is_told(names: Sequence[Any], separator: str) -> None:
    warnings = [*warn_of_several_classes(OPTIONS, names)]
    assert len(warnings) == bool(separator)
    assert all(spell_option("label_separator", separator) in warning for warning in warnings)


def test_classes_of_many_parts_take_no_time_to_speak_of() -> None:
    parts = [f"p{number}" for number in range(200)]
    names = ["|".join([*parts[number % 100 :], f"x{number}"]) for number in range(1_000)]
    with bounded_cpu():
        assert [*warn_of_several_classes(OPTIONS, names)] == []


@pytest.mark.parametrize(
    ("names", "is_told"),
    [
        (["n01 5 6 25 21 ", "n01 5 6 25 21 n02 7 8 9 10"], True),
        (["1.0 5 6.5 25 21", "14 0.9 0 0 1 1"], True),
        (["n01 5 6 25 21", "cat"], False),
        (["cat 1 2 3", "dog"], False),
        (["1 2 3"], False),
    ],
)
def test_boxes_beside_classes_are_told(names: Sequence[str], is_told: bool) -> None:
    warnings = [*warn_of_several_classes(OPTIONS, names)]
    assert any("numbers of a box" in warning for warning in warnings) == is_told


def test_lists_that_cannot_be_read_are_told_with_a_separator_too(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("path,class\n0.jpg,\"['cat', f(1)]\"\n1.jpg,\"['cat', dog]\"\n")
    assert [line for line in opened(path, label_separator="|").warnings if "list" in line]


@pytest.mark.parametrize(
    ("cells", "cure"),
    [
        ([{"id": 1, "name": "cat"}] * 2, "`label_column=class.name`"),
        ([[{"x": 5, "labels": ["cat"]}]], "`label_column=class.labels`"),
        (['[{"x": 5, "labels": ["cat"]}]'] * 2, "COCO"),
        ([[True, False], [False, True]], "`feature_columns='class:int64[]'`"),
        ([[1, 0, 0], [0, 1, 0]], "`feature_columns='class:int64[]'`"),
        ([[0.25, 0.75], [1, 0]], "`feature_columns='class:float[]'`"),
        ([{"cat": 1, "dog": 0.5}], "names of the classes"),
        ([[1.0, 2.0], [3.0, 2.0]], ""),
        ([[0, 1], [1, 0]], ""),
        ([[0, 1, 2], [1, 0]], ""),
        ([True, False], ""),
        ([{"name": "cat"}, "dog"], ""),
    ],
)
def test_cells_that_hold_no_classes_are_refused_with_what_to_do(
    tmp_path: Path, cells: Sequence[Any], cure: str
) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"path": f"{number}.jpg", "class": cell} for number, cell in enumerate(cells)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if not cure:
        opened(path)
        return
    with pytest.raises(UsageError) as error:
        opened(path)
    assert cure in str(error.value)
    name, _, declaration = cure.strip("`'").removeprefix("feature_columns='").partition(":")
    if declaration:
        options: Any = {"uri_column": "path", "feature_columns": {name: declaration}}
        refs = open_tables(find_content(ConvertOptions(table=(path,), output="/o", **options)))
        assert not any(ref.reason for ref in refs.read(str(path)))


def test_bytes_of_parquet_that_are_text_are_classes(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pandas.DataFrame({"path": ["0.jpg", "1.jpg"], "class": ["Käse".encode(), b"cat"]}).to_parquet(
        path
    )
    assert [ref.labels for ref in opened(path).read(str(path))] == [("Käse",), ("cat",)]


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("cat;", ("cat",)),
        ("dog;bird;;", ("dog", "bird")),
        ("dog;dog", ("dog",)),
        ("; cat ;dog", ("cat", "dog")),
        ("['dog', 'dog']", ("dog",)),
        (";", ()),
    ],
)
def test_empty_and_repeated_parts_count_for_nothing(
    tmp_path: Path, cell: str, labels: tuple[str, ...]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f'path,label\n0.jpg,"{cell}"\n1.jpg,cow\n')
    options = ConvertOptions(
        table=(str(path),),
        output="/o",
        uri_column="path",
        label_column="label",
        label_separator=";",
    )
    content = find_content(options)
    first, _ = open_tables(content).read(str(path))
    assert (first.reason, first.labels) == ("" if labels else "bad-value", labels)


@pytest.mark.parametrize("separator", ["|", ";"])
def test_a_part_that_is_a_class_of_its_own_is_told(separator: str) -> None:
    compound = f"cat{separator}horse"
    (line,) = warn_of_several_classes(OPTIONS, [compound, "cat", "dog"])
    assert line == (
        f"column 'class': '{compound}' is one class, but one of its parts is also a class of other "
        f"rows: {spell_option('label_separator', separator)} splits such values into several"
    )
    assert not [*warn_of_several_classes(OPTIONS, [compound, "pony", "dog"])]
    assert not [*warn_of_several_classes(OPTIONS, ["crane, bird", "crane", "dog"])]
