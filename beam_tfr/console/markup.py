"""HTML for notebooks; all text is escaped."""

from __future__ import annotations

import html

from beam_tfr.console.terminal import printable


def text(value: object) -> str:
    """A value as HTML text, with invisible characters escaped."""
    return html.escape(printable(str(value)))


def lines(value: object) -> str:
    """A value as lines of a terminal."""
    return f"<pre>{text(value)}</pre>"
