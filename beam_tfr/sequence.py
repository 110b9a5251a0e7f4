"""`Records`: a split of a dataset as a sequence; `contents`: its table of contents. Without
TensorFlow and Beam.

    import beam_tfr

    train = beam_tfr.Records("/data/photos", split="train")
    image, label = train[300_000]  # uint8 [224, 224, 3], int
    hats = train.where(pyarrow.compute.field("class") == "hat")

PyTorch's `DataLoader`, `grain.MapDataset.source` and Keras' `PyDataset` take such a sequence.
"""

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
from beam_tfr.dataset.splits import ShardPart, select_examples
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import DataError, UsageError, without_traceback
from beam_tfr.schema.naming import contents_name


class Records(Sequence[Any]):
    """The records of a split, by number, in the order on disk.

    May be used by several threads, before and after a fork, and pickled; keeps no file open. Reads
    each record with one `pread` or one range request, and checks its checksum.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of a split; several, "train+validation"; or slices, "train[:80%]", as for
            `beam_tfr.reader.load`.
        output: "pair": (image, label), or the image alone if the dataset has no labels. "dict": all
            features by the manifest's names, with the pixels as `image` masks as `mask` (int32
            [height, width]), and the images of pairs by their names (the same) instead of the
            encoded bytes. "image": the image alone.
            "encoded": as "pair", with the encoded bytes. "raw_record": the serialized
            tf.train.Example. Datasets without images have "dict" (feature -> list of values) and
            "raw_record".
        multi_hot: labels become float32 [classes], if an image can have several.
        boxes: returns the objects of each image in place of its labels, with their boxes in this
            format: see `beam_tfr.reader.load`. "pair" gives (image, {"boxes": float32 [objects, 4],
            "classes": int64 [objects]}), and "dict" `masks` too, uint8 [objects, height, width], if
            the dataset has masks of boxes.
        transform: function called with each image, or its bytes; with `boxes`, masks or pairs in a
            "dict", with (image, dict of the other features), of which it returns such a pair.

    Attributes:
        class_names: a tuple of class names; the index is the label.

    An image is uint8 [height, width, channels]; a label is an int, or int64 [labels].

    Raises:
        UsageError: an argument is wrong.
        DataError: the folder holds no complete dataset, or a shard is missing or has the wrong
            size.

    Reading raises DataError that names what is damaged or was replaced, IndexError, and OSError.
    """

    @without_traceback
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str,
        output: str = "pair",
        multi_hot: bool = False,
        boxes: str | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        dataset = read_manifest(check_folder(path))
        images = dataset.image_options.encoding in IMAGE_ENCODINGS
        allowed = OUTPUTS if images else ("dict", "raw_record")
        self._output = check_choice("output", output, allowed)
        check_targets(dataset, output, multi_hot=multi_hot, boxes=boxes)
        chosen = select_examples(dataset, split)
        check_shard_files(dataset, chosen.splits)
        self._lookup = RecordLookup(dataset, chosen.parts)
        self._decoder = None
        if images and output != "raw_record":
            self._decoder = ExampleDecoder(
                dataset, output=output, multi_hot=multi_hot, boxes=boxes, transform=transform
            )
        self._numbers: range | NDArray[np.int64] = range(len(self._lookup))
        self.class_names = dataset.class_names

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int | slice) -> Any:
        """The example of a number, from the end if it is negative; or, of a slice, another
        sequence."""
        if isinstance(index, slice):
            return self._chosen(self._numbers[index])
        return self.__getitems__([index])[0]

    @without_traceback
    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The examples of some numbers, read with as few requests as possible; PyTorch calls this
        for a batch."""
        numbers = [operator.index(index) for index in indices]
        total = len(self)
        for number in numbers:
            if not -total <= number < total:
                raise IndexError(f"record {number} of {total}")
        found = [int(self._numbers[number]) for number in numbers]
        return [
            self._example(*pair)
            for pair in zip(found, self._lookup.read_records(found), strict=True)
        ]

    def __iter__(self) -> Iterator[Any]:
        for begin in range(0, len(self), storage.READ_AHEAD):
            yield from self.__getitems__(range(begin, min(begin + storage.READ_AHEAD, len(self))))

    @without_traceback
    def where(self, condition: Any) -> "Records":
        """The records that fit a condition on their rows of the contents, as another sequence, in
        the same order.

        Args:
            condition: a `pyarrow.compute.Expression` over columns of the contents: `field("height")
                < 200`, `field("key").isin(keys)`.

        Raises:
            UsageError: it is none, names no column, or is not true or false.
            DataError: the contents are missing or damaged.
            NotInstalledError: pyarrow is missing.
        """
        pa = need_pyarrow()
        from pyarrow import dataset as datasets

        if not isinstance(condition, datasets.Expression):
            raise UsageError(f"where: must be a pyarrow.compute.Expression, got {condition!r}")

        def fitting(part: ShardPart) -> NDArray[np.bool_]:
            table = self._lookup.read_contents(part).slice(part.begin, part.take)
            try:
                found = (
                    datasets.dataset(table).to_table({"": condition}, use_threads=False).column(0)
                )
                if found.type != pa.bool_():
                    raise TypeError(f"it must be true or false for each row, and is {found.type}")
            except (pa.ArrowException, ValueError, TypeError) as error:
                columns = ", ".join(table.column_names)
                what = str(error).partition("\n")[0][:100]
                raise UsageError(f"where: {what}; the columns are: {columns}") from None
            return np.asarray(found.fill_null(False))

        with ThreadPoolExecutor(8) as pool:
            fits = np.concatenate([*pool.map(fitting, self._lookup.parts)])
        check_not_replaced(self._lookup.dataset)
        numbers = np.array(self._numbers, np.int64)
        return self._chosen(numbers[fits[numbers]])

    def _chosen(self, numbers: range | NDArray[np.int64]) -> "Records":
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _numbers=numbers)
        return other

    def _example(self, number: int, record: bytes) -> Any:
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


@without_traceback
def contents(path: str | os.PathLike[str], split: str | None = None) -> Any:
    """The table of contents of a dataset: a `pyarrow.dataset.Dataset` with a row for each record.

    docs/contents.md lists its columns, and asks it with pandas, Polars and DuckDB.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of a split; None for all.

    Raises:
        UsageError: there is no such split.
        DataError: the folder holds no complete dataset, or one without contents.
        NotInstalledError: pyarrow is missing.
    """
    dataset = read_manifest(check_folder(path))
    splits = sorted(dataset.splits.keys() - {NO_SPLIT})
    if split is not None and split not in splits:
        raise UsageError(
            f"is not in {dataset.folder}; there are: {', '.join(splits)}",
            option="split",
            value=split,
        )
    files = [
        shard.file
        for name in splits
        if split in (None, name)
        for shard in dataset.splits[name].shards
    ]
    schema = dataset.contents_schema()
    from pyarrow import dataset as datasets

    existing = set(
        storage.list_folder(storage.join(dataset.folder, contents_name("").rpartition("/")[0]))
    )
    for file in files:
        if contents_name(file).rpartition("/")[2] not in existing:
            raise missing_contents(dataset, file)
    filesystem, above = _filesystem(dataset.folder)
    paths = [f"{above}/{contents_name(file)}" for file in files]
    return datasets.dataset(paths, schema, format="parquet", filesystem=filesystem)


def _filesystem(folder: str) -> tuple[Any, str]:
    """The file system of pyarrow for a folder, and the folder's path in it."""
    from pyarrow import fs

    if not storage.is_gcs(folder):
        return fs.LocalFileSystem(), folder.rstrip("/")
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    scheme, _, host = emulator.rpartition("://")
    if emulator:
        how = {"anonymous": True, "scheme": scheme or "http", "endpoint_override": host}
    else:
        how = {}
    return fs.GcsFileSystem(**how), folder.removeprefix(storage.GCS).rstrip("/")
