"""Reads a split of a dataset as a sequence, `Records`, and its table, `contents`.

Neither needs TensorFlow or Beam.

    import beam_tfr

    train = beam_tfr.Records("/data/photos", split="train")
    image, label = train[300_000]  # uint8 [224, 224, 3], int
    hats = train.where(pyarrow.compute.field("class") == "hat")

PyTorch's `DataLoader`, `grain.MapDataset.source` and Keras' `PyDataset` accept such a sequence.
"""

import functools
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr import storage
from beam_tfr.dataset.elements import ExampleDecoder
from beam_tfr.dataset.lookup import RecordLookup, missing_contents
from beam_tfr.dataset.manifest import (
    REPAIR_OR_COPY,
    check_not_replaced,
    check_shard_files,
    read_manifest,
)
from beam_tfr.dataset.reader_arguments import OUTPUTS, check_choice, check_folder, check_targets
from beam_tfr.dataset.splits import ShardPart, choose_splits, select_examples
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.arguments import public
from beam_tfr.schema.dataset import CONTENTS_FOLDER
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import DataError, UsageError, without_traceback
from beam_tfr.schema.naming import contents_name
from beam_tfr.schema.untrusted import quote

_CONTENTS_THREADS = 8  # threads that read contents of shards


class Records(Sequence[Any]):
    """The records of a split, by number, in the order on disk.

    Several threads may use a sequence, before and after a fork, and it can be pickled. It keeps no
    file open, reads each record with one `pread` or one range request, and checks its checksum.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of a split; several splits, as in "train+validation"; "all" for all splits; all
            splits except some, as in "all-fold4"; or slices, as in "train[:80%]".
            See `beam_tfr.reader.load`.
        output: "pair": (image, label), or the image alone if the dataset has no labels. "dict": all
            features by the manifest's names, but the pixels as `image`, masks as `mask` (int32
            [height, width]), and the pixels of paired images by their names, instead of the encoded
            bytes. "image": the image alone. "encoded": as "pair", with the encoded bytes.
            "raw_record": the serialized tf.train.Example. Datasets without images have "dict"
            (feature -> list of values) and "raw_record".
        one_hot: labels become float32 [classes]: 1 for each class of the image, and 0 for the
            others.
        boxes: returns the objects of each image in place of its labels, with their boxes in this
            format: see `beam_tfr.reader.load`. "pair" gives (image, {"boxes": float32 [objects, 4],
            "classes": int64 [objects]}), and "dict" also contains `masks`, uint8 [objects, height,
            width], if the dataset has masks of boxes.
        target: column that replaces the labels, such as a number to predict.
        transform: function called with each image, or its bytes. With `boxes`, or masks or pairs
            in a "dict", it is called with (image, dict of the other features), and returns such a
            pair.

    Attributes:
        class_names: a tuple of class names; the index is the label.

    An image is uint8 [height, width, channels]; a label is an int, or int64 [labels].

    Raises:
        UsageError: an argument is wrong.
        DataError: the folder holds no complete dataset, or a shard is missing or has the wrong
            size.

    Reading raises a DataError that names a damaged or replaced file, an IndexError, or an OSError.
    """

    @without_traceback
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str,
        output: str = "pair",
        one_hot: bool = False,
        boxes: str | None = None,
        target: str | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        dataset = read_manifest(check_folder(path))
        has_images = dataset.image_options.encoding in IMAGE_ENCODINGS
        allowed = OUTPUTS if has_images else ("dict", "raw_record")
        self._output = check_choice("output", output, allowed)
        check_targets(dataset, output, one_hot=one_hot, boxes=boxes, target=target)
        selection = select_examples(dataset, split)
        check_shard_files(dataset, selection.splits)
        self._lookup = RecordLookup(dataset, selection.parts)
        self._decoder = None
        if has_images and output != "raw_record":
            self._decoder = ExampleDecoder(
                dataset,
                output=output,
                one_hot=one_hot,
                boxes=boxes,
                target=target,
                transform=transform,
            )
        self._numbers: range | NDArray[np.int64] = range(len(self._lookup))
        self.class_names = dataset.class_names

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int | slice) -> Any:
        """Returns the example with this number, or a sequence with the examples of a slice.

        Negative numbers count from the end.
        """
        if isinstance(index, slice):
            return self._subset(self._numbers[index])
        return self.__getitems__([index])[0]

    @without_traceback
    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Returns the examples with these numbers, read with as few requests as possible.

        PyTorch calls this method for a batch.
        """
        total = len(self)
        numbers = []
        for index in map(operator.index, indices):
            if not -total <= index < total:
                raise IndexError(f"record {index} of {total}")
            numbers.append(int(self._numbers[index]))
        records = self._lookup.read_records(numbers)
        return [*map(self._decode, numbers, records)]

    def __iter__(self) -> Iterator[Any]:
        for begin in range(0, len(self), storage.READ_AHEAD):
            end = min(begin + storage.READ_AHEAD, len(self))
            yield from self.__getitems__(range(begin, end))

    @without_traceback
    def where(self, condition: Any) -> "Records":
        """Selects the records whose rows in the contents meet a condition; keeps their order.

        Args:
            condition: a `pyarrow.compute.Expression` over columns of the contents: `field("height")
                < 200`, `field("key").isin(keys)`.

        Returns:
            Another sequence.

        Raises:
            UsageError: the condition is not an expression, names a column that does not exist, or
                has results other than true and false.
            DataError: the contents are missing or damaged.
            NotInstalledError: pyarrow is missing.
        """
        need_pyarrow()
        from pyarrow import compute

        if not isinstance(condition, compute.Expression):
            raise UsageError(f"where: must be a pyarrow.compute.Expression, got {quote(condition)}")
        with ThreadPoolExecutor(_CONTENTS_THREADS) as pool:
            match_rows = functools.partial(self._match_rows, condition)
            fits = np.concatenate([*pool.map(match_rows, self._lookup.parts)])
        check_not_replaced(self._lookup.dataset)
        numbers = np.array(self._numbers, np.int64)
        return self._subset(numbers[fits[numbers]])

    def _match_rows(self, condition: Any, part: ShardPart) -> NDArray[np.bool_]:
        """Returns whether each record of a part meets a condition."""
        pa = need_pyarrow()
        from pyarrow import dataset as datasets

        shard_table = self._lookup.read_contents(part)
        table = shard_table.slice(part.begin, part.take)
        try:
            projected = datasets.dataset(table).to_table({"": condition}, use_threads=False)
            values = projected.column(0)
            if values.type != pa.bool_():
                raise TypeError(f"it must be true or false for each row, but is {values.type}")
        except (pa.ArrowException, ValueError, TypeError) as error:
            columns = ", ".join(table.column_names)
            problem = str(error).partition("\n")[0][:100]
            raise UsageError(f"where: {problem}; the columns are: {columns}") from None
        return np.asarray(values.fill_null(False))

    def _subset(self, numbers: range | NDArray[np.int64]) -> "Records":
        subset = object.__new__(type(self))
        subset.__dict__.update(self.__dict__, _numbers=numbers)
        return subset

    def _decode(self, number: int, record: bytes) -> Any:
        """Decodes the example in a record; `number` is for messages."""
        if self._output == "raw_record":
            return record
        try:
            if self._decoder is None:
                return parse_example(record)
            image, features = self._decoder(record)
        except ValueError as error:
            part, row = self._lookup.locate(number)
            raise DataError(f"{part.file}: record {row}: {error}; {REPAIR_OR_COPY}") from None
        return self._decoder.element(self._decoder.parts(image, features))


@public
def contents(path: str | os.PathLike[str], split: str | None = None) -> Any:
    """Opens a dataset's table of contents, which has a row for each record.

    The table is a `pyarrow.dataset.Dataset`. docs/contents.md lists its columns, and shows queries
    with pandas, Polars and DuckDB.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of a split; several splits, such as "all-fold4"; None for all splits.

    Raises:
        UsageError: the split does not exist.
        DataError: the folder holds no complete dataset, or its dataset has no contents.
        NotInstalledError: pyarrow is missing.
    """
    dataset = read_manifest(check_folder(path))
    names = choose_splits(dataset, split, dataset.split_names)
    schema = dataset.contents_schema()
    from pyarrow import dataset as datasets

    files = []
    contents_folder = storage.join(dataset.folder, CONTENTS_FOLDER)
    existing = {*storage.list_folder(contents_folder)}
    for name in names:
        for shard in dataset.splits[name].shards:
            file = contents_name(shard.file)
            if file.rpartition("/")[2] not in existing:
                raise missing_contents(dataset, shard.file)
            files.append(file)
    filesystem, folder = _filesystem(dataset.folder)
    paths = [f"{folder}/{file}" for file in files]
    return datasets.dataset(paths, schema, format="parquet", filesystem=filesystem)


def _filesystem(folder: str) -> tuple[Any, str]:
    """Returns pyarrow's file system for a folder, and the folder's path in it."""
    from pyarrow import fs

    if not storage.is_gcs(folder):
        return fs.LocalFileSystem(), folder.rstrip("/")
    path = folder.removeprefix(storage.GCS).rstrip("/")
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if not emulator:
        return fs.GcsFileSystem(), path
    scheme, _, host = emulator.rpartition("://")
    return fs.GcsFileSystem(anonymous=True, scheme=scheme or "http", endpoint_override=host), path
