"""What is too much, or too little: checked by header, before anything is decoded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from beam_tfr.images.encode import MAX_SIDES
from beam_tfr.images.source import Source
from beam_tfr.options import ImageOptions
from beam_tfr.schema import RejectError


def check(source: Source, options: ImageOptions) -> None:
    """
    Raises:
        RejectError: `too-many-pixels`, `too-many-scans`, `too-few-pixels`, `extreme-aspect` or `several-frames`.
    """
    pixels, sides = source.height * source.width, f"{source.width} x {source.height} pixels"
    if pixels > options.max_pixels:
        raise RejectError("too-many-pixels", f"{sides}, at most {options.max_pixels} are decoded")
    if source.scans > 1 and source.scans * pixels > options.max_scan_pixels:
        raise RejectError(
            "too-many-scans", f"{source.scans} scans of {sides}, at most {options.max_scan_pixels} in all are decoded"
        )
    if pixels < options.min_pixels:
        raise RejectError("too-few-pixels", f"{sides}, at least {options.min_pixels} are asked for")
    longer, shorter = max(source.height, source.width), min(source.height, source.width)
    if options.max_aspect is not None and longer > options.max_aspect * shorter:
        raise RejectError("extreme-aspect", f"{sides}, at most {options.max_aspect:g} : 1 is asked for")
    if source.frames > 1 and options.frames == "reject":
        raise RejectError("several-frames", f"{source.frames} frames or pages")


def check_result(canvas: tuple[int, int], options: ImageOptions) -> None:
    """
    Raises:
        RejectError: `extreme-aspect` or `too-many-pixels`: the result would not fit into the encoding or into memory.
    """
    height, width = canvas
    most = MAX_SIDES.get(options.encoding)
    if most is not None and max(canvas) > most:
        raise RejectError(
            "extreme-aspect", f"would become {width} x {height} pixels, {options.encoding} holds at most {most} a side"
        )
    if height * width > max(options.max_pixels, options.image_size[0] * options.image_size[1]):
        raise RejectError(
            "too-many-pixels", f"would become {width} x {height} pixels, --max_pixels is {options.max_pixels}"
        )


class PixelBudget:
    """How many pixels are being decoded at once in this process: what bounds its memory, whatever its threads.

    Threads take what they need in the order in which they asked, so that a large image is not overtaken for ever.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held = 0
        self._waiting: list[object] = []

    @contextlib.contextmanager
    def hold(self, pixels: int, limit: int) -> Iterator[None]:
        """
        Args:
            pixels: of the image, at most `limit`.
            limit: of all images together.
        """
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            self._changed.wait_for(lambda: self._waiting[0] is ticket and self._held + pixels <= limit)
            self._waiting.pop(0)
            self._held += pixels
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._held -= pixels
                self._changed.notify_all()


BUDGET = PixelBudget()
