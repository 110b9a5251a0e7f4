"""Inputs: patterns against real trees, and reading ahead.

There is one key and one mention for every file.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import errno
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfr
from beam_tfr import storage
from beam_tfr.inputs import patterns, ranges, read_ahead
from beam_tfr.inputs.empty_folders import EmptyFolders
from beam_tfr.inputs.input_lists import open_input_list, read_input_list
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.patterns import (
    NOTHING,
    common_root,
    compile_exclusion,
    compile_pattern,
    describe_misplaced,
    mark_folders,
    order_patterns,
    split_pattern,
)
from beam_tfr.inputs.read_ahead import ReadAhead
from beam_tfr.inputs.reading import read_image
from beam_tfr.inputs.skipped import SkippedFiles, describe_missed, describe_skipped
from beam_tfr.layouts.mask_names import MaskNames
from beam_tfr.schema.errors import RejectError, UsageError
from tests.conftest import as_nobody, calls_of
from tests.converted import SAMPLE

FILES = [
    "top.jpg",
    "a/1.jpg",
    "a/2.png",
    "a/.hidden.jpg",
    "a/b/3.jpg",
    "a/b/c/4.jpg",
    "ab/5.jpg",
    ".h/6.jpg",
    "x[1]/7.jpg",
    "x1/8.jpg",
    "x/9{.jpg",
    "x/10*.jpg",
    "x/10?.jpg",
    "x/a,b.jpg",
    "x/back\\slash.jpg",
    "x/^.jpg",
    "x/!.jpg",
    "x/-.jpg",
    "x/].jpg",
    "odd/new\nline.jpg",
    "odd/with space.jpg",
    "odd/#hash.jpg",
    "odd/100%.jpg",
    "odd/é.jpg",
    "odd/花.jpg",
    "odd/raw\udcff.jpg",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in FILES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode("utf-8", "surrogateescape"))
    (root / "empty").mkdir()
    return root


def matches(root: Path, *patterns: str) -> list[str]:
    """What the patterns find, sorted, as paths below the root.

    A file that comes twice stands twice.
    """
    found = [
        os.path.relpath(entry.path, root)
        for pattern, before in order_patterns([f"{root}/{pattern}" for pattern in patterns])
        for entry in match_files([(pattern, before)])
    ]
    return sorted(found)


PATTERNS: list[tuple[str, list[str]]] = [
    ("top.jpg", ["top.jpg"]),
    ("*.jpg", ["top.jpg"]),
    ("*", ["top.jpg"]),
    ("**", FILES),
    ("**/*", FILES),
    ("**/*.png", ["a/2.png"]),
    ("**/1.jpg", ["a/1.jpg"]),
    ("**/top.jpg", ["top.jpg"]),
    ("a/*", ["a/1.jpg", "a/2.png", "a/.hidden.jpg"]),
    ("a/*.jpg", ["a/1.jpg", "a/.hidden.jpg"]),
    ("a/**/*.jpg", ["a/1.jpg", "a/.hidden.jpg", "a/b/3.jpg", "a/b/c/4.jpg"]),
    ("a/**/c/*.jpg", ["a/b/c/4.jpg"]),
    ("a/**/b/**/*.jpg", ["a/b/3.jpg", "a/b/c/4.jpg"]),
    ("**/b/*.jpg", ["a/b/3.jpg"]),
    ("*/*/*.jpg", ["a/b/3.jpg"]),
    ("a*/*.jpg", ["a/1.jpg", "a/.hidden.jpg", "ab/5.jpg"]),
    ("a**/*.jpg", ["a/1.jpg", "a/.hidden.jpg", "ab/5.jpg"]),
    ("a?/*", ["ab/5.jpg"]),
    ("?/1.jpg", ["a/1.jpg"]),
    ("a?1.jpg", []),
    ("a[/]1.jpg", []),
    (".h/*", [".h/6.jpg"]),
    ("**/.*", ["a/.hidden.jpg"]),
    ("a/[12].*", ["a/1.jpg", "a/2.png"]),
    ("a/[!1].*", ["a/2.png"]),
    ("a/[0-9].*", ["a/1.jpg", "a/2.png"]),
    ("x[[]1]/*", ["x[1]/7.jpg"]),
    ("x[1]/*", ["x1/8.jpg"]),
    ("x/9[{].jpg", ["x/9{.jpg"]),
    ("x/10[*].jpg", ["x/10*.jpg"]),
    ("x/10[?].jpg", ["x/10?.jpg"]),
    ("x/a,b.*", ["x/a,b.jpg"]),
    ("x/*\\*.jpg", ["x/back\\slash.jpg"]),
    ("x/[^].jpg", ["x/^.jpg"]),
    ("x/[]].jpg", ["x/].jpg"]),
    ("x/[]^].jpg", ["x/^.jpg", "x/].jpg"]),
    ("x/[!]a].jpg", ["x/^.jpg", "x/!.jpg", "x/-.jpg"]),
    ("x/[a-].jpg", ["x/-.jpg"]),
    ("x/[+--].jpg", ["x/-.jpg"]),
    ("x/[!!].jpg", ["x/^.jpg", "x/-.jpg", "x/].jpg"]),
    ("{a,ab}/*.jpg", ["a/1.jpg", "a/.hidden.jpg", "ab/5.jpg"]),
    ("{a/b,ab}/*.jpg", ["a/b/3.jpg", "ab/5.jpg"]),
    ("a/*.{jpg,png}", ["a/1.jpg", "a/2.png", "a/.hidden.jpg"]),
    ("a/{1,2}.{jpg,png}", ["a/1.jpg", "a/2.png"]),
    ("a{,b}/[15].jpg", ["a/1.jpg", "ab/5.jpg"]),
    ("{a/{b,x}/*,top.jpg}", ["a/b/3.jpg", "top.jpg"]),
    ("a/{b/**/,}*.jpg", ["a/1.jpg", "a/.hidden.jpg", "a/b/3.jpg", "a/b/c/4.jpg"]),
    ("odd/*", [name for name in FILES if name.startswith("odd/")]),
    ("odd/new\nline.jpg", ["odd/new\nline.jpg"]),
    ("odd/raw\udcff.jpg", ["odd/raw\udcff.jpg"]),
    ("odd/raw?.jpg", ["odd/raw\udcff.jpg"]),
    ("odd/100%.*", ["odd/100%.jpg"]),
    ("odd/[#é]*", ["odd/#hash.jpg", "odd/é.jpg"]),
]


@pytest.mark.parametrize(("pattern", "expected"), PATTERNS)
def test_patterns_match_as_documented(tree: Path, pattern: str, expected: list[str]) -> None:
    if expected:
        assert matches(tree, pattern) == sorted(expected)
    else:
        with pytest.raises(UsageError):
            matches(tree, pattern)


def test_every_file_name_can_be_escaped(tree: Path) -> None:
    for name in FILES:
        escaped = re.sub(r"[*?\[{]", lambda match: f"[{match[0]}]", name)
        assert matches(tree, escaped) == [name]


@pytest.mark.parametrize(
    "pattern", ["[", "a/[", "a/[!", "a/[]", "a/[!]", "{a", "a/{b,{c}", "a/[z-a]", "a[/*.jpg"]
)
def test_invalid_pattern_is_refused_before_listing(pattern: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"(is not closed; write \[.\] for the character itself|is not a pattern: )",
    ):
        order_patterns([f"/{pattern}"])


@pytest.mark.filterwarnings("error")
def test_character_sets_are_literal() -> None:
    for member in "&|~-^!.\\$()":
        assert compile_pattern(f"[+{member}{member}]").fullmatch(member)
        assert not compile_pattern(f"[+{member}{member}]").fullmatch("y")


def test_the_listing_carries_size_and_time(tree: Path) -> None:
    (entry,) = match_files([(f"{tree}/a/1.jpg", ())])
    status = (tree / "a" / "1.jpg").stat()
    assert entry == storage.Entry(f"{tree}/a/1.jpg", 7, status.st_mtime_ns)
    assert list(match_files([(f"{tree}/a/1.*", ())])) == [entry]


@pytest.mark.parametrize(
    ("patterns", "root"),
    [
        (["/data/**/*.jpg"], "/data/"),
        (["/data/a*/*.jpg"], "/data/"),
        (["/data/a/x.jpg"], "/data/a/"),
        (["/x.jpg"], "/"),
        (["/*.jpg"], "/"),
        (["/a/*.jpg", "/b/*.jpg"], "/"),
        (["/data/a/train/*.jpg", "/data/a/test/*.jpg"], "/data/a/"),
        (["/data/a/*.jpg", "/data/ab/*.jpg"], "/data/"),
        (["/data/a/*.jpg", "/data/a/b/c/*.jpg"], "/data/a/"),
        (["/data/a/1.jpg", "/data/a/2.jpg"], "/data/a/"),
        (["gs://b/**/*.jpg"], "gs://b/"),
        (["gs://b/x/*.jpg", "gs://b/y/z.jpg"], "gs://b/"),
        (["gs://b/x/*.jpg", "gs://c/x/*.jpg"], "gs://"),
        (["gs://b/x/{a,b}/*.jpg"], "gs://b/x/"),
        (["/data/x[[]1]/*.jpg"], "/data/"),
    ],
)
def test_keys_begin_below_the_folder_that_all_patterns_share(
    patterns: list[str], root: str
) -> None:
    assert common_root(patterns) == root
    assert common_root(patterns[::-1]) == root


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("gs://b*/x.jpg", "the bucket must not contain wildcards: gs://BUCKET/PATTERN"),
        ("gs://b", "names no file; use 'gs://b/**'"),
    ],
)
def test_pattern_without_bucket_or_file(pattern: str, message: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(f"`input={pattern}`: {message}")):
        split_pattern(pattern)


FOLDER = [
    "1.jpg",
    "2.JPG",
    "a/3.jpeg",
    "a/b c/4.HeIc",
    "a/b c/[5].png",
    "a/6.tar.gif",
]
NO_IMAGES = {
    ".DS_Store": ".DS_Store",
    "a/Thumbs.db": ".db",
    "desktop.ini": ".ini",
    "._1.jpg": "._*",
    "__MACOSX/._1.jpg": "__MACOSX",
    "a/.thumbnails/1.jpg": ".thumbnails",
    "notes.txt": ".txt",
    "a/jpg": "other names",
    "1.jpg~": "other names",
    "a.rar": ".rar",
    "b.tar.gz": ".tar.gz",
    "c.zip.001": ".zip.001",
    "c.z01": ".z01",
    "d.tar.gz.aa": ".gz.aa",
    ".cache/2.png": ".cache",
}


@pytest.mark.parametrize("name", ["plain", "with [brackets] {and} *"])
def test_a_folder_gives_all_images_and_counts_what_it_leaves_out(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    for file in [*FOLDER, *NO_IMAGES]:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    patterns = mark_folders([str(root), str(root / "a")])
    assert patterns == (f"{root}/", f"{root}/a/")
    assert common_root(patterns) == f"{root}/"
    skipped = SkippedFiles(patterns, NOTHING)
    listed = sorted(entry.path for entry in match_files(order_patterns(patterns), skipped=skipped))
    assert listed == sorted(f"{root}/{file}" for file in FOLDER)
    assert skipped.kinds == collections.Counter(NO_IMAGES.values())
    assert describe_missed(skipped.kinds, "x") == ""


def test_folders_on_gs_are_told_by_their_names() -> None:
    inputs = [
        "gs://b",
        "gs://b/",
        "gs://b/photos",
        "gs://b/p.q/r",
        "gs://b/1.jpg",
        "gs://b/p/*",
        "gs://b/*/x",
    ]
    assert mark_folders(inputs) == (
        "gs://b/",
        "gs://b/",
        "gs://b/photos/",
        "gs://b/p.q/r/",
        *inputs[4:],
    )


@pytest.mark.parametrize(
    ("patterns", "left_behind"),
    [
        (["**/*.jpg"], {".JPG": 1, ".jpeg": 1, ".HeIc": 1, ".png": 1}),
        (["*.jpg"], {".JPG": 1}),
        (["*.jpg", "*.JPG"], {}),
        (["*.jpg", "2.JPG"], {}),
        (["**/*.jpg", "a/**/*.png"], {".JPG": 1, ".jpeg": 1, ".HeIc": 1}),
        (["**/*.{jpg,png}"], {".JPG": 1, ".jpeg": 1, ".HeIc": 1}),
        (["1*.jpg"], {}),
        (["**/*"], {}),
        (["**/{*.jpg,*.png}"], {}),
    ],
)
def test_a_pattern_tells_which_images_it_leaves_behind(
    tmp_path: Path, patterns: list[str], left_behind: dict[str, int]
) -> None:
    for file in [*FOLDER, *NO_IMAGES]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    given = [f"{tmp_path}/{pattern}" for pattern in patterns]
    skipped = SkippedFiles(given, compile_exclusion(["a/6*"], f"{tmp_path}/"))
    assert [*match_files(order_patterns(given), skipped=skipped)]
    assert (skipped.kinds, describe_skipped(skipped.kinds)) == (left_behind, "")


def test_local_and_gs_patterns_do_not_mix() -> None:
    with pytest.raises(UsageError, match=r"^`input=`: patterns must all be local or all on gs://"):
        common_root(["/a/*", "gs://b/*"])


def test_file_matched_by_several_patterns_is_listed_once(tree: Path) -> None:
    assert matches(tree, "a/1.jpg", "a/*.jpg", "**/*.jpg", "a/1.jpg", "{a,b}/1.jpg") == matches(
        tree, "**/*.jpg"
    )
    assert matches(tree, "a/1.jpg", "a/1.jpg") == ["a/1.jpg"]


def test_pattern_whose_files_all_match_others_is_allowed(tree: Path) -> None:
    assert matches(tree, "**/*.jpg", "a/b/*.jpg", "top.jpg") == matches(tree, "**/*.jpg")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([p for p, found in PATTERNS if found]), min_size=1, max_size=5),
    st.randoms(),
)
def test_any_patterns_in_any_order_list_each_file_once(
    tree: Path, patterns: list[str], rng: random.Random
) -> None:
    expected = sorted({name for pattern in patterns for name in dict(PATTERNS)[pattern]})
    assert matches(tree, *patterns) == expected
    rng.shuffle(patterns)
    assert matches(tree, *patterns) == expected


def test_the_cost_of_written_out_paths_is_linear(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"x")

    def list_them(number: int) -> None:
        paths = [f"{tmp_path}/{'1' if i == 5 else i + 1_000_000}.jpg" for i in range(number)]
        assert common_root(paths) == f"{tmp_path}/"
        ordered = order_patterns([*paths, f"{tmp_path}/a/*", f"{tmp_path}/b/*"])
        assert sum(len(before) for _, before in ordered) == 0
        for pattern, before in ordered:
            with contextlib.suppress(UsageError):
                assert [entry.path for entry in match_files([(pattern, before)])] == [
                    f"{tmp_path}/1.jpg"
                ]

    assert calls_of(lambda: list_them(2_000)) < 11 * calls_of(lambda: list_them(200))


HINTS = [
    ("nowhere/*.jpg", "matches no file; there is no folder {root}/nowhere"),
    ("a/*.JPG", "matches no file; `input={root}/a` includes all images below that folder"),
    ("none/", "matches no file; there is no folder {root}/none"),
    (
        "empty/",
        "matches no file below it with an image extension; '{root}/empty/**' matches all files, "
        "if these are images without an extension",
    ),
    (
        "empty/**/*.jpg",
        "matches no file; `input={root}/empty` includes all images below that folder",
    ),
    ("a/1.jpg/*.jpg", "matches no file; there is no folder {root}/a/1.jpg"),
    ("a", "matches no file; specify a file, or a pattern for several files, such as '{root}/a/*'"),
    (
        "a/none.jpg",
        "matches no file; there is no file with this name, but there is 1.jpg",
    ),
    ("A/1.JPG", "matches no file; there is no folder {root}/A"),
]


@pytest.mark.parametrize(("pattern", "message"), HINTS)
def test_pattern_without_match_gets_a_hint(tree: Path, pattern: str, message: str) -> None:
    shown = pattern.replace("\t", "\\t")
    expected = f"`input={tree}/{shown}`: {message.format(root=tree)}"
    with pytest.raises(UsageError) as caught:
        matches(tree, "*.jpg", pattern)
    assert str(caught.value).startswith(expected)
    if ";" not in message:
        assert str(caught.value) == expected


def test_links_are_followed_but_cycles_are_not(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "1.jpg").write_bytes(b"x")
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "2.jpg").write_bytes(b"x")
    (root / "folder").symlink_to(tmp_path / "far")
    (root / "file.jpg").symlink_to(tmp_path / "far" / "1.jpg")
    (root / "a" / "b" / "up").symlink_to(root)
    (root / "a" / "self").symlink_to(".")
    assert matches(root, "**/*.jpg") == ["a/2.jpg", "file.jpg", "folder/1.jpg"]
    (root / "a" / "side").symlink_to(root / "a" / "b")
    assert matches(root, "**/*.jpg") == ["a/2.jpg", "file.jpg", "folder/1.jpg"]


def linked_folders(root: Path, number: int) -> None:
    """So many folders with two links to the next one each, and a photo in the last."""
    for level in range(number):
        (root / f"{level:02}").mkdir(parents=True)
    for level in range(number - 1):
        for name in ("a", "b"):
            (root / f"{level:02}" / name).symlink_to(root / f"{level + 1:02}")
    (root / f"{number - 1:02}" / "1.jpg").write_bytes(b"x")


def test_a_folder_is_listed_once_however_many_links_lead_to_it(tmp_path: Path) -> None:
    linked_folders(tmp_path, 24)
    assert matches(tmp_path, "**/*.jpg") == ["23/1.jpg"]
    skipped = SkippedFiles([f"{tmp_path}/"], re.compile("(?!)"))
    found = [*match_files([(f"{tmp_path}/", ())], skipped=skipped)]
    assert [entry.path for entry in found] == [f"{tmp_path}/23/1.jpg"]
    assert skipped.repeats.number == 2 * 23
    assert skipped.repeats.example == f"{tmp_path}/00/a"


def test_of_several_links_to_a_folder_the_first_by_name_is_taken(tmp_path: Path) -> None:
    (tmp_path / "far/deep").mkdir(parents=True)
    (tmp_path / "far/deep/1.jpg").write_bytes(b"x")
    (tmp_path / "root/z").mkdir(parents=True)
    for name in ("z/1", "c", "b", "d"):
        (tmp_path / "root" / name).symlink_to(tmp_path / "far")
    (tmp_path / "root/e").symlink_to(tmp_path / "far/deep")
    assert matches(tmp_path / "root", "**/*.jpg") == ["b/deep/1.jpg"]
    (tmp_path / "far").rename(tmp_path / "root/near")
    for path in (tmp_path / "root").iterdir():
        if path.is_symlink():
            path.unlink()
    (tmp_path / "root/a").symlink_to(tmp_path / "root/near")
    assert matches(tmp_path / "root", "**/*.jpg") == ["near/deep/1.jpg"]
    # A folder that a pattern does not mean keeps no link from being listed.
    assert matches(tmp_path / "root", "a/deep/*.jpg") == ["a/deep/1.jpg"]


def test_irregular_files_are_listed_and_rejected_when_read(tmp_path: Path) -> None:
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle.jpg").symlink_to(tmp_path / "circle.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "empty.jpg").touch()
    found = matches(tmp_path, "*.jpg")
    assert found == ["circle.jpg", "dangling.jpg", "empty.jpg", "pipe.jpg"]
    assert matches(tmp_path, *found) == found
    reasons = {}
    for name in [*found, "gone.jpg", "folder.jpg"]:
        with pytest.raises(RejectError) as caught:
            read_image(storage.Entry(str(tmp_path / name), 0, 0))
        reasons[name] = caught.value.reason
        assert caught.value.detail
        assert not caught.value.may_pass
    assert reasons == {
        "circle.jpg": "unusable-file",
        "dangling.jpg": "not-found",
        "empty.jpg": "empty-file",
        "folder.jpg": "unusable-file",
        "gone.jpg": "not-found",
        "pipe.jpg": "unusable-file",
    }


def test_unreadable_folder_or_file(public_path: Path) -> None:
    (public_path / "open").mkdir()
    (public_path / "open" / "1.jpg").write_bytes(b"x")
    closed = public_path / "closed"
    closed.mkdir()
    (closed / "2.jpg").write_bytes(b"x")
    secret = public_path / "open" / "secret.jpg"
    secret.write_bytes(b"x")
    secret.chmod(0)
    closed.chmod(0)
    with as_nobody():
        assert matches(public_path, "open/*.jpg") == ["open/1.jpg", "open/secret.jpg"]
        with pytest.raises(RejectError, match=r"^unreadable: Permission denied$"):
            read_image(storage.Entry(str(secret), 0, 0))
        for pattern in ("**/*.jpg", "closed/*.jpg"):
            with pytest.raises(UsageError, match=f"cannot be listed: {closed}: Permission denied$"):
                matches(public_path, pattern)
    closed.chmod(0o700)


@pytest.mark.slow
def test_a_tree_deeper_than_pythons_recursion(tmp_path: Path) -> None:
    depth = 1_200
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("1.jpg", os.O_CREAT, dir_fd=here))
    os.close(here)
    try:
        assert matches(tmp_path, "**/*.jpg") == ["d/" * depth + "1.jpg"]
    finally:  # pytest could not remove it
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_folders_that_cannot_match_are_not_entered(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = []
    scandir = os.scandir
    monkeypatch.setattr(
        os, "scandir", lambda path: entered.append(os.path.relpath(path, tree)) or scandir(path)
    )
    assert matches(tree, "a/*/*.jpg") == ["a/b/3.jpg"]
    assert entered == ["a", "a/b"]
    entered.clear()
    assert matches(tree, "a?/*.jpg") == ["ab/5.jpg"]
    assert sorted(entered) == [".", "ab"]


def test_sizes_and_errors_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "1.jpg"
    path.write_bytes(b"0123456789")
    assert read_image(storage.Entry(str(path), 0, 0), max_bytes=10) == b"0123456789"
    path.write_bytes(b"0123456789a")
    with pytest.raises(RejectError, match=r"^file-too-large: more than 10 bytes$"):
        read_image(storage.Entry(str(path), 0, 0), max_bytes=10)


@pytest.mark.parametrize(
    ("number", "passes"),
    [
        (errno.EIO, True),
        (errno.EACCES, True),
        (errno.ELOOP, False),
        (errno.ENXIO, False),
        (None, True),
    ],
)
def test_errors_may_pass_unless_they_are_known_not_to(number: int | None, passes: bool) -> None:
    error = OSError("odd") if number is None else OSError(number, "odd")
    assert storage.may_pass(error) is passes


class Store:
    """Stands for gs://, and notes what is read, and how many at a time.

    The first reads wait until `together` run.
    """

    def __init__(self, seconds: float = 0.0, together: int = 1) -> None:
        self.begun: list[str] = []
        self.running = self.most = 0
        self.lock, self.seconds = threading.Lock(), seconds
        self.enough, self.together = threading.Event(), together

    def read(self, path: str, **_: object) -> bytes:
        with self.lock:
            self.begun.append(path)
            self.running += 1
            self.most = max(self.most, self.running)
            if self.running >= self.together:
                self.enough.set()
        self.enough.wait()
        time.sleep(self.seconds * random.random())
        with self.lock:
            self.running -= 1
        if "missing" in path:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return path.encode()


def unlisted(paths: Sequence[str]) -> list[storage.Entry]:
    """Files of any version and an unknown size; None stays."""
    return [storage.Entry(path, 0, 0) for path in paths]


@pytest.fixture
def ahead() -> Iterator[ReadAhead]:
    reader = ReadAhead(images=8)
    yield reader
    reader.close()


def test_read_ahead_keeps_the_order_and_the_errors_in_their_places(
    ahead: ReadAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(seconds=0.01, together=6)
    monkeypatch.setattr(storage, "read_bytes", store.read)
    monkeypatch.setattr(storage, "is_gone", lambda _: True)
    paths = [f"gs://b/{'missing' if i % 5 == 1 else 'image'}-{i}" for i in range(60)]
    for path, content in zip(paths, ahead.read(unlisted(paths)), strict=True):
        if "missing" in path:
            assert isinstance(content, RejectError)
            assert (content.reason, content.detail) == ("not-found", "no such object")
        else:
            assert content == path.encode()
    assert 6 <= store.most <= 8


def test_read_ahead_is_bounded(ahead: ReadAhead, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    monkeypatch.setattr(storage, "read_bytes", store.read)
    contents = ahead.read(unlisted([f"gs://b/{i}" for i in range(100)]))
    for i in range(20):
        assert next(contents) == b"gs://b/%d" % i
        time.sleep(0.002)
        assert len(store.begun) <= i + 9
    contents.close()  # type: ignore[attr-defined]


# Patterns take linear time


@settings(max_examples=200, deadline=None)
@given(
    st.text("ab*?/{,}", max_size=12)
    | st.from_regex(r"(\*\*/|[ab*?]|/|\{a,[ab*]b?\}){1,9}", fullmatch=True),
    st.lists(st.text("ab/", max_size=9), max_size=20),
)
def test_wildcards_that_are_not_tried_again_match_the_same(pattern: str, paths: list[str]) -> None:
    try:
        regex = patterns.compile_pattern(f"/{pattern}x").pattern
    except UsageError:
        return
    backtracking = re.compile(regex.replace("(?>", "(?:"), re.DOTALL)
    for path in paths:
        text = f"/{path}x"
        assert bool(re.fullmatch(regex, text)) == bool(backtracking.fullmatch(text))


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 40 + "b", "a" * 2000),
        ("**/" * 40 + "b", "a/" * 2000),
        ("**/a/" * 40 + "b", "a/" * 2000),
        ("**/*a*a/" * 20 + "b", "aa/" * 1000),
        ("*{a,aa}*[a]*a*?*a*b", "a" * 300),
        ("*{a,b}*{a,b}*{a,b}*{a,b}*c", "a" * 65_000),
        ("{*,a}{*,a}{*,a}*b", "a" * 65_000),
        ("**/*{a,b}*/{a/**/*a,*{a,*b}}*{a,b}*c", "a/" * 32_000),
    ],
)
def test_patterns_take_no_time_to_speak_of(pattern: str, path: str) -> None:
    """Five stars and 200 letters took more than a minute, in which no signal was seen."""
    assert not patterns.compile_pattern(f"/{pattern}").fullmatch(f"/{path}")


def test_wildcards_are_bounded() -> None:
    with pytest.raises(UsageError, match="has more than 500 wildcards"):
        patterns.compile_pattern("/" + "*/" * 501 + "x")


def test_braces_with_wildcards_have_few_combinations() -> None:
    patterns.compile_pattern("/{train,val}/**/*_{a,b}_*.{jpg,png}")
    patterns.compile_pattern("/*" + "{a,b}" * 100 + "/*")  # each letter is looked at once
    with pytest.raises(UsageError, match="has 1,024 combinations"):
        patterns.compile_pattern("/*" + "{a,b}*" * 10 + "x")
    with pytest.raises(UsageError, match="has 2,187 combinations"):
        patterns.compile_pattern("/" + "{a,{b,*c}}" * 7)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*{a,b*}*{c,}d", ["ad", "xacd", "bxcd", "bd"], ["d", "a/d", "acdx"]),
        ("x{*,y}_{1,{2,3*}}", ["x_1", "xzz_2", "xy_3z"], ["x_", "x_4", "y_1"]),
        ("{q/**/,x}*a{b,c}*", ["q/ab", "q/r/acz", "xab"], ["ab", "q/ab/c"]),
    ],
)
def test_braces_with_wildcards_match_what_they_say(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    compiled = patterns.compile_pattern(f"/{pattern}")
    assert [name for name in matching + others if compiled.fullmatch(f"/{name}")] == matching


@pytest.mark.parametrize("large", [range(24), range(12, 24), range(0, 24, 2)])
def test_files_of_unknown_sizes_are_read_ahead_by_their_bytes(
    large: range, ahead: ReadAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that a CSV names on gs://, of which any may have `max_bytes`."""
    ahead.ahead_bytes = 800
    ahead.max_bytes = 1000
    sizes = [1000 if number in large else 40 for number in range(24)]
    held = dict[int, int]()  # number of a file -> its bytes, until they are consumed
    most = 0
    lock = threading.Lock()

    def read(path: str, *, max_bytes: int, **_: object) -> bytes:
        nonlocal most
        number = int(path.rpartition("/")[2])
        data = bytes(min(sizes[number], max_bytes + 1))
        with lock:
            held[number] = len(data)
            most = max(most, sum(held.values()))
        return data

    monkeypatch.setattr(storage, "read_bytes", read)
    paths = [f"gs://b/{number}" for number in range(24)]
    for number, content in enumerate(ahead.read(unlisted(paths))):
        assert content == bytes(sizes[number])
        time.sleep(0.001)
        with lock:
            del held[number]
    # Of the one that is consumed, of those ahead or one alone, and what shows that they have more.
    assert most <= 1000 + 1000 + 8


def test_local_files_are_read_one_by_one_in_the_callers_thread(
    tree: Path, ahead: ReadAhead
) -> None:
    paths = [f"{tree}/a/1.jpg", f"{tree}/a/none.jpg", f"{tree}/a/2.png"]
    threads = threading.active_count()
    contents = ahead.read(unlisted(paths))
    assert next(contents) == b"a/1.jpg"
    assert threading.active_count() <= threads
    rest = list(contents)
    assert isinstance(rest[0], RejectError)
    assert rest[1] == b"a/2.png"


def test_read_ahead_of_nothing(ahead: ReadAhead) -> None:
    assert list(ahead.read([])) == []


def test_read_ahead_serves_one_bundle_after_the_other(
    ahead: ReadAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "read_bytes", Store().read)
    for _ in range(3):
        contents = ahead.read(unlisted(["gs://b/1", "gs://b/2", "gs://b/3"]))
        assert list(itertools.islice(contents, 2)) == [b"gs://b/1", b"gs://b/2"]
    ahead.close()
    assert list(ahead.read(unlisted(["gs://b/4"]))) == [b"gs://b/4"]


def test_a_slow_disk_is_read_ahead_too(ahead: ReadAhead, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(seconds=0.01)
    monkeypatch.setattr(storage, "read_bytes", store.read)
    monkeypatch.setattr(read_ahead, "SLOW_DISK_S", 0.001)
    paths = [f"/nfs/{i}" for i in range(150)]
    assert list(ahead.read(unlisted(paths[:40]))) == [path.encode() for path in paths[:40]]
    assert 1 <= store.most <= 8
    store.together = 8
    store.enough.clear()
    assert list(ahead.read(unlisted(paths))) == [path.encode() for path in paths]
    assert store.most == 8


# Ranges of names

TEXTS = st.text(
    st.sampled_from("ab/\x01\ud7ff\ue000\U0010ffff") | st.characters(exclude_categories=["Cs"]),
    max_size=5,
)


@settings(max_examples=120, deadline=None)
@given(
    found=st.sets(TEXTS, max_size=60),
    ends=st.tuples(TEXTS, TEXTS),
    few=st.integers(2, 5),
    parts=st.integers(2, 30),
)
def test_ranges_hold_every_name_once(
    found: set[str], ends: tuple[str, str], few: int, parts: int
) -> None:
    start, end = min(ends), max(ends) if ends[0] != ends[1] else ""
    inside = sorted(name for name in found if name >= start and (not end or name < end))

    def names(start: str, end: str) -> list[str]:
        return [name for name in inside if name >= start and (not end or name < end)][:few]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "FEW", few)
        divided = ranges.divide(names, start, end, parts)
    assert [divided[0].start, divided[-1].end] == [start, end]
    assert [one.end for one in divided[:-1]] == [one.start for one in divided[1:]]
    held = [
        [name for name in inside if name >= one.start and (not one.end or name < one.end)]
        for one in divided
    ]
    assert [name for names in held for name in names] == inside
    for one, mine in zip(divided, held, strict=True):
        assert one.num_names in (None, len(mine))
        assert len(mine) <= few or one.num_names is None
    if len(inside) < parts:  # all that can be divided is
        assert all(one.num_names is not None for one in divided)


@given(TEXTS, TEXTS)
def test_after_prefix_is_the_least_text_above_all_with_the_prefix(prefix: str, rest: str) -> None:
    after = ranges.after_prefix(prefix)
    assert prefix + rest < after or not after
    assert after.encode() >= prefix.encode()
    if after:
        assert not after.startswith(prefix)
        assert after[:-1] == prefix[: len(after) - 1]  # so nothing lies between
    else:
        assert set(prefix) <= {chr(sys.maxunicode)}


@pytest.mark.parametrize(
    "folders", [["photos"], ["train_images_at_full_size", "validation_images_at_full_size"]]
)
def test_many_names_are_divided_evenly_by_few_requests(folders: list[str]) -> None:
    numbers = range(200_000 // len(folders))
    names = [f"{folder}/IMG_{number:08}.jpg" for folder in folders for number in numbers]
    asked: list[str] = []

    def first_names(start: str, end: str) -> list[str]:
        asked.append(start)
        return names[bisect.bisect_left(names, start) : bisect.bisect_left(names, end)][
            : ranges.FEW
        ]

    divided = ranges.divide(first_names, "", "w", 128)
    assert len(divided) == 200
    assert len(asked) < 1.4 * len(divided)  # what all names of a range share is found by few
    assert {
        bisect.bisect_left(names, one.end) - bisect.bisect_left(names, one.start) for one in divided
    } == {1000}
    assert [one.num_names for one in ranges.divide(first_names, names[-2], "w", 128)] == [2]


# --exclude and --input_list


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ([], FILES),
        (["a/**"], [name for name in FILES if not name.startswith("a/")]),
        (["**/*.jpg"], ["a/2.png"]),
        (
            ["*.jpg", "x*/*", "odd/*", "**/.*"],
            ["a/1.jpg", "a/2.png", "a/b/3.jpg", "a/b/c/4.jpg", "ab/5.jpg", ".h/6.jpg"],
        ),
        (["{root}/a/*.png"], [name for name in FILES if name != "a/2.png"]),
        (["/elsewhere/**", "2.png"], FILES),
    ],
)
def test_exclude(tree: Path, patterns: list[str], left: list[str]) -> None:
    exclude = compile_exclusion(
        [pattern.replace("{root}", str(tree)) for pattern in patterns], f"{tree}/"
    )
    found = [
        os.path.relpath(entry.path, tree)
        for entry in match_files([(f"{tree}/**", ())], exclude=exclude)
    ]
    assert sorted(found) == sorted(left)
    both = match_files(
        order_patterns([f"{tree}/**", f"{tree}/a/*", f"{tree}/a/1.jpg"]), exclude=exclude
    )
    assert sorted(os.path.relpath(entry.path, tree) for entry in both) == sorted(left)


def test_exclude_error_names_the_option() -> None:
    with pytest.raises(UsageError, match=r"^`exclude=a/\[`: \[ is not closed"):
        compile_exclusion(["a/["], "/r/")


def test_input_list(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    names = [
        "a/*.png",
        "odd/#hash.jpg",
        "odd/with space.jpg",
        "odd/花.jpg",
        "odd/raw\udcff.jpg",
        "x/10[*].jpg",
    ]
    lines = [os.fsencode(f"{tree}/{name}") for name in names]
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n\n".join(lines))
    patterns = read_input_list(str(path))
    assert patterns == tuple(f"{tree}/{name}" for name in names)
    found = sorted(entry.path for entry in match_files(order_patterns(patterns)))
    assert found == sorted(f"{tree}/{name}" for name in ["a/2.png", "x/10*.jpg", *names[1:5]])


def test_paths_of_a_list_start_from_its_folder_if_only_there_are_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    folder = tmp_path / "set [1]"
    for name in ("cat/0.jpg", "cat/1.jpg", "dog/[2].jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    path = folder / "train.txt"
    path.write_text("cat/0.jpg\n./cat\\1.jpg\ndog\ncat/*.jpg\ndog/[2].jpg\n/else/1.jpg\n")
    listed = open_input_list(str(path))
    escaped = str(folder).replace("[", "[[]")
    assert listed.patterns == (
        f"{escaped}/cat/0.jpg",
        f"{escaped}/cat/1.jpg",
        f"{folder}/dog/",
        f"{escaped}/cat/*.jpg",
        f"{escaped}/dog/[[]2].jpg",
        "/else/1.jpg",
    )
    assert str(folder) in listed.note
    (tmp_path / "work/cat").mkdir()
    (tmp_path / "work/cat/0.jpg").touch()  # so paths are relative to the current folder
    listed = open_input_list(str(path))
    assert listed.patterns[0] == f"{tmp_path}/work/cat/0.jpg"
    assert not listed.note


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "cannot be read: No such file or directory; give one path or pattern per line"),
        (b"", "is empty; give one path or pattern per line"),
        (b"\n\r\n", "is empty; give one path or pattern per line"),
        (b"a\x00b", "is not UTF-8 text; give one path or pattern per line"),
        (b"/a\n\ns3://b/c\n", "line 3: s3://b/c: only local paths and gs:// are supported"),
    ],
)
def test_invalid_input_list(tmp_path: Path, data: bytes | None, said: str) -> None:
    path = tmp_path / "list"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UsageError, match=re.escape(f"`input_list={path}`")) as caught:
        read_input_list(str(path))
    assert str(caught.value).endswith(said)


def test_patterns_to_exclude_start_from_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos/thumbs").mkdir(parents=True)
    root = f"{tmp_path}/photos/"
    monkeypatch.chdir(tmp_path)
    (message,) = describe_misplaced(["photos/a*.jpg", "thumbs/**", "**/*.gif", "x/1.jpg"], root)
    assert "`exclude='photos/a*.jpg'`" in message
    assert message.endswith("`exclude='a*.jpg'`")
    monkeypatch.chdir(root)
    (message,) = describe_misplaced(["./a.jpg", "a.jpg", "none/**", f"{root}b.jpg"], root)
    assert message.endswith("`exclude=a.jpg`")
    assert describe_misplaced(["photos/a.jpg"], "gs://b/photos/") == []


@pytest.mark.parametrize(
    ("keys", "number", "pair"),
    [
        (["a/0.png", "a/0_mask.png"], 1, "mask='{path}_mask.png'"),
        (["0.jpg", "0-mask.png", "1.jpg", "1-mask.png"], 2, "mask='{path}-mask.png'"),
        (["0.png", "0.seg.png"], 1, "mask='{path}.seg.png'"),
        (["a/0.jpg", "a/mask_0.png"], 1, "mask='a/mask_{stem}.png'"),
        (["0.jpg", "0_depth.png"], 1, "depth='{path}_depth.png'"),
        (["0.jpg", "0_parts_1.png", "0_seg.png"], 2, "mask='{path}_seg.png'"),
        (["0.jpg", "0_parts_1.png"], 1, "parts='{path}_parts_1.png'"),
        (["0.jpg", "0_Mask_1.png"], 1, "mask='{path}_Mask_1.png'"),
        (["0_sat.jpg", "0_mask.png", "1_sat.jpg"], 1, "mask='{path%_sat}_mask.png'"),
        (
            ["0_rgb.png", "0_gtFine_color.png", "1_rgb.png"],
            1,
            "mask='{path%_rgb}_gtFine_color.png'",
        ),
        (["a/0.jpg", "a/0.png", "a/1.JPEG", "a/1.png"], 2, "mask='{path}.png'"),
        (["a/0.jpg", "b/0.png", "a/1.png"], 0, ""),
        (["a/0.png", "b/0_mask.png"], 0, ""),
        (["0_cat.jpg", "0_mask.png", "1_dog.jpg"], 0, ""),
        (["man_with_mask.png", "woman_with_mask.png", "mask.png"], 0, ""),
        (["0.png", "0_unmask.png", "0mask.png"], 0, ""),
    ],
)
def test_files_named_like_masks_of_those_beside_them(
    keys: list[str], number: int, pair: str
) -> None:
    masks = MaskNames()
    masks.look_at(keys)
    assert masks.number == number
    assert (f"`pair={pair}`" in masks.describe(in_archives=False)) == bool(pair)


def test_masks_of_images_that_have_one_are_told() -> None:
    """As of BUSI: following the line for the second ones, all others would lose their masks."""
    images = [f"b ({number}).png" for number in range(1, 6)]
    second = ["b (1)_mask_1.png", "b (2)_mask_1.png", "b (2)_mask_2.png"]
    left_out = "exclude='**/*_mask_1.png' '**/*_mask_2.png'"
    masks = MaskNames()
    masks.look_at([*images, *(image.replace(".png", "_mask.png") for image in images), *second])
    text = masks.describe(in_archives=False)
    assert "`pair=mask='{path}_mask.png'`" in text
    assert "; 3 files beyond the first of an image: " in text
    assert left_out in text
    rest = MaskNames()
    rest.look_at([*images, *second])
    text = rest.describe(in_archives=False, given_pairs=["mask"])
    assert "pair=mask" not in text
    assert left_out in text
    parts = MaskNames()
    parts.look_at(["1.jpg", "1_parts_1.png"])  # as of ADE20K, whose masks a pair has already
    assert "exclude='**/*_parts_1.png'" in parts.describe(in_archives=False, given_pairs=["mask"])
    assert "pair=mask" in rest.describe(in_archives=False, given_pairs=["depth"])


def test_patterns_to_exclude_that_match_nothing_are_told(tmp_path: Path) -> None:
    for name in ("1.png", "1_mask.png", "thumbs/2.png"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(next(SAMPLE.rglob("*.jpg")), tmp_path / "in" / name)
    (tmp_path / "in/notes.txt").write_text("")
    given: dict[str, Any] = {
        "input": tmp_path / "in",
        "layout": "*",
        "output": tmp_path / "out",
        "exclude": ["thumbs/**", "**/*.gif", "thumbs", "**/*.txt"],
    }
    for texts in (beam_tfr.plan(**given).warnings, beam_tfr.convert(**given).lines()):
        unused = [text for text in texts if "leaves out nothing" in text]
        patterns = [re.findall("exclude=([^`]*)`", text)[0] for text in unused]
        assert patterns == ["'**/*.gif'", "thumbs"]


def test_folders_without_images_beside_others_are_told(tmp_path: Path) -> None:
    for name in ("cat/1.jpg", "dog/2021/1.jpg", "thumbs/1.jpg"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(next(SAMPLE.rglob("*.jpg")), tmp_path / "in" / name)
    for name in ("horse", "cow/2021", ".git", "dog/2021/raw"):
        (tmp_path / "in" / name).mkdir(parents=True)
    (tmp_path / "in/cow/notes.txt").write_text("")
    given: dict[str, Any] = {
        "input": tmp_path / "in",
        "layout": "{label}/**",
        "output": tmp_path / "out",
        "exclude": ["thumbs/**"],
    }
    (text,) = [text for text in beam_tfr.plan(**given).warnings if "folders without images" in text]
    assert text.endswith(f"(2): {tmp_path}/in/cow, {tmp_path}/in/horse")
    assert beam_tfr.convert(**given).run["empty_folders"] == 2
    (tmp_path / "in/horse").rmdir()
    shutil.rmtree(tmp_path / "in/cow")
    assert not [
        text for text in beam_tfr.plan(**given).warnings if "folders without images" in text
    ]


def test_deep_folders_in_an_archive_cost_little(tmp_path: Path) -> None:
    """Folders that hold no images are found beside them."""
    for name in ["full", "outer/inner", "empty"]:
        (tmp_path / name).mkdir(parents=True)
    search = EmptyFolders()
    for folder in [tmp_path, *tmp_path.rglob("*")]:
        search.enter(str(folder))
    search.fill([f"{tmp_path}/full/1.jpg", f"{tmp_path}/outer/inner/2.jpg"])
    search.fill(f"{tmp_path}/deep.tar/{number}/{'a/' * 8_000}1.jpg" for number in range(3))
    tracemalloc.start()
    folders = search.find()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert folders == [str(tmp_path / "empty")]
    assert peak < 10_000_000
