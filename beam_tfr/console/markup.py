"""HTML for notebooks; all text is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from beam_tfr.console.terminal import printable

_NUMBER = ' style="text-align: right"'
_TEXT = ' style="text-align: left; white-space: pre-wrap"'  # notebooks align cells to the right


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()) -> str:
    """A title, a table with numbers aligned to the right, and a line for each note."""
    rows = [*rows]
    below = rows[-1] if rows else header
    head = "".join(f"<th{_side(cell)}>{text(name)}</th>" for name, cell in zip(header, below, strict=False))
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    lines = "".join(f"<div>{text(note)}</div>" for note in notes)
    return f"<div><b>{text(title)}</b><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{lines}</div>"


def text(value: object) -> str:
    """A value as HTML text, with invisible characters escaped."""
    return html.escape(printable(str(value)))


def _cell(value: object) -> str:
    return f"<td{_side(value)}>{f'{value:,}' if isinstance(value, int) else text(value)}</td>"


def _side(value: object) -> str:
    return _NUMBER if isinstance(value, int) else _TEXT
