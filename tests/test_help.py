"""What `--help` and `--help-all` show."""

import dataclasses
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import cli
from beam_tfr.commands import convert
from beam_tfr.options import ConvertOptions
from beam_tfr.options.groups import GROUPS
from beam_tfr.options.table import option_of
from tests.conftest import Run

ESSENTIAL = [
    "input",
    "output",
    "layout",
    "classes",
    "splits",
    "table",
    "label_column",
    "image_size",
    "resize",
    "encoding",
    "compression",
    "num_shards",
    "max_rejects",
    "overwrite",
    "runner",
]
LONG = ("convert", "plan", "update")
ARGUMENTS: dict[str, list[str]] = {  # that commands require, but for a folder
    "convert": [],
    "plan": [],
    "remove": ["DIR", "--keys", "FILE"],
    "diff": ["OLD", "NEW"],
    "export": ["DIR", "OUT", "--format", "folder"],
}


def show(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a call that only shows help prints."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert not ended.value.code
    return capsys.readouterr().out


def options_in(text: str) -> list[str]:
    """The options of which a help text has an entry."""
    return re.findall(r"^  (?:-h, )?--([\w-]+)", text, re.MULTILINE)


def test_help_of_convert_shows_what_is_essential(capsys: pytest.CaptureFixture[str]) -> None:
    text = show(capsys, "convert", "--help")
    assert options_in(text) == ESSENTIAL
    assert "beam-tfr convert --help-all" in text


@pytest.mark.parametrize("command", cli.MODULES)
def test_help_all_shows_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = show(capsys, command, "--help-all")
    shown = options_in(text)
    parsed = cli.make_parser().parse_args([command, *ARGUMENTS.get(command, ["DIR"])])
    expected = [name.removeprefix("--") for name in parsed.known if name.startswith("--")]
    if command in cli.TAKE_BEAM_FLAGS:
        expected.append("runner")
    hidden = [] if "--help-all" in show(capsys, command, "--help") else ["help-all"]
    assert sorted([*shown, *hidden]) == sorted(expected)


@pytest.mark.parametrize("command", cli.MODULES)
def test_help_is_short(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows few options; where it leaves some out, it says how to see them."""
    text = show(capsys, command, "--help")
    shown = options_in(text)
    assert len(shown) <= 18
    assert ("--help-all" in text) == (command in LONG)


@pytest.mark.parametrize("command", LONG)
def test_each_group_says_when_it_is_needed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = show(capsys, command, "--help-all")
    in_update = command == "update"
    for group in GROUPS:
        is_shown = f"{group.title}:\n  {group.when}\n" in text
        assert is_shown or in_update
        assert text.count(f"\n{group.title}:\n") == is_shown


def test_every_group_has_options() -> None:
    groups = {option_of(field).group for field in dataclasses.fields(ConvertOptions)}
    assert groups == {*GROUPS}


def test_the_examples_of_convert_run(
    photos: Path, tmp_path: Path, beam_tfr: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with photos of the two kinds that they name, and a table."""
    monkeypatch.chdir(tmp_path)
    of_folders = tmp_path / "folders" / "photos"
    of_names = tmp_path / "names" / "photos"
    shutil.copytree(photos / "train", of_folders)
    of_names.mkdir(parents=True)
    rows = ["file,species"]
    for photo in sorted(of_folders.glob("*/*.jpg")):
        shutil.copy(photo, of_names / f"{photo.parent.name}_{photo.name}")
        rows.append(f"{photo.parent.name}/{photo.name},{photo.parent.name}")
    (of_folders / "photos.csv").write_text("\n".join(rows) + "\n")
    examples = str(convert.__doc__).partition("examples:\n")[2].replace("\\\n", " ")
    lines = [line for line in examples.splitlines() if line.startswith("  beam-tfr ")]
    assert len(lines) == 3
    folders = [of_folders.parent, of_names.parent, of_folders]
    for number, (line, folder) in enumerate(zip(lines, folders, strict=True)):
        monkeypatch.chdir(folder)
        words = shlex.split(line.replace("/data/photos", f"{tmp_path}/out{number}"))
        run = beam_tfr(*words[1:])
        assert run.code == 0, run.err
        assert f"{len(rows) - 1} written + 0 rejected" in run.out
