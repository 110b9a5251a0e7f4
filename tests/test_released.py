"""Files of earlier releases go on working: datasets, unfinished folders, saved plans and configs.

tests/fixtures/released/make.py says what they are.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import images
from beam_tfr.commands import calls
from beam_tfr.dataset import base
from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest, read_manifest
from beam_tfr.launch import updating
from beam_tfr.options import ConvertOptions, convert
from beam_tfr.options.table import LOOK, option, options_of
from beam_tfr.output import lock
from beam_tfr.reader import load
from beam_tfr.schema.dataset import METADATA_FILES, SUMS_FILE, canonical_json, sha256_hex
from tests.conftest import Run, files_of

Command = Callable[..., Run]
RELEASES = sorted(
    path
    for path in (Path(__file__).parent / "fixtures" / "released").iterdir()
    if path.name[0].isdigit()
)
FIRST = "pets-train-00000-of-00003.tfrecord.gz"


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def released(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The files of a release as they were when it made them, in the current folder, with the codecs
    of then."""
    place = Path(shutil.copytree(request.param, tmp_path / "released"))
    for name, time_ns in json.loads((place / "mtimes.json").read_text()).items():
        os.utime(place / name, ns=(time_ns, time_ns))
    codecs = json.loads((place / "unfinished" / ".beam_tfr" / "plan.json").read_text())["plan"][
        "codecs"
    ]
    monkeypatch.setattr(images, "codec_versions", lambda: codecs)
    monkeypatch.setattr(lock, "WATCHED_S", 0.0)  # the lock of the killed run is of another machine
    monkeypatch.chdir(place)
    return place


def without_version(folder: Path) -> dict[str, bytes]:
    """The files of a dataset, without what tells the version that wrote it, and those that later
    versions add."""
    files = {name: data for name, data in files_of(folder).items() if name not in METADATA_FILES}
    sums = files[SUMS_FILE].splitlines(keepends=True)
    files[SUMS_FILE] = b"".join(line for line in sums if b"  ../" not in line)
    fields = json.loads(files.pop("manifest.json"))
    for name in ("tool_version", "manifest_digest"):
        del fields[name]
    return {**files, "manifest": json.dumps(fields).encode()}


def test_a_dataset_is_read_and_verified_and_known_as_complete(
    beam_tfr: Command, released: Path
) -> None:
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
    found = beam_tfr("inspect", "dataset", "--record", "4")
    assert (found.code, "record 4: " in found.out) == (0, True)
    run = beam_tfr("convert", "--config", "convert.toml", "--output", "fresh")
    assert run.code == 0, run.err
    assert without_version(Path("fresh")) == without_version(released / "dataset")


def test_an_unfinished_folder_is_resumed(beam_tfr: Command, released: Path) -> None:
    folder = released / "unfinished"
    run = beam_tfr("convert", "--config", "convert.toml", "--output", folder, "--json")
    assert run.code == 0, run.err
    assert (run.json["resumed"], run.json["matched"], run.json["rewritten_shards"]) == (6, 9, 0)
    assert beam_tfr("convert", "--config", "convert.toml", "--output", "fresh").code == 0
    assert files_of(folder) == files_of(released / "fresh")
    assert without_version(folder) == without_version(released / "dataset")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Later(ConvertOptions):
    """The options of a later release, which adds one."""

    sharpen: bool = option(False, help="sharpen what was made smaller", group=LOOK, implied=True)


@pytest.mark.slow
def test_an_option_that_is_added_is_absent_until_it_is_used(
    beam_tfr: Command, released: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (base, calls, updating):
        monkeypatch.setattr(module, "ConvertOptions", Later)
    monkeypatch.setattr(calls, "OPTIONS", options_of(Later))
    command, told = (
        ["convert", "--config", "convert.toml", "--json"],
        "options.sharpen: not given there, True now\n",
    )
    for more in ([], ["--output", "unfinished"]):
        refused = beam_tfr(*command, *more, "--sharpen")
        assert (refused.code, told in refused.err) == (2, True)
    assert beam_tfr(*command).json["complete_already"]
    assert beam_tfr(*command, "--output", "unfinished").json["resumed"] == 6
    assert beam_tfr(*command, "--output", "fresh").code == 0
    assert without_version(released / "fresh") == without_version(released / "unfinished")
    assert beam_tfr(*command, "--output", "sharp", "--sharpen").code == 0
    (released / "dataset" / FIRST).unlink()
    (released / "sharp" / FIRST).unlink()
    assert [
        beam_tfr("repair", folder, "--input", "photos").code for folder in ("dataset", "sharp")
    ] == [0, 0]
    options = [read_manifest(folder).options for folder in ("dataset", "unfinished", "sharp")]
    assert options == [options[0], options[0], {**options[0], "sharpen": True}]


@pytest.mark.slow
def test_an_option_that_is_removed_is_ignored_by_readers_and_told_by_writers(
    beam_tfr: Command, released: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = released / "dataset" / "manifest.json"
    fields = json.loads(path.read_bytes())
    fields["options"] |= {"dither": ["any", 1], "quality": "a value of another version"}
    fields["options_digest"] = sha256_hex(canonical_json(fields["options"]))
    fields["manifest_digest"] = manifest_digest(fields)
    path.write_bytes(manifest_bytes(fields))
    assert beam_tfr("verify", "dataset").code == 0
    assert beam_tfr("inspect", "dataset").code == 0
    assert len([*load("dataset", split="train", batch_size=None)]) == 6
    refused = beam_tfr("convert", "--config", "convert.toml")
    assert refused.code == 2
    assert (
        "options.dither: any,1 there, not given now\n  options.quality: a value of another version there, 90 now"
        in (refused.err)
    )
    del fields["options"]["quality"]
    fields["options_digest"] = sha256_hex(canonical_json(fields["options"]))
    fields["manifest_digest"] = manifest_digest(fields)
    path.write_bytes(manifest_bytes(fields))
    (released / "dataset" / FIRST).unlink()
    refused = beam_tfr("repair", "dataset", "--input", "photos")
    assert refused.code == 2
    assert "dither: any,1 there, not given now" in refused.err
    monkeypatch.setitem(
        convert.REMOVED_OF_IMAGES, "dither", ["any", 1]
    )  # as now all conversions have it
    assert beam_tfr("repair", "dataset", "--input", "photos").code == 0


def test_a_value_of_an_option_that_went_is_read(beam_tfr: Command, released: Path) -> None:
    path = released / "dataset" / "manifest.json"
    fields = json.loads(path.read_bytes())
    fields["options"]["max_decode_s"] = 2.5
    fields["options_digest"] = sha256_hex(canonical_json(fields["options"]))
    fields["manifest_digest"] = manifest_digest(fields)
    path.write_bytes(manifest_bytes(fields))
    assert beam_tfr("inspect", "dataset").code == 0
    assert read_manifest("dataset").options["max_decode_s"] == 2.5


def test_every_option_since_is_implied(released: Path) -> None:
    there = read_manifest("dataset").options
    now = ConvertOptions(input=("/p",), output="/d", encoding="raw").data_options(None)
    assert now.keys() == there.keys(), (
        "a new option needs implied=True; one that is gone, a row in REMOVED_OF_IMAGES"
    )
