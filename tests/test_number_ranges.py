"""Ranges of numbers in the patterns of tables and inputs: `x-{000..131}.tar`."""

from __future__ import annotations

from pathlib import Path

import pytest

import beam_tfr
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.number_ranges import expand_ranges
from beam_tfr.schema.wildcards import escape_pattern
from tests.archives import tarred
from tests.masks import ids, png


@pytest.mark.parametrize(
    ("pattern", "patterns"),
    [
        ("x.tar", ["x.tar"]),
        ("x-{08..10}.tar", ["x-08.tar", "x-09.tar", "x-10.tar"]),
        ("x-{8..10}.tar", ["x-8.tar", "x-9.tar", "x-10.tar"]),
        ("{0..4..2}", ["0", "2", "4"]),
        ("{2..1}/{1..2}", ["2/1", "2/2", "1/1", "1/2"]),
        ("{1,2}/{a..b}/{1...2}", ["{1,2}/{a..b}/{1...2}"]),
        (escape_pattern("{1..2}"), ["[{]1..2}"]),
    ],
)
def test_ranges_stand_for_their_numbers(pattern: str, patterns: list[str]) -> None:
    assert expand_ranges([pattern], option="input") == patterns


def test_too_many_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"more than 100,000 patterns; use \* instead"):
        from_values({"table": "x-{0..999}-{0..999}.tar", "output": "d"}, ConvertOptions)


def test_ranges_of_tables_and_inputs_are_read(tmp_path: Path) -> None:
    for shard in range(2):
        files = {f"{number}.png": png(ids(30, 40, number)) for number in range(3)}
        labels = {f"{number}.cls": b"1" for number in range(3)}
        (tmp_path / f"x-00{shard}.tar").write_bytes(tarred(dict(sorted((files | labels).items()))))
    options = {"progress": False, "output": tmp_path / "d", "num_shards": 1}
    pattern = f"{tmp_path}/x-{{000..001}}.tar"
    sources: list[dict[str, str]] = [
        {"table": pattern},
        {"input": pattern, "layout": "{label}/*"},
    ]
    for source in sources:
        result = beam_tfr.convert(**source, **options, overwrite=True)
        assert result.counts["written"] == 6
    for source in sources:
        missing = {name: value.replace("001", "002") for name, value in source.items()}
        with pytest.raises(UsageError, match=r"x-002\.tar`: matches no file"):
            beam_tfr.convert(**missing, **options, overwrite=True)
