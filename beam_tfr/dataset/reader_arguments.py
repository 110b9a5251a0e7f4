"""Checks arguments that `beam_tfr.reader` and `beam_tfr.torch` share."""

from collections.abc import Collection
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.boxes import BOX_FORMATS
from beam_tfr.schema.errors import UsageError, check_whole_number
from beam_tfr.schema.feature_names import LABEL, SIDES

STREAMS = 8  # by default
OUTPUTS = ("pair", "dict", "image", "encoded", "raw_record")  # values of `output=`
GLOBAL = "global"  # the value of `shuffle=` for a permutation of the whole split


def check_integer(name: str, value: Any, at_least: int, *, bits: int = 31) -> int:
    """Checks and returns an argument that is a whole number.

    Raises:
        UsageError: it is not a whole number from `at_least` to 2^bits - 1.
    """
    try:
        return check_whole_number(value, at_least, (1 << bits) - 1)
    except ValueError as error:
        raise UsageError(str(error), option=name, value=repr(value)) from None


def check_choice(name: str, value: Any, allowed: Collection[str | None]) -> Any:
    """Checks and returns an argument that is one of a few strings.

    Raises:
        UsageError: it is none of those allowed.
    """
    if not (value is None or isinstance(value, str)) or value not in allowed:
        known = [f'"{text}"' if text else "None" for text in allowed]
        raise UsageError(
            f"must be {', '.join(known[:-1])} or {known[-1]}", option=name, value=repr(value)
        )
    return value


def check_targets(
    dataset: Manifest,
    output: str,
    *,
    multi_hot: bool,
    boxes: Any,
    max_boxes: int | None = None,
    label: str = LABEL,
) -> None:
    """Checks `multi_hot=`, `boxes=` and `max_boxes=`; `label` is the feature that the first applies
    to.

    Raises:
        UsageError: one of them is wrong, has no effect, or does not fit the dataset.
    """
    if not isinstance(multi_hot, bool):
        raise UsageError("must be True or False", option="multi_hot", value=repr(multi_hot))
    if max_boxes is not None and check_integer("max_boxes", max_boxes, 1) and boxes is None:
        raise UsageError(
            'has no effect without `boxes=`, such as "xyxy"', option="max_boxes", value=max_boxes
        )
    check_choice("boxes", boxes, (None, *BOX_FORMATS))
    if multi_hot and label not in dataset.features:
        raise UsageError(
            f"has no effect: {dataset.folder} has no labels", option="multi_hot", value=True
        )
    if output in ("image", "raw_record"):
        for option, value in {"multi_hot": multi_hot, "boxes": boxes}.items():
            if value:
                raise UsageError(
                    f'has no effect with `output="{output}"`', option=option, value=value
                )
    if multi_hot and not dataset.features[label]["shape"]:
        why = f"the examples of {dataset.folder} have one label each; leave it out"
        raise UsageError(why, option="multi_hot", value=True)
    if boxes and not {*SIDES} <= dataset.features.keys():
        why = f"{dataset.folder} has none: convert its images with a column of boxes, `feature_columns=box:bbox[xyxy]`"
        raise UsageError(why, option="boxes", value=boxes)
    if boxes and multi_hot and output != "dict":
        why = 'returns boxes and classes in place of labels: leave out `multi_hot=`, or give `output="dict"` for both'
        raise UsageError(why, option="boxes", value=boxes)


def check_shuffle(shuffle: Any, seed: Any, streams: int | None = None) -> int | None:
    """The seed of the shuffle; None with shuffle=False. Only a reader that gives `streams` takes
    shuffle="global".

    Raises:
        UsageError: one of the two is wrong, or `streams=` is given together with shuffle="global".
    """
    seed = check_integer("seed", seed, 0, bits=63)
    if not isinstance(shuffle, bool) and (streams is None or shuffle != GLOBAL):
        message = f'must be True or False: there is no shuffle buffer, and only `ImageDataset` takes "{GLOBAL}"'
        raise UsageError(message, option="shuffle", value=repr(shuffle))
    if shuffle == GLOBAL and streams != STREAMS:
        why = f'has no effect with `shuffle="{GLOBAL}"`, which reads each record by itself: leave it out'
        raise UsageError(why, option="streams", value=repr(streams))
    return seed if shuffle else None


def check_repeat(repeat: Any) -> int | None:
    """How many epochs `repeat` asks for; None means forever.

    Raises:
        UsageError: it is neither True, False nor a whole number from 1.
    """
    if isinstance(repeat, bool):
        return None if repeat else 1
    return check_integer("repeat", repeat, 1)


def check_folder(path: Any) -> str:
    """The path of a dataset's folder, as a string.

    Raises:
        UsageError: it is malformed.
    """
    return storage.check_path(path, option="path")
