"""Checks headers against limits before decoding, and budgets memory for decoding."""

import contextlib
import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator

from PIL import Image as PillowImage

from beam_tfr.images.source import Size, Source
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError

# For a JPEG: each scan takes time, and a small progressive file can have thousands.
MAX_SCAN_PIXELS = 1_000_000_000
MAX_RESIZED_SIDE = 1_000_000  # PNG's limit; the filter of such a side takes 150 MB


def check_header(source: Source, options: ImageOptions) -> None:
    """Checks an opened file against the limits.

    Raises:
        RejectError: `too-many-pixels`, `too-many-scans`, `too-few-pixels`, `extreme-aspect` or
            `several-frames`.
    """
    pixels = source.height * source.width
    sides = f"{source.width} x {source.height} pixels"
    if pixels > options.max_pixels:
        raise RejectError(
            "too-many-pixels", f"{sides}, more than --max_pixels {options.max_pixels}"
        )
    if source.scans > 1 and source.scans * pixels > MAX_SCAN_PIXELS:
        raise RejectError(
            "too-many-scans",
            f"{source.scans} scans of {sides}, more than {MAX_SCAN_PIXELS} in total",
        )
    if pixels < options.min_pixels:
        raise RejectError(
            "too-few-pixels", f"{sides}, fewer than --min_pixels {options.min_pixels}"
        )
    longer = max(source.height, source.width)
    shorter = min(source.height, source.width)
    if options.max_aspect is not None and longer > options.max_aspect * shorter:
        raise RejectError(
            "extreme-aspect", f"{sides}, more than --max_aspect {options.max_aspect:.12g} : 1"
        )
    if source.frames > 1 and options.frames == "reject":
        raise RejectError(
            "several-frames", "has several frames or pages, and --frames reject is set"
        )


def check_memory(source: Source, needed: int, options: ImageOptions) -> None:
    """Checks how much memory decoding needs.

    Raises:
        RejectError: `too-much-memory`.
    """
    if needed > options.max_decode_bytes:
        raise RejectError(
            "too-much-memory",
            f"{source.width} x {source.height} pixels of this kind take {needed} bytes to decode, "
            f"more than --max_decode_bytes {options.max_decode_bytes}",
        )


def check_result(canvas: Size, options: ImageOptions) -> None:
    """Checks the height and width of a result.

    Raises:
        RejectError: `too-many-pixels`: the result does not fit into memory.
    """
    height, width = canvas
    if height * width > _most_pixels(options):
        raise RejectError(
            "too-many-pixels",
            f"would become {width} x {height} pixels, more than --max_pixels {options.max_pixels}",
        )


def check_resizing(canvas: Size, pixels_between: int, options: ImageOptions) -> None:
    """Checks how much memory resizing needs.

    Args:
        canvas: height and width of the result.
        pixels_between: number of pixels once the height has been resized, but not the width.
        options: options of the image.

    Raises:
        RejectError: `too-many-pixels`, `extreme-aspect`: the pixels, or the filter for a side, do
            not fit into memory.
    """
    height, width = canvas
    if max(canvas) > MAX_RESIZED_SIDE:
        raise RejectError(
            "extreme-aspect",
            f"resizing to {width} x {height} pixels; at most {MAX_RESIZED_SIDE} per side",
        )
    if pixels_between > _most_pixels(options):
        raise RejectError(
            "too-many-pixels",
            f"stretching to {width} x {height} pixels needs {pixels_between} pixels in between, "
            f"more than --max_pixels {options.max_pixels}; --resize crop needs fewer",
        )


def _most_pixels(options: ImageOptions) -> int:
    """Returns how many pixels an image may have while it is resized, and afterwards."""
    return max(options.max_pixels, math.prod(options.image_size))


# Twice the largest block that malloc keeps for the thread that freed it (mallopt(3)); by default,
# Pillow's blocks have 16 MiB.
PillowImage.core.set_block_size(64 << 20)  # type: ignore[attr-defined]


class _SharedBudget:
    """A memory budget of this process and all processes forked from it.

    Its shares are bytes in a pipe, as in make's job server: a process that decodes an image takes
    bytes out, and puts them back afterwards. A process that dies never puts its bytes back, so the
    run must end.
    """

    SHARES = 1000  # a pipe holds more

    def __init__(self) -> None:
        self._take, self._give = os.pipe()
        self._enter, self._leave = os.pipe()
        os.write(self._give, bytes(self.SHARES))
        os.write(self._leave, bytes(1))

    @contextlib.contextmanager
    def hold(self, needed: int, limit: int) -> Iterator[None]:
        """Reserves the bytes of an image within the context; see `MemoryBudget.hold`."""
        shares = min(self.SHARES, -(-self.SHARES * needed // limit))
        taken = 0
        try:
            os.read(self._enter, 1)  # one after another: two that have half would wait forever
            try:
                while taken < shares:
                    taken += len(os.read(self._take, shares - taken))
            finally:
                os.write(self._leave, bytes(1))
            yield
        finally:
            os.write(self._give, bytes(taken))


class MemoryBudget:
    """The limit on the total memory that all threads of this process use for decoding.

    If the budget is shared, it also covers all processes forked from this one. Threads start in the
    order in which they asked, so that a large image does not wait forever.
    """

    def __init__(self) -> None:
        self._reserve: Callable[[int, int], None] | None = None
        self._shared: _SharedBudget | None = None
        self._changed = threading.Condition()
        # Bytes for the images being decoded or waiting, in the order of the requests.
        self._asked: dict[object, int] = {}

    def delegate(self, reserve: Callable[[int, int], None]) -> None:
        """Has a guarded process ask its parent process for the bytes of each image."""
        self._reserve = reserve

    def share(self) -> None:
        """Shares the budget with all processes forked from now on."""
        self._shared = _SharedBudget()

    @contextlib.contextmanager
    def hold(self, needed: int, limit: int) -> Iterator[None]:
        """Waits until an image fits, and reserves its bytes within the context.

        Args:
            needed: bytes for the image; if more than `limit`, waits until no other image is
                decoded.
            limit: bytes for all images in total.
        """
        if self._reserve is not None:
            self._reserve(needed, limit)
            yield
            return
        if self._shared is not None:
            with self._shared.hold(needed, limit):
                yield
            return
        ticket = object()
        try:
            with self._changed:
                self._asked[ticket] = needed
                self._changed.wait_for(lambda: self._fits(ticket, limit))
            yield
        finally:
            with self._changed:
                self._asked.pop(ticket, None)
                self._changed.notify_all()

    def _fits(self, ticket: object, limit: int) -> bool:
        """Whether an image may be decoded now.

        The first image may, and so may an image that fits together with all images requested before
        it.
        """
        earlier = itertools.takewhile(lambda asked: asked is not ticket, self._asked)
        before = sum(self._asked[asked] for asked in earlier)
        return before == 0 or before + self._asked[ticket] <= limit


BUDGET = MemoryBudget()
