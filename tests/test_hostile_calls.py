"""Every public function refuses values of the wrong type or content with one of our errors."""

from __future__ import annotations

import argparse
import inspect
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

import beam_tfr
from beam_tfr import api, cli, reader, storage
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.options.table import options_of
from beam_tfr.schema.arguments import public
from beam_tfr.schema.errors import BeamTfrError, RunError, UsageError
from beam_tfr.schema.spelling import spell_as_flags, spell_option
from beam_tfr.torch import ImageDataset
from tests.conftest import Run
from tests.converted import converted_sample

Command = Callable[..., Run]


class WithoutText:
    """A value that has no text, and is equal to nothing."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


class PathOfBytes:
    def __fspath__(self) -> bytes:
        return b"a"


HOSTILE = [
    "a\0b",
    "a\ud800b",
    "n" * 5000,
    "n/" * 3000,
    "[" * 2000,
    b"a",
    [None],
    ["a\0b"],
    {1: 2},
    {"a\0": 1},
    float("nan"),
    10**40,
    1j,
    object(),
    WithoutText(),
    PathOfBytes(),
    Path("a\0b"),
    np.array([1, 2]),
    np.array("a"),
    np.array(True),
    (letter for letter in "ab"),
]
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "convert": (beam_tfr.convert, {"input": "/nowhere", "output": "/nowhere/d"}),
    "plan": (beam_tfr.plan, {"input": "/nowhere"}),
    "update": (beam_tfr.update, {"folder": "/nowhere"}),
    "remove": (beam_tfr.remove, {"folder": "/nowhere", "keys": ["a"]}),
    "verify": (beam_tfr.verify, {"folder": "/nowhere"}),
    "export": (beam_tfr.export, {"folder": "/nowhere", "output": "/nowhere/o", "format": "tfds"}),
    "inspect": (beam_tfr.inspect, {"path": "/nowhere"}),
    "diff": (beam_tfr.diff, {"old": "/nowhere", "new": "/nowhere"}),
    "contents": (beam_tfr.contents, {"path": "DATASET"}),
    "Records": (beam_tfr.Records, {"path": "DATASET", "split": "test"}),
    "ImageDataset": (ImageDataset, {"path": "DATASET", "split": "test"}),
    "load": (reader.load, {"path": "DATASET", "split": "test"}),
    "load_records": (reader.load_records, {"paths": "/nowhere"}),
    "open": (reader.open, {"path": "DATASET"}),
    "feature_spec": (reader.feature_spec, {"path": "DATASET"}),
}


def cases() -> Iterator[Any]:
    for name, (function, _) in CALLS.items():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:
                yield pytest.param(name, parameter.name, id=f"{name}-{parameter.name}")


@pytest.mark.parametrize(("name", "parameter"), cases())
def test_a_hostile_argument_is_allowed_or_told(name: str, parameter: str) -> None:
    function, arguments = CALLS[name]
    if arguments.get("path") == "DATASET":
        arguments = {**arguments, "path": converted_sample()}
    for value in HOSTILE:
        try:
            function(**{**arguments, parameter: value})
        except BeamTfrError as error:
            assert len(str(error)) < 2000  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize("name", options_of(ConvertOptions))
def test_a_hostile_option_is_allowed_or_told(name: str) -> None:
    for value in HOSTILE:
        try:
            from_values({"input": "/a", "output": "/d", name: value}, ConvertOptions)
        except UsageError as error:
            assert len(str(error)) < 2000  # noqa: PT017


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: beam_tfr.update(None), "`folder=`: must be a path"),
        (lambda d: beam_tfr.export(d, "o", format="tfds", split=True), "`split=True`: must be t"),
        (lambda d: beam_tfr.export(d, "o", format="tfds", where=[None]), "must be a dict such as"),
        (lambda d: beam_tfr.remove(d, keys=b"a"), "must be text or a list of texts"),
        (lambda d: beam_tfr.verify(d, sources=[1]), "must be a path or a list of paths"),
        (lambda d: beam_tfr.verify(d, progress=1), "must be True or False or a function"),
        (lambda d: beam_tfr.inspect("a\0b"), r"`path=a\x00b`: must not contain the character NUL"),
        (lambda d: reader.open("a\ud800b"), r"must not contain '\ud800', which is half"),
    ],
)
def test_what_is_declared_is_told(call: Callable[[str], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        call("/nowhere")
    assert message in str(caught.value)


def test_lists_may_be_anything_that_is_iterated() -> None:
    @public
    def join(texts: Sequence[str], *, by: Annotated[str, "a word"] = "") -> str:
        return by.join(texts)

    assert join(letter for letter in "abc") == "abc"
    assert join(np.array(["a", "b"]), by="-") == "a-b"  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="`texts=abc`: must be a list of texts"):
        join("abc")
    with pytest.raises(UsageError, match="`by=1`: must be a word"):
        join(["a"], by=1)  # type: ignore[arg-type]


def test_errors_of_the_system_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"file/d.*Not a directory"):
        beam_tfr.update(tmp_path / "file" / "d", progress=False)


NAMES = [
    "x';touch pwned;'",
    "$(touch pwned)",
    '"$(touch pwned)"',
    "a;b|c&d>e",
    "a'b",
    "x'\ntouch pwned\n'",
    "`touch pwned`",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("option", "form"), [("layout", "{}/*"), ("pair", "mask=../{}/*"), ("label_column", "{}")]
)
def test_names_in_flags_that_messages_suggest_run_no_commands(
    name: str, option: str, form: str, tmp_path: Path
) -> None:
    value = form.format(name)
    flag = spell_as_flags(spell_option(option, value))
    script = f"printf '%s\n' {flag}"
    run = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert not os.listdir(tmp_path)
    values = [] if "`" in name or "\n" in name else [value]
    assert run.stdout.splitlines() == [f"--{option}", *values]


@pytest.mark.parametrize("value", ["--output", "-x", "-x'y", "-x y"])
def test_a_value_like_a_flag_is_spelled_as_a_value(value: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--label_column")
    flag = spell_as_flags(spell_option("label_column", value))
    assert parser.parse_args(shlex.split(flag)).label_column == value


def test_a_long_value_loses_its_middle() -> None:
    error = UsageError(f"no {'b' * 600} here", option="x", value="a" * 600)
    assert str(error) == (f"`x={'a' * 250}…{'a' * 250}`: no {'b' * 250}…{'b' * 250} here")
    assert "a b" * 200 not in str(UsageError("no", option="x", value="a b" * 200))


@pytest.mark.parametrize("argument", ["a\0b", "a\ud800b"])
@pytest.mark.parametrize("command", cli.MODULES)
def test_a_hostile_text_on_the_command_line(command: str, argument: str, beam_tfr: Command) -> None:
    run = beam_tfr(command, argument)
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "must not contain" in run.err


def test_a_hostile_text_in_a_file_of_options(beam_tfr: Command, tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    for name in ("input", "output", "project"):
        path.write_text(f'{name} = "a\\u0000b"')
        run = beam_tfr("plan", "--config", path)
        assert (run.code, "must not contain the character NUL" in run.err) == (2, True), run.err


def test_a_locale_whose_names_are_not_utf8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    with pytest.raises(UsageError, match=r"names of files are read as ascii .*PYTHONUTF8=1"):
        storage.check_path("/a", option="output")


STARVED = [RuntimeError("can't start new thread"), MemoryError()]


@pytest.mark.parametrize("error", STARVED, ids=repr)
def test_a_lack_of_threads_or_memory_is_told_with_the_cure(
    error: Exception, beam_tfr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("beam_tfr.launch.starting.prepare_run", fail)
    run = beam_tfr("convert", "--input", tmp_path, "--output", tmp_path / "o")
    assert (run.code, run.out) == (1, "")
    assert run.err.startswith("beam-tfr convert: out of memory, address space or threads (")
    assert run.err.endswith("): raise the limits (ulimit -v, ulimit -u) or use fewer threads\n")
    with pytest.raises(RunError, match=r"^out of memory, .*raise the limits"):
        api.convert(input=str(tmp_path), output=str(tmp_path / "o"), progress=False)
