"""Contents that are missing or damaged.

Told by `verify`, made again by `repair`, and never written over others'.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run, files_of
from tests.spoiled_dataset import TRAIN

Command = Callable[..., Run]
CONTENTS = "contents/" + TRAIN[1].replace(".tfrecord.gz", ".parquet")
SUMS = "contents.sha256"


def spoil(path: Path, how: str) -> None:
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-5] + b"spoil")


@pytest.mark.parametrize("how", ["gone", "spoiled"])
@pytest.mark.parametrize("name", [CONTENTS, SUMS, "croissant.json"])
def test_with_the_input_the_bytes_are_those_of_before(
    beam_tfr: Command, dataset: Path, sources: Path, name: str, how: str
) -> None:
    before = files_of(dataset)
    spoil(dataset / name, how)
    told = beam_tfr("verify", dataset, "--json").json
    assert (told["ok"], told["kinds"].keys() <= {"missing", "damaged"}) == (False, True)
    assert beam_tfr("repair", dataset, "--input", f"{sources}/**/*.jpg").code == 0
    assert files_of(dataset) == before


def test_files_of_others_in_contents_are_not_replaced(
    beam_tfr: Command, sources: Path, tmp_path: Path
) -> None:
    command = [
        "convert",
        "--input",
        sources,
        "--output",
        tmp_path / "out",
        "--max_rejects",
        "9",
        "--layout",
        "{split}/{label}/*",
    ]
    (tmp_path / "out" / "contents").mkdir(parents=True)
    (tmp_path / "out" / SUMS).write_text("mine")
    refused = beam_tfr(*command)
    assert (
        refused.code,
        "holds files of an unknown dataset, such as contents.sha256" in refused.err,
    ) == (2, True)
    assert files_of(tmp_path / "out")[SUMS] == b"mine"
    (tmp_path / "out" / SUMS).unlink()
    (tmp_path / "out" / "contents").rmdir()
    (tmp_path / "out" / "contents").write_text("mine")
    refused = beam_tfr(*command)
    assert (
        refused.code,
        "holds a file named contents, but needs a folder with that name" in refused.err,
    ) == (2, True)
