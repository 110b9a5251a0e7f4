"""Measures the records made from a sample of the input, for the plan."""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.inputs.parquet import end_sample
from beam_tfr.inputs.read_ahead import FileContent, ReadAhead, read_refs
from beam_tfr.schema.errors import RejectError, RunError
from beam_tfr.schema.items import ImageRef


class SampleSize(NamedTuple):
    """The size of the records in a sample.

    Attributes:
        mean_bytes: mean size of a serialized record, without rejects; 0 if there are no records.
        is_complete: whether all files could be read.
    """

    mean_bytes: float
    is_complete: bool


def make_record(
    content: FileContent, ref: ImageRef, steps: Sequence[Callable[[Any, ImageRef], Any]]
) -> Any:
    """Applies the steps to the content of a file; raises the content if it is a `RejectError`."""
    if isinstance(content, RejectError):
        raise content
    return functools.reduce(lambda value, step: step(value, ref), steps, content)


def measure_sample(
    refs: Sequence[ImageRef],
    *,
    root: str,
    ahead: ReadAhead | None,
    steps: Sequence[Callable[[Any, ImageRef], Any]],
    known_sizes: Mapping[str, int | None],
) -> SampleSize:
    """Measures the records in a sample.

    Args:
        refs: references to the images.
        root, ahead: see `read_refs`.
        steps: functions that turn the content of a file into its record, in order.
        known_sizes: key -> size of the existing record, or None for a reject.

    Raises:
        RunError: none of the files can be read now.
    """
    sizes = []
    to_measure = []
    unread = []
    for ref in refs:
        size = known_sizes.get(ref.key)
        if ref.key not in known_sizes:
            to_measure.append(ref)
        elif size is not None:
            sizes.append(size)
    to_measure.sort(key=operator.attrgetter("key"))  # the order of rows in a Parquet file
    for ref, content in read_refs(root, to_measure, ahead):
        try:
            sizes.append(len(make_record(content, ref, steps).serialized))
        except RejectError as error:
            if error.may_pass:
                unread.append(f"{root}{ref.key} cannot be read: {error.detail}")
    end_sample()
    if ahead is not None:
        ahead.close()
    if sizes:
        return SampleSize(sum(sizes) / len(sizes), not unread)
    if unread:
        raise RunError(
            f"{unread[0]}. None of the {len(refs)} files tried first can be read: run the same "
            "command again when they can be read, or correct the folder that a table, "
            "`image_root=` or `pair=` names. For paths from another machine, specify the folder of "
            "the images on this machine as `image_root=`; paths are looked up there without their "
            "first folders"
        )
    return SampleSize(0.0, True)
