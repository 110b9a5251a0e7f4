"""Converts values: resizes images, parses arrays, builds Examples, and runs steps of your own."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_tfr import images
from beam_tfr.dataset.taken_down import Removed
from beam_tfr.features.companions import Companion
from beam_tfr.images.columns import PlacedColumns
from beam_tfr.images.mapping import RecordPixels
from beam_tfr.options import ImageOptions
from beam_tfr.records import arrays, examples
from beam_tfr.schema.dataset import REMOVED_FILE
from beam_tfr.schema.encodings import names_of
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import (
    Accompanied,
    Image,
    ImageRef,
    Item,
    MadeValues,
    Record,
    Reject,
    ShardWork,
    batch_items,
)
from beam_tfr.schema.plan import Shard, ShardInfo
from beam_tfr.transforms.counting import FunctionDoFn

SPLIT_SAMPLE = 2048
SHARD_SAMPLE = 64  # images for statistics: per split, and the least number per shard
_Function = Callable[..., Any]  # takes a value and its reference
PlaceColumns = Callable[[Image, ImageRef], PlacedColumns]


_PICKLE = beam.coders.PickleCoder()


class _Coder(beam.coders.Coder):
    """Pickles elements, and estimates their size without pickling them.

    Beam asks for the size of many elements, and would otherwise pickle them for this as well.
    """

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
        guarded: the function for images of a shard that crashed; None to use `fn`.

    Output: lists of `Item`, in the same order.
    """

    fn: _Function
    _: dataclasses.KW_ONLY
    stage: str = "MapImages"
    guarded: _Function | None = None

    def default_label(self) -> str:
        """Returns the stage or the function's name: a pipeline may have several such steps."""
        if self.stage != MapImages.stage:
            return self.stage
        return f"{self.stage}({getattr(self.fn, '__name__', '')})"

    def expand(self, items: PCollection[list[Item]]) -> PCollection[list[Item]]:
        return items | self.stage >> beam.ParDo(FunctionDoFn(self._apply_to_all))

    def _apply_to_all(self, items: list[Item]) -> Iterator[list[Item]]:
        applied = map(self._apply, items)  # lazy: a small file may become a large raw image
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

    With `encoding=keep`, statistics come from a sample of each shard, since summing pixels takes
    longer than everything else. The images of the sample are evenly spaced in the order of the
    shard, which depends only on hashes of the keys.

    Args:
        options: how to convert images.
        companions: the images stored with each image, which are resized and cropped like it.
    """

    def __init__(self, options: ImageOptions, *, companions: Sequence[Companion] = ()) -> None:
        self._all = options.encoding != "keep"
        convert = functools.partial(
            _convert, options=options, companions=companions, statistics=self._all
        )
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
    companions: Sequence[Companion],
    statistics: bool,
    guarded: bool = False,
) -> Image:
    """Converts an image, and the images stored with it.

    `guarded` is for images of shards that crashed.
    """
    convert = images.convert_guarded if guarded else images.convert_image
    is_embedded = ref.place.startswith("/")  # in a dataset; then the key names no image format
    name = "" if is_embedded else ref.key
    if not isinstance(data, Accompanied):
        return convert(data, options, name=name, statistics=statistics)
    image = convert(data.image, options, name=name, statistics=statistics)
    pixels = RecordPixels(image, options.max_decode_bytes)
    encoded = dict[str, bytes]()
    adjusted = {*image.adjusted}
    palette = None
    for companion in companions:
        placed = companion.place_image(data.companions[companion.key], pixels)
        encoded[companion.feature] = placed.encoded
        adjusted.update(placed.adjusted)
        if placed.palette:
            palette = placed.palette._replace(name=ref.key)
    return dataclasses.replace(
        image, companions=encoded, adjusted=tuple(sorted(adjusted)), palette=palette
    )


class ParseArrays(MapImages):
    """Parses the bytes of .npy files, each into an `Array`."""

    def __init__(self) -> None:
        super().__init__(lambda data, _: arrays.parse_array(data), stage="ParseArrays")


class BuildExamples(MapImages):
    """Serializes an `Image`, an `Array`, bytes or a row into a `Record`: a tf.train.Example.

    Args:
        encoding: option of `ConvertOptions`, which determines the input.
        place: adapts the columns of an image to its pixels, as `images.columns.place_columns` does;
            None if no column depends on the pixels.
    """

    def __init__(
        self,
        encoding: str = "jpeg",
        *,
        place: PlaceColumns | None = None,
    ) -> None:
        def build(value: Any, ref: ImageRef) -> Record:
            if place is None:
                return examples.build_record(encoding, value, ref)
            placed = place(value, ref)
            return examples.build_record(encoding, placed.image, placed.ref, placed.values)

        super().__init__(build, stage="BuildExamples")


class RejectRemoved(MapImages):
    """Rejects records whose sources were taken down under another name.

    Args:
        removed: the images that were taken down.
        encoding: encoding of the dataset.
    """

    def __init__(self, removed: Removed, encoding: str) -> None:
        name = names_of(encoding).sha256

        def check(record: Record, ref: ImageRef) -> Record:
            values: Mapping[str, Any]
            if isinstance(record.values, MadeValues):
                values = record.values.values
            else:
                values = examples.parse_example(record.serialized)
            if any(sha256.decode() in removed.sources for sha256 in values.get(name, ())):
                raise RejectError("taken-down", f"has the same bytes as an image in {REMOVED_FILE}")
            return record

        super().__init__(check, stage="RejectRemoved")
