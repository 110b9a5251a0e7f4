"""Checks arguments that `beam_tfr.reader` and `beam_tfr.torch` share."""

from collections.abc import Collection
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.boxes import BOX_FORMATS
from beam_tfr.schema.errors import UsageError, whole_number
from beam_tfr.schema.features import LABEL, SIDES

STREAMS = 8  # by default
OUTPUTS = ("pair", "dict", "image", "encoded", "raw_record")  # values of `output=`
GLOBAL = "global"  # the value of `shuffle=` for a permutation of the whole split


def integer(name: str, value: Any, at_least: int, *, bits: int = 31) -> int:
    """Checks and returns an argument that is a whole number.

    Raises:
        UsageError: it is not a whole number from `at_least` to 2^bits - 1.
    """
    try:
        return whole_number(value, at_least, (1 << bits) - 1)
    except ValueError as error:
        raise UsageError(str(error), option=name, value=repr(value)) from None


def choice(name: str, value: Any, allowed: Collection[str | None]) -> Any:
    """Checks and returns an argument that is one of a few strings.

    Raises:
        UsageError: it is none of those allowed.
    """
    if not (value is None or isinstance(value, str)) or value not in allowed:
        known = [f'"{text}"' if text else "None" for text in allowed]
        raise UsageError(f"must be {', '.join(known[:-1])} or {known[-1]}", option=name, value=repr(value))
    return value


def check_labels(dataset: Manifest, output: str, *, multi_hot: bool, label: str = LABEL) -> None:
    """Checks `multi_hot=`; `label` is the feature that it applies to.

    Raises:
        UsageError: it is neither True nor False, has no effect, or does not fit the labels.
    """
    if not isinstance(multi_hot, bool):
        raise UsageError("must be True or False", option="multi_hot", value=repr(multi_hot))
    if not multi_hot:
        return
    labels = dataset.features.get(label)
    if labels is None:
        why = f"has no effect: {dataset.folder} has no labels"
    elif output in ("image", "raw_record"):
        why = f'has no effect: `output="{output}"` has no labels'
    elif not labels["shape"]:
        why = f"the examples of {dataset.folder} have one label each; leave it out"
    else:
        return
    raise UsageError(why, option="multi_hot", value=True)


def check_boxes(
    dataset: Manifest, boxes: Any, output: str, *, multi_hot: bool = False, max_boxes: int | None = None
) -> None:
    """Checks `boxes=` and `max_boxes=`.

    Raises:
        UsageError: one of them is wrong or has no effect, or the dataset has no boxes.
    """
    if max_boxes is not None and integer("max_boxes", max_boxes, 1) and boxes is None:
        raise UsageError('has no effect without `boxes=`, such as "xyxy"', option="max_boxes", value=max_boxes)
    if choice("boxes", boxes, (None, *BOX_FORMATS)) is None:
        return
    if not {*SIDES} <= dataset.features.keys():
        why = f"{dataset.folder} has none: convert its images with a column of boxes, `feature_columns=box:bbox[xyxy]`"
    elif output in ("image", "raw_record"):
        why = f'has no effect: `output="{output}"` has no boxes'
    elif multi_hot and output != "dict":
        why = 'returns boxes and classes in place of labels: leave out `multi_hot=`, or give `output="dict"` for both'
    else:
        return
    raise UsageError(why, option="boxes", value=boxes)


def shuffle_seed(shuffle: Any, seed: Any, streams: int) -> int | None:
    """The seed of the shuffle; None with shuffle=False.

    Raises:
        UsageError: one of the two is wrong, or `streams=` is given together with shuffle="global".
    """
    seed = integer("seed", seed, 0, bits=63)
    if not isinstance(shuffle, bool) and shuffle != GLOBAL:
        message = f'must be True, False or "{GLOBAL}": there is no shuffle buffer'
        raise UsageError(message, option="shuffle", value=repr(shuffle))
    if shuffle == GLOBAL and streams != STREAMS:
        why = f'has no effect with `shuffle="{GLOBAL}"`, which reads each record by itself: leave it out'
        raise UsageError(why, option="streams", value=repr(streams))
    return seed if shuffle else None


def num_epochs(repeat: Any) -> int | None:
    """How many epochs `repeat` asks for; None means forever.

    Raises:
        UsageError: it is neither True, False nor a whole number from 1.
    """
    if isinstance(repeat, bool):
        return None if repeat else 1
    return integer("repeat", repeat, 1)


def folder(path: Any) -> str:
    """The path of a dataset's folder, as a string.

    Raises:
        UsageError: it is malformed.
    """
    return storage.check_path(path, option="path")
