"""Reads a dataset of TensorFlow Datasets as a table, given its dataset_info.json.

`features.json` in the same folder says which feature is the image and which is the class, and
`FEATURE.labels.txt` names the classes. TensorFlow Datasets itself is not needed. See
https://www.tensorflow.org/datasets/external_tfrecord.
"""

import codecs
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.inputs.class_files import read_classes
from beam_tfr.inputs.skipped import SkippedFiles
from beam_tfr.layouts.name_pattern import MOST_CHARACTERS
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.dataset import MOST_SHARDS
from beam_tfr.schema.errors import DataError
from beam_tfr.tables.base import Row, skip_bad_rows, table_error
from beam_tfr.tables.content import SPLIT, TableContent, select_implied
from beam_tfr.tables.formats import read_columns, read_rows

_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_MOST_BYTES = 32 << 20  # 32 MiB of a file that describes a dataset
_MOST_CLASSES = 1_000_000
_Fields = TypeVar("_Fields", bound=msgspec.Struct)


class _Split(msgspec.Struct, rename="camel"):
    name: str
    shard_lengths: list[int]
    filepath_template: str = ""


class _Info(msgspec.Struct, rename="camel"):
    """The fields of dataset_info.json that are read.

    `supervised_keys` holds nested tuples and dicts, whose only string values are names of features.
    """

    name: str
    splits: list[_Split]
    file_format: str = "tfrecord"
    supervised_keys: Any = None


class _ClassLabel(msgspec.Struct, rename="camel"):
    num_classes: int


class _Feature(msgspec.Struct, rename="camel"):
    """A feature, whose type is the name of the field that is present."""

    image: Any = msgspec.UNSET
    class_label: _ClassLabel | msgspec.UnsetType = msgspec.UNSET


class _FeaturesDict(msgspec.Struct):
    features: dict[str, _Feature]


class _Features(msgspec.Struct, rename="camel"):
    """The fields of features.json that are read."""

    features_dict: _FeaturesDict


class _Shard(NamedTuple):
    """A file of records, with its split and the number of records that dataset_info.json states."""

    split: str
    num_records: int


class _Description(NamedTuple):
    """The findings in the files next to the shards.

    Attributes:
        shards: path -> shard, for shards with records.
        image: the feature of the images.
        label: the feature of the images' classes, or an empty string.
        class_names: the names of classes, by their ids.
    """

    shards: Mapping[str, _Shard]
    image: str
    label: str
    class_names: Sequence[str]


def open_tfds(options: ConvertOptions, path: str) -> TableContent:
    """Returns the content of a dataset, given the path of its dataset_info.json.

    Raises:
        DataError: the files that describe the dataset are damaged, or the dataset has no images in
            TFRecords.
        UsageError: a file cannot be read.
    """
    try:
        dataset = _read_description(path)
    except OSError as error:
        problem = f"cannot be read: {error.filename or ''} {error.strerror or error}"
        raise table_error(path, problem) from error
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise DataError(
            "does not describe images in TFRecords as TensorFlow Datasets does: "
            f"{str(error)[:500]}",
            option="table",
            value=path,
        ) from None
    implied = {
        "uri_column": dataset.image,
        "label_column": dataset.label,
        "split_column": SPLIT,
    }
    options = dataclasses.replace(options, **select_implied(options, implied))
    files = tuple(dataset.shards)
    shards = _Shards(dataset, options.uri_column)
    return TableContent(
        options,
        files,
        columns=[*read_columns(files[0], 1), SPLIT],
        read_rows=shards.read_rows,
        class_names=dataset.class_names if options.label_column == dataset.label else (),
    )


def _read_description(path: str) -> _Description:
    """Reads the files that describe a dataset.

    Raises:
        ValueError, MsgspecError, RecursionError: the files are damaged, or there are no images in
            TFRecords.
        OSError: a file cannot be read.
    """
    folder = path.rpartition("/")[0]
    info = _read_json(path, _Info)
    features = _read_json(f"{folder}/features.json", _Features).features_dict.features
    supervised = {*_texts_in(info.supervised_keys)}
    names = sorted(features, key=lambda name: name not in supervised)
    images = [name for name in names if features[name].image is not msgspec.UNSET]
    if not images:
        raise ValueError(f"there is no Image among the features {', '.join(names)[:300]}")
    shards = {f"{folder}/{name}": shard for name, shard in _list_shards(info)}
    if not shards:
        raise ValueError("there are no records")
    for name in names:
        label = features[name].class_label
        if label:
            class_names = _read_class_names(folder, name, label)
            return _Description(shards, images[0], name, class_names)
    return _Description(shards, images[0], "", ())


def _read_json(path: str, fields: type[_Fields]) -> _Fields:
    data = storage.read_bytes(path, max_bytes=_MOST_BYTES)
    return msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8), type=fields, strict=False)


def _texts_in(value: Any) -> Iterator[str]:
    """Yields the strings in a JSON value, except for names of fields."""
    match value:
        case str():
            yield value
        case dict():
            yield from _texts_in(list(value.values()))
        case list():
            for part in value:
                yield from _texts_in(part)


def _read_class_names(folder: str, feature: str, label: _ClassLabel) -> Sequence[str]:
    path = f"{folder}/{feature.replace('/', '.')}.labels.txt"
    if storage.find(path):
        return read_classes(path)
    return [str(number) for number in range(min(label.num_classes, _MOST_CLASSES))]


def _list_shards(info: _Info) -> Iterator[tuple[str, _Shard]]:
    """Yields the file name of each shard with records, along with the shard.

    Raises:
        ValueError: the files are not TFRecords, or not in the folder of the dataset.
    """
    num_shards = sum(len(split.shard_lengths) for split in info.splits)
    if num_shards > MOST_SHARDS:
        raise ValueError(f"there are {num_shards:,} shards, but at most {MOST_SHARDS:,} are read")
    for split in info.splits:
        template = _fill_template(info, split)
        num_shards = len(split.shard_lengths)
        for number, num_records in enumerate(split.shard_lengths):
            if num_records:
                name = template.replace("{SHARD_X_OF_Y}", f"{number:05d}-of-{num_shards:05d}")
                yield name, _Shard(split.name, num_records)


def _fill_template(info: _Info, split: _Split) -> str:
    """Returns the name of a split's files, with a placeholder for the number of a file.

    Raises:
        ValueError: the files are not TFRecords, or not in the folder of the dataset.
    """
    template = split.filepath_template or _TEMPLATE
    parts = {"{DATASET}": info.name, "{SPLIT}": split.name, "{FILEFORMAT}": info.file_format}
    longest = max(map(len, (template, *parts.values())))
    if longest <= MOST_CHARACTERS:
        for field, text in parts.items():
            template = template.replace(field, text)
    is_name = max(longest, len(template)) <= MOST_CHARACTERS and "/" not in template
    if not is_name or info.file_format != "tfrecord":
        raise ValueError(f"{template[:100]} is not a name of TFRecord files in its folder")
    return template


@dataclasses.dataclass(frozen=True)
class _Shards:
    """The shards of a dataset, with the column of their images."""

    dataset: _Description
    image_column: str

    def read_rows(self, path: str, columns: Sequence[str], skipped: SkippedFiles) -> Iterator[Row]:
        """Yields the rows of a shard, with the name of the split and the class names of the rows.

        Raises:
            DataError: the number of records differs from that in dataset_info.json.
        """
        shard = self.dataset.shards[path]
        label = self.dataset.label
        names = {"-1": "", "None": ""}  # no class
        names |= {str(number): name for number, name in enumerate(self.dataset.class_names)}
        number = 0
        rows = read_rows(path, columns, skipped, images=[self.image_column])
        for number, cells in skip_bad_rows(rows):
            row = dict(zip(columns, cells, strict=True))
            row[SPLIT] = shard.split
            if label in row:
                row[label] = _name_class(row[label], names)
            yield number, [row[name] for name in columns]
        if number != shard.num_records:
            raise DataError(
                f"has {number:,} records, but dataset_info.json says {shard.num_records:,}; "
                "copy the dataset again",
                option="table",
                value=path,
            )


def _name_class(cell: Any, names: Mapping[str, str]) -> str | BadCell:
    """Returns the class with an id, which is a number or a string."""
    try:
        return names[str(cell)]
    except KeyError:
        return BadCell(f"{cell!r:.60} is not the id of a class")
