"""Options that a dataset's manifest lacks, or has and this version does not know."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_tfr import cli
from beam_tfr.commands import calls
from beam_tfr.dataset import base
from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest, read_manifest
from beam_tfr.launch import updating
from beam_tfr.options import ConvertOptions
from beam_tfr.options.groups import LOOK
from beam_tfr.options.table import option, options_of
from beam_tfr.reader import load
from beam_tfr.schema.dataset import canonical_json, sha256_hex
from tests.conftest import Run, files_of
from tests.unfinished import FIRST

Command = Callable[..., Run]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Later(ConvertOptions):
    """The options of a later version, which adds one."""

    sharpen: bool = option(False, help="sharpen what was made smaller", group=LOOK, implied=True)


@pytest.mark.slow
def test_an_option_that_is_added_is_absent_until_it_is_used(
    beam_tfr: Command, pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (base, calls, updating):
        monkeypatch.setattr(module, "ConvertOptions", Later)
    monkeypatch.setattr(calls, "OPTIONS", options_of(Later))
    monkeypatch.setattr(cli, "make_parser", inspect.unwrap(cli.make_parser))  # made once in tests
    command = ["convert", "--config", "convert.toml", "--json"]
    for more in ([], ["--output", "unfinished"]):
        refused = beam_tfr(*command, *more, "--sharpen")
        assert refused.code == 2
        assert "options.sharpen: not given before, True now\n" in refused.err
    assert beam_tfr(*command).json["complete_already"]
    assert beam_tfr(*command, "--output", "unfinished").json["rewritten_shards"] == 0
    assert files_of(pets / "dataset") == files_of(pets / "unfinished")
    assert beam_tfr(*command, "--output", "sharp", "--sharpen").code == 0
    for folder in ("dataset", "sharp"):
        (pets / folder / FIRST).unlink()
        assert beam_tfr("repair", folder, "--input", "photos").code == 0
    options = [read_manifest(folder).options for folder in ("dataset", "unfinished", "sharp")]
    assert options == [options[0], options[0], {**options[0], "sharpen": True}]


def set_options(folder: Path, options: dict[str, Any]) -> None:
    """Sets options in a dataset's manifest, with its digests."""
    path = folder / "manifest.json"
    fields = json.loads(path.read_bytes())
    fields["options"] |= options
    fields["options_digest"] = sha256_hex(canonical_json(fields["options"]))
    fields["manifest_digest"] = manifest_digest(fields)
    path.write_bytes(manifest_bytes(fields))


def test_options_that_are_not_known_are_ignored_by_readers_and_told_by_writers(
    beam_tfr: Command, pets: Path
) -> None:
    set_options(pets / "dataset", {"dither": ["any", 1]})
    assert beam_tfr("verify", "dataset").code == 0
    assert beam_tfr("inspect", "dataset").code == 0
    assert len([*load("dataset", split="train", batch_size=None)]) == 6
    (pets / "dataset" / FIRST).unlink()
    refused = beam_tfr("repair", "dataset", "--input", "photos")
    assert (refused.code, "dither: any,1 before, not given now" in refused.err) == (2, True)
    set_options(pets / "dataset", {"quality": "a value of another version"})
    refused = beam_tfr("convert", "--config", "convert.toml")
    assert refused.code == 2
    assert "options.quality: a value of another version before, 90 now" in refused.err


@pytest.mark.parametrize(
    ("name", "value"),
    [("input", ["/**"]), ("input_list", "list.txt"), ("exclude", ["**/1*"]), ("table", ["t.csv"])],
)
@pytest.mark.parametrize("command", ["update", "repair"])
def test_options_that_no_manifest_stores_are_refused(
    command: str, name: str, value: object, beam_tfr: Command, pets: Path
) -> None:
    set_options(pets / "dataset", {name: value})
    before = files_of(pets / "dataset")
    refused = beam_tfr(command, "dataset", "--input", "photos")
    assert (refused.code, f"does not store {name} in it" in refused.err) == (1, True)
    assert files_of(pets / "dataset") == before
