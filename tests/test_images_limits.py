"""Limits: exact, named by their flags, and one budget of pixels for all threads."""

from __future__ import annotations

import dataclasses
import io
import os
import random
import select
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from beam_tfr.images import convert_image, geometry, limits
from beam_tfr.images.encode import MAX_SIDES
from beam_tfr.images.formats.depth import ALPHA_BYTES
from beam_tfr.images.formats.png import open_png
from beam_tfr.images.limits import MemoryBudget
from beam_tfr.images.source import Decoded, Source
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError
from tests.conftest import wait_for
from tests.fixtures import save, smooth
from tests.fixtures.hostile import flat_png, scans


def never(_: object) -> Decoded:
    raise AssertionError("decoded before it was checked")


def source(width: int, height: int, **changes: Any) -> Source:
    about = Source(format="jpeg", height=height, width=width, decode=never, memory=lambda _: 1000)
    return dataclasses.replace(about, **changes)


# What passes with an option, what is one more, and what is said then: (width, height, frames or
# scans, options).
EXACT = {
    "max_pixels": (
        source(64, 48),
        {"max_pixels": 64 * 48},
        {"max_pixels": 64 * 48 - 1},
        ("too-many-pixels", "64 x 48 pixels, more than --max_pixels 3071"),
    ),
    "max_pixels of the default": (
        source(10_000, 10_000),
        {},
        {"max_pixels": 99_999_999},
        ("too-many-pixels", "10000 x 10000 pixels, more than --max_pixels 99999999"),
    ),
    "min_pixels": (
        source(5, 7),
        {"min_pixels": 35},
        {"min_pixels": 36},
        ("too-few-pixels", "5 x 7 pixels, fewer than --min_pixels 36"),
    ),
    "max_aspect wide": (
        source(10_000, 1),
        {"max_aspect": 10_000},
        {"max_aspect": 9_999.5},
        ("extreme-aspect", "10000 x 1 pixels, more than --max_aspect 9999.5 : 1"),
    ),
    "max_aspect high": (
        source(1, 10_000),
        {"max_aspect": 10_000},
        {"max_aspect": 9_999},
        ("extreme-aspect", "1 x 10000 pixels, more than --max_aspect 9999 : 1"),
    ),
    "max_aspect of squares": (
        source(7, 7),
        {"max_aspect": 1},
        {"max_aspect": 1, "min_pixels": 50},
        ("too-few-pixels", "7 x 7 pixels, fewer than --min_pixels 50"),
    ),
    "frames": (
        source(7, 7, frames=2),
        {"frames": "first"},
        {"frames": "reject"},
        ("several-frames", "has several frames or pages, and --frames reject is set"),
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_each_limit_is_exact_and_named(name: str) -> None:
    about, passes, fails, (reason, detail) = EXACT[name]
    limits.check_header(about, ImageOptions(**passes))
    with pytest.raises(RejectError) as error:
        limits.check_header(about, ImageOptions(**fails))
    assert (error.value.reason, error.value.detail) == (reason, detail)


def test_what_is_ordinary_passes_every_default() -> None:
    for about in (
        source(1, 1),
        source(10_000, 1),
        source(1, 10_000),
        source(2, 2, frames=9),
        source(9, 9, scans=99),
    ):
        limits.check_header(about, ImageOptions())


def test_the_limit_of_scans_is_exact() -> None:
    limits.check_header(source(100, 50, scans=200_000), ImageOptions())
    said = "too-many-scans: 200001 scans of 100 x 50 pixels, more than 1000000000 in total"
    with pytest.raises(RejectError, match=said):
        limits.check_header(source(100, 50, scans=200_001), ImageOptions())


def test_scans_do_not_count_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SCAN_PIXELS", 1)
    limits.check_header(source(9_000, 9_000), ImageOptions())
    with pytest.raises(RejectError, match="too-many-scans"):
        limits.check_header(source(9_000, 9_000, scans=2), ImageOptions())


@given(
    st.integers(1, 1 << 16),
    st.integers(1, 1 << 16),
    st.integers(1, 1 << 30),
    st.floats(1, 1e5),
    st.integers(1, 1000),
)
def test_check_is_what_the_options_say(
    width: int, height: int, most: int, aspect: float, least: int
) -> None:
    least = min(least, most)
    options = ImageOptions(max_pixels=most, max_aspect=aspect, min_pixels=least)
    allowed = (
        least <= width * height <= most and width <= aspect * height and height <= aspect * width
    )
    try:
        limits.check_header(source(width, height), options)
    except RejectError:
        assert not allowed
    else:
        assert allowed


def test_what_takes_more_memory_than_allowed_is_rejected() -> None:
    about = source(64, 48)
    limits.check_memory(about, 1000, ImageOptions(max_decode_bytes=1000))
    message = (
        "too-much-memory: 64 x 48 pixels of this kind take 1000 bytes to decode, "
        "more than --max_decode_bytes 999"
    )
    with pytest.raises(RejectError, match=message):
        limits.check_memory(about, 1000, ImageOptions(max_decode_bytes=999))


@pytest.mark.parametrize(
    ("data", "needed"),
    [
        (save(smooth(), "JPEG"), 4),  # pixels, here not scaled down
        (
            save(smooth(), "JPEG", progressive=True),
            4 + 2 * 1.5,
        ),  # and all coefficients, of half the colors
        (save(smooth(), "PNG"), 3),
        (flat_png(64, 48, bits=16), 6),
        (save(smooth().convert("RGBA"), "PNG"), 4 + ALPHA_BYTES),
        (save(smooth().convert("LA"), "PNG"), 4 + 2),
        (save(smooth(), "WEBP"), 3),
        (save(smooth(), "WEBP", lossless=True), 7),
        (save(smooth(), "TIFF"), 4),
        (save(smooth(), "GIF"), 8),
        (save(smooth(), "BMP"), 4),
        (save(smooth(), "AVIF"), 4 + 8),
    ],
)
def test_the_memory_of_each_kind(data: bytes, needed: float) -> None:
    needed = int(needed * 48 * 64)
    convert_image(data, max_decode_bytes=needed)
    with pytest.raises(
        RejectError, match=f"too-much-memory: 64 x 48 .* take {needed} bytes to decode"
    ):
        convert_image(data, max_decode_bytes=needed - 1)


def test_a_transparent_png_of_51_megapixels_is_within_the_defaults() -> None:
    source = open_png(flat_png(7500, 6800, color=6))
    limits.check_memory(source, source.memory(None), ImageOptions())


def test_a_jpeg_that_is_scaled_down_takes_the_memory_of_what_is_decoded() -> None:
    data = save(PillowImage.new("RGB", (4000, 4000)), "JPEG")
    convert_image(data, image_size=(100, 100), max_decode_bytes=4 * 500 * 500)
    with pytest.raises(RejectError, match="too-much-memory"):
        convert_image(data, image_size=(300, 300), max_decode_bytes=4 * 500 * 500)


# The result

RESULTS: dict[str, tuple[tuple[int, int], dict[str, Any], str]] = {
    "a line": ((1, 1_000_000), {}, ""),
    "max_pixels": ((300, 200), {"encoding": "png", "max_pixels": 60_000}, ""),
    "max_pixels + 1": (
        (300, 201),
        {"encoding": "png", "max_pixels": 60_000},
        "too-many-pixels: would become 201 x 300 pixels, more than --max_pixels 60000",
    ),
    "image_size is allowed whatever max_pixels": ((224, 224), {"max_pixels": 1}, ""),
}


@pytest.mark.parametrize("name", RESULTS)
def test_what_the_result_may_be(name: str) -> None:
    canvas, changes, message = RESULTS[name]
    if not message:
        limits.check_result(canvas, ImageOptions(**changes))
        return
    with pytest.raises(RejectError) as error:
        limits.check_result(canvas, ImageOptions(**changes))
    assert str(error.value) == message


def test_each_encoding_holds_the_sides_that_are_said() -> None:
    for encoding, most in MAX_SIDES.items():
        line = PillowImage.new("L", (most, 1), "gray")
        data = save(line, "PNG")
        image = convert_image(data, resize="none", encoding=encoding)
        with PillowImage.open(io.BytesIO(image.encoded)) as decoded:
            decoded.load()
            assert decoded.size == (most, 1)
        with pytest.raises(
            RejectError, match=f"extreme-aspect: {most + 1} x 1 pixels; {encoding} holds at"
        ):
            convert_image(
                save(PillowImage.new("L", (most + 1, 1)), "BMP"), resize="none", encoding=encoding
            )


@pytest.mark.parametrize(("width", "height"), [(10_000, 1), (1, 10_000)])
def test_shortest_of_a_line(width: int, height: int) -> None:
    data = save(PillowImage.new("RGB", (width, height), "red"), "PNG")
    options = ImageOptions(resize="shortest", image_size=(224, 224))
    long = 2_240_000
    sides = f"{long} x 224" if width > height else f"224 x {long}"
    with pytest.raises(
        RejectError,
        match=f"too-many-pixels: would become {sides} pixels, more than --max_pixels 100",
    ):
        convert_image(data, options)
    assert geometry.compute_placement(height, width, (6, 6), "shortest").canvas == (
        (6, 60_000) if width > height else (60_000, 6)
    )
    image = convert_image(data, options, image_size=(6, 6))
    assert {image.height, image.width} == {6, 60_000}


def test_limits_hold_before_anything_is_decoded() -> None:
    """Through `convert_image`: each acts, and no damage behind the header is seen."""
    broken = save(smooth(), "PNG")[:100]
    for changes, reason in (
        ({"max_pixels": 3071}, "too-many-pixels"),
        ({"min_pixels": 3073}, "too-few-pixels"),
        ({"max_aspect": 1.3}, "extreme-aspect"),
        ({}, "damaged-image"),
    ):
        with pytest.raises(RejectError, match=reason):
            convert_image(broken, **changes)


def test_scans_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = scans(64, 48, 30)
    monkeypatch.setattr(limits, "MAX_SCAN_PIXELS", 30 * 64 * 48 - 1)
    with pytest.raises(
        RejectError, match="too-many-scans: 30 scans of 64 x 48 pixels, more than 92159 in total"
    ):
        convert_image(data)


# The budget


class Meter:
    """Counts what is held, and the most of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.held = self.most = self.entered = 0

    def add(self, pixels: int) -> None:
        with self._lock:
            self.held += pixels
            self.entered += pixels > 0
            self.most = max(self.most, self.held)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 100), min_size=1, max_size=8), min_size=1, max_size=8),
    st.integers(0, 99),
)
def test_the_sum_never_exceeds_the_limit_and_all_get_their_turn(
    asked: list[list[int]], seed: int
) -> None:
    budget, meter = MemoryBudget(), Meter()

    def work(mine: list[int]) -> None:
        dice = random.Random(seed)
        for pixels in mine:
            try:
                with budget.hold(pixels, 100):
                    meter.add(pixels)
                    time.sleep(dice.choice((0, 0, 0.0003)))
                    meter.add(-pixels)
                    if dice.random() < 0.2:
                        raise RuntimeError
            except RuntimeError:
                pass

    with ThreadPoolExecutor(len(asked)) as pool:
        list(pool.map(work, asked))
    assert meter.most <= 100
    assert (meter.entered, meter.held) == (sum(map(len, asked)), 0)
    with budget.hold(100, 100):
        pass


def test_a_large_image_is_not_overtaken_for_ever() -> None:
    budget, order, stop = MemoryBudget(), list[str](), threading.Event()

    def small() -> None:
        while not stop.is_set():
            with budget.hold(10, 100):
                order.append("small")
                time.sleep(0.002)

    def large() -> None:
        with budget.hold(100, 100):
            order.append("large")
        stop.set()

    threads = [threading.Thread(target=small) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(order) > 20)
    began = len(order)
    threads.append(threading.Thread(target=large))
    threads[-1].start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    # each of four ends what it does, and a few came before
    assert order.index("large") - began <= 30


def test_threads_begin_in_the_order_in_which_they_ask() -> None:
    budget, order = MemoryBudget(), list[int]()

    def work(number: int, pixels: int) -> None:
        with budget.hold(pixels, 100):
            order.append(number)
            time.sleep(0.01)

    threads = []
    with budget.hold(100, 100):
        for number, pixels in enumerate((100, 1, 100, 60, 50, 100)):
            threads.append(threading.Thread(target=work, args=(number, pixels)))
            threads[-1].start()
            wait_for(lambda: len(budget._asked) == len(threads) + 1)
        assert not order
    for thread in threads:
        thread.join(60)
    assert order == [0, 1, 2, 3, 4, 5]


def test_small_images_are_decoded_beside_each_other() -> None:
    budget, both = MemoryBudget(), threading.Barrier(2)

    def work(_: int) -> None:
        with budget.hold(50, 100):
            both.wait(60)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))


def test_an_image_larger_than_the_limit_waits_for_the_others_and_no_longer() -> None:
    budget, order = MemoryBudget(), list[str]()

    def work() -> None:
        with budget.hold(1000, 100):
            order.append("large")

    thread = threading.Thread(target=work)
    with budget.hold(1, 100):
        thread.start()
        wait_for(lambda: len(budget._asked) == 2)
        order.append("small")
    thread.join(60)
    assert order == ["small", "large"]


@pytest.mark.parametrize("needed", [50, 1000])
def test_a_shared_budget_is_one_for_all_processes_forked_later(needed: int) -> None:
    budget = MemoryBudget()
    budget.share()
    reports, report = os.pipe()
    with budget.hold(60, 100):
        pid = os.fork()
        if not pid:
            with budget.hold(needed, 100):
                os.write(report, b".")
            os._exit(0)
        assert select.select([reports], [], [], 0.1)[0] == []  # it waits
    assert os.waitpid(pid, 0) == (pid, 0)
    assert os.read(reports, 1) == b"."
    with budget.hold(100, 100):  # all is given back
        pass
    os.close(reports)
    os.close(report)


def test_an_error_while_waiting_leaves_the_queue_to_the_others() -> None:
    """Ctrl-C reaches a thread that waits."""
    import ctypes

    budget, entered, ended = MemoryBudget(), threading.Event(), list[type]()

    def waits() -> None:
        try:
            with budget.hold(100, 100):
                raise AssertionError("never")
        except BaseException as error:
            ended.append(type(error))

    def comes_next() -> None:
        with budget.hold(50, 100):
            entered.set()

    waiting, after = threading.Thread(target=waits), threading.Thread(target=comes_next)
    with budget.hold(50, 100):
        waiting.start()
        wait_for(lambda: len(budget._asked) == 2)
        after.start()
        wait_for(lambda: len(budget._asked) == 3)
        assert not entered.wait(0.05)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(waiting.ident or 0), ctypes.py_object(KeyError)
        )
        with budget._changed:
            budget._changed.notify_all()  # an asynchronous error comes when the thread runs again
        waiting.join(60)
        assert ended == [KeyError]
        assert entered.wait(60)
    after.join(60)


PEAK = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from beam_tfr.images import convert_image
from tests.fixtures.hostile import flat_png

data, threads = flat_png(5000, 4000, bits=16), int(sys.argv[1])
with ThreadPoolExecutor(threads) as pool:
    list(pool.map(lambda _: convert_image(data, max_decode_bytes=130_000_000), range(threads)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_the_budget_bounds_the_memory_whatever_the_threads() -> None:
    """malloc keeps nothing for threads that have decoded."""

    def peak(threads: int) -> int:
        program = [sys.executable, "-c", PEAK, str(threads)]
        run = subprocess.run(
            program, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
        )
        return int(run.stdout)

    assert peak(4) < 1.6 * peak(1)  # 1.3; twice and more when malloc keeps it


def test_convert_image_holds_the_budget_while_it_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    held = list[tuple[int, int]]()

    class Watched(MemoryBudget):
        def hold(self, needed: int, limit: int) -> Any:
            held.append((needed, limit))
            return super().hold(needed, limit)

    monkeypatch.setattr(limits, "BUDGET", Watched())
    for form in ("JPEG", "PNG"):
        convert_image(save(smooth(), form), max_decode_bytes=13_000)
    resizing = 4 * (48 * 64 + 224 * 224)
    assert held == [(4 * 48 * 64 + resizing, 13_000), (3 * 48 * 64 + resizing, 13_000)]
    with pytest.raises(RejectError):
        convert_image(save(smooth(), "PNG")[:-50])
    with pytest.raises(RejectError):
        convert_image(np.arange(9, dtype=np.uint8).tobytes())
    assert len(held) == 3
    assert not limits.BUDGET._asked
