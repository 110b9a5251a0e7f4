"""Options: what each flag takes, and what it refuses and how.

None of them can be confused with one of Beam's.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr import launch
from beam_tfr.cli import make_parser
from beam_tfr.commands import calls
from beam_tfr.engine import beam_internals
from beam_tfr.inputs.labels import choose_split
from beam_tfr.options import (
    ConvertOptions,
    ImageOptions,
    add_arguments,
    default_threads,
    from_arguments,
    kinds,
    tabular,
)
from beam_tfr.options.table import Option, from_values, options_of
from beam_tfr.options.tabular import TableOptions
from beam_tfr.schema.errors import UsageError

FIELDS = {field.name: field for field in dataclasses.fields(ConvertOptions)}
OPTIONS = options_of(ConvertOptions)
REQUIRED = ["--input", "/photos/*/*.jpg", "--output", "/data/my-set"]


@functools.cache
def parser_of_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser, ConvertOptions)
    return parser


def parse(*flags: str) -> ConvertOptions:
    arguments = parser_of_options().parse_args([*REQUIRED, *flags])
    return from_arguments(arguments, ConvertOptions)


def flags_beside(name: str) -> list[str]:
    """The flags without which an option has no effect."""
    if name == "stratify":
        return ["--folds=2"]
    return [f"--{other}={values[0]}" for other, values in OPTIONS[name].only_with.items() if values]


def allowed_values(about: Option) -> list[tuple[str, Any]]:
    """Texts and values of an option that its field allows.

    All choices, and the ends of its range.
    """
    if about.kind is kinds.BOOLEAN:
        return [("true", True), ("FALSE", False)]
    if about.kind in (kinds.INTEGER, kinds.BYTES):
        return [(str(end), end) for end in (about.low, about.high)]
    return [(choice, choice) for choice in about.choices]


def wrong_values(about: Option) -> list[tuple[str, str]]:
    """Texts that its field does not allow, and what is said."""
    if about.kind is kinds.BOOLEAN:
        return [
            (text, "must be true or false; the flag without a value means true")
            for text in ("yes", "1")
        ]
    if about.kind in (kinds.INTEGER, kinds.BYTES):
        assert about.low is not None
        said = f"must be a whole number from {about.low} to {about.high}"
        return [(str(int(end)), said) for end in (about.low - 1, about.high + 1) if end >= 0]
    return (
        [("nothing else", f"must be one of: {', '.join(about.choices)}")] if about.choices else []
    )


# What the fields alone do not tell.
VALUES: list[tuple[str, str, Any]] = [
    ("input_list", "/lists/a.txt", "/lists/a.txt"),
    ("input_list", "gs://b/a.txt", "gs://b/a.txt"),
    ("exclude", "**/*.gif", ("**/*.gif",)),
    ("gcs_project", "payer", "payer"),
    ("name", "Set_1", "Set_1"),
    ("layout", "{split}/{label}/*", "{split}/{label}/*"),
    ("layout", "/{split}/*/", "{split}/*"),
    ("pair", "mask=../masks/{stem}.png[255]", ("mask=../masks/{stem}.png[255]",)),
    ("pair", "mask=gs://b/{path}.png", ("mask=gs://b/{path}.png",)),
    ("pair", "depth=../depth/{stem}.png[255]", ("depth=../depth/{stem}.png[255]",)),
    ("pair", "heat=gs://b/{path}.png[255]", ("heat=gs://b/{path}.png[255]",)),
    ("classes", "classes.txt", "classes.txt"),
    ("rename", "n01440764=tench", ("n01440764=tench",)),
    (
        "splits",
        "train=0.8,validation=0.1,test=0.1",
        {"train": Fraction(4, 5), "validation": Fraction(1, 10), "test": Fraction(1, 10)},
    ),
    ("splits", " a = .5 , b=0.5", {"a": Fraction(1, 2), "b": Fraction(1, 2)}),
    ("splits", "all=1", {"all": Fraction(1)}),
    ("splits", "a=0.333333,b=0.333333,c=0.333333", dict.fromkeys("abc", Fraction(333333, 10**6))),
    ("image_size", "32x48", (32, 48)),
    ("image_size", "1X8192", (1, 8192)),
    ("image_size", "256", (256, 256)),
    ("background", "white", (255, 255, 255)),
    ("background", "Black", (0, 0, 0)),
    ("background", "gray", (128, 128, 128)),
    ("background", "#0aF0fe", (10, 240, 254)),
    ("max_file_bytes", "1MiB", 1 << 20),
    ("max_decode_bytes", "1GB", 1_000_000_000),
    ("max_aspect", "2.5", 2.5),
    ("max_aspect", "3", 3.0),
    ("max_aspect", "1.5", 1.5),
    ("quality", "1", 1),
    ("quality", "+100", 100),
    ("num_shards", "100000", 100_000),
    ("num_shards", "train=16,test=2", {"train": 16, "test": 2}),
    ("target_shard_bytes", "1024", 1024),
    ("target_shard_bytes", "100MiB", 100 << 20),
    ("target_shard_bytes", "100mb", 10**8),
    ("target_shard_bytes", "64 k", 64 << 10),
    ("target_shard_bytes", "2Gi", 2 << 30),
    ("description", "Hats", "Hats"),
    ("license", "cc-by-4.0", "cc-by-4.0"),
    ("citation", "A, 2026", "A, 2026"),
    ("max_rejects", "25", 25),
    ("max_rejects", "0", 0),
    ("max_rejects", "1.", 1.0),
    ("max_rejects", ".5", 0.5),
    ("allow_empty", "test", ("test",)),
    ("overwrite", "TRUE", True),
    ("overwrite", "false", False),
]


IMPOSSIBLE = {("encoding", "row"), ("min_pixels", str(1 << 30))}  # beside the defaults of others
# test_tables.py, test_bad_boxes.py have values
TABULAR = {field.name for field in dataclasses.fields(TableOptions)}
OF_FIELDS = [
    (name, *pair)
    for name, about in OPTIONS.items()
    if name not in TABULAR
    for pair in allowed_values(about)
]


@pytest.mark.parametrize(("flag", "text", "value"), [*VALUES, *OF_FIELDS])
def test_flags_parse_their_values(flag: str, text: str, value: Any) -> None:
    if (flag, text) in IMPOSSIBLE:
        return
    for flags in ([f"--{flag}", text], [f"--{flag}={text}"]):
        found = getattr(parse(*flags_beside(flag), *flags), flag)
        assert found == value
        assert type(found) is type(value)


def test_every_flag_is_tested_with_a_value() -> None:
    assert FIELDS.keys() - {flag for flag, _, _ in [*VALUES, *OF_FIELDS]} == {
        "input",
        "output",
        *TABULAR,
    }


@pytest.mark.parametrize(
    ("flag", "other"),
    [(name, other) for name in FIELDS if name not in TABULAR for other in OPTIONS[name].only_with],
)
def test_flags_that_need_another_flag(flag: str, other: str) -> None:
    value = next(
        text for text, value in allowed_values(OPTIONS[flag]) if value != FIELDS[flag].default
    )
    assert parse(f"--{flag}={FIELDS[flag].default}") == parse()
    parse(f"--{flag}={value}", *flags_beside(flag))
    without = next(
        text for text in OPTIONS[other].choices if text not in OPTIONS[flag].only_with[other]
    )
    with pytest.raises(UsageError, match=f"^`{flag}=` has no effect with `{other}={without}`: "):
        parse(f"--{flag}={value}", *flags_beside(flag), f"--{other}={without}")


def test_boolean_flag_without_value_is_true_and_leaves_the_next_flag() -> None:
    options = parse("--overwrite", "--json", "--quality", "5")
    assert (options.overwrite, options.json, options.quality) == (True, True, 5)


@pytest.mark.parametrize("flag", sorted(FIELDS.keys() - {"input", "output"}))
def test_an_empty_value_means_not_given(flag: str) -> None:
    assert parse(f"--{flag}=") == parse()


@pytest.mark.parametrize(
    ("flag", "said"), [("input", "specify at least one pattern"), ("output", "is required: ")]
)
def test_missing_required_flag(flag: str, said: str) -> None:
    other = {"input": REQUIRED[2:], "output": REQUIRED[:2]}[flag]
    parser = argparse.ArgumentParser()
    add_arguments(parser, ConvertOptions)
    for flags in (other, [*other, f"--{flag}="]):
        with pytest.raises(UsageError, match=rf"^`{flag}=`:? {said}"):
            from_arguments(parser.parse_args(flags), ConvertOptions)


def test_repeated_input_flags_add_up_and_empty_ones_are_ignored() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, ConvertOptions)
    options = from_arguments(
        parser.parse_args(["--input", "/a/*", "", "/b/*", "--output", "/o", "--input", "/c/*"]),
        ConvertOptions,
    )
    assert options.input == ("/a/*", "/b/*", "/c/*")


SIDES = "must be height x width, each from 1 to 8192 pixels, such as 224x224"
SHARES = (
    "must be NAME=FRACTION pairs separated by commas, such as train=0.8,validation=0.1,test=0.1"
)
WRONG: list[tuple[str, str, str]] = [
    ("input_list", "s3://b/a.txt", "only local paths and gs:// are supported"),
    ("name", "my-set", "must be letters, digits and _, at most 100"),
    ("name", "a" * 101, "must be letters, digits and _, at most 100"),
    ("name", "n\n", "must be letters, digits and _, at most 100"),
    (
        "layout",
        "{label}",
        "the last part is the file and must end in *, such as {label}/* or {split}/{label}/*",
    ),
    (
        "layout",
        "{class}/*",
        "'{class}' is not one of {label}, {split}, {group}, {number}, *; separate parts with /",
    ),
    ("layout", "{label}/{label}/*", "has {label} twice"),
    ("layout", "{label}/{group}_*", "{group} has no effect without `splits=` or `folds=`"),
    ("splits", "train", SHARES),
    ("splits", "train=", SHARES),
    ("splits", "train=0.5,", SHARES),
    ("splits", "a=0.5,a=0.5", "names a twice"),
    ("splits", "a=half", SHARES),
    ("splits", "a=-1,b=2", SHARES),
    ("splits", "a=1e-1,b=0.9", SHARES),
    ("splits", "a=0." + "1" * 5000, SHARES),
    ("splits", "a=1.2.3", "each fraction must be a number above 0"),
    (
        "splits",
        "a=1,b=0",
        "each fraction must be a number above 0; leave out splits without images",
    ),
    ("splits", "a=0.5,b=0.6", "the fractions must add up to 1, not 1.1"),
    ("splits", "a=0.5,b=0.499", "the fractions must add up to 1, not 0.999"),
    ("splits", "a b=1", SHARES),
    ("splits", "none=1", "'none' cannot be a split"),
    (
        "image_size",
        "224x",
        "must be HEIGHTxWIDTH in pixels, such as 224x224, or one number for both",
    ),
    ("image_size", "-1x5", "must be HEIGHTxWIDTH in pixels, such as 224x224"),
    ("image_size", "9" * 5000 + "x1", "must be HEIGHTxWIDTH in pixels, such as 224x224"),
    ("image_size", "0", SIDES),
    ("image_size", "0x5", SIDES),
    ("image_size", "5x8193", SIDES),
    ("resize", "strech", "must be one of: crop, pad, stretch, fit, shortest, none"),
    ("encoding", "pngg", "must be one of: jpeg, png, webp, raw, keep, bytes, array, row"),
    ("background", "red", "must be #RRGGBB, such as #7f7f7f, or one of: white, black, gray"),
    ("background", "#fff", "must be #RRGGBB, such as #7f7f7f, or one of: white, black, gray"),
    ("color", "grey", "must be one of: rgb, gray, keep"),
    ("max_file_bytes", "1TB", "must be a number of bytes, such as 104857600 or 100MiB"),
    ("min_pixels", "100000001", "must be a whole number from 1 to 100000000"),
    ("max_aspect", "0.5", "must be a number, 1 or more"),
    ("max_aspect", "wide", "must be a number, such as 2 or 2.5"),
    ("max_aspect", "-1", "must be a number, such as 2 or 2.5"),
    ("quality", "9.5", "must be a whole number"),
    ("quality", "9" * 5000, "must be a whole number"),
    (
        "compression",
        "zip",
        "must be one of: gzip, none, gzip:0, gzip:1, ",
    ),
    ("num_shards", "100001", "each number must be a whole number from 1 to 100000"),
    (
        "num_shards",
        "train=0",
        ("each number must be a whole number from 1 to 100000; use one number, or a dict such as"),
    ),
    ("num_shards", "train=x", "must be a whole number, or NAME=N pairs, such as train=16,test=2"),
    ("num_shards", "x", "must be a whole number, or NAME=N pairs, such as train=16,test=2"),
    ("num_shards", "a=1,b", "must be a whole number, or NAME=N pairs, such as train=16,test=2"),
    ("num_shards", "train=1,train=2", "names train twice"),
    ("target_shard_bytes", "1.5GiB", "must be a number of bytes, such as 104857600 or 100MiB"),
    ("target_shard_bytes", "5TB", "must be a number of bytes, such as 104857600 or 100MiB"),
    (
        "pair",
        "depth/{stem}.png",
        "must be NAME=PATH, with {stem} or {path} in PATH, such as depth='depth/{stem}.png[255]'",
    ),
    (
        "pair",
        "depth=depth/{stem}.png[256]",
        "must be NAME=PATH, with {stem} or {path} in PATH, such as",
    ),
    (
        "pair",
        "image={stem}.png",
        "must use each pair name only once, and none of: image, weight, channels, class, ",
    ),
    (
        "pair",
        "mask=masks/1.png",
        "must be NAME=PATH, with {stem} or {path} in PATH, such as depth='depth/{stem}.png[255]'",
    ),
    ("rename", "tench", "must be OLD=NEW, such as n01440764=tench"),
    ("pair", "mask=masks/{stem}.png[300]", "must be NAME=PATH, with {stem} or {path} in PATH"),
    ("pair", "mask=s3://b/{stem}.png", "must be NAME=PATH, with {stem} or {path} in PATH"),
    ("seed", "x", "must be a whole number"),
    ("seed", "-1", "must be a whole number from 0 to 9223372036854775807"),
    ("seed", "99999999999999999999", "must be a whole number from 0 to 9223372036854775807"),
    (
        "max_rejects",
        "1.01",
        "must be a fraction from 0.0 to 1.0, or a whole number without a decimal point",
    ),
    ("max_rejects", "-1", "must be a fraction with a decimal point, 0.0 to 1.0, or a whole number"),
    ("max_rejects", "1%", "must be a fraction with a decimal point, 0.0 to 1.0, or a whole number"),
    (
        "max_rejects",
        "1e-3",
        "must be a fraction with a decimal point, 0.0 to 1.0, or a whole number",
    ),
]


WRONG_IN_FIELDS = [
    (name, *pair) for name in OPTIONS if name not in TABULAR for pair in wrong_values(OPTIONS[name])
]


@pytest.mark.parametrize(
    ("flag", "text", "allowed"), [*WRONG, *WRONG_IN_FIELDS], ids=lambda value: value[:20]
)
def test_wrong_value_error_names_flag_value_and_allowed_values(
    flag: str, text: str, allowed: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"--{flag}={text}")
    message = str(caught.value)
    assert message.startswith((f"`{flag}=", f"--{flag} "))
    assert allowed in message
    shown = text[:200].replace("\n", "\\n")
    assert shown in message or flag in (
        "splits",
        "num_shards",
    )  # once parsed they are shown in parts


def test_every_checked_flag_is_tested_with_a_wrong_value() -> None:
    free = {
        "input",
        "output",
        "classes",
        "exclude",
        "gcs_project",
        "allow_empty",
        "description",
        "license",
        "citation",
    }
    assert FIELDS.keys() - {flag for flag, _, _ in [*WRONG, *WRONG_IN_FIELDS]} == free | TABULAR


EXCLUSIVE = [
    (
        ["--num_shards=2", "--target_shard_bytes=1MiB"],
        "`num_shards=` and `target_shard_bytes=` cannot be combined",
    ),
    (
        ["--num_shards=2", "--examples_per_shard=5"],
        "`num_shards=` and `examples_per_shard=` cannot be combined",
    ),
    (
        ["--target_shard_bytes=1MiB", "--examples_per_shard=5"],
        "`target_shard_bytes=` and `examples_per_shard=` cannot be combined",
    ),
    (
        ["--splits=a=1", "--layout={split}/*"],
        "`splits=a=1`: cannot be combined with {split} in `layout='{split}/*'`; use one",
    ),
    (
        ["--resize=shortest", "--image_size=256x224"],
        "`image_size=256x224`: `resize=shortest` needs a single size",
    ),
    (
        ["--color=gray", "--encoding=webp"],
        "`color=gray`: WebP stores only color images; use `encoding=jpeg`, png or raw",
    ),
    (
        ["--upscale", "--resize=crop"],
        "`upscale=` has no effect with `resize=crop`: it applies to fit, pad",
    ),
    (
        ["--quality=5", "--encoding=png"],
        "`quality=` has no effect with `encoding=png`: it applies to jpeg, webp, keep",
    ),
    (
        ["--chroma=444", "--encoding=webp"],
        "`chroma=` has no effect with `encoding=webp`: it applies to jpeg, keep",
    ),
    (
        ["--chroma=444", "--color=gray"],
        "`chroma=` has no effect with `color=gray`: it applies to rgb, keep",
    ),
    (
        ["--image_size=30", "--resize=none"],
        "`image_size=` has no effect with `resize=none`: it keeps all pixels",
    ),
    (
        ["--classes=c.txt", "--layout=*"],
        "`classes=c.txt`: has no effect with `layout='*'`, which has no {label}",
    ),
]


@pytest.mark.parametrize(("flags", "message"), EXCLUSIVE)
def test_options_that_exclude_each_other(flags: list[str], message: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(message)):
        parse(*flags)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://bucket/*.jpg", "only local paths and gs:// are supported"),
        ("http://host/a.jpg", "only local paths and gs:// are supported"),
        ("gs://", "has no bucket; write gs://BUCKET/FOLDER"),
        ("gs:///x", "has no bucket; write gs://BUCKET/FOLDER"),
    ],
)
def test_unsupported_path(path: str, message: str) -> None:
    for name, change in (("input", {"input": ("/a/*", path)}), ("output", {"output": path})):
        with pytest.raises(UsageError, match="^" + re.escape(f"`{name}={path}`: {message}")):
            ConvertOptions(**{"input": ("/a/*",), "output": "/o", **change})  # type: ignore[arg-type]


# Types that a flag cannot have, but a call in Python can.
IN_PYTHON: list[tuple[dict[str, Any], str]] = [
    ({"input": ()}, "`input=`: specify at least one pattern"),
    ({"input": ("",)}, "`input=`: specify at least one pattern"),
    ({"input": "/photos/*.jpg"}, "`input=/photos/*.jpg`: must be a tuple of strings"),
    ({"input": Path("/photos/a.jpg")}, "`input=/photos/a.jpg`: must be a tuple of strings"),
    ({"input": ("/a/*", 5)}, "`input=5`: must be text"),
    ({"input": ("/a/*", "s3://b")}, "`input=s3://b`: only local paths and gs:// are supported"),
    ({"exclude": b"a"}, "`exclude=b'a'`: must be a tuple of strings"),
    ({"table": 5}, "`table=5`: must be a tuple of strings"),
    ({"allow_empty": "hat"}, "`allow_empty=hat`: must be a tuple of strings"),
    ({"output": 5}, "`output=5`: must be text"),
    ({"output": None}, "`output=`: must be text"),
    ({"input_list": b"/a"}, "`input_list=b'/a'`: must be text"),
    ({"classes": ["hat", "shoes"]}, "`classes=['hat', 'shoes']`: must be the path of a file"),
    ({"name": 5}, "`name=5`: must be text"),
    ({"license": "\udc80"}, "`license=\\udc80`: must be UTF-8 text"),
    ({"layout": ("{label}", "*")}, "`layout=('{label}', '*')`: must be text"),
    ({"resize": ["fit"]}, "`resize=['fit']`: must be one of: crop"),
    ({"output": ""}, "`output=`: specify the folder of the dataset"),
    ({"quality": 90.0}, "`quality=90.0`: must be a whole number from 1 to 100"),
    ({"quality": True}, "`quality=True`: must be a whole number from 1 to 100"),
    ({"image_size": (224,)}, "`image_size=(224,)`: must be height x width"),
    ({"image_size": (224, 224, 3)}, "`image_size=(224, 224, 3)`: must be height x width"),
    ({"image_size": (224, 22.4)}, "`image_size=(224, 22.4)`: must be height x width"),
    ({"image_size": 0}, "`image_size=0`: must be height x width"),
    ({"image_size": 22.4}, "`image_size=22.4`: must be height x width"),
    (
        {"background": (1, 2)},
        "`background=(1, 2)`: must be red, green and blue, each from 0 to 255",
    ),
    ({"background": (1, 2, 256)}, "`background=(1, 2, 256)`: must be red, green and blue"),
    ({"background": "red"}, "`background=red`: must be #RRGGBB"),
    ({"background": 7}, "`background=7`: must be red, green and blue"),
    ({"max_aspect": float("inf")}, "`max_aspect=inf`: must be a number, 1 or more"),
    ({"max_aspect": float("nan")}, "`max_aspect=nan`: must be a number, 1 or more"),
    ({"max_aspect": True}, "`max_aspect=True`: must be a number"),
    ({"upscale": 1, "resize": "fit"}, "`upscale=1`: must be true or false"),
    ({"seed": None}, "`seed=`: must be a whole number"),
    ({"max_rejects": float("nan")}, "`max_rejects=nan`: must be a fraction from 0.0 to 1.0"),
    ({"max_rejects": -1}, "`max_rejects=-1`: must be a fraction"),
    ({"splits": {"a": "x"}}, "`splits={'a': 'x'}`: each fraction must be a number above 0"),
    (
        {"splits": {"a": float("nan")}},
        "`splits={'a': nan}`: each fraction must be a number above 0",
    ),
    ({"splits": {}}, "`splits={}`: the fractions must add up to 1"),
    ({"splits": ["train"]}, "`splits=['train']`: must map names of splits to fractions"),
    ({"splits": {5: 1}}, "`splits={5: 1}`: 5 cannot be a split"),
    (
        {"num_shards": {"train": 0}},
        "`num_shards={'train': 0}`: each number must be a whole number from 1",
    ),
]


@pytest.mark.parametrize(("change", "message"), IN_PYTHON)
def test_constructor_refuses_invalid_options(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(message)):
        ConvertOptions(**{"input": ("/a/*",), "output": "/o", **change})


@pytest.mark.parametrize(
    "share", ["1e-99999999", "1e9999", "1e-999", "1" * 10**6, "1/0", "1/" + "9" * 10**6]
)
def test_shares_that_would_take_all_memory_are_refused(share: Any) -> None:
    with pytest.raises(UsageError, match="each fraction must be a number above 0"):
        ConvertOptions(input=("/a/*",), output="/o", splits={"a": share, "b": 0.5})


def test_paths_may_be_path_objects(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("hat\n")
    paths: dict[str, Any] = {
        "input": (tmp_path / "a.jpg",),
        "input_list": tmp_path / "list",
        "exclude": [tmp_path / "b.jpg"],
        "output": tmp_path / "o",
        "classes": tmp_path / "classes.txt",
    }
    texts = {
        name: str(path) if isinstance(path, Path) else (str(path[0]),)
        for name, path in paths.items()
    }
    assert ConvertOptions(**paths) == ConvertOptions(**texts)
    table: dict[str, Any] = {
        "table": [tmp_path / "t.csv"],
        "uri_column": "path",
        "image_root": tmp_path,
    }
    options = ConvertOptions(output=str(tmp_path / "o"), **table)
    assert (options.table, options.image_root) == ((f"{tmp_path}/t.csv",), str(tmp_path))


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("/data/flowers", "flowers"),
        ("/data/flowers/", "flowers"),
        ("/data/my set-2.0", "my_set_2_0"),
        ("/data/花", "_"),
        ("/", "dataset"),
        ("gs://bucket-1", "bucket_1"),
        ("gs://bucket/a/b/", "b"),
        ("/data/" + "x" * 200, "x" * 100),
    ],
)
def test_the_name_comes_from_the_output(output: str, name: str) -> None:
    assert ConvertOptions(input=("/a/*",), output=output).name == name


def test_local_paths_become_absolute(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ConvertOptions(input=("a/**/*.jpg", "gs://b/*.jpg"), output="out")
    assert options.input == (f"{tmp_path}/a/**/*.jpg", "gs://b/*.jpg")
    assert options.output == f"{tmp_path}/out"


def test_shares_make_the_same_splits_in_whatever_order_they_are_given() -> None:
    one, other = (
        parse("--splits=a=0.2,test=0.1,train=0.7"),
        parse("--splits=train=0.7,a=0.2,test=0.1"),
    )
    assert one.splits
    assert other.splits
    assert list(one.splits) == [
        "train",
        "test",
        "a",
    ]  # as usual, so their datasets stay as they are
    keys = [f"hat/{number}.jpg" for number in range(100)]
    assert [choose_split(key, one.splits) for key in keys] == [
        choose_split(key, other.splits) for key in keys
    ]


def test_only_what_can_change_data_is_in_the_data_options() -> None:
    data = parse("--splits=a=0.25,b=0.75", "--image_size=8x9", "--background=black").data_options(
        ["x", "y"]
    )
    assert data == {
        "classes": ["x", "y"],
        "layout": "{label}/*",
        "splits": {"a": "1/4", "b": "3/4"},
        "image_size": [8, 9],
        "resize": "crop",
        "upscale": False,
        "background": [0, 0, 0],
        "color": "rgb",
        "icc": "convert",
        "ignore_orientation": False,
        "frames": "first",
        "damaged": "reject",
        "encoding": "jpeg",
        "quality": 90,
        "chroma": "420",
        "max_file_bytes": 64 << 20,
        "max_pixels": 100_000_000,
        "max_decode_bytes": 400_000_000,
        "min_pixels": 1,
        "max_aspect": None,
        "compression": "gzip",
        "gzip_level": "auto",
        "num_shards": None,
        "target_shard_bytes": None,
        "examples_per_shard": None,
        "seed": 0,
    }
    assert parse("--limit=9").data_options(None)["limit"] == 9
    assert parse("--compression=gzip:7").data_options(None) == parse().data_options(None) | {
        "gzip_level": 7
    }
    others = {name for name, about in OPTIONS.items() if about.implied or not about.changes_data}
    assert FIELDS.keys() - data.keys() == others - {"classes"}  # whose content is data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_size = 32\nsplits = {a = 0.5, b = 0.5}\ninput = 'x'\noutput = 'o'", ""),
        ("image_sise = 32", "--image_sise: unknown flag; did you mean --image_size?"),
        ("verbose = true", "c.toml`: `verbose=` can only be set on the command line"),
        ("gzip_level = 0", "--gzip_level: unknown flag; --help-all"),
        ("image_size = ", "is not valid TOML: "),
        ("a = " + "9" * 5000, "is not valid TOML: a whole number has more than 4,300 digits"),
        ("quality = 0x" + "f" * 5000 + "\ninput = 'x'\noutput = 'o'", "`quality=<int>`: must be"),
        ("a = 0x" + "f" * 5000, "--a: unknown flag"),
        ("quality = 101\ninput = 'x'\noutput = 'o'", "`quality=101`: must be a whole number"),
    ],
)
def test_a_file_of_options(tmp_path: Any, text: str, message: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    parsed, others = make_parser().parse_known_args(
        ["convert", "--config", str(tmp_path / "c.toml")]
    )
    if message:
        with pytest.raises(UsageError, match=re.escape(message)):
            calls.read_conversion(parsed, others)
    else:
        options = calls.read_conversion(parsed, others)[0]
        assert (options.image_size, options.splits) == (
            (32, 32),
            {"a": Fraction(1, 2), "b": Fraction(1, 2)},
        )


def test_what_leaves_with_a_job_has_no_paths() -> None:
    options = parse("--classes=/home/me/classes.txt", "--quality=5")
    for kind in (ImageOptions, TableOptions):
        assert type(options.restricted_to(kind)) is kind
        assert not {"input", "output", "classes"} & {*vars(options.restricted_to(kind))}
    assert options.restricted_to(ImageOptions).quality == 5


def test_data_options_ignore_place_and_run() -> None:
    flags = ["--name=other", "--max_rejects=0.5", "--overwrite", "--json", "--layout=/{label}/*"]
    assert parse(*flags).data_options(None) == parse().data_options(None)


def test_help_has_every_flag_with_its_default() -> None:
    subparsers = next(
        a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)
    )
    text = " ".join(subparsers.choices["convert"].format_all().split())
    for name, field in FIELDS.items():
        option = field.metadata["option"]
        assert f"--{name} " in text
        assert " ".join(option.help.split()) in text
        if field.default is dataclasses.MISSING:
            assert f"{option.help} (required)" in text
    for shown in (
        "(default: 224x224)",
        "(default: {label}/*)",
        "(default: 1%, or 10 images if that is more, but never more than 10%)",
        "{jpeg,png,webp,raw,keep,bytes,array,row}",
        "(default: white)",
        "(default: 64MiB)",
        "(default: auto)",
    ):
        assert shown in text


def _all_subclasses(kind: type) -> Iterator[type]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _all_subclasses(subclass)


def beams_flags() -> set[str]:
    flags = {
        flag for action in beam_internals.beam_parser()._actions for flag in action.option_strings
    }
    for kind in _all_subclasses(PipelineOptions):
        if "_add_argparse_args" in vars(kind):
            parser = type(beam_internals.beam_parser())(
                add_help=False, allow_abbrev=False, conflict_handler="resolve"
            )
            kind._add_argparse_args(parser)  # type: ignore[attr-defined]
            flags |= {flag for action in parser._actions for flag in action.option_strings}
    return flags


def test_no_option_equals_or_abbreviates_a_beam_option() -> None:
    beams = beams_flags()
    assert len(beams) > 150
    ours = {f"--{name}" for name in FIELDS}
    assert ours & beams == {"--gcs_project"}  # of `cloud`, to carry it to the workers among Beam's
    ours.remove("--gcs_project")
    assert not {flag.replace("_", "-") for flag in ours} & {
        flag.replace("_", "-") for flag in beams
    }
    near = {
        (our, its) for our in ours for its in beams if its.startswith(our) or our.startswith(its)
    }
    # These names the users' documentation fixes; the next test sees to it that nobody confuses the
    # two.
    assert near == {
        ("--output", "--output_executable_path"),
        ("--exclude", "--exclude_infer_dataclass_field_type"),
        ("--label_column", "--label"),  # of one runner alone, and never abbreviated
        ("--label_separator", "--label"),
        ("--no_wait", "--no_wait_until_finish"),
    }


def test_output_is_not_confused_with_beams_output_executable_path() -> None:
    flags = [
        "convert",
        "--input",
        "/a/*",
        "--output_executable_path=/x",
        "--output",
        "/o",
        "--outpu=/y",
    ]
    parsed, others = make_parser().parse_known_args(flags)
    assert from_arguments(parsed, ConvertOptions).output == "/o"
    assert others == ["--output_executable_path=/x", "--outpu=/y"]
    with pytest.raises(UsageError, match=r"^--outpu: unknown flag; did you mean --output"):
        launch.parse_beam_flags(others)
    assert launch.parse_beam_flags(others[:1]).get_all_options()["output_executable_path"] == "/x"


@given(st.integers(1, 8192), st.integers(1, 8192), st.sampled_from("xX"))
def test_image_sizes_round_trip(height: int, width: int, cross: str) -> None:
    assert parse(f"--image_size={height}{cross}{width}").image_size == (height, width)


UNITS = {
    "": 1,
    "K": 1 << 10,
    "KiB": 1 << 10,
    "kB": 10**3,
    "MiB": 1 << 20,
    "mb": 10**6,
    "G": 1 << 30,
    "GB": 10**9,
}


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_number_of_bytes_is_number_times_unit(number: int, unit: str) -> None:
    size = number * UNITS[unit]
    if 1 << 10 <= size <= 1 << 40:
        assert parse(f"--target_shard_bytes={number}{unit}").target_shard_bytes == size
    else:
        with pytest.raises(UsageError, match=f"^`target_shard_bytes={number}{unit}`: "):
            parse(f"--target_shard_bytes={number}{unit}")


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_decimal_shares_are_exact(parts: list[int]) -> None:
    rest = 10_000 - sum(parts)
    shares = {f"s{i}": part for i, part in enumerate([*parts, rest])}
    splits = parse(
        "--splits=" + ",".join(f"{name}={part / 10_000:.4f}" for name, part in shares.items())
    ).splits
    assert splits == {name: Fraction(part, 10_000) for name, part in shares.items()}
    assert list(splits) == list(shares)


@given(st.sampled_from(sorted(FIELDS.keys() - {"input", "output"})), st.text(max_size=12))
def test_any_text_is_a_value_or_a_usage_error(flag: str, text: str) -> None:
    with contextlib.suppress(UsageError):
        parse(f"--{flag}={text}")


def test_default_threads_are_the_usable_cores() -> None:
    assert default_threads() >= 1


@pytest.mark.timeout(100)
def test_columns_are_separated_by_commas_outside_of_brackets() -> None:
    columns = {"a": "", "b": "enum(s|m)=m", "c": "points[x,y]", "d": "int64"}
    assert tabular._parse_columns("a,b:enum(s|m)=m,,c:points[x,y],d:int64,") == columns
    assert len(tabular._parse_columns("," * 1_000_000 + "a")) == 1
    with pytest.raises(ValueError, match="twice"):
        tabular._parse_columns("a[," * 300_000)


def test_dicts_are_options_of_names_and_values() -> None:
    paths = {"output": "/o", "input": "/p/*", "layout": "*"}
    masks = from_values({**paths, "pair": {"mask": "../masks/{stem}.png"}}, ConvertOptions)
    assert masks.pair == ("mask=../masks/{stem}.png",)
    paths = {"output": "/o", "input": "/p/**"}
    renamed = from_values({**paths, "rename": {"dog": "hound", "cat": "kitty"}}, ConvertOptions)
    assert renamed.rename == ("cat=kitty", "dog=hound")
    with pytest.raises(UsageError, match="must be a tuple of strings"):
        from_values({**paths, "exclude": {"a": "b"}}, ConvertOptions)
    with pytest.raises(UsageError, match="write the names into a file"):
        from_values({**paths, "classes": ["dog", "cat"]}, ConvertOptions)
