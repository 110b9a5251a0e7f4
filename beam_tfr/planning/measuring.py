"""How large records are: a sample of them is built before the shards are planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from beam_tfr.schema import ImageRef, RejectError, RunError


def mean_record_bytes(
    refs: Sequence[ImageRef],
    *,
    read: Callable[[Sequence[ImageRef]], Iterator[tuple[ImageRef, bytes | RejectError | None]]],
    steps: Sequence[Callable[[Any, ImageRef], Any]],
) -> float:
    """Mean size of a sample's serialized records, in bytes, without rejects.

    Args:
        refs: the sample.
        read: gives each reference with the content of its file, or the reason why it cannot be read.
        steps: functions that make a `Record` of the content, one after the other.

    Raises:
        RunError: a file cannot be read now, but perhaps later: the plan must not depend on luck.
    """
    sizes = []
    for ref, content in read(refs):
        if isinstance(content, RejectError):
            if content.may_pass:
                raise RunError(f"{ref.key} cannot be read now ({content.detail}); run the command again")
            continue
        record: Any = content
        try:
            for step in steps:
                record = step(record, ref)
        except RejectError:
            continue
        sizes.append(len(record.serialized))
    return sum(sizes) / len(sizes) if sizes else 0.0
