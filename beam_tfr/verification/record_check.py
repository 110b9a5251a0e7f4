"""Checks a record: its features, and the image, array or file in it, against the manifest and its
options."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.dataset.elements import decode_mask
from beam_tfr.dataset.manifest import KEPT_FORMATS, Manifest
from beam_tfr.images import formats, keep, limits
from beam_tfr.images.geometry import compute_placement
from beam_tfr.images.source import SMALLEST, Source
from beam_tfr.options.image import ImageOptions
from beam_tfr.records.box_counts import add_boxes
from beam_tfr.records.examples import parse_example
from beam_tfr.records.repeats import hash_key
from beam_tfr.records.tensors import parse_tensor, serialize_tensor
from beam_tfr.schema import feature_names
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.encodings import FEATURES, IMAGE_ENCODINGS
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.plan import size_bucket
from beam_tfr.verification.report import TaskResult, quote

MAX_PIXELS = 1 << 27  # of a stored image, whatever option max_pixels allows
_SHA256_HEX = re.compile(rb"[0-9a-f]{64}")
_DTYPES: dict[str, type] = {"bytes": bytes, "int64": int, "float": float}
Values = Mapping[str, list[Any]]  # feature -> values


class RecordCheck:
    """Checks records against the manifest of their dataset."""

    def __init__(self, manifest: Manifest) -> None:
        self._types = {
            name: (
                _DTYPES[feature["dtype"]],
                None if -1 in feature["shape"] else math.prod(feature["shape"]),
            )
            for name, feature in manifest.features.items()
        }
        self._class_names = [name.encode("utf-8", "surrogatepass") for name in manifest.class_names]
        self._names = manifest.names
        self._has_boxes = feature_names.SIDES[0] in manifest.features
        self._points = manifest.points.values()
        self._each_box = {*manifest.box_features, feature_names.LABEL} & manifest.features.keys()
        self._multi_label = bool(manifest.options.get("multi_label"))
        self._may_lack_label = "label_column" in manifest.options
        self._options = manifest.image_options
        rows, columns = self._options.image_size
        self._limits = ImageOptions(
            max_pixels=min(MAX_PIXELS, max(self._options.max_pixels, rows * columns))
        )

    def __call__(self, record: bytes, found: TaskResult) -> tuple[list[str], Values | None]:
        """Checks a record, and adds it to what was found in its shard.

        Returns:
            Messages, each with what was found and what was expected; and the features of the
            record, None if they are not those of the manifest.
        """
        try:
            values = parse_example(record)
        except ValueError as error:
            return [str(error)], None
        problems = [*self._feature_problems(values)]
        if problems:
            return problems, None
        found.key_hashes += hash_key(values[self._names.key][0])
        if self._names.label in values:
            problems += self._label_problems(values[self._names.label], values[self._names.text])
            found.labels.update(
                label for label in values[self._names.label] if 0 <= label < len(self._class_names)
            )
        if self._has_boxes and not are_boxes(values, self._each_box, self._points):
            problems.append(
                "its boxes are not as many as their labels, masks or points, or reach out of the image"
            )
        elif self._has_boxes:
            add_boxes(found.boxes, values)
        if self._names.sha256 and not _SHA256_HEX.fullmatch(values[self._names.sha256][0]):
            problems.append(
                f"{self._names.sha256} is {quote(values[self._names.sha256][0])}, expected 64 hex digits"
            )
        if self._options.encoding == "bytes":
            problems += file_problems(
                values[feature_names.FILE_BYTES][0], values[feature_names.FILE_SHA256][0]
            )
        elif self._options.encoding == "array":
            dtype = values[feature_names.ARRAY_DTYPE][0].decode("latin-1")
            problems += tensor_problems(
                feature_names.ARRAY_RAW,
                values[feature_names.ARRAY_RAW][0],
                dtype,
                values[feature_names.ARRAY_SHAPE],
            )
        elif self._options.encoding in IMAGE_ENCODINGS:
            image = {
                name: found[0]
                for name, found in values.items()
                if name in FEATURES or name == feature_names.RAW
            }
            problems += option_problems(image, self._options)
            problems += image_problems(image, self._options, self._limits)
            size = image[feature_names.HEIGHT], image[feature_names.WIDTH]
            for companion in self._names.companions:
                problems += mask_problems(companion.key, values[companion.feature][0], size)
            for at, mask in enumerate(values.get(feature_names.OBJECT_MASK, ()), 1):
                problems += mask_problems(f"the mask of box {at}", mask, size, highest=1)
            found.pixels += image[feature_names.HEIGHT] * image[feature_names.WIDTH]
            found.source_sizes[
                size_bucket(image[feature_names.SOURCE_HEIGHT], image[feature_names.SOURCE_WIDTH])
            ] += 1
        return problems, values

    def _label_problems(self, labels: list[int], texts: list[bytes]) -> Iterator[str]:
        if self._may_lack_label and not self._multi_label and (labels, texts) == ([-1], [b""]):
            return
        known = [
            self._class_names[label] if 0 <= label < len(self._class_names) else None
            for label in labels
        ]
        if known != texts or (len(set(labels)) != len(labels) and not self._has_boxes):
            found = [text.decode("utf-8", "replace") for text in texts]
            yield f"its labels are {quote(labels)}, {quote(found)}, which are not those of the manifest, each once"

    def _feature_problems(self, record: dict[str, list[Any]]) -> Iterator[str]:
        if record.keys() != self._types.keys():
            for name in sorted(self._types.keys() - record.keys()):
                yield f"feature {quote(name)} is missing"
            for name in sorted(record.keys() - self._types.keys())[:10]:
                yield f"feature {quote(name)} is not in the manifest"
            return
        for name, (kind, count) in self._types.items():
            values = record[name]
            if (count is not None and len(values) != count) or (
                values and type(values[0]) is not kind
            ):
                found = f"{len(values)} of {type(values[0]).__name__}" if values else "empty"
                number = "any number" if count is None else count
                yield f"feature {quote(name)} is {found}, expected {number} of {kind.__name__}"


def mask_problems(
    name: str, data: bytes, size: tuple[int, int], *, highest: int = 0xFFFF
) -> Iterator[str]:
    """Yields what is wrong with a mask, or another companion, of an image of a size (height,
    width).

    Args:
        name: what problems call it.
        data: the stored PNG.
        size: of the image.
        highest: the highest value that its pixels may have.
    """
    try:
        if decode_mask(data, size).max() > highest:
            yield f"{name} has values above {highest}"
    except ValueError as error:
        yield f"{name}: {error}"


def are_boxes(
    values: Mapping[str, Sequence[Any]],
    each_box: Iterable[str],
    points: Iterable[Sequence[str]] = (),
) -> bool:
    """Whether boxes are inside of the image, and as many as the values for each, and points as many
    as these say.

    Args:
        values: of a record.
        each_box: the features with a value for each box.
        points: the features of each column of points, as in `Manifest.points`.
    """
    xmin, ymin, xmax, ymax = (values[side] for side in feature_names.SIDES)
    sides = [*zip(xmin, xmax, strict=False), *zip(ymin, ymax, strict=False)]
    are_inside = len({len(values[name]) for name in each_box}) == 1 and all(
        0 <= low <= high <= 1 for low, high in sides
    )
    return are_inside and all(
        {sum(values[num])} == {len(values[part]) for part in parts} for *parts, num in points
    )


def option_problems(record: Mapping[str, Any], options: ImageOptions) -> Iterator[str]:
    """Yields statements of a record about its image and source that contradict the options."""
    kept = options.encoding == "keep"
    forms = [
        form
        for form in KEPT_FORMATS
        if form.encode() in (record[feature_names.SOURCE_FORMAT], b"jpeg", b"png")
    ]
    expected: dict[str, Iterable[Any]] = {
        feature_names.CHANNELS: {"gray": (1,), "keep": (1, 3)}.get(
            options.color, (1, 3) if kept else (3,)
        ),
        feature_names.COLORSPACE: [b"Gray" if record[feature_names.CHANNELS] == 1 else b"RGB"],
        feature_names.FORMAT: [form.encode() for form in (forms if kept else (options.encoding,))],
        feature_names.SOURCE_FORMAT: [form.encode() for form in formats.FORMATS],
    }
    source = record[feature_names.SOURCE_HEIGHT], record[feature_names.SOURCE_WIDTH]
    if min(source) < 1:
        yield f"the source is {source[0]}x{source[1]} by its record, expected at least 1x1"
    else:
        canvas = compute_placement(
            *source, options.image_size, options.resize, upscale=options.upscale
        ).canvas
        expected |= {feature_names.HEIGHT: canvas[:1], feature_names.WIDTH: canvas[1:]}
    yield from _differences(record, expected, "options")


def _differences(
    record: Mapping[str, Any], expected: Mapping[str, Iterable[Any]], by: str
) -> Iterator[str]:
    for name, values in expected.items():
        if record[name] not in values:
            yield f"{name} is {quote(record[name])}, expected {' or '.join(map(quote, values))} by the {by}"


def image_problems(
    record: Mapping[str, Any], options: ImageOptions, limited: ImageOptions
) -> Iterator[str]:
    """Yields what is wrong with the encoded image of a record.

    Args:
        record: `ENCODED` or `RAW`, `FORMAT` (bytes), `HEIGHT`, `WIDTH`, `CHANNELS` (int).
        options: options of the dataset.
        limited: limits of images that are decoded; others are also a problem.
    """
    if options.encoding == "raw":
        shape = [
            record[feature_names.HEIGHT],
            record[feature_names.WIDTH],
            record[feature_names.CHANNELS],
        ]
        yield from tensor_problems(feature_names.RAW, record[feature_names.RAW], "uint8", shape)
        return
    data = record[feature_names.ENCODED]
    try:
        name = formats.identify(data)
    except RejectError:
        name = ""
    if name not in KEPT_FORMATS:
        found = data[:8].hex(" ") or "nothing"
        yield f"{feature_names.ENCODED} begins with {found}, expected an image ({', '.join(KEPT_FORMATS)})"
        return
    try:
        source = formats.FORMATS[name].open(data)
        limits.check_header(source, limited)
        with limits.BUDGET.hold(source.memory(SMALLEST), limited.max_decode_bytes):
            problems = list(_pixel_problems(record, source, options))
        yield from problems
        if options.encoding == "keep" and not problems and not keep.is_readable(data, source):
            yield "the image is of a kind that TensorFlow refuses or misreads"
    except RejectError as error:
        yield f"the image is not decoded to its end: {quote(error.detail)}"


def _pixel_problems(
    record: Mapping[str, Any], source: Source, options: ImageOptions
) -> Iterator[str]:
    decoded = source.decode(SMALLEST)
    actual: dict[str, Iterable[Any]] = {
        feature_names.FORMAT: [source.format.encode()],
        feature_names.HEIGHT: [source.height],
        feature_names.WIDTH: [source.width],
        feature_names.CHANNELS: [decoded.pixels.shape[2]],
    }
    yield from _differences(record, actual, "image")
    unexpected = {
        "transparent pixels": decoded.alpha is not None,
        f"{decoded.bits} bits a sample": decoded.bits > 8,
        # Pictures that follow a JPEG are never read.
        f"{source.frames} frames": source.frames > 1 and source.format != "jpeg",
        f"the EXIF orientation {source.orientation}": source.orientation != 1
        and not options.ignore_orientation,
    }
    yield from (f"the image has {what}" for what, is_there in unexpected.items() if is_there)


def file_problems(data: bytes, sha256: bytes) -> Iterator[str]:
    """Yields a problem if the bytes of a file do not have the SHA-256 of their record."""
    if sha256_hex(data).encode() != sha256:
        yield f"{feature_names.FILE_BYTES} has the SHA-256 {sha256_hex(data)}, but {feature_names.FILE_SHA256} is {quote(sha256)}"


def tensor_problems(name: str, data: bytes, dtype: str, shape: Sequence[int]) -> Iterator[str]:
    """Yields a problem unless the bytes are what `tf.io.serialize_tensor` makes of a tensor of this
    dtype and shape."""
    parsed = parse_tensor(data)
    if parsed is None or parsed[:2] != (dtype, [*shape]) or serialize_tensor(*parsed) != data:
        yield f"{name} is not a serialized {quote(dtype)} tensor of shape {quote([*shape])}"
