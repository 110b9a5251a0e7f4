"""Reads large JSON files element by element, with memory for one of them."""

from __future__ import annotations

import codecs
import functools
import json
import re
from collections.abc import Iterator
from typing import IO, Any

MAX_ELEMENT = 16 << 20  # characters
_CHUNK = 1 << 20  # 1 MiB
_NOT_SPACE = re.compile(r"[^ \t\n\r]")
_decode = json.JSONDecoder().raw_decode


def read_elements(file: IO[bytes]) -> Iterator[tuple[str, str, Any]]:
    """Yields (key, place, element) for each element of a list, or of the lists in an object, in the order of the file.

    Raises:
        ValueError: it is not such a file, or an element has more than `MAX_ELEMENT` characters.
    """
    text = _Text(file)
    if text.take("[{", "the file") == "[":
        yield from _elements(text, "")
    else:
        for _ in _members(text, "}", "the file"):
            key = text.value("a key")
            text.take(":", f"{key!r}")
            if text.peek() == "[":
                text.take("[", key)
                yield from _elements(text, key)
            else:
                text.value(key)
    if text.peek():
        raise ValueError("is not valid JSON: more follows after its end")


def _elements(text: _Text, key: str) -> Iterator[tuple[str, str, Any]]:
    for number, _ in enumerate(_members(text, "]", key)):
        place = f"{key}[{number}]"
        yield key, place, text.value(place)


def _members(text: _Text, end: str, place: str) -> Iterator[None]:
    """Stops before each member of a list or object that has begun, up to its end."""
    if text.peek() == end:
        text.take(end, place)
        return
    yield
    while text.take(f",{end}", place) != end:
        yield


class _Text:
    """The text of a file, of which only what is being read is in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._chunks = codecs.iterdecode(iter(functools.partial(file.read, _CHUNK), b""), "utf-8-sig")
        self._text, self._at = "", 0

    def peek(self) -> str:
        """Skips white space and returns the next character; empty at the end."""
        while not (found := _NOT_SPACE.search(self._text, self._at)):
            self._at = len(self._text)
            if not self._more():
                return ""
        self._at = found.start()
        return found[0]

    def take(self, allowed: str, place: str) -> str:
        """Skips white space and one of the allowed characters, which it returns."""
        found = self.peek()
        if not found or found not in allowed:
            wrong = f"{found!r} is there" if found else "the file ends"
            raise ValueError(f"is not valid JSON: {place}: {wrong} instead of {' or '.join(allowed)}")
        self._at += 1
        return found

    def value(self, place: str) -> Any:
        """Skips white space and reads a value."""
        self.peek()
        while True:
            cause = ""
            try:
                value, end = _decode(self._text, self._at)
                if end < len(self._text):  # else more digits of a number may follow
                    break
            except RecursionError:
                cause = "it is nested too deeply"
            except ValueError as error:  # where the text is cut, or wrong
                cause = getattr(error, "msg", "a number has too many digits")
            if len(self._text) - self._at > MAX_ELEMENT:
                raise ValueError(f"is not valid JSON: {place} has more than {MAX_ELEMENT >> 20} MiB, or {cause}")
            if not self._more():
                if cause:
                    raise ValueError(f"is not valid JSON: {place}: {cause}")
                end = len(self._text)
                break
        self._at = end
        return value

    def _more(self) -> bool:
        """Appends a chunk to what is not read yet; false at the end."""
        chunk = next(self._chunks, "")
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)
