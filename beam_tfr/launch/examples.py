"""Finds the items that summaries show as examples of how the input was read."""

import contextlib
import itertools

from beam_tfr import storage
from beam_tfr.dataset.base import planned_shards
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.dataset.read_items import MOST_ITEMS, ReadItem, build_item
from beam_tfr.features.companions import Companion
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.output.known import read_sources
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.encoded_ref import key_of, to_bytes, to_text
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.pair_paths import fill_path
from beam_tfr.sources import Input
from beam_tfr.tables.rows import file_of

_FAILURES = (BeamTfrError, OSError, ValueError, LookupError)


def read_items(dataset: Manifest, source: Input) -> list[ReadItem]:
    """Reads the first item of each of the first splits in a finished dataset.

    An item that cannot be read is left out, since the dataset is complete without a summary.
    """
    items = []
    filled = [name for name in sort_splits(dataset.splits) if dataset.splits[name].num_examples]
    for name in filled[:MOST_ITEMS]:
        with contextlib.suppress(*_FAILURES):
            items.append(_read_first(dataset, name, source))
    return items


def _read_first(dataset: Manifest, split: str, source: Input) -> ReadItem:
    """Reads the first item of a split.

    Raises:
        BeamTfrError, OSError, ValueError, LookupError: the item cannot be read.
    """
    features = dataset.feature_kinds
    shard = next(shard for shard in dataset.splits[split].shards if shard.num_examples)
    path = storage.join(dataset.folder, shard.file)
    (record,) = itertools.islice(RecordFile(path), 1)
    stored = parse_example(record)
    key = to_text(b"".join(stored.get(features.names.key, ())))
    ref = ImageRef(key, 0, 0, split)
    if any(not companion.path for companion in features.companions):
        ref = _find_ref(dataset, shard, ref)
    files = name_files(ref, features, source.root)
    return build_item(stored, split=split, features=features, places=source.places, files=files)


def _find_ref(dataset: Manifest, entry: ShardEntry, ref: ImageRef) -> ImageRef:
    """Returns the reference that a record was made from, with the columns of its row.

    Returns `ref` if that reference is not known.

    Args:
        dataset: the dataset.
        entry: the shard with the record.
        ref: a reference with the same key.
    """
    shard = next(shard for shard in planned_shards(dataset) if shard.entry == entry)
    key = to_bytes(ref.key)
    for source in read_sources(dataset.folder, shard) or ():
        if key_of(source.ref) == key:
            return ImageRef.decode(source.ref)
    return ref


def name_files(ref: ImageRef, features: FeaturesDict, root: str) -> dict[str, str]:
    """Returns the file of each mask and paired image of an image, by the name that readers use.

    An empty name stands for a file that is optional and missing.

    Args:
        ref: a reference to the image.
        features: the features of the dataset.
        root: the folder that keys are relative to, with a trailing slash.
    """
    files = {}
    for companion in features.companions:
        with contextlib.suppress(*_FAILURES):
            files[companion.key] = _name_file(ref, companion, root)
    return files


def _name_file(ref: ImageRef, companion: Companion, root: str) -> str:
    """Returns the name of the file of a mask or a paired image; see `name_files`."""
    file = file_of(ref, root=root, companion=companion)
    if not companion.path:
        return file.path.removeprefix(root)
    if companion.is_optional and storage.find(file.path) is None:
        return ""
    return fill_path(companion.path, ref.key)
