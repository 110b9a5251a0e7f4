"""Spells options, and words of shell commands, in messages.

A message spells an option as `name=` or `name=value` in backticks, as in Python. The command line
shows the same message with `--name` and `--name value` (`spell_as_flags`). The notation is plain
text because only the message of an error comes back from a worker.

Values may come from names of files, classes and columns, which may be anything. They are quoted for
a shell, so that whoever pastes a suggested command runs nothing that hides in a name.
"""

import re
import shlex

from beam_tfr.console.terminal import MOST_CHARACTERS

_NAME = re.compile(r"\w+=", re.ASCII)  # needs no quotes, as in pair=mask='../{path}'
_HEAD = re.compile(r"`([a-z][a-z0-9_]*)=([^`]*)`(?=: )")  # the option that an error is about
_QUOTED = r"""(?:[\w@%+=:,./ -]|'[^'`]*'|"'")*"""  # words as `shlex.quote` quotes them
_OPTION = re.compile(rf"`([a-z][a-z0-9_]*)=({_QUOTED})`")


def spell_option(name: str, *values: object) -> str:
    """Spells an option with its values for a message, such as `layout='{label}/*'` in backticks.

    Spells the name alone if the values cannot be shown: see `quote_word`.
    """
    words = [quote_word(str(value), "") for value in values]
    text = " ".join(words)
    can_be_shown = all(words) and len(text) <= MOST_CHARACTERS
    return f"`{name}={text if can_be_shown else ''}`"


def quote_word(word: str, placeholder: str) -> str:
    """Quotes, for a shell, a word of a command in a message.

    Returns the placeholder instead of a word that cannot be shown: one with a backtick, which ends
    code in messages; with a character that is escaped when printed, such as a line break; or a
    long one, which is cut.
    """
    name = _NAME.match(word)
    start = name[0] if name else ""
    quoted = start + shlex.quote(word.removeprefix(start))
    if "`" in word or not word.isprintable() or len(quoted) > MOST_CHARACTERS:
        return placeholder
    return quoted


def spell_as_flags(message: str) -> str:
    """Spells the options in a message as command-line flags.

    The argument `path`, which has no flag, stays as it is. So does text that only looks like an
    option, for example in the name of a file, unless `spell_option` could have spelled it.
    """
    head = _HEAD.match(message)
    if not head:
        return _OPTION.sub(_spell_flag, message)
    return _spell_head(head) + _OPTION.sub(_spell_flag, message[head.end() :])


def _spell_head(match: re.Match[str]) -> str:
    return match[2] if match[1] == "path" else _spell_flag(match)


def _spell_flag(match: re.Match[str]) -> str:
    """Spells an option as a flag, so that argparse mistakes no value for a flag."""
    name, value = match.groups()
    is_like_flag = value.removeprefix("'").startswith("-")
    return f"--{name}={value}" if is_like_flag else f"--{name} {value}".rstrip()
