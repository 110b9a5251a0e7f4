"""Defines the common parts of tables that hold their images.

Such tables are tars of WebDataset (`tables.tars`), and TFRecords of tf.train.Examples
(`tables.tfrecord_rows`).

The cell of an image is a `storage.Entry` whose place identifies its bytes in the file; see
`inputs.archives`. The image is read later, along with the other images of the shard.
"""

import abc
import gzip
from collections.abc import Container, Iterator, Sequence
from typing import IO, Any, NamedTuple

from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.tables.base import ColumnSelection, ObjectFormat, find_table

# Columns of images in tars; a row may have any of them.
EXTENSIONS = ("jpg", "jpeg", "png", "webp")


class ImageColumns(NamedTuple):
    """The columns of a table that hold images.

    Attributes:
        main: the column of the images to convert; an empty string if the rows become records.
        alternatives: columns that may hold the image of a row without an image in `main`.
        companions: columns of masks and paired images.
    """

    main: str
    alternatives: Sequence[str]
    companions: Sequence[str]

    @property
    def names(self) -> frozenset[str]:
        """The names of all these columns."""
        return frozenset(filter(None, [self.main, *self.alternatives, *self.companions]))

    def find_main(self, row: Container[str]) -> str:
        """Returns the column that holds the image of a row, or an empty string."""
        for name in (self.main, *self.alternatives):
            if name in row:
                return name
        return ""


def _image_columns(images: Sequence[str]) -> ImageColumns:
    """Returns the columns of images among the selected columns; see `ColumnSelection`."""
    if not images:
        return ImageColumns("", (), ())
    main, *companions = images
    alternatives: list[str] = []
    if main in EXTENSIONS:
        alternatives = [name for name in EXTENSIONS if name not in images]
    return ImageColumns(main, alternatives, companions)


class Samples(ObjectFormat):
    """A format of tables that hold their images.

    A row without the main image has its image in an alternative column.
    """

    may_be_numbered = True

    @abc.abstractmethod
    def read_samples(
        self,
        listed: storage.Entry,
        file: IO[bytes],
        selection: ColumnSelection,
        images: ImageColumns,
    ) -> Iterator[dict[str, Any]]:
        """Yields the rows of a table.

        Files in image columns are entries, whatever the files hold.
        """

    def read_objects(
        self, path: str, file: IO[bytes], selection: ColumnSelection
    ) -> Iterator[dict[str, Any]]:
        if isinstance(file, gzip.GzipFile):
            raise ValueError(
                "is compressed as a whole, so its images cannot be read one by one; decompress it "
                "first"
            )
        images = _image_columns(selection.images)
        for row in self.read_samples(find_table(path), file, selection, images):
            for name in images.names & row.keys():
                row[name] = _check_image(row[name])
            found = images.find_main(row)
            if found:
                row[images.main] = row[found]
            yield row


def decode_text(data: bytes) -> str | bytes:
    """Returns a value or a file as a string, or as bytes if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _check_image(cell: Any) -> storage.Entry | BadCell:
    """Returns the image in a cell, or a `BadCell` that says what else it holds."""
    if isinstance(cell, storage.Entry | BadCell):
        return cell
    if isinstance(cell, list):
        content = f"a list of {len(cell)} values"
    else:
        content = f"{cell!r:.100}"
    return BadCell(f"holds {content}, not the bytes of a single image")
