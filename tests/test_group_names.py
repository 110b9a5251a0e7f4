"""Groups, such as patients, that random splits may separate."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from beam_tfr.first_look import early_warnings
from beam_tfr.layouts.group_names import describe_groups, is_named_like_groups
from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.options import ConvertOptions
from beam_tfr.sources import open_source
from tests.table_files import open_input, write_images

IDS = [
    "patient_id",
    "Patient ID",
    "lesion_id",
    "subject",
    "StudyInstanceUID",
    "video_name",
    "group",
]
OTHERS = ["id", "image_id", "age", "patient_age", "class", "path", "showcase", "caption"]


@pytest.mark.parametrize("column", IDS)
def test_columns_that_name_groups(column: str) -> None:
    assert is_named_like_groups(column)


@pytest.mark.parametrize("column", OTHERS)
def test_columns_that_do_not_name_groups(column: str) -> None:
    assert not is_named_like_groups(column)


@pytest.mark.parametrize(
    ("layout", "name", "suggested"),
    [
        ("{label}/*", "{label}/patient{group}_{i}.jpg", "{label}/{group}_*"),
        ("{label}/*", "data/{label}/video{group}-frame{i}.jpg", "{label}/{group}-*"),
        ("{label}/**", "{label}/Subject {group}/x/{i}.jpg", "{label}/{group}/**"),
        ("{label}/*/*", "{label}/study{group}/{i}.jpg", "{label}/{group}/*"),
        ("{label}/*", "{label}/x_case_{group}_{i}.jpg", ""),
    ],
)
def test_groups_in_names(layout: str, name: str, suggested: str) -> None:
    keys = [
        name.format(label=label, group=group, i=i)
        for label in ("cat", "dog")
        for group in (1, 20)
        for i in (5, 6)
    ]
    described = describe_groups(keys, parse_layout(layout))
    assert (f"`layout='{suggested}'`" if suggested else "`group_column=`") in described
    if suggested:
        parsed = parse_layout(suggested)
        assert len({parsed.group_of(key) for key in keys}) == 2
        assert all((parsed.parse_key(key) or {})["label"] in ("cat", "dog") for key in keys)


@pytest.mark.parametrize(
    "keys",
    [
        [f"cat/patient{i}.jpg" for i in range(9)],  # one image each
        [f"cat/patient1_{i}.jpg" for i in range(9)],  # a single group
        [f"person{i % 3}/{i}.jpg" for i in range(9)],  # classes
        [f"cat/{i}.jpg" for i in range(9)] + ["cat/case1_1.jpg", "cat/case1_2.jpg"],
        [f"showcase{i % 3}/a/{i}.jpg" for i in range(9)],
    ],
)
def test_names_without_groups(keys: list[str]) -> None:
    assert describe_groups(keys, parse_layout("{label}/*")) == ""


@pytest.mark.parametrize(
    ("header", "fix"),
    [
        ("path,class,lesion,patient_id", "`group_column=patient_id`"),
        ("path,class,x,y", "table['path'].str.extract("),
    ],
)
def test_tables(tmp_path: Path, header: str, fix: str) -> None:
    names = [f"patient{i // 4}_{i}.png" for i in range(12)]
    write_images(tmp_path, *names)
    rows = [f"{name},{'ab'[i % 2]},L{i // 2},P{i // 4}" for i, name in enumerate(names)]
    table = tmp_path / "t.csv"
    table.write_text("\n".join([header, *rows]))
    options = {"table": str(table), "uri_column": "path", "label_column": "class"}
    assert fix in " ".join(open_input(**options, splits={"train": 0.5, "test": 0.5}).warnings)
    assert fix not in " ".join(open_input(**options).warnings)


def test_files(tmp_path: Path) -> None:
    write_images(tmp_path, *(f"{label}/video{i // 3}_{i}.png" for i in range(9) for label in "ab"))
    options = ConvertOptions(
        input=(str(tmp_path),), output="/o", splits={"train": 0.5, "test": 0.5}
    )
    (line,) = early_warnings(open_source(options))
    assert "`layout='{label}/{group}_*'`" in line
    options = dataclasses.replace(options, layout="{label}/{group}_*")
    assert not [*early_warnings(open_source(options))]
