"""ResizeImages, ParseArrays, BuildExamples, and steps of your own."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_tfr import images
from beam_tfr.images.masks import convert_mask
from beam_tfr.options import ImageOptions
from beam_tfr.output.removed import Removed
from beam_tfr.records import arrays, examples
from beam_tfr.schema.dataset import REMOVED_FILE
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.features import names_of
from beam_tfr.schema.items import (
    Accompanied,
    Image,
    ImageRef,
    Item,
    Record,
    Reject,
    ShardWork,
    batch_items,
)
from beam_tfr.schema.plan import Shard, ShardInfo
from beam_tfr.transforms.counting import FunctionDoFn

SPLIT_SAMPLE = 2048
SHARD_SAMPLE = 64  # images for statistics: of a split, and at least of each of its shards
_Function = Callable[..., Any]  # of a value and its reference


_PICKLE = beam.coders.PickleCoder()


class _Coder(beam.coders.Coder):
    """Pickles; Beam, which asks how large many elements are, would pickle them for that too."""

    def encode(self, value: Item | ShardWork) -> bytes:
        return bytes(_PICKLE.encode(value))

    def decode(self, encoded: bytes) -> Any:
        return _PICKLE.decode(encoded)

    def estimate_size(self, value: Item | ShardWork) -> int:
        return value.size_bytes


for _kind in (Item, ShardWork):
    beam.coders.registry.register_coder(_kind, _Coder)


@dataclasses.dataclass(eq=False, repr=False)
class MapImages(beam.PTransform):
    """Applies a function to each value; rejects and finished shards pass through.

    Attributes:
        fn: (value, ref) -> new value; raises `RejectError` to reject the image.
        stage: name of the step in rejects.jsonl.
        guarded: the function for images of a shard that crashed; None for `fn`.

    Output: lists of `Item`, in the same order.
    """

    fn: _Function
    _: dataclasses.KW_ONLY
    stage: str = "MapImages"
    guarded: _Function | None = None

    def expand(self, items: PCollection[list[Item]]) -> PCollection[list[Item]]:
        return items | self.stage >> beam.ParDo(FunctionDoFn(self._apply_to_all))

    def _apply_to_all(self, items: list[Item]) -> Iterator[list[Item]]:
        applied = map(self._apply, items)  # not all at once: a small file may be a large raw image
        return batch_items(applied)

    def _apply(self, item: Item) -> Item:
        is_copy = isinstance(item.value, Record) and item.value.copied
        if item.ref is None or is_copy or isinstance(item.value, (Reject, ShardInfo)):
            return item
        try:
            return item.with_value(self._function_for(item)(item.value, item.ref))
        except RejectError as error:
            return item.reject(self.stage, error)

    def _function_for(self, item: Item) -> _Function:
        return self.guarded if item.guarded and self.guarded else self.fn


class ResizeImages(MapImages):
    """Turns bytes into an `Image`: decodes, rotates, resizes, encodes.

    With `encoding=keep`, statistics come from a sample of each shard, since sums of pixels take
    longer than all else. Its images are evenly spaced in the order of the shard, which depends on
    hashes of the keys alone.

    Args:
        options: how to convert images.
    """

    def __init__(self, options: ImageOptions) -> None:
        self._all = options.encoding != "keep"
        convert = functools.partial(_convert, options=options, statistics=self._all)
        guarded = functools.partial(convert, guarded=True)
        super().__init__(convert, stage="ResizeImages", guarded=guarded)

    def _function_for(self, item: Item) -> _Function:
        statistics = self._all or in_sample(item.shard, item.position)
        return functools.partial(super()._function_for(item), statistics=statistics)


def in_sample(shard: Shard, position: int) -> bool:
    """Whether an image is in the sample for statistics, with `encoding=keep`."""
    sample = max(SHARD_SAMPLE, SPLIT_SAMPLE // shard.num_shards)
    return position % -(-shard.total // sample) == 0


def _convert(
    data: bytes | Accompanied,
    ref: ImageRef,
    *,
    options: ImageOptions,
    statistics: bool,
    guarded: bool = False,
) -> Image:
    """Converts an image, and places its companions beside it; `guarded` for shards that crashed."""
    convert = images.convert_guarded if guarded else images.convert_image
    source, companions = data if isinstance(data, Accompanied) else Accompanied(data, {})
    name = (
        "" if ref.place.startswith("/") else ref.key
    )  # of a dataset, which holds the format of its own
    image = convert(source, options, name=name, statistics=statistics)
    placed = dict[str, bytes]()
    for companion, beside in companions.items():
        placed[companion.feature] = convert_mask(
            beside, image, options, outside=companion.outside, name=companion.key
        )
    return dataclasses.replace(image, companions=placed) if placed else image


class ParseArrays(MapImages):
    """Parses the bytes of .npy files to `Array`."""

    def __init__(self) -> None:
        super().__init__(lambda data, _: arrays.parse_array(data), stage="ParseArrays")


class BuildExamples(MapImages):
    """Serializes an `Image`, `Array`, bytes or row to a `Record`: a tf.train.Example.

    Args:
        encoding: option of `ConvertOptions`, which determines the input.
        place: places the boxes of an image, as `place_boxes` does; None without boxes.
    """

    def __init__(self, encoding: str = "jpeg", *, place: Callable[..., Any] | None = None) -> None:
        def build(value: Any, ref: ImageRef) -> Record:
            return examples.build_record(encoding, *(place(value, ref) if place else (value, ref)))

        super().__init__(build, stage="BuildExamples")


class RejectRemoved(MapImages):
    """Rejects records whose sources were taken down under another name.

    Args:
        removed: what was taken down.
        encoding: of the dataset.
    """

    def __init__(self, removed: Removed, encoding: str) -> None:
        name = names_of(encoding).sha256

        def check(record: Record, ref: ImageRef) -> Record:
            if record.values is None:
                values: Mapping[str, Any] = examples.parse_example(record.serialized)
            else:
                values = record.values
            if any(sha256.decode() in removed.sources for sha256 in values.get(name, ())):
                raise RejectError(
                    "taken-down", f"its bytes are those of an image in {REMOVED_FILE}"
                )
            return record

        super().__init__(check, stage="RejectRemoved")
