"""The page about a dataset in a browser, as a person meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL.Image
import pytest

from beam_tfr import cli
from beam_tfr.reporting import report
from tests.browser import DESK, PHONE, Screen, open_browser, open_page
from tests.converted import converted_spoiled_photos, once, spoiled_photos

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow  # starts a browser
PAGE = "page.html"
# Sets window.hacked if a page runs it in whatever way.
HOSTILE = [
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "'><svg onload='window.hacked = 1'>",
    "</title></style></script><script>window.hacked = 1</script>",
    "<iframe srcdoc='<script>top.hacked = 1</script>'>",
    "javascript:window.hacked=1//",
    "\u202egpj.\u2066exe\u2069 \u200f\u061c",
    "{{ 7 * 7 }} {% for x in y %}",
    "&lt;b&gt; &amp; &#60;",
    "a" * 10_000,
    "\N{FAMILY}\u0301" * 300,
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


def convert_table(folder: Path, table: Path, *flags: str) -> Path:
    """Converts a table into `out` beside it, with whatever rejects."""
    output = folder / "out"
    given = ["convert", "--table", table, *flags, "--max_rejects", 100, "--output", output]
    assert cli.main([*map(str, given)]) == 0
    return output


def write_image(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    PIL.Image.fromarray(pixels).resize((40, 30), PIL.Image.Resampling.NEAREST).save(path)


def write_class_page(folder: Path) -> None:
    """Photos with rejects, and sources."""
    folder.mkdir()
    sources = f"{spoiled_photos()}/**/*.jpg"
    report(converted_spoiled_photos(), sources=sources).save(folder / PAGE)


def write_object_page(folder: Path) -> None:
    """Images with boxes and masks of many classes, and copies across splits."""
    folder.mkdir()
    rows = []
    for number in range(30):
        write_image(folder / f"{number}.png", number // 2)
        mask = np.full((30, 40), number % 5, np.uint8)
        PIL.Image.fromarray(mask).save(folder / f"{number}_mask.png")
        row = {
            "path": f"{number}.png",
            "split": ("train", "test")[number % 2],
            "boxes": [0.1, 0.1, 0.8, 0.8],
            "classes": [f"class {number}"],
            "mask": f"{number}_mask.png",
        }
        rows.append(json.dumps(row))
    table = folder / "images.jsonl"
    table.write_text("\n".join(rows))
    columns = "boxes:bbox[rel_yxyx],mask:mask[0]"
    output = convert_table(
        folder, table, "--uri_column", "path", "--label_column", "classes", "--split_column",
        "split", "--feature_columns", columns, "--image_size", "48x48", "--resize", "pad",
    )  # fmt: skip
    report(output).save(folder / PAGE)


def write_row_page(folder: Path) -> None:
    """Rows of a table, without images."""
    folder.mkdir()
    table = folder / "rows.csv"
    rows = [f"{number},{number / 7},{'abc'[number % 3]}" for number in range(100)]
    table.write_text("\n".join(["age,mass,city", *rows]))
    flags = ("--encoding", "row", "--label_column", "city", "--feature_columns", "*")
    report(convert_table(folder, table, *flags)).save(folder / PAGE)


def write_hostile_page(folder: Path) -> None:
    """Names of files, classes and columns, and values of them, that look like programs."""
    folder.mkdir()
    rows = list[dict[str, str]]()
    for number in range(24):
        text = HOSTILE[number % len(HOSTILE)]
        name = f"{number}{text[:60].replace('/', '')}.png"
        write_image(folder / name, number)
        row = {"path": name, "label": f"{text}{number}", HOSTILE[0]: text, HOSTILE[6]: text}
        rows += [row, {**row, "path": f"no such {name}"}]
    table = folder / "images.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    output = convert_table(
        folder, table, "--uri_column", "path", "--label_column", "label", "--feature_columns", "*",
        "--description", HOSTILE[1], "--license", HOSTILE[0],
    )  # fmt: skip
    report(output, sources=[table, f"{folder}/"]).save(folder / PAGE)


WRITERS = {
    "classes": write_class_page,
    "objects": write_object_page,
    "rows": write_row_page,
    "hostile": write_hostile_page,
}


def find_page(name: str) -> Path:
    return once(f"report_{name}", WRITERS[name]) / PAGE


@pytest.mark.parametrize("screen", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_page_is_whole_and_for_everyone(browser: Browser, name: str, screen: Screen) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with open_page(browser, find_page(name), screen) as opened:
        page = opened.page
        assert page.evaluate("document.documentElement.scrollWidth") <= screen.width
        found = Axe().run(page).response["violations"]
        serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
        assert not [(rule["id"], rule["nodes"][0]["html"]) for rule in serious]
        assert not opened.complaints


@pytest.mark.parametrize("screen", [DESK, PHONE], ids=["desk", "phone"])
def test_a_page_looks_the_same_twice(browser: Browser, screen: Screen) -> None:
    pictures = []
    for _ in range(2):
        with open_page(browser, find_page("objects"), screen) as opened:
            pictures.append(opened.page.screenshot(full_page=True))
    assert pictures[0] == pictures[1]


def test_hostile_texts_stay_texts(browser: Browser) -> None:
    with open_page(browser, find_page("hostile"), DESK) as opened:
        page = opened.page
        page.locator("figure").first.hover()
        page.get_by_label("Search classes").fill("<script>")
        assert page.evaluate("window.hacked") is None
        assert page.locator("iframe, object, embed, script").count() == 1  # the page's own script
        assert page.locator("#class-table tbody tr:visible").count() > 0
        text = page.locator("body").inner_text()
        assert "<script>window.hacked = 1</script>" in text
        assert "{{ 7 * 7 }}" in text
        assert "\u202e" not in text
        assert "a" * 1_000 not in text
        assert not opened.complaints


def focused(page: Any) -> str:
    """The name of the element that has the focus, with its place."""
    return page.evaluate(
        "() => { const element = document.activeElement;"
        "return element.tagName + ' ' + [...document.querySelectorAll('*')].indexOf(element); }"
    )


def test_everything_is_reached_by_keyboard_and_keys_are_shown(browser: Browser) -> None:
    with open_page(browser, find_page("objects"), PHONE) as opened:
        page = opened.page
        page.keyboard.press("Tab")
        reached = list[str]()
        while (name := focused(page)) not in reached and not name.startswith("BODY"):
            reached.append(name)
            if name.startswith("FIGURE"):
                assert page.locator("figure:focus .key").is_visible()
            page.keyboard.press("Tab")
        elements = page.locator("a, input, [tabindex]").count()
        assert len(reached) == elements


def test_keys_are_shown_on_hover_and_inside_the_screen(browser: Browser) -> None:
    for screen in (DESK, PHONE):
        with open_page(browser, find_page("objects"), screen) as opened:
            figures = opened.page.locator("#samples figure")
            for place in range(min(figures.count(), 12)):
                figures.nth(place).hover()
                key = figures.nth(place).locator(".key")
                assert key.is_visible()
                box = key.bounding_box()
                assert box
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= screen.width


def test_a_tap_shows_a_whole_key(browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(find_page("classes").as_uri())
    figures = page.locator("figure")
    for place in range(0, figures.count(), 5):
        figures.nth(place).tap()
        box = figures.nth(place).locator(".key").bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert page.evaluate("document.documentElement.scrollWidth") == 390
    context.close()


def test_all_splits_of_a_class_are_on_a_phone(browser: Browser) -> None:
    with open_page(browser, find_page("classes"), PHONE) as opened:
        table = opened.page.locator("#class-table")
        assert table.evaluate("one => one.scrollWidth <= one.parentElement.clientWidth")


def test_classes_are_searched(browser: Browser) -> None:
    with open_page(browser, find_page("objects"), DESK) as opened:
        page = opened.page
        page.get_by_label("Search classes").fill("CLASS 2")
        assert page.locator("#class-table tbody tr:visible").count() == 11
        assert page.locator("#search-count").inner_text() == "11 of 30"
        assert not opened.complaints
