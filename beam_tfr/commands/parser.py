"""Parses command lines; `--help` shows the essential options, `--help-all` all of them."""

import argparse
import copy
from collections.abc import Iterable
from typing import Any, NoReturn

from beam_tfr.options import ConvertOptions
from beam_tfr.options.run import UpdateOptions
from beam_tfr.options.table import options_of
from beam_tfr.schema.errors import UsageError

FEW = 16  # options that --help shows in full
SHOW_ALL = "--help-all"
_OPTIONS = options_of(ConvertOptions) | options_of(UpdateOptions)
_DETAILS = ("help", "help_all", "config", "verbose")  # flags that are not in the table of options
_ENGINE = "engine"
_WHEN_ENGINE = "Use Beam's own options to run on other machines; all of them are accepted."
# Only shown in help; Beam parses it.
_RUNNER = argparse.Action(
    ("--runner",),
    dest="runner",
    metavar="NAME",
    help="Beam's runner: PrismRunner, FlinkRunner, SparkRunner, DataflowRunner, with their options "
    "(default: all cores of this machine)",
)


class Parser(argparse.ArgumentParser):
    """Parses the arguments of a command, and explains them."""

    def __init__(self, *, takes_beam_flags: bool = False, **settings: Any) -> None:
        """Makes a parser.

        Args:
            takes_beam_flags: whether the command accepts Beam's own flags and describes them in its
                help.
            settings: arguments of `argparse.ArgumentParser`.
        """
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings
        )
        self._takes_beam_flags = takes_beam_flags

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")

    def add_show_all(self) -> None:
        """Adds `--help-all`; `--help` mentions it if some options are left out there."""
        text = "show all options in groups, and when to use them"
        if self._has_few():
            text = argparse.SUPPRESS
        self.add_argument(SHOW_ALL, action=_ShowAll, nargs=0, default=argparse.SUPPRESS, help=text)

    def format_help(self) -> str:
        """Returns the text of `--help`: the essential options, or all options if there are few."""
        positional = self._get_positional_actions()
        flags = self._get_optional_actions()
        formatter = self._get_formatter()
        if self._has_few():
            title = "options"
            flags.sort(key=_is_shared)
            formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        else:
            title = "essential options"
            flags = [*filter(None, map(_shorten, flags))]
            formatter.add_usage(self._short_usage(), [], [])
        if self._takes_beam_flags:
            flags.append(_RUNNER)
        formatter.add_text(self.description)
        _add_section(formatter, "arguments", None, positional)
        _add_section(formatter, title, None, flags)
        if not self._has_few():
            formatter.add_text(f"{self.prog} {SHOW_ALL} shows all options, in groups")
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def format_all(self) -> str:
        """Returns the text of `--help-all`."""
        formatter = self._get_formatter()
        formatter.add_usage(self._short_usage(), [], [])
        formatter.add_text(self.description)
        for group in self._action_groups:
            _add_section(formatter, group.title, group.description, group._group_actions)
        if self._takes_beam_flags:
            _add_section(formatter, _ENGINE, _WHEN_ENGINE, [_RUNNER])
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _has_few(self) -> bool:
        return len(self._get_optional_actions()) <= FEW

    def _short_usage(self) -> str:
        names = [str(action.metavar) for action in self._get_positional_actions()]
        return " ".join([self.prog, *names, "[options]"])


class _ShowAll(argparse.Action):
    """Prints all options of a command, and exits."""

    def __call__(self, parser: Any, *_: Any) -> None:
        print(parser.format_all(), end="")
        parser.exit()


def _is_shared(action: argparse.Action) -> bool:
    """Whether several commands have an option."""
    return action.dest in _OPTIONS


def _shorten(action: argparse.Action) -> argparse.Action | None:
    """Returns an option as `--help` describes it; None if only `--help-all` shows it."""
    option = _OPTIONS.get(action.dest)
    if option is None:
        return None if action.dest in _DETAILS else action
    if not option.brief:
        return None
    shortened = copy.copy(action)
    shortened.help = option.brief.replace("%", "%%")
    return shortened


def _add_section(
    formatter: argparse.HelpFormatter,
    title: str | None,
    about: str | None,
    actions: Iterable[argparse.Action],
) -> None:
    """Adds a group of options with a heading and a sentence, unless it is empty."""
    listed = [*actions]
    if not listed:
        return
    formatter.start_section(title)
    formatter.add_text(about)
    formatter.add_arguments(listed)
    formatter.end_section()
