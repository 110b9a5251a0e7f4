"""Parses lists in the notation of Python, NumPy and PyTorch, which pandas writes into tables.

['cat', 'dog']    ('cat', 'dog')    ['cat' 'dog']    [np.str_('cat')]
[(5, 6, 25, 21)]    [[ 5.  6. 25. 21.]]    [np.float64(5.0)]    tensor([[5., 6.]], device='cpu')
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

_MOST_DEPTH = 8  # levels of nested lists
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"
_TEXT = rf"'(?:[^'\\\r\n]|{_ESCAPE})*+'" + "|" + rf'"(?:[^"\\\r\n]|{_ESCAPE})*+"'
_NUMBER = r"[+-]?+(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+"
_MEMBER = rf"{_TEXT}|{_NUMBER}|-?(?:nan|inf)|None|True|False|np\.True_|np\.False_"
# Python prints `[np.float64(5.0)]`, and pandas writes what Python prints.
_SCALAR = r"(?:np|numpy)\.[a-z]++[0-9]*+_?+\("
_ARRAY = r"(?:(?:np|numpy|torch)\.)?(?:array|tensor)\("
_ARGUMENTS = r"(?:,\s*+(?:dtype|device|requires_grad|grad_fn)=[^,()\[\]]{1,40})*+"
_TOKEN = re.compile(
    rf"(?P<space>\s*+)(?:{_SCALAR}(?P<wrapped>{_MEMBER})\)|(?P<member>{_MEMBER})"
    rf"|(?P<open>[\[({{]|{_ARRAY})|{_ARGUMENTS}(?P<close>[\])}}])|(?P<comma>,))"
)
_BEGIN = re.compile(rf"\s*+(?:[\[({{]|{_ARRAY})")
_CLOSES = {"[": "]", "(": ")", "{": "}"}
_NAMED = {"None": None, "True": True, "False": False, "np.True_": True, "np.False_": False}


class _NoListError(ValueError):
    """A string that is not such a list."""


def parse_python_list(text: str, most_values: int) -> list[Any] | None:
    """Parses the members of a list, tuple, set or array; returns None for any other string.

    Numbers and strings in the list become Python's numbers and strings; nested lists stay lists. A
    single value in parentheses, such as `(5)`, is not a list.

    Raises:
        ValueError: the list has too many values.
    """
    if not _BEGIN.match(text):
        return None
    reader = _ListReader(most_values)
    try:
        for token in _split_tokens(text.rstrip()):
            reader.add(token)
        return reader.finish()
    except _NoListError:
        return None


def _split_tokens(text: str) -> Iterator[re.Match[str]]:
    """Yields the tokens of a string.

    Raises:
        _NoListError: the string has other tokens.
    """
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise _NoListError
        position = token.end()
        yield token


class _ListReader:
    """Builds a list from tokens, one after another."""

    def __init__(self, most_values: int) -> None:
        self._lists: list[list[Any]] = [[]]  # the outermost one holds the list being read
        self._opened = list[str]()
        self._room = most_values
        self._may_begin = True  # whether a member may come without a space before it
        self._may_be_comma = False
        self._is_plain = False  # whether the outermost list is one value in parentheses

    def add(self, token: re.Match[str]) -> None:
        """Adds the next token.

        Raises:
            _NoListError: the token is not allowed here.
            ValueError: there are too many values.
        """
        if self._lists[0] and not self._opened:
            raise _NoListError
        self._may_begin = self._may_begin or bool(token["space"])
        if token["open"]:
            self._open(token["open"])
        elif token["close"]:
            self._close(token["close"])
        elif token["comma"]:
            self._take_comma()
        else:
            self._add_member(token["wrapped"] or token["member"])

    def finish(self) -> list[Any]:
        """Returns the list.

        Raises:
            _NoListError: the list does not end, or is a value in parentheses.
        """
        (members,) = self._lists[0] or (None,)
        if self._opened or not isinstance(members, list) or (self._is_plain and members):
            raise _NoListError
        return members

    def _open(self, text: str) -> None:
        if not self._may_begin or len(self._opened) == _MOST_DEPTH:
            raise _NoListError
        self._is_plain = text == "(" and not self._opened
        members = list[Any]()
        self._lists[-1].append(members)
        self._lists.append(members)
        self._opened.append(text)
        self._expect_member()

    def _close(self, text: str) -> None:
        if not self._opened:
            raise _NoListError
        opened = self._opened.pop()
        if text != _CLOSES[opened[-1]]:
            raise _NoListError
        members = self._lists.pop()
        if opened not in _CLOSES:  # an array, whose only member holds the values
            if len(members) != 1:
                raise _NoListError
            self._lists[-1][-1] = members[0]
        self._expect_separator()

    def _take_comma(self) -> None:
        if not self._may_be_comma or not self._opened:
            raise _NoListError
        self._is_plain = False
        self._expect_member()

    def _add_member(self, text: str) -> None:
        if not self._may_begin or not self._opened:
            raise _NoListError
        self._room -= 1
        if self._room < 0:
            raise ValueError("has too many values")
        try:
            self._lists[-1].append(_parse_member(text))
        except (ValueError, SyntaxError):
            raise _NoListError from None
        self._expect_separator()

    def _expect_member(self) -> None:
        self._may_begin = True
        self._may_be_comma = False

    def _expect_separator(self) -> None:
        self._may_begin = False
        self._may_be_comma = True


def _parse_member(text: str) -> Any:
    """Parses the value of a member.

    Raises:
        ValueError: the member is not a Python number (such as 007), or has thousands of digits.
        SyntaxError: an escape in a string does not stand for a character.
    """
    if text[0] in "'\"":
        return ast.literal_eval(text)
    if text in _NAMED:
        return _NAMED[text]
    digits = text.lstrip("+-")
    if not digits.isdecimal():
        return float(text)
    if digits.startswith("0") and digits != "0":
        raise ValueError(f"{text} is not a Python number")
    return int(text)
