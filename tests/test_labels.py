"""Labels: what a path says of class, split and group.

Also which names can be classes, and splits by hash.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr.first_look import early_warnings
from beam_tfr.inputs import class_files
from beam_tfr.inputs.class_files import read_class_file, read_classes
from beam_tfr.inputs.labels import Labeler, choose_split
from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.sources import open_source
from beam_tfr.storage import Entry
from tests.fake_gcs import FakeGcs

TENTHS = {"train": Fraction(8, 10), "validation": Fraction(1, 10), "test": Fraction(1, 10)}
BYTE = "\udcff"  # how Python shows a byte of a path that is not UTF-8


def ref(key: str, layout: str, classes: frozenset[str] | None = None) -> ImageRef:
    return Labeler(parse_layout(layout), classes=classes).label(
        Entry("/photos/" + key, 12, 34), key
    )


@pytest.mark.parametrize(
    ("layout", "key", "found"),
    [
        ("{label}/*", "cat/1.jpg", {"label": "cat"}),
        ("{label}/*", "deep/er/cat/1.jpg", {"label": "cat"}),
        ("{split}/{label}/*", "all/test/cat/1.jpg", {"split": "test", "label": "cat"}),
        ("{label}/{split}/*", "cat/test/1.jpg", {"split": "test", "label": "cat"}),
        ("{label}/*/*", "cat/2024/1.jpg", {"label": "cat"}),
        ("{group}/{label}/*/*", "p7/cat/left/1.jpg", {"group": "p7", "label": "cat"}),
        ("*", "1.jpg", {}),
        ("*", "a/b/1.jpg", {}),
        ("{label}/*", "1.jpg", None),
        ("{split}/{label}/*", "cat/1.jpg", None),
        ("{label}/*", "/1.jpg", {"label": ""}),
        ("{label}/*", "a cat #1 100%/x.jpg", {"label": "a cat #1 100%"}),
        ("{label}/*", "*/x.jpg", {"label": "*"}),
        ("{label}_*", "hat_0001.jpg", {"label": "hat"}),
        ("{label}_*", "deep/er/long_sleeve_1.jpg", {"label": "long"}),
        ("{label}_{number}.*", "american_pit_bull_12.jpg", {"label": "american_pit_bull"}),
        ("{label}_{number}.*", "american_pit_bull.jpg", None),
        ("{label}{number}.*", "cat12.jpg", {"label": "cat"}),
        ("*_{label}.*", "IMG_0001_cat.jpg", {"label": "cat"}),
        ("{split}-{label}-*", "train-t-shirt-1.jpg", {"split": "train", "label": "t"}),
        ("{split}-{label}-img*", "train-t-shirt-img1.jpg", {"split": "train", "label": "t-shirt"}),
        (
            "{split}/{label}/{group}_*",
            "test/cat/film7_0001.jpg",
            {"split": "test", "label": "cat", "group": "film7"},
        ),
        ("{label}-2024/*", "cat-2024/1.jpg", {"label": "cat"}),
        ("{label}-2024/*", "cat-2023/1.jpg", None),
        ("({label})*", "(a+b) 1.jpg", {"label": "a+b"}),
        ("{label}_*", "_1.jpg", {"label": ""}),
        ("{label}_*", "hat.jpg", None),
    ],
)
def test_layouts_read_the_last_parts_of_a_key(
    layout: str, key: str, found: dict[str, str] | None
) -> None:
    assert parse_layout(layout).parse_key(key) == found


@pytest.mark.parametrize(
    ("layout", "key", "longer"),
    [
        (
            "{split}-{label}-*",
            "train-t-shirt-1.jpg",
            ("label", "t", "t-shirt"),
        ),  # "train-t" cannot be a split
        ("{split}-{label}-*", "train-hat-1.jpg", None),
        ("{split}-{label}-{number}.*", "train-t-shirt-1.jpg", None),
        ("{split}-{label}-*", "hat.jpg", None),
        ("{label}_*", "a/long_sleeve_1.jpg", ("label", "long", "long_sleeve")),
        ("{label}{number}.*", "cat12.jpg", None),
        ("{label}_{number}_*", "a_1_2_3.jpg", ("label", "a", "a_1")),
        ("*_{label}.*", "IMG_0001_cat.jpg", None),
        (
            "*_{label}.*",
            "n01484850_great_white_shark.JPEG",
            ("label", "shark", "great_white_shark"),
        ),
        ("{group}_{label}/*", "p_7_cat/1.jpg", ("group", "p", "p_7")),
        ("{split}/{label}/*", "all/test/cat/1.jpg", None),
    ],
)
def test_values_that_could_be_longer(
    layout: str, key: str, longer: tuple[str, str, str] | None
) -> None:
    assert parse_layout(layout).find_longer_value(key) == longer


def test_an_ambiguous_layout_is_told_with_what_to_write() -> None:
    def told(layout: str, *keys: str) -> list[str]:
        return [*filter(None, [parse_layout(layout).describe_ambiguity(keys)])]

    assert told(
        "{split}-{label}-*", "train-hat-1.jpg", "train-t-shirt-1.jpg", "test-t-shirt-2.jpg"
    ) == [
        "2 of 3 files match the layout in more than one way, such as test-t-shirt-2.jpg: {label} "
        "is 't', not "
        "'t-shirt'; if that is wrong, use {number} for digits, as in "
        "`layout='{label}_{number}.*'`, rename the files, "
        "or name their classes in a `table=`"
    ]
    assert told("{split}-{label}-*", "train-hat-1.jpg") == told("*") == []


def test_a_conversion_looks_at_the_first_names_before_its_work(fake: FakeGcs) -> None:
    fake.put_many([f"photos/long_sleeve_{number:02}.jpg" for number in range(20)])
    fake.set(page_size=7)
    options = from_values(
        {"input": "gs://b/photos", "output": "gs://b/out", "layout": "{label}_*"}, ConvertOptions
    )
    (told,) = early_warnings(open_source(options))
    assert told.startswith(
        "20 of 20 files match the layout in more than one way, such as long_sleeve_00.jpg: {label} "
    )
    plain = dataclasses.replace(options, layout="{label}/*")
    fake.set(page_size=1_000)
    fake.take_log()
    assert [*early_warnings(open_source(plain))] == []
    assert len(fake.take_log()) < 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not one of {label}, {split}, {group}, {number}, *"),
        ("{label}//*", "'' is not one of"),
        ("label/*", "'label' is not one of"),
        ("{LABEL}/*", "'{LABEL}' is not one of"),
        ("{label}/*.jpg", "'*.jpg' is not one of"),
        ("**/*", "'**' is not one of"),
        ("{split}/{split}/*", "has {split} twice"),
        ("{split}/{label}", "the last part is the file and must end in *"),
        ("{lable}_*", "'{lable}' is not one of "),
        ("{label_*", "'{' is not one of"),
        ("{label}_{label}_*", "has {label} twice"),
        (
            "{label}*",
            "{label} and * are adjacent: nothing says where one ends; put a separator between them",
        ),
        ("{split}{label}_*", "{split} and {label} are adjacent"),
    ],
)
def test_invalid_layouts(text: str, message: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(f"`layout={text}`: {message}")):
        parse_layout(text)


def test_a_reference_carries_what_was_listed_and_what_the_key_says() -> None:
    assert ref("test/cat/1.jpg", "{split}/{label}/*") == ImageRef(
        "test/cat/1.jpg", 12, 34, "test", ("cat",)
    )
    assert ref("1.jpg", "*") == ImageRef("1.jpg", 12, 34, "train", ())


LABELS = [
    "cat",
    "a b",
    "tulipán",
    "チューリップ",
    "Ω≈ç",
    "#1",
    "100%",
    "a,b",
    "'",
    "😀",
    "-",
    "none",
    "train",
]
NO_LABELS = [
    "",
    " cat",
    "cat ",
    "a\nb",
    "a\tb",
    "a\rb",
    "a\x85b",
    "a\u2028b",
    "a\x1b[2J",
    f"caf{BYTE}",
    "\ufeffcat",
]


@pytest.mark.parametrize("label", LABELS)
def test_names_that_can_be_classes(label: str) -> None:
    found = ref(f"{label}/1.jpg", "{label}/*")
    assert (found.labels, found.split, found.reason) == ((label,), "train", "")
    assert ImageRef.decode(found.encode()) == found


@pytest.mark.parametrize("label", NO_LABELS)
def test_invalid_class_names_are_rejected_with_a_reason(label: str) -> None:
    found = ref(f"{label}/1.jpg", "{label}/*")
    assert (found.labels, found.split, found.reason) == ((), "none", "layout-mismatch")
    rule = (
        "it must be one line of UTF-8 text, without control characters or spaces at either end, of "
        "at most 1,000 letters"
    )
    assert found.detail == f"{label!r} cannot be a class: {rule}"
    assert found.detail.isprintable()
    assert ImageRef.decode(found.encode()) == found


@pytest.mark.parametrize("split", ["", "none", "my split", "té", "a-b", f"x{BYTE}"])
def test_invalid_split_names_are_rejected(split: str) -> None:
    found = ref(f"{split}/cat/1.jpg", "{split}/{label}/*")
    assert (found.split, found.reason) == ("none", "layout-mismatch")
    assert found.detail == f"{split!r} cannot be a split: letters, digits and _ only, and not none"


def test_short_key_is_rejected_with_the_expected_layout() -> None:
    found = ref("1.jpg", "{split}/{label}/*")
    assert (found.split, found.reason) == ("none", "layout-mismatch")
    assert found.detail == "has fewer parts than {split}/{label}/*"
    assert ref("a/hat.jpg", "{label}_*").detail == "does not match {label}_*"


def test_another_class_is_a_reject_in_its_split() -> None:
    found = ref("test/dog/1.jpg", "{split}/{label}/*", frozenset({"cat"}))
    assert (found.split, found.labels, found.reason) == ("test", ("dog",), "unknown-class")
    assert found.detail == "class 'dog' is not in the file of --classes"
    assert ref("test/cat/1.jpg", "{split}/{label}/*", frozenset({"cat"})).reason == ""


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"cat\ndog\n", ("cat", "dog")),
        (b"cat\ndog", ("cat", "dog")),
        (b"\xef\xbb\xbfcat\r\ndog\r\n", ("cat", "dog")),
        (b"  cat \t\n a dog\n", ("cat", "a dog")),
        ("tulipán\n花\n".encode(), ("tulipán", "花")),
        (b"z\na\n", ("z", "a")),
    ],
)
def test_class_files(tmp_path: Path, content: bytes, names: tuple[str, ...]) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes(content)
    assert read_classes(str(path)) == names


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; give one class per line, or a dataset"),
        (b"cat\n\ndog\n", "line 2, '', cannot be a class"),
        (b"cat\n\n", "line 2, '', cannot be a class"),
        (
            "\xe9\ncat\ne\u0301\n".encode(),
            "lines 1 and 3 are the same name in two Unicode spellings, 'e.u0301' and '.xe9'; "
            "remove",
        ),
        (b"cat\ndog\ncat\n", "class 'cat' is on line 1 and again on line 3; remove one"),
        (b"cat\n cat\r\n", "class 'cat' is on line 1 and again on line 2"),
        (
            b"caf\xe9\n",
            r"line 1, 'caf\\udce9', cannot be a class: it must be one line of UTF-8 text",
        ),
        ("cat\n".encode("utf-16"), "is not UTF-8 text; give one class per line"),
        (
            b"cat\rdog\r",
            r"line 1, 'cat\\rdog', cannot be a class: it must be one line of UTF-8 text",
        ),
        (b"cat\0\n", "is not UTF-8 text; give one class per line"),
    ],
)
def test_invalid_class_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"^`classes={path}`: {message}"):
        read_classes(str(path))


@pytest.mark.parametrize(
    ("content", "names", "is_told"),
    [
        ('["dog", "cat"]', ("dog", "cat"), False),
        ('[\n  "dog",\n  "cat"\n]\n', ("dog", "cat"), False),
        ("[dog]\n", ("[dog]",), False),
        ("#1 fan\nother\n", ("#1 fan", "other"), False),
        ("#\n$\n%\n", ("#", "$", "%"), False),
        ("grade 1\ngrade 2\n", ("grade 1", "grade 2"), False),
        ("0.5\n1.5\n", ("0.5", "1.5"), False),
        ("# my classes\ndog\ncat\n", None, False),
        ('{"dog": 0, "cat": 1}', ("dog", "cat"), False),
        ('{"1": "cat", "0": "dog"}', ("dog", "cat"), False),
        ('{"dog": 1, "cat": 2}', ("dog", "cat"), False),
        ('{"dog": 2, "cat": 3}', None, False),
        ('{"dog": "a", "cat": "b"}', None, False),
        ("[1, 2]", None, False),
        ("0 dog\n1 cat\n", ("0 dog", "1 cat"), True),
        ("1: dog\n2: cat\n", ("1: dog", "2: cat"), True),
        ("dog,0\ncat,1\n", ("dog,0", "cat,1"), True),
        ("0\n1\n2\n", ("0", "1", "2"), False),
        ("3 dog\n7 cat\n", ("3 dog", "7 cat"), False),
        ("dog,cat\n", ("dog,cat",), True),
        ("name,r,g,b\ndog,1,2,3\n", ("name,r,g,b", "dog,1,2,3"), True),
        ("n01440764 tench, x\nn01443537 y\n", ("n01440764 tench, x", "n01443537 y"), True),
        ("n01440764\nn01443537\n", ("n01440764", "n01443537"), False),
        ('"dog"\n"cat"\n', ('"dog"', '"cat"'), True),
        ("- dog\n- cat\n", ("- dog", "- cat"), True),
        ("class_name\ndog\ncat\n", ("class_name", "dog", "cat"), True),
        ("Paris, Texas\nParis, France\n", ("Paris, Texas", "Paris, France"), False),
        ('{"%s": "cat"}' % ("1" * 5_000), None, False),
    ],
)
def test_files_that_may_be_no_list_of_classes(
    tmp_path: Path, content: str, names: tuple[str, ...] | None, *, is_told: bool
) -> None:
    """Names are those of the file, if it can be one of classes; a doubt shows its first line."""
    path = tmp_path / "classes.txt"
    path.write_text(content)
    if names is None:
        with pytest.raises(UsageError, match=f"^`classes={path}`: "):
            read_class_file(str(path))
        return
    classes = read_class_file(str(path))
    assert classes.names == names
    assert (repr(names[0]) in classes.note) == is_told
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "1.jpg").touch()
    options = ConvertOptions(input=(str(tmp_path),), output="/o", classes=str(path))
    assert (repr(names[0]) in " ".join(early_warnings(open_source(options)))) == is_told


def test_yaml_is_no_file_of_classes(tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text("names: [dog, cat]\n")
    with pytest.raises(UsageError, match="is YAML"):
        read_class_file(str(tmp_path / "data.yaml"))


def test_class_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_files, "MOST_CLASSES", 2)
    path = tmp_path / "classes.txt"
    path.write_text("a\nb\n")
    assert read_classes(str(path)) == ("a", "b")
    path.write_text("a\nb\nc\n")
    with pytest.raises(UsageError, match=r"3 classes exceed the limit of 2.*`feature_columns=`"):
        read_classes(str(path))


def test_unreadable_class_files(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "nowhere.txt", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: it is a folder"),
    ):
        with pytest.raises(UsageError, match=f"^`classes={path}`: {message}"):
            read_classes(str(path))
    with pytest.raises(
        UsageError, match=r"^`classes=ftp://x`: only local paths and gs:// are supported"
    ):
        read_classes("ftp://x")


def test_splits_by_hash_are_stable() -> None:
    # Datasets that exist stand on these: a new version must put every image where the last one did.
    assert {key: choose_split(key, TENTHS) for key in GOLDEN} == GOLDEN


GOLDEN = {
    "cat/1.jpg": "train",
    "cat/2.jpg": "test",
    "cat/3.jpg": "validation",
    "cat/4.jpg": "validation",
    "cat/5.jpg": "train",
    "cat/15.jpg": "test",
    "dog/1.jpg": "train",
    "tulipán/ő.jpg": "validation",
    f"{BYTE}.jpg": "train",
    "": "train",
}


@pytest.mark.parametrize(
    "shares",
    [
        TENTHS,
        {"a": Fraction(1, 2), "b": Fraction(1, 2)},
        {"x": Fraction(1, 100), "y": Fraction(99, 100)},
    ],
)
def test_shares_are_approximated_over_many_keys(shares: dict[str, Fraction]) -> None:
    counts = collections.Counter(choose_split(f"photos/{i}.jpg", shares) for i in range(10_000))
    for name, share in shares.items():
        spread = (10_000 * share * (1 - share)) ** 0.5
        assert abs(counts[name] - 10_000 * share) < 4 * spread


def test_a_group_stays_together_and_its_key_alone_decides() -> None:
    labeler = Labeler(parse_layout("{group}/{label}/*"), TENTHS)
    splits = collections.defaultdict(set)
    for group in range(100):
        for image in range(20):
            key = f"far/away/g{group}/cat/{image}.jpg"
            splits[group].add(labeler.label(Entry(key, 1, 1), key).split)
    assert all(len(found) == 1 for found in splits.values())
    assert set.union(*splits.values()) == set(TENTHS)


@given(st.text(max_size=20), st.lists(st.integers(1, 100), min_size=1, max_size=6))
def test_every_key_falls_into_exactly_one_split(key: str, weights: list[int]) -> None:
    shares = {f"s{i}": Fraction(weight, sum(weights)) for i, weight in enumerate(weights)}
    assert choose_split(key, shares) in shares
    assert choose_split(key, shares) == choose_split(key, dict(shares))
    # Two neighbors put together keep all keys of both: the shares cut one line.
    if len(shares) > 1:
        joined = {
            "s0": shares["s0"] + shares["s1"],
            **{name: shares[name] for name in list(shares)[2:]},
        }
        merged = {"s1": "s0"}.get(choose_split(key, shares), choose_split(key, shares))
        assert choose_split(key, joined) == merged


@given(st.text(max_size=20))
def test_shares_that_miss_one_by_rounding_still_place_every_key(key: str) -> None:
    assert choose_split(key, dict.fromkeys("abc", Fraction(333_333, 10**6))) in "abc"


def _path(data: bytes) -> str:
    return data.replace(b"\0", b"/").decode("utf-8", "surrogateescape")


PATHS = st.binary(max_size=30).map(_path) | st.text(max_size=20).map(
    lambda s: _path(s.encode("utf-8", "replace"))
)


@given(PATHS, st.sampled_from(["{label}/*", "{split}/{label}/*", "{group}/*", "*"]))
def test_every_key_has_a_place(key: str, layout: str) -> None:
    found = Labeler(parse_layout(layout), TENTHS if "{split}" not in layout else None).label(
        Entry(key, 1, 1), key
    )
    assert found.key == key
    assert bool(found.reason) == (found.split == "none")
    assert ImageRef.decode(found.encode()) == found
