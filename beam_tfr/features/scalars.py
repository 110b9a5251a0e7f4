"""Defines numbers and strings: one, a list of any length, or one for each box."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Self

from beam_tfr.features.base import ColumnKind, Stored, Values
from beam_tfr.features.cells import CONVERTERS, check_cell, is_missing, split_cell
from beam_tfr.features.elements import ElementSpec, Request, StoredExample, count_stored
from beam_tfr.schema.feature_names import SOURCE_SIDES, FeatureSpec

_ARROW_TYPES = {"int64": "int64", "float": "float", "bytes": "string"}


class Extent(StrEnum):
    """The number of values that a cell holds, as written in a declaration."""

    ONE = ""
    LIST = "[]"
    EACH_BOX = "[box]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scalar(ColumnKind):
    """Numbers or strings: `int64`, `float=nan`, `bytes[]`, `int64[box]`.

    Attributes:
        dtype: "int64", "float" or "bytes".
        extent: how many values a cell holds.
        default: a string for cells without a value; None rejects their rows.
    """

    dtype: str
    extent: Extent = Extent.ONE
    default: str | None = None

    declaration = re.compile(
        r"(?P<dtype>int64|float|bytes)(?P<extent>\[(?:box)?\])?(?:=(?P<default>.*))?", re.DOTALL
    )
    usage = "int64, float, bytes, also with [], [box] or =VALUE"
    example_defaults: ClassVar[Mapping[str, str]] = {"int64": "-1", "float": "nan", "bytes": ""}
    is_plain = True

    @classmethod
    def from_match(cls, name: str, match: re.Match[str]) -> Self:
        feature = cls(
            name=name,
            text=match.string,
            dtype=match["dtype"],
            extent=Extent(match["extent"] or ""),
            default=match["default"],
        )
        feature.check_default()
        return feature

    def check_default(self) -> None:
        """Checks that a default is declared for a single value, and matches the type of the value.

        Raises:
            ValueError: the default does not match, or the cell holds a list.
        """
        if self.default is None:
            return
        if self.extent is not Extent.ONE:
            raise ValueError(
                f"{self.text!r}: a list has no default; rows without a value get an empty list"
            )
        try:
            self.convert(self.default)
        except ValueError as error:
            raise ValueError(f"{self.text!r}: its default {error}") from None

    @property
    def per_box(self) -> bool:
        return self.extent is Extent.EACH_BOX

    def beside_boxes(self, form: str) -> "Scalar":
        if self.name in SOURCE_SIDES:
            return SourceSide(
                name=self.name,
                text=self.text,
                dtype=self.dtype,
                extent=self.extent,
                default=self.default,
            )
        return self

    @functools.cached_property
    def specs(self) -> Mapping[str, FeatureSpec]:
        shape = () if self.extent is Extent.ONE else (-1,)
        return {self.name: FeatureSpec(self.dtype, shape)}

    def parse(self, cell: Any) -> list[Any]:
        if self.extent is not Extent.ONE:
            return [self.convert(part) for part in split_cell(cell)]
        check_cell(cell)
        if not self.is_empty(cell):
            return [self.convert(cell)]
        if self.default is not None:
            return [self.convert(self.default)]
        kind = self.text.partition("(")[0]
        example = f"{kind}={self.example_defaults[kind]}"
        raise ValueError(f"has no value; declare a default, such as {example}, or a list: {kind}[]")

    def is_empty(self, cell: Any) -> bool:
        """Whether a cell has no value; an empty string is a value for bytes."""
        return cell is None or (self.dtype != "bytes" and is_missing(cell))

    def convert(self, part: Any) -> int | float | bytes:
        """Converts a member of a cell to its value.

        Raises:
            ValueError: the member does not match the declaration.
        """
        return CONVERTERS[self.dtype](part)

    def encode(self, values: list[Any]) -> Values:
        return {self.name: (self.dtype, values)}

    def is_decoded(self, request: Request) -> bool:
        return self.per_box and request.has_objects

    def elements(self, request: Request) -> dict[str, ElementSpec]:
        return {self.name: ElementSpec.of_feature(self.specs[self.name])}

    def decode(
        self, example: StoredExample, size: tuple[int, int], request: Request
    ) -> dict[str, Any]:
        values = example.values(self.name, self.dtype, count_stored(example))
        return {self.name: self.elements(request)[self.name].value(values)}

    def to_cell(self, stored: Stored) -> Any:
        values = [self.as_part(value) for value in stored[self.name]]
        return values[0] if self.extent is Extent.ONE else values

    def as_part(self, value: Any) -> Any:
        """Returns the member of a cell that represents a value."""
        return value

    def export(self, stored: Stored) -> dict[str, Any]:
        values = [_as_json(value) for value in stored[self.name]]
        return {self.export_key: values[0] if self.extent is Extent.ONE else values}

    def arrow_types(self) -> dict[str, Any]:
        import pyarrow as pa

        kind = pa.type_for_alias(_ARROW_TYPES[self.dtype])
        return {self.export_key: kind if self.extent is Extent.ONE else pa.list_(kind)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Enum(Scalar):
    """Members of a fixed list, each stored as its index: `enum(s|m|l)=m`.

    Attributes:
        members: the members, in order.
    """

    members: tuple[str, ...] = ()

    declaration = re.compile(
        r"enum\((?P<members>[^()]+)\)(?P<extent>\[(?:box)?\])?(?:=(?P<default>.*))?", re.DOTALL
    )
    usage = "enum(a|b|…), likewise"
    example_defaults: ClassVar[Mapping[str, str]] = {"enum": "MEMBER"}
    is_plain = False

    @classmethod
    def from_match(cls, name: str, match: re.Match[str]) -> Self:
        members = tuple(match["members"].split("|"))
        if len(set(members)) != len(members) or not all(members):
            raise ValueError(
                f"{match.string!r}: the members of an enum must be distinct and not empty"
            )
        feature = cls(
            name=name,
            text=match.string,
            dtype="int64",
            extent=Extent(match["extent"] or ""),
            default=match["default"],
            members=members,
        )
        feature.check_default()
        return feature

    def convert(self, part: Any) -> int:
        if part not in self.members:
            raise ValueError(f"{part!r:.60} is not one of {', '.join(self.members)}")
        return self.members.index(part)

    def as_part(self, value: Any) -> Any:
        return self.members[value]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceSide(Scalar):
    """The height or width of the source, as stated in a table of boxes.

    It is compared with the image, and never stored.
    """

    @property
    def specs(self) -> Mapping[str, FeatureSpec]:
        return {}

    @property
    def compared(self) -> tuple[str, ...]:
        return (self.name,)  # every image has it

    def as_column(self) -> None:
        return None

    def export(self, stored: Stored) -> dict[str, Any]:
        return {}

    def arrow_types(self) -> dict[str, Any]:
        return {}


def _as_json(value: Any) -> Any:
    """Converts a value for JSON, which has neither NaN nor bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value == value else None
