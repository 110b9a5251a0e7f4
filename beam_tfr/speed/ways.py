"""Defines methods to read images for training: methods of tutorials, and of this package.

Each method yields batches without end. All methods need TensorFlow, and one method also needs
PyTorch.
"""

import functools
import importlib.util
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from beam_tfr import storage
from beam_tfr.dataset.elements import check_pixels
from beam_tfr.dataset.image_sides import count_pixels
from beam_tfr.dataset.manifest import Manifest, check_shard_files
from beam_tfr.reader.headers import check_header
from beam_tfr.reader.loading import check_access, load
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile, max_record_bytes_in
from beam_tfr.schema import feature_names
from beam_tfr.schema.errors import DataError

BATCH_SIZE = 64
MOST_DECODED = 1000  # images that are decoded from memory
MOST_CHECKED = 256  # images whose headers are read before all others
SHUFFLED = 2048  # records in the shuffle buffer of a tutorial
_DECODED_BY_TENSORFLOW = ("jpeg", "png")


class Way(NamedTuple):
    """A method of reading.

    Attributes:
        name: name of the method in the table.
        start: returns an iterator over endless batches.
        warm_up: number of images to read first, for example to fill a cache, until the speed equals
            that of later epochs.
        problem: why the method cannot be used here; an empty string if it can.
    """

    name: str
    start: Callable[[], Iterator[Any]]
    warm_up: int = 0
    problem: str = ""


def ways_of_files(paths: Sequence[str], size: tuple[int, int] | None, cache: str) -> Iterator[Way]:
    """Returns methods to read image files.

    Args:
        paths: paths of JPEG, PNG, GIF or BMP files.
        size: height and width of the images; None leaves them as they are.
        cache: path of the file that a cache is written to.
    """
    files = tf.data.Dataset.from_tensor_slices(list(paths))
    problem = _find_problem(paths[0])

    def read(path: Any) -> Any:
        return _decode(tf.io.read_file(path), size)

    one_by_one = files.map(read).repeat()
    parallel = files.map(read, num_parallel_calls=tf.data.AUTOTUNE)
    yield _tensorflow_way("files, one by one", _in_batches(one_by_one, size), problem)
    in_parallel = _in_batches(parallel.repeat(), size, prefetch=True)
    yield _tensorflow_way("files, parallel", in_parallel, problem)
    for place, name in (("", "memory"), (cache, "a file")):
        batches = _in_batches(parallel.cache(place).repeat(), size, prefetch=True)
        cached = _tensorflow_way(f"files, cached in {name}", batches, problem)
        yield cached._replace(warm_up=len(paths))


def ways_of_dataset(dataset: Manifest, split: str) -> Iterator[Way]:
    """Returns methods to read the images in a split."""
    options = dataset.image_options
    size = options.stored_size
    folder = dataset.folder
    problem = _find_problem(dataset.digest_location.path)
    if options.encoding in _DECODED_BY_TENSORFLOW:
        for batch_size in (1, BATCH_SIZE):
            records = _tutorial(dataset, split, batch_size)
            yield _tensorflow_way(f"TFRecords, tutorial, batch {batch_size}", records, problem)
    shared: dict[str, Any] = {
        "split": split,
        "batch_size": BATCH_SIZE,
        "shuffle": True,
        "repeat": True,
    }
    sizes = None if size else "ragged"
    yield Way("load", lambda: iter(load(folder, sizes=sizes, **shared)), problem=problem)
    if importlib.util.find_spec("torch") and size:
        yield Way("ImageDataset (PyTorch)", lambda: _torch_batches(folder, split))
    encoded = functools.partial(load, folder, output="encoded", **shared)
    yield Way("load, without decoding", lambda: iter(encoded()), problem=problem)
    if options.encoding in _DECODED_BY_TENSORFLOW:
        yield Way("decoding alone", lambda: iter(_decoding_alone(dataset, split)))


def _find_problem(path: str) -> str:
    """Returns why TensorFlow cannot read a path on gs://, or an empty string if it can."""
    try:
        check_access(path)
    except DataError as error:
        return str(error)
    return ""


def _tensorflow_way(name: str, batches: Any, problem: str) -> Way:
    return Way(name, lambda: iter(batches), problem=problem)


def _decode(encoded: Any, size: tuple[int, int] | None) -> Any:
    """Decodes the pixels of an image, as tutorials do."""
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    if size is None:
        return image
    return tf.ensure_shape(tf.image.resize(image, size), [*size, 3])


def _in_batches(images: Any, size: tuple[int, int] | None, *, prefetch: bool = False) -> Any:
    batches = images.batch(BATCH_SIZE) if size else images.ragged_batch(BATCH_SIZE)
    return batches.prefetch(tf.data.AUTOTUNE) if prefetch else batches


def _records(dataset: Manifest, split: str) -> Any:
    paths = [storage.join(dataset.folder, shard.file) for shard in dataset.splits[split].shards]
    compression = "GZIP" if dataset.compression == "gzip" else ""
    return tf.data.TFRecordDataset(paths, compression, num_parallel_reads=tf.data.AUTOTUNE)


def _parse(record: Any) -> Any:
    features = {feature_names.ENCODED: tf.io.FixedLenFeature([], tf.string)}
    return tf.io.parse_single_example(record, features)[feature_names.ENCODED]


def _tutorial(dataset: Manifest, split: str, batch_size: int) -> Any:
    """Reads as in tutorials: images are shuffled, parsed and decoded one by one."""
    size = dataset.image_options.stored_size
    form = dataset.image_options.encoding
    most_pixels = dataset.image_options.most_stored_pixels

    def read(record: Any) -> Any:
        encoded = _parse(record)
        checked = check_header(encoded, form, most_pixels)
        image = tf.io.decode_image(checked, channels=3, expand_animations=False)
        return tf.cast(image, tf.float32) / 255.0

    records = _records(dataset, split).repeat().shuffle(SHUFFLED)
    images = records.map(read, num_parallel_calls=tf.data.AUTOTUNE)
    batches = images.batch(batch_size) if size else images.ragged_batch(batch_size)
    return batches.prefetch(tf.data.AUTOTUNE)


def _decoding_alone(dataset: Manifest, split: str) -> Any:
    """Decodes images from memory, and puts them into batches."""
    size = dataset.image_options.stored_size
    encoded = [*itertools.islice(_encoded_images(dataset, split), MOST_DECODED)]

    def decode(data: Any) -> Any:
        return tf.io.decode_image(data, channels=3, expand_animations=False)

    images = tf.data.Dataset.from_tensor_slices(encoded).repeat()
    decoded = images.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    return _in_batches(decoded, size, prefetch=True)


def check_images(dataset: Manifest, split: str) -> None:
    """Checks the first images in a split, before TensorFlow reads the files.

    Raises:
        DataError: a file is damaged or has the wrong size, or an image has too many pixels.
    """
    check_shard_files(dataset, [dataset.splits[split]])
    if dataset.image_options.encoding in _DECODED_BY_TENSORFLOW:
        for _ in itertools.islice(_encoded_images(dataset, split), MOST_CHECKED):
            pass


def _encoded_images(dataset: Manifest, split: str) -> Iterator[bytes]:
    """Yields the encoded images in a split, without TensorFlow.

    Raises:
        DataError: a file is damaged, or an image has too many pixels.
    """
    form = dataset.image_options.encoding
    most_pixels = dataset.image_options.most_stored_pixels
    for shard in dataset.splits[split].shards:
        path = storage.join(dataset.folder, shard.file)
        longest = max_record_bytes_in(shard.num_bytes)
        for number, record in enumerate(RecordFile(path, max_record_bytes=longest)):
            try:
                (encoded,) = parse_example(record)[feature_names.ENCODED]
                check_pixels(count_pixels(encoded, form), most_pixels)
            except (LookupError, TypeError, ValueError) as error:
                raise DataError(f"{path}: record {number}: {error}") from None
            yield encoded


def _torch_batches(folder: str, split: str) -> Iterator[Any]:
    from beam_tfr.torch import ImageDataset

    batches = ImageDataset(folder, split=split, batch_size=BATCH_SIZE, shuffle=True)
    return itertools.chain.from_iterable(itertools.repeat(batches))
