"""Files of earlier releases go on working: datasets, unfinished folders, saved plans and configs.

tests/fixtures/released/make.py says what they are.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import images
from beam_tfr.reader import load
from tests.conftest import Run, files_of
from tests.fixtures.released.make import move_plan

Command = Callable[..., Run]
RELEASES = sorted(
    path for path in (Path(__file__).parent / "fixtures" / "released").iterdir() if path.name[0].isdigit()
)
FIRST, SECOND, LAST = (f"pets-train-0000{number}-of-00003.tfrecord.gz" for number in range(3))


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def released(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a release as they were when it made them, in the current folder, with the codecs of then."""
    place = Path(shutil.copytree(request.param, tmp_path / "released"))
    for name, time_ns in json.loads((place / "mtimes.json").read_text()).items():
        os.utime(place / name, ns=(time_ns, time_ns))
    move_plan(place / "plan.zip", "/released", str(place))
    codecs = json.loads((place / "unfinished" / ".beam_tfr" / "plan.json").read_text())["plan"]["codecs"]
    monkeypatch.setattr(images, "codec_versions", lambda: codecs)
    monkeypatch.chdir(place)
    return place


def without_version(folder: Path) -> dict[str, bytes]:
    """The files of a dataset, without what tells the version that wrote it."""
    files = files_of(folder)
    fields = json.loads(files.pop("manifest.json"))
    for name in ("tool_version", "manifest_digest"):
        del fields[name]
    return {**files, "manifest": json.dumps(fields).encode()}


def test_a_dataset_is_read_and_verified_and_known_as_complete(beam_tfr: Command, released: Path) -> None:
    before = files_of(released / "dataset")
    run = beam_tfr("verify", "dataset", "--sources", "photos/**/*.png", "--json")
    assert (run.code, run.json["ok"], run.json["problems"]) == (0, True, [])
    assert beam_tfr("inspect", "dataset").code == 0
    train = load("dataset", split="train", batch_size=None)
    assert sorted(int(label) for _, label in train) == [0, 0, 0, 1, 1, 1]
    again = beam_tfr("convert", "--config", "convert.toml", "--json")
    assert (again.code, again.json["complete_already"]) == (0, True), again.err
    assert files_of(released / "dataset") == before


def test_a_dataset_is_repaired_and_made_again(beam_tfr: Command, released: Path) -> None:
    before = files_of(released / "dataset")
    (released / "dataset" / FIRST).unlink()
    assert beam_tfr("repair", "dataset", "--input", "photos").code == 0
    assert files_of(released / "dataset") == before
    for more in (["--output", "fresh"], ["--output", "planned", "--plan", "plan.zip"]):
        run = beam_tfr("convert", "--config", "convert.toml", *more)
        assert run.code == 0, run.err
        assert without_version(Path(more[1])) == without_version(released / "dataset")


def test_an_unfinished_folder_is_resumed(beam_tfr: Command, released: Path) -> None:
    folder = released / "unfinished"
    before = {name: (folder / name).stat().st_mtime_ns for name in (FIRST, SECOND)}
    assert not (folder / LAST).exists()
    run = beam_tfr("convert", "--config", "convert.toml", "--output", folder, "--json")
    assert run.code == 0, run.err
    assert (run.json["resumed"], run.json["matched"], run.json["changes"]["shards"]) == (6, 9, 0)
    assert {name: (folder / name).stat().st_mtime_ns for name in before} == before
    assert beam_tfr("convert", "--config", "convert.toml", "--output", "fresh").code == 0
    assert files_of(folder) == files_of(released / "fresh")
    assert without_version(folder) == without_version(released / "dataset")
