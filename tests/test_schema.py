"""Elements survive their encoding, and the list of reject reasons is closed."""

from __future__ import annotations

import ast
import json
import math
import os
import pickle
import re
import shlex
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfr
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.schema.dataset import (
    ADJUSTMENTS,
    NO_SPLIT,
    REJECT_REASONS,
    canonical_json,
    is_class_name,
)
from beam_tfr.schema.encodings import FEATURES, LABEL_FEATURES
from beam_tfr.schema.errors import (
    BeamTfrError,
    DataError,
    InterruptedRunError,
    RejectError,
    RunError,
    UsageError,
)
from beam_tfr.schema.items import (
    BATCH_BYTES,
    BATCH_ITEMS,
    Array,
    Image,
    ImageRef,
    Item,
    Record,
    Reject,
    batch_items,
)
from beam_tfr.schema.plan import Plan, Shard, ShardInfo, SplitPlan
from beam_tfr.schema.spelling import spell_as_flags, spell_option
from beam_tfr.schema.untrusted import parse_json

COUNTS = st.integers(0, 1 << 62)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
# Every name that a disk can hold: any bytes, those that are no UTF-8 become surrogates.
KEYS = st.binary(min_size=1, max_size=40).filter(lambda raw: b"\0" not in raw).map(
    os.fsdecode
) | NAMES.filter(bool)
REFS = st.builds(
    ImageRef,
    key=KEYS,
    size_bytes=COUNTS,
    generation=st.integers(-(1 << 63), (1 << 63) - 1),
    split=st.sampled_from(["train", "test", NO_SPLIT]),
    labels=st.lists(NAMES.filter(lambda name: "\n" not in name), max_size=3).map(tuple),
    label_ids=st.none() | st.lists(st.integers(-1, 1 << 31), max_size=3).map(tuple),
    reason=st.sampled_from(["", *REJECT_REASONS]),
    detail=NAMES,
    columns=st.none() | st.binary(max_size=40),
    place=NAMES,
    # one text holds both
).map(lambda ref: ref._replace(place="") if ref.reason else ref._replace(detail=""))
INFOS = st.builds(
    ShardInfo,
    shard=st.builds(Shard, NAMES, COUNTS, COUNTS, COUNTS, NAMES),
    file=NAMES,
    num_examples=COUNTS,
    num_bytes=COUNTS,
    sha256=NAMES,
    records_sha256=NAMES,
    rejected=st.dictionaries(st.sampled_from(sorted(REJECT_REASONS)), COUNTS),
    class_counts=st.dictionaries(COUNTS, COUNTS),
    pixels=COUNTS,
    channel_sums=st.lists(st.integers(0, 1 << 80), max_size=3),
    channel_squares=st.lists(st.integers(0, 1 << 90), max_size=3),
    source_sizes=st.dictionaries(COUNTS, COUNTS),
)


@given(REFS)
def test_a_reference_survives_encoding(ref: ImageRef) -> None:
    encoded = ref.encode()
    assert ImageRef.decode(encoded) == ref
    texts = encoded.removesuffix(ref.columns or b"")
    assert texts.count(b"\0") == len(ref) - (3 if ref.columns is None else 2)


def test_a_name_that_is_not_utf8_keeps_its_bytes() -> None:
    raw = b"caf\xe9/\xff\n.jpg"
    ref = ImageRef(os.fsdecode(raw), 1, 2, "train")
    assert ref.encode().startswith(raw + b"\0")
    assert os.fsencode(ImageRef.decode(ref.encode()).key) == raw


def test_a_reference_is_small() -> None:
    ref = ImageRef(
        "train/t-shirt/06a00c0f-5f9a-410d-a7da-3881a9df3a71.jpg",
        28_000,
        1 << 60,
        "train",
        ("t-shirt",),
        (9,),
    )
    assert len(ref.encode()) <= len(ref.key) + 60


@given(INFOS)
def test_a_shard_info_survives_json(info: ShardInfo) -> None:
    text = info.to_json()
    back = msgspec.json.decode(text, type=ShardInfo)
    assert back == info
    assert isinstance(back.shard, Shard)
    assert msgspec.json.decode(text.encode(), type=ShardInfo) == info
    assert "\n" not in text
    assert back.to_json() == text


@given(st.builds(Reject, KEYS, NAMES, NAMES, KEYS))
def test_a_reject_is_one_ascii_line_whatever_its_name(reject: Reject) -> None:
    line = reject.to_json()
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert Reject(**json.loads(line)) == reject


def test_raw_pixels_have_their_own_feature() -> None:
    assert FeaturesDict.from_options({"encoding": "jpeg"}).specs == FEATURES
    raw = FeaturesDict.from_options({"encoding": "raw"}, labelled=True).specs
    assert raw.keys() == (FEATURES.keys() | LABEL_FEATURES.keys() | {"image/raw"}) - {
        "image/encoded"
    }
    assert raw["image/raw"] == ("bytes", ())
    damaged = FeaturesDict.from_options({"encoding": "jpeg", "damaged": "keep"}).specs
    assert damaged == FEATURES | {"image/source/damaged": ("int64", ())}


def test_reasons_are_a_closed_list_in_kebab_case() -> None:
    assert sorted(REJECT_REASONS) == [
        "bad-value",
        "changed-while-reading",
        "crashed-decoder",
        "damaged-array",
        "damaged-image",
        "decode-timeout",
        "duplicate",
        "empty-file",
        "extreme-aspect",
        "file-too-large",
        "layout-mismatch",
        "left-out",
        "masks-too-large",
        "not-an-array",
        "not-an-image",
        "not-found",
        "several-frames",
        "taken-down",
        "too-few-pixels",
        "too-many-pixels",
        "too-many-scans",
        "too-much-memory",
        "unknown-class",
        "unreadable",
        "unsupported-image",
        "unusable-file",
        "without-boxes",
    ]
    assert all(REJECT_REASONS.values())
    assert all(ADJUSTMENTS.values())
    assert not REJECT_REASONS.keys() & ADJUSTMENTS.keys()
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", name) for name in ADJUSTMENTS)
    with pytest.raises(
        ValueError, match="unknown reject reason 'broken', known: bad-value, layout-mismatch, "
    ):
        RejectError("broken", "no such reason")
    error = RejectError("unreadable", "EIO", may_pass=True)
    assert (error.reason, error.detail, error.may_pass, str(error)) == (
        "unreadable",
        "EIO",
        True,
        "unreadable: EIO",
    )


def test_exit_codes_of_errors() -> None:
    codes = {
        kind: kind("x").exit_code for kind in (UsageError, DataError, RunError, InterruptedRunError)
    }
    assert codes == {UsageError: 2, DataError: 1, RunError: 1, InterruptedRunError: 130}
    assert all(issubclass(kind, BeamTfrError) for kind in codes)


def test_canonical_json_is_one_text_for_one_value() -> None:
    assert (
        canonical_json({"b": [1, 2.5, None, True], "a": "ü\n"})
        == b'{"a":"\\u00fc\\n","b":[1,2.5,null,true]}'
    )
    assert (
        canonical_json(dict(reversed([("x", 1), ("y", {"q": 2, "p": 1})])))
        == b'{"x":1,"y":{"p":1,"q":2}}'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def plan() -> Plan:
    return Plan(
        name="d",
        suffix=".tfrecord.gz",
        options={"seed": 0},
        input_digest="0" * 64,
        labels=["a", "b"],
        splits={
            "train": SplitPlan(matched=5, num_shards=2, cuts=["80"], class_counts={"a": 5}),
            NO_SPLIT: SplitPlan(matched=1, num_shards=1, cuts=[], class_counts={}),
        },
        codecs={"pillow": "12"},
    )


def test_the_digest_of_a_plan_covers_every_field_but_whether_it_is_done() -> None:
    original = plan().digest
    changes = {
        "name": "e",
        "suffix": ".tfrecord",
        "options": {"seed": 1},
        "input_digest": "1" * 64,
        "labels": ["b", "a"],
        "splits": {"train": plan().splits["train"]},
        "codecs": {"pillow": "13"},
    }
    for name, value in changes.items():
        changed = plan()
        setattr(changed, name, value)
        assert changed.digest != original, name
    for name, value in {
        "matched": 6,
        "num_shards": 3,
        "cuts": ["81"],
        "class_counts": {"a": 4},
    }.items():
        changed = plan()
        setattr(changed.splits["train"], name, value)
        assert changed.digest != original, name
    changed = plan()
    changed.complete = True
    assert changed.digest == original


def test_a_plan_survives_the_way_to_a_worker() -> None:
    original = plan()
    assert original.label_ids == {"a": 0, "b": 1}
    copy = pickle.loads(pickle.dumps(original))
    assert copy == original
    assert (copy.digest, copy.matched, copy.shards()) == (
        original.digest,
        6,
        ["none-00000-of-00001", "train-00000-of-00002", "train-00001-of-00002"],
    )


NAMES = [
    "hat",
    "t-shirt",
    "a b",
    "\u00e9t\u00e9",
    "x\u00a0y",
    "\u0645\u06cc\u200c\u062e",
    "\U0001f469\u200d\U0001f33e",
]
NO_NAMES = [
    "",
    " x",
    "x ",
    "a\nb",
    "a\u2028b",
    "a\x85b",
    "\x1b[2J",
    "\ud800",
    "\ufeffa",
    "a\x00",
    "a" * 1001,
    None,
    3,
]


def test_the_step_that_beam_adds_follows_all_lines_of_an_error() -> None:
    error = UsageError("holds another dataset:", "quality: 90 before", option="output", value="d")
    first, *rest = error.args
    augmented = UsageError(f"{first} [while running 'Plan']", *rest)
    assert str(augmented) == f"{error} [while running 'Plan']"
    assert str(error) == "`output=d`: holds another dataset:\nquality: 90 before"


def test_numbers_too_large_for_a_float_stay_text() -> None:
    text = "[1e400, -1E+999, 1e-400, 1.5e3, Infinity, 1]"
    assert parse_json(text) == ["1e400", "-1E+999", 0.0, 1500.0, math.inf, 1]


@pytest.mark.parametrize("name", NAMES)
def test_class_names_of_all_scripts(name: str) -> None:
    assert is_class_name(name)


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_cannot_be_a_class_name(name: object) -> None:
    assert not is_class_name(name)


OPTIONS = st.from_regex("[a-z][a-z0-9_]*", fullmatch=True)


@given(
    OPTIONS,
    st.text(
        st.characters(exclude_characters="`'\"();<>|&$\\", exclude_categories=["Z", "C"]),
        min_size=1,
    ),
    OPTIONS,
)
def test_the_options_in_an_error_become_flags_on_the_command_line(
    option: str, value: str, other: str
) -> None:
    error = UsageError(f"has no effect without `{other}=`", option=option, value=value)
    assert str(error) == f"`{option}={value}`: has no effect without `{other}=`"
    assert spell_as_flags(str(error)) == f"--{option} {value}: has no effect without --{other}"


VALUES = st.text() | st.text("`'\"$();| \n\\=a{*") | st.text("a'", min_size=400, max_size=600)


@given(OPTIONS, st.lists(VALUES, min_size=1, max_size=3))
def test_the_values_that_messages_suggest_are_words_of_a_shell(
    option: str, values: list[str]
) -> None:
    flag = spell_as_flags(f"{spell_option(option, *values)} reads them").removesuffix(" reads them")
    text = "".join(values)
    is_left_out = "`" in text or not text.isprintable() or len(flag) == len(f"--{option}")
    assert shlex.split(flag, comments=True) == [f"--{option}", *([] if is_left_out else values)]
    assert len(flag) <= len(f"--{option} ") + 500
    assert is_left_out or "\n" not in flag


@pytest.mark.parametrize(
    ("value", "flag"),
    [
        ("path", "--uri_column path"),
        ("Image Index", "--uri_column 'Image Index'"),
        ("a'b", """--uri_column 'a'"'"'b'"""),
        ("mask=../{path}.png", "--uri_column mask='../{path}.png'"),
        ("a`b", "--uri_column"),
        ("a\nb", "--uri_column"),
        ("a" * 501, "--uri_column"),
    ],
)
def test_how_values_are_quoted(value: str, flag: str) -> None:
    assert spell_as_flags(f"give {spell_option('uri_column', value)}") == f"give {flag}"


def test_a_name_that_looks_like_an_option_does_not_become_a_flag() -> None:
    text = "class `layout=$(rm)` and `layout=a;b`, not `layout=a`"
    assert spell_as_flags(text) == "class `layout=$(rm)` and `layout=a;b`, not --layout a"


def test_a_backtick_in_the_value_of_a_wrong_option_is_escaped() -> None:
    error = UsageError("has no rows", option="table", value="a`b.csv")
    assert spell_as_flags(str(error)) == r"--table a\x60b.csv: has no rows"


_WITH_VALUE = re.compile(r"`[a-z_\0]+=(?!\")[^`]*\0")  # \0 stands for a value


def test_messages_suggest_values_by_spell_option_only() -> None:
    found = []
    for path in Path(beam_tfr.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "\0" for part in node.values
                ]
                found += [(path.name, match[0]) for match in _WITH_VALUE.finditer("".join(parts))]
    assert sorted(name for name, _ in found) == ["errors.py", "spelling.py"], found


SIZES_OF_VALUES = st.lists(
    st.sampled_from([0, 1, 1000, BATCH_BYTES // 3, BATCH_BYTES - 1, BATCH_BYTES, 2 * BATCH_BYTES])
)


@given(SIZES_OF_VALUES)
def test_batches_keep_the_order_and_end_with_enough_items_or_bytes(sizes: list[int]) -> None:
    shard = Shard("train", 0, 1, len(sizes), "plan")
    items = [Item(shard, i, "", None, bytes(size)) for i, size in enumerate(sizes)]
    made = list(batch_items(items))
    assert [item for batch in made for item in batch] == items
    for number, batch in enumerate(made):
        full = len(batch) == BATCH_ITEMS or sum(item.size_bytes for item in batch) >= BATCH_BYTES
        assert full or (number == len(made) - 1 and batch)
        assert len(batch) <= BATCH_ITEMS
        assert sum(item.size_bytes for item in batch[:-1]) < BATCH_BYTES


def test_the_size_of_an_item_is_that_of_its_image_or_file() -> None:
    image = Image(b"12345", "png", 1, 1, 3, "RGB", 1, 1, "png", "", (), ())
    values = [
        (b"12", 2),
        (image, 5),
        (Record(b"1234567", image), 7),
        (Array(b"123", (1,), "int8", ""), 3),
        (None, 0),
    ]
    shard = Shard("train", 0, 1, 1, "plan")
    assert [Item(shard, 0, "", None, value).size_bytes for value, _ in values] == [
        size for _, size in values
    ]
