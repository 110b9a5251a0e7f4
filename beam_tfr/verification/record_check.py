"""Checks a record against the manifest of its dataset, and the options in the manifest."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.split_notes import HASH_BYTES, NO_HASH, encode_label
from beam_tfr.features.objects import object_problems
from beam_tfr.options.image import ImageOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.records.repeats import hash_key
from beam_tfr.schema import feature_names
from beam_tfr.schema.feature_names import FeatureSpec
from beam_tfr.schema.plan import size_bucket
from beam_tfr.schema.untrusted import quote
from beam_tfr.verification.image_check import image_problems, option_problems
from beam_tfr.verification.payload_check import array_problems, file_problems
from beam_tfr.verification.report import TaskResult

MAX_PIXELS = 1 << 27  # in a stored image, whatever the option max_pixels allows
_SHA256_HEX = re.compile(rb"[0-9a-f]{64}")
_DTYPES: dict[str, type] = {"bytes": bytes, "int64": int, "float": float}
Values = Mapping[str, list[Any]]  # feature -> values


class _Expected(NamedTuple):
    """The type and number of the values that a feature must hold; None means any number."""

    kind: type
    number: int | None

    @classmethod
    def of_spec(cls, spec: FeatureSpec) -> "_Expected":
        """Returns what the values of a feature must be."""
        number = None if -1 in spec.shape else math.prod(spec.shape)
        return cls(_DTYPES[spec.dtype], number)

    def is_met(self, values: list[Any]) -> bool:
        """Whether a feature has such values."""
        if self.number is not None and len(values) != self.number:
            return False
        return not values or type(values[0]) is self.kind

    def describe(self) -> str:
        """Describes the expected values for messages."""
        number = "any number" if self.number is None else self.number
        return f"{number} of {self.kind.__name__}"


class RecordCheck:
    """Checks records against the manifest of their dataset."""

    def __init__(self, manifest: Manifest) -> None:
        specs = manifest.feature_specs
        self._expected = {name: _Expected.of_spec(spec) for name, spec in specs.items()}
        self._label_ids = range(len(manifest.class_names))
        self._names = manifest.names
        self._features = manifest.feature_kinds
        self._options = manifest.image_options
        height, width = self._options.image_size
        most_pixels = max(self._options.max_pixels, height * width)
        self._limits = ImageOptions(max_pixels=min(MAX_PIXELS, most_pixels))

    @property
    def has_sources(self) -> bool:
        """Whether records state which file they were made from."""
        return bool(self._names.sha256)

    def __call__(self, record: bytes, result: TaskResult) -> tuple[list[str], Values | None]:
        """Checks a record, and adds it to the result of its shard.

        Returns:
            Messages, each with the actual and the expected value, and the features of the record,
            which are None if they do not match the manifest.
        """
        try:
            values = parse_example(record)
        except ValueError as error:
            return [str(error)], None
        problems = [*self._feature_problems(values)]
        if problems:
            return problems, None
        result.key_hashes += hash_key(values[self._names.key][0])
        labels = values.get(self._names.label, ())
        result.labels.update(label for label in labels if label in self._label_ids)
        problems += self._kind_problems(values, result)
        problems += self._digest_problems(values, result)
        problems += self._payload_problems(values, result)
        return problems, values

    def _feature_problems(self, record: Values) -> Iterator[str]:
        """Yields features that are missing, unknown, or have wrong values."""
        missing = self._expected.keys() - record.keys()
        unknown = record.keys() - self._expected.keys()
        for name in sorted(missing):
            yield f"feature {quote(name)} is missing"
        for name in sorted(unknown)[:10]:
            yield f"feature {quote(name)} is not in the manifest"
        if missing or unknown:
            return
        for name, expected in self._expected.items():
            values = record[name]
            if not expected.is_met(values):
                actual = _describe_values(values)
                yield f"feature {quote(name)} is {actual}, expected {expected.describe()}"

    def _kind_problems(self, values: Values, result: TaskResult) -> Iterator[str]:
        """Yields what is wrong with labels, columns and companions; counts boxes and masks."""
        height = sum(values.get(feature_names.HEIGHT, ()))
        width = sum(values.get(feature_names.WIDTH, ()))
        problems = list[str]()
        if height * width > self._limits.max_pixels:
            return  # masks of this size are not decoded; the size of the image is a problem
        for kind in self._features.kinds:
            problems += kind.problems(values, (height, width))
        if self._features.boxes:
            problems += object_problems(values, self._features.kinds)
        if self._features.is_counted and not problems:
            self._features.count(result.counted, values, None)
        yield from problems

    def _digest_problems(self, values: Values, result: TaskResult) -> Iterator[str]:
        """Yields what is wrong with the SHA-256 of the source, and adds it to the result."""
        name = self._names.sha256
        for sha256 in values.get(name, ()):
            result.source_labels += encode_label(values.get(self._names.label, ()))
            if _SHA256_HEX.fullmatch(sha256):
                result.source_hashes += bytes.fromhex(sha256[: 2 * HASH_BYTES].decode())
            else:
                result.source_hashes += NO_HASH
                yield f"{name} is {quote(sha256)}, expected 64 hex digits"

    def _payload_problems(self, values: Values, result: TaskResult) -> Iterator[str]:
        """Yields what is wrong with the image, file or array; rows have none of these."""
        match self._options.encoding:
            case "row":
                return
            case "bytes":
                yield from file_problems(values)
            case "array":
                yield from array_problems(values)
            case _:
                yield from self._image_problems(values, result)

    def _image_problems(self, values: Values, result: TaskResult) -> Iterator[str]:
        image = {name: values[name][0] for name in self._features.fixed}
        yield from option_problems(image, self._options)
        yield from image_problems(image, self._options, self._limits)
        result.pixels += image[feature_names.HEIGHT] * image[feature_names.WIDTH]
        source_height = image[feature_names.SOURCE_HEIGHT]
        source_width = image[feature_names.SOURCE_WIDTH]
        bucket = size_bucket(source_height, source_width)
        result.source_sizes[bucket] += 1


def _describe_values(values: list[Any]) -> str:
    """Describes the values of a feature for messages."""
    if not values:
        return "empty"
    return f"{len(values)} of {type(values[0]).__name__}"
