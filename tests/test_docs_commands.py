"""Every command line in the documentation and in `--help` is one that its parser takes."""

from __future__ import annotations

import argparse
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_tfr import cli
from benchmarks import __main__ as benchmarks_main
from tests.faults import __main__ as faults_main

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "templates" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
PROGRAMS = ("beam-tfr ", "python -m benchmarks ", "python -m tests.faults ")
BEAM_FLAGS = {f"--{name}" for name in PipelineOptions([]).get_all_options()}
NUMBER = re.compile(r"\bN\b")  # stands for one


def lines_in_blocks(text: str) -> Iterator[str]:
    """The command lines of code blocks, fenced or indented by four spaces and more."""
    fenced = "".join(re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    indented = "\n".join(re.findall(r"^ {4,}(.+)$", text, re.MULTILINE))
    for line in (fenced + indented).replace("\\\n", " ").splitlines():
        if line.startswith(PROGRAMS) and "[options]" not in line:
            yield line


def lines_in_prose(text: str) -> Iterator[str]:
    """The command lines in backticks, some of which leave out what is required."""
    for code in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        line = " ".join(code.split()).replace("\\|", "|")
        if line.startswith(PROGRAMS):
            yield line


def words_of(line: str) -> list[str]:
    """The words of the first command of a line."""
    lexer = shlex.shlex(NUMBER.sub("1", line), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = [*lexer]
    ends = [number for number, word in enumerate(words) if word[0] in "|&;<>"]
    return words[: min(ends, default=len(words))]


def parse(line: str, *, complete: bool) -> None:
    """Parses a command line.

    Args:
        line: the line.
        complete: whether all that is required must be there.

    Raises:
        UsageError, SystemExit, AssertionError: its program does not take it.
    """
    words = words_of(line)
    if words[0] == "beam-tfr":
        # one of its own, which `require_nothing` changes
        parser, arguments = inspect.unwrap(cli.make_parser)(), words[1:]
    elif words[2] == "benchmarks":
        parser, arguments = benchmarks_main.make_parser(benchmarks_main.NAMES), words[3:]
    else:
        parser, arguments = faults_main.make_parser(), words[3:]
    if not complete:
        require_nothing(parser)
    if arguments == ["--help"]:
        return
    parsed, others = parser.parse_known_args([word for word in arguments if word != "…"])
    others = [word for word in others if not word.startswith("$")]  # variables of a shell
    takes_beam_flags = getattr(parsed, "command", "") in cli.TAKE_BEAM_FLAGS
    known = BEAM_FLAGS if takes_beam_flags else set()
    unknown = [word for word in others if word.partition("=")[0] not in known]
    assert not unknown


def require_nothing(parser: argparse.ArgumentParser) -> None:
    """Lets all arguments of a parser and of its commands be left out."""
    for group in parser._mutually_exclusive_groups:
        group.required = False
    for action in parser._actions:
        action.required = False
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                require_nothing(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_of_pages(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in lines_in_blocks(text):
        parse(line, complete=True)
    for line in lines_in_prose(text):
        parse(line, complete=False)


def test_command_lines_of_benchmarks() -> None:
    """The page leaves out `python -m benchmarks`."""
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"`([a-z_]+ (?:PHOTOS|--)[^`]*)`", text)
    assert len(lines) > 10
    for line in lines:
        parse(f"python -m benchmarks {line}", complete=True)


@pytest.mark.parametrize("name", cli.MODULES)
def test_examples_of_help(name: str) -> None:
    examples = str(cli.MODULES[name].__doc__).partition("examples:\n")[2]
    for line in examples.replace("\\\n", " ").splitlines():
        if line.startswith("  beam-tfr "):
            parse(line, complete=True)


@pytest.mark.parametrize(
    "line",
    [
        "beam-tfr convert --input photos --output out --maskz x",
        "beam-tfr verify",
        "beam-tfr bench DIR --images 3",
        "beam-tfr inspect PATH --runner=DataflowRunner",
        "python -m benchmarks convert --enlarged 1",
        "python -m tests.faults --kind murder",
    ],
)
def test_wrong_lines_are_found(line: str) -> None:
    with pytest.raises((cli.UsageError, SystemExit, AssertionError)):
        parse(line, complete=True)
