"""Names of files, folders and columns run no commands in suggestions, and forge no lines."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from beam_tfr.schema.errors import DataError
from tests.conftest import Run

Command = Callable[..., Run]

NAMES = [
    "`>pwned`",
    "$(>pwned)",
    "a';>pwned;'",
    'a";>pwned;"',
    "a\n>pwned",
    "a\rwarning: forged",
    "a\x1b]0;forged\x07",
    "a\u2028warning: forged\u202e",
]
_WORD = r"""(?:'[^']*'|"'"|[^\s'",]+)+"""
_HEAD = re.compile(r"beam-tfr plan: --.*?: ")  # names what was given, and suggests nothing
_SUGGESTION = re.compile(rf"--[a-z_]+ {_WORD}(?: '[^']*'{_WORD}?)*")


def make_files(folder: Path, names: Sequence[str]) -> None:
    """Writes images of different colors; those in .png are like masks."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_mask = path.suffix == ".png"
        pixels = np.arange(1024).reshape(32, 32) % (number + 5) * (1 if is_mask else 20)
        Image.fromarray(pixels.astype(np.uint8)).save(path)


def make_table(path: Path, rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def plans(folder: Path, name: str) -> Iterator[list[object]]:
    """Makes inputs with a hostile name, and yields calls whose messages suggest options."""
    splits = ["train/cat/1.jpg", "train/dog/2.jpg", "test/cat/3.jpg", "test/dog/4.jpg"]
    make_files(folder / "splits", [*splits, f"{name}/5.jpg"])
    yield ["--input", folder / "splits"]
    yield ["--input", folder / "splits", "--layout", "{split}/{label}/*"]
    pairs = [f"{name}/{kind}" for kind in ("images/1.jpg", "images/2.jpg", "masks/1.png")]
    make_files(folder / "masks", [*pairs, f"{name}/masks/2.png"])
    yield ["--input", folder / "masks"]
    make_files(folder / "marks", [f"all/{name}1.jpg", f"all/{name}1_{name}mask.png"])
    yield ["--input", folder / "marks"]
    make_files(folder / "labels", [f"{name}_1.jpg", f"{name}_2.jpg", "dog_1.jpg", "dog_2.jpg"])
    yield ["--input", folder / "labels"]
    make_files(folder / "rows", ["1.jpg", "2.jpg"])
    header = [name, f"{name} split", f"{name}_mask", f"label_{name}", f"xmin{name}"]
    rows = [[f"{i}.jpg", split, "m.png", name, "1.5"] for i, split in [(1, "train"), (2, "test")]]
    table = folder / "rows" / f"{name}.csv"
    make_table(table, [header, *rows])
    yield ["--table", table]
    yield ["--input", table]
    yield ["--table", table, "--uri_column", name]
    yield ["--input", folder / "rows" / f"{name}*" / "*.jpg"]


@pytest.mark.parametrize("name", NAMES)
def test_suggestions_run_no_commands_and_names_forge_no_lines(
    name: str, beam_tfr: Command, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    suggestions = []
    for flags in plans(tmp_path, name):
        run = beam_tfr("plan", *flags)
        for line in f"{run.err}{run.out}".split("\n"):
            assert line.isprintable()
            assert not line.lstrip().startswith((">pwned", "warning: forged"))
            suggestions += _SUGGESTION.findall(_HEAD.sub("", line))
    for suggestion in suggestions:
        script = f"printf '%s\\n' {suggestion}"
        subprocess.run(["bash", "-c", script], cwd=empty, capture_output=True, check=False)
    assert len(suggestions) > 10
    assert os.listdir(empty) == []


def test_keys_with_line_breaks_forge_no_lines(beam_tfr: Command, tmp_path: Path) -> None:
    keys = [f"cat/{name}.jpg".replace("\u202e", "") for name in NAMES]
    make_files(tmp_path / "photos", keys)
    (tmp_path / "photos" / "cat" / "bad\nwarning: forged.jpg").write_text("no image")
    out = tmp_path / "out"
    calls: list[list[object]] = [
        ["convert", "--input", tmp_path / "photos", "--output", out],
        ["inspect", out],
        ["verify", out],
        ["duplicates", out],
        ["report", out],
        ["diff", out, out],
        ["remove", out, "--where", "label=cat", "--quiet"],
    ]
    for call in calls:
        run = beam_tfr(*call)
        for line in f"{run.err}{run.out}".split("\n"):
            assert line.isprintable(), call
            assert not line.startswith((">pwned", "warning: forged")), call


def test_a_message_is_cut_and_its_line_breaks_are_escaped() -> None:
    error = DataError("a\nwarning: b", "  c\x1b[31m")
    assert str(error) == "a\\nwarning: b\n  c\\x1b[31m"
    assert len(str(DataError("a " * 1_000_000))) == 5001
