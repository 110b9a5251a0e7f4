"""Chromium, which reads pages as people do, and notes what they should not do."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = "BEAM_TFR_TEST_CHROMIUM"  # environment variable with the path of a browser
HEIGHT = 900


class Screen(NamedTuple):
    """A screen: its width in pixels, and whether it is "light" or "dark"."""

    width: int
    scheme: str


DESK = Screen(1440, "light")
PHONE = Screen(390, "dark")


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Starts Chromium, or skips the test with the reason why not."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs Playwright: pip install -e '.[test]'"
    )
    program = os.environ.get(CHROMIUM) or shutil.which("chromium")
    if not program:
        pytest.skip(f"needs Chromium: apt-get install chromium, or {CHROMIUM}")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program)
        yield browser
        browser.close()


class OpenedPage(NamedTuple):
    """A page in a browser.

    Attributes:
        page: the page.
        complaints: what it should not do: requests, errors, dialogs.
    """

    page: Page
    complaints: list[str]


@contextlib.contextmanager
def open_page(browser: Browser, path: Path, screen: Screen) -> Iterator[OpenedPage]:
    """Opens a file in a browser without a network."""
    context = browser.new_context(
        viewport={"width": screen.width, "height": HEIGHT},
        color_scheme=screen.scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
        offline=True,
    )
    page = context.new_page()
    complaints = list[str]()
    address = path.as_uri()

    def note_request(url: str) -> None:
        if not url.startswith("data:") and url.partition("#")[0] != address:
            complaints.append(f"requests {url:.100}")

    page.on("request", lambda request: note_request(request.url))
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"fails: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"asks: {dialog.message}"))
    page.goto(address)
    try:
        yield OpenedPage(page, complaints)
    finally:
        context.close()
