"""Checks arguments that `beam_tfr.reader` and `beam_tfr.torch` share."""

import functools
from collections.abc import Collection
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.features.box_formats import BOX_FORMATS
from beam_tfr.schema.errors import UsageError, check_whole_number
from beam_tfr.schema.feature_names import LABEL
from beam_tfr.schema.untrusted import quote

STREAMS = 8  # by default
OUTPUTS = ("pair", "dict", "image", "encoded", "raw_record")  # values of `output=`
_WITHOUT_TARGETS = ("image", "raw_record")  # outputs without labels and boxes
GLOBAL = "global"  # the value of `shuffle=` for a permutation of the whole split


def check_integer(name: str, value: Any, at_least: int, *, bits: int = 31) -> int:
    """Checks that an argument is a whole number, and returns it as an int.

    Raises:
        UsageError: the value is not a whole number from `at_least` to 2^bits - 1.
    """
    try:
        return check_whole_number(value, at_least, (1 << bits) - 1)
    except ValueError as error:
        raise UsageError(str(error), option=name, value=quote(value)) from None


def check_choice(name: str, value: Any, allowed: Collection[str | None]) -> Any:
    """Checks that an argument is one of a few strings, and returns it.

    Raises:
        UsageError: the value is not one of the allowed strings.
    """
    is_text = value is None or isinstance(value, str)
    if not is_text or value not in allowed:
        *others, last = ("None" if text is None else f'"{text}"' for text in allowed)
        raise UsageError(f"must be {', '.join(others)} or {last}", option=name, value=quote(value))
    return value


def check_targets(
    dataset: Manifest,
    output: str,
    *,
    one_hot: bool,
    boxes: Any,
    max_boxes: int | None = None,
    target: str | None = None,
    label: str = LABEL,
) -> None:
    """Checks `one_hot=`, `boxes=`, `max_boxes=` and `target=`.

    Args:
        dataset: the dataset.
        output: the value of `output=`.
        one_hot, boxes, max_boxes, target: the arguments to check.
        label: the feature that `one_hot` applies to.

    Raises:
        UsageError: an argument is wrong, has no effect, or does not match the dataset.
    """
    if not isinstance(one_hot, bool):
        raise UsageError("must be True or False", option="one_hot", value=quote(one_hot))
    check_choice("boxes", boxes, (None, *BOX_FORMATS))
    if max_boxes is not None:
        check_integer("max_boxes", max_boxes, 1)
        if boxes is None:
            raise UsageError(
                'has no effect without `boxes=`, such as "xyxy"',
                option="max_boxes",
                value=max_boxes,
            )
    if target is not None:
        _check_target(dataset, output, target, others=one_hot or boxes is not None)
    if one_hot:
        _check_one_hot(dataset, output, label)
    if boxes is not None:
        _check_boxes(dataset, output, boxes, one_hot=one_hot)


def _check_target(dataset: Manifest, output: str, target: Any, *, others: bool) -> None:
    """Checks that `target=` names a column that can replace the labels.

    Args:
        others: whether another argument changes the labels too.
    """
    fail = functools.partial(UsageError, option="target", value=quote(target))
    columns = [column.name for column in dataset.feature_kinds.columns if column.is_plain]
    if target not in columns:
        raise fail(f"must be a column of numbers or text: {', '.join(columns) or 'there is none'}")
    if output not in ("pair", "encoded"):
        raise fail(f'has no effect with `output="{output}"`')
    if others:
        raise fail("cannot be combined with `boxes=` or `one_hot=`: leave them out")


def _check_one_hot(dataset: Manifest, output: str, label: str) -> None:
    """Checks that `one_hot=True` has an effect."""
    fail = functools.partial(UsageError, option="one_hot", value=True)
    if label not in dataset.features:
        raise fail(f"has no effect: {dataset.folder} has no labels")
    if output in _WITHOUT_TARGETS:
        raise fail(f'has no effect with `output="{output}"`')


def _check_boxes(dataset: Manifest, output: str, boxes: str, *, one_hot: bool) -> None:
    """Checks that `boxes=` has an effect."""
    fail = functools.partial(UsageError, option="boxes", value=boxes)
    if output in _WITHOUT_TARGETS:
        raise fail(f'has no effect with `output="{output}"`')
    if dataset.feature_kinds.boxes is None:
        raise fail(
            f"{dataset.folder} has no boxes: convert its images with a column of boxes, such as "
            "`feature_columns='box:bbox[xyxy]'`"
        )
    if one_hot and output != "dict":
        raise fail(
            "returns boxes and classes in place of labels: leave out `one_hot=`, or specify "
            '`output="dict"` to get both'
        )


def check_shuffle(shuffle: Any, seed: Any) -> int | None:
    """Checks `shuffle=` and `seed=`; returns the seed of the shuffle, or None if there is none.

    Raises:
        UsageError: an argument is wrong.
    """
    seed = check_integer("seed", seed, 0, bits=63)
    if not isinstance(shuffle, bool):
        raise UsageError(
            "must be True or False: there is no shuffle buffer, and only `ImageDataset` accepts "
            f'"{GLOBAL}"',
            option="shuffle",
            value=quote(shuffle),
        )
    return seed if shuffle else None


def check_global_shuffle(seed: Any, streams: Any) -> int:
    """Checks `seed=` and `streams=` for a shuffle of a whole split; returns the seed.

    Raises:
        UsageError: the seed is wrong, or `streams=` is also set.
    """
    checked = check_integer("seed", seed, 0, bits=63)
    if streams != STREAMS:
        raise UsageError(
            f'has no effect with `shuffle="{GLOBAL}"`, which reads records one by one: leave '
            "it out",
            option="streams",
            value=quote(streams),
        )
    return checked


def check_repeat(repeat: Any) -> int | None:
    """Returns the number of epochs that `repeat=` requests; None means forever.

    Raises:
        UsageError: the value is not True, False or a whole number of at least 1.
    """
    if isinstance(repeat, bool):
        return None if repeat else 1
    return check_integer("repeat", repeat, 1)


def check_folder(path: Any) -> str:
    """Checks the path of a dataset's folder, and returns it as a string.

    Raises:
        UsageError: the path is malformed.
    """
    return storage.check_path(path, option="path")
