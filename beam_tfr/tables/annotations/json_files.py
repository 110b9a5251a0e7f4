"""Reads annotations in JSON: COCO and Create ML."""

import codecs
import gzip
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from beam_tfr.features.cells import BadCell
from beam_tfr.inputs.yolo_setups import describe_names
from beam_tfr.tables.annotations.coco import (
    BadAnnotation,
    CocoAnnotation,
    CocoCategory,
    CocoFile,
    CocoImage,
    read_coco,
)
from beam_tfr.tables.annotations.coco_fields import describe_other_fields
from beam_tfr.tables.annotations.create_ml import CreateMlImage, read_create_ml
from beam_tfr.tables.annotations.json_kinds import CAPTIONS, describe_begin, describe_kind
from beam_tfr.tables.annotations.other_objects import describe_other_case, describe_other_objects
from beam_tfr.tables.base import Note

# If a file with more members has an error, each of its members must be an object.
_MOST_MEMBERS = 2_000_000
# A file with more lists and objects needs this many bytes for each; annotations have about 30.
_MOST_LISTS = 2_000_000
_LEAST_LIST_BYTES = 12
_BEGIN_BYTES = 64 << 10  # the beginning of such a file, whose keys show its kind
_NAN = re.compile(rb"-?\b(?:NaN|Infinity)\b")
# A string without a closing quote ends with the file; otherwise each quote would begin a string.
_TEXT_OR_NAN = re.compile(rb'(?s)"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|' + _NAN.pattern)
_NO_IMAGES = "Object missing required field `images`"
_NO_COCO = (
    "has no list `images`, which a COCO file needs; for other content, write one JSON object per "
    "image, each in a line of its own, as .jsonl"
)
_QUOTE = ord('"')
_Member = TypeVar("_Member")
_Row = dict[str, Any]
_Content = CocoFile | list[CreateMlImage]


class _LooseFile(msgspec.Struct):
    """A COCO file with parts that cannot be read."""

    images: list[msgspec.Raw]
    categories: list[CocoCategory] | None = None
    annotations: list[msgspec.Raw] | None = None


class _Object(msgspec.Struct):
    """Any object."""


class _FileOfObjects(msgspec.Struct):
    """A COCO file whose images and annotations are objects with any content."""

    images: list[_Object]
    annotations: list[_Object] | None = None


class _Owner(msgspec.Struct):
    """The image and the class of an object that cannot be read in full."""

    image_id: int | str
    category_id: Any = None


class _Identified(msgspec.Struct):
    """The id of an image that cannot be read in full."""

    id: int | str


class _BadMember(NamedTuple):
    """A list member that cannot be read, and the reason."""

    data: msgspec.Raw
    problem: str


# Not strict: "7" and 7.0 are the id 7.
_DECODER: msgspec.json.Decoder[_Content] = msgspec.json.Decoder(_Content, strict=False)
_LOOSE_DECODER = msgspec.json.Decoder(_LooseFile | list[msgspec.Raw], strict=False)
_OBJECTS = msgspec.json.Decoder(_FileOfObjects | list[_Object], strict=False)
_IMAGES = msgspec.json.Decoder(CocoImage, strict=False)
_ANNOTATIONS = msgspec.json.Decoder(CocoAnnotation, strict=False)
_OWNERS = msgspec.json.Decoder(_Owner, strict=False)
_IDENTIFIED = msgspec.json.Decoder(_Identified, strict=False)
_PICTURES = msgspec.json.Decoder(CreateMlImage, strict=False)


def read_json(path: str, file: IO[bytes], say: Callable[[Note], object]) -> Iterator[_Row]:
    """Yields the rows of a COCO or Create ML file.

    An image that cannot be read in full becomes a reject, as long as another image can be read.

    Raises:
        ValueError, MsgspecError, RecursionError: the file is neither COCO nor Create ML.
    """
    if isinstance(file, gzip.GzipFile):
        raise ValueError("is compressed as a whole; decompress it first")
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    data = file.read(size)  # reading without a size would take twice the memory
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16").encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    _check_density(data)
    try:
        content = _decode(data)
    except msgspec.ValidationError as error:
        names = describe_names(path)
        if names:
            raise ValueError(names) from None
        return _read_loosely(path, data, error, say)
    if isinstance(content, CocoFile):
        _check_lists(content, data)
        for note in describe_other_fields(data):
            say(f"{path}: {note}")
        if b'"caption"' in data and not content.has_objects():
            raise ValueError(CAPTIONS)
        return read_coco(path, content, say)
    missing = [picture.find_missing() for picture in content]
    if missing and all(missing):
        problem = f"Object missing required field `{missing[0]}` - at `$[0]`"
        return _read_loosely(path, data, msgspec.ValidationError(problem), say)
    places = (f"$[{number}]" for number in range(len(content)))
    return map(read_create_ml, content, places)


def _check_density(data: bytes) -> None:
    """Checks that a file does not consist of lists and objects that hold almost nothing.

    In memory, such lists and objects are 20 times as large as in the file.

    Raises:
        ValueError: the file consists of such lists and objects.
    """
    number = data.count(b"[") + data.count(b"{")
    if number > _MOST_LISTS and number * _LEAST_LIST_BYTES > len(data):
        raise ValueError(
            f"has {number:,} brackets and braces in {len(data):,} bytes, far more than annotation "
            "files have"
        )


def _decode(data: bytes) -> _Content:
    """Decodes the content of a file; NaN, which Python writes, becomes null.

    Raises:
        MsgspecError: the file is neither COCO nor Create ML.
    """
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        sound = _without_nan(data)
        if sound == data:
            raise
        return _DECODER.decode(sound)


def _without_nan(data: bytes, *, as_text: bool = False) -> bytes:
    """Returns JSON with null or strings in place of numbers that JSON does not allow."""
    if not _NAN.search(data):
        return data
    sound = bytearray()
    begin = 0
    for match in _TEXT_OR_NAN.finditer(data):
        if data[match.start()] == _QUOTE:
            continue
        sound += data[begin : match.start()]
        sound += b'"%s"' % match[0] if as_text else b"null"
        begin = match.end()
    sound += data[begin:]
    return bytes(sound)


def _read_loosely(
    path: str, data: bytes, error: msgspec.ValidationError, say: Callable[[Note], object]
) -> Iterator[_Row]:
    """Yields the rows of a file that cannot be decoded as a whole because of `error`.

    Raises:
        MsgspecError: no image can be read; this is `error`.
        ValueError: the file is of another kind.
    """
    has_many_members = data.count(b",") > _MOST_MEMBERS
    sound = _without_nan(data)
    if sound != data:
        error = msgspec.ValidationError(str(error).replace("got `null`", "got NaN or `null`"))
    try:
        kind = describe_begin(sound[:_BEGIN_BYTES]) if has_many_members else describe_kind(sound)
        if has_many_members and not kind:
            _OBJECTS.decode(sound)
        content = None if kind else _LOOSE_DECODER.decode(sound)
    except (msgspec.MsgspecError, RecursionError):
        if str(error) == _NO_IMAGES:
            raise ValueError(_NO_COCO) from None
        raise error from None
    if kind:
        raise ValueError(kind)
    if isinstance(content, _LooseFile):
        _check_lists(content, data)
        if sound != data:  # messages quote numbers as they are written
            spelled = _LOOSE_DECODER.decode(_without_nan(data, as_text=True))
            content.annotations = getattr(spelled, "annotations", None)
        return _read_coco_loosely(path, content, error, say)
    return _read_pictures_loosely(content or [], error)


def _check_lists(content: CocoFile | _LooseFile, data: bytes) -> None:
    """Checks that a COCO file without objects or `categories` has no such lists under other names.

    Raises:
        ValueError: the file has lists under other names.
    """
    if content.annotations and content.categories is not None:
        return
    lists = msgspec.json.decode(_without_nan(data), type=dict[str, msgspec.Raw])
    problem = describe_other_case(lists)
    if not problem and not content.annotations:
        problem = describe_other_objects(lists)
    if problem:
        raise ValueError(problem)


def _read_coco_loosely(
    path: str, loose: _LooseFile, error: msgspec.ValidationError, say: Callable[[Note], object]
) -> Iterator[_Row]:
    images, bad_images = _decode_members("$.images", loose.images, _IMAGES)
    annotations, bad = _decode_members("$.annotations", loose.annotations or [], _ANNOTATIONS)
    marks = [*map(_mark_annotation, bad)]
    marked = [*filter(None, marks)]
    harmed = {obj.image_id for obj in marked}
    if harmed.issuperset(image.id for image in images) or (bad and not annotations):
        raise error
    lost = _find_ids(bad_images)  # ids of images that are already rejects
    known = [obj for obj in [*annotations, *marked] if obj.image_id not in lost]
    yield from read_coco(path, CocoFile(images, loose.categories, known), say)
    strays = [member for member, mark in zip(bad, marks, strict=True) if mark is None]
    for member in [*bad_images, *strays]:
        yield {"file": BadCell(member.problem)}


def _find_ids(bad_images: Iterable[_BadMember]) -> set[int | str]:
    """Returns the ids of images that have other fields that cannot be read."""
    rest = [_decode_rest(member, _IDENTIFIED) for member in bad_images]
    return {image.id for image in rest if image is not None}


def _decode_rest(member: _BadMember, decoder: msgspec.json.Decoder[_Member]) -> _Member | None:
    """Decodes the readable fields of a member that cannot be read in full; None if that fails."""
    try:
        return decoder.decode(member.data)
    except msgspec.ValidationError:
        return None


def _mark_annotation(member: _BadMember) -> BadAnnotation | None:
    """Returns a stand-in for an object that is not fully readable; None if its image is unknown."""
    owner = _decode_rest(member, _OWNERS)
    if owner is None:
        return None
    category_id = owner.category_id if isinstance(owner.category_id, int) else -1
    return BadAnnotation(owner.image_id, category_id, problem=member.problem)


def _read_pictures_loosely(
    raw: Sequence[msgspec.Raw], error: msgspec.ValidationError
) -> Iterator[_Row]:
    pictures, bad = _decode_members("$", raw, _PICTURES)
    if not pictures:
        raise error
    for picture in pictures:
        yield read_create_ml(picture, "$")
    for member in bad:
        yield {"file": BadCell(member.problem)}


def _decode_members(
    place: str, raw: Sequence[msgspec.Raw], decoder: msgspec.json.Decoder[_Member]
) -> tuple[list[_Member], list[_BadMember]]:
    """Returns the members of the list at `place`, and the members that cannot be read."""
    members = []
    bad = []
    for number, data in enumerate(raw):
        try:
            members.append(decoder.decode(data))
        except msgspec.ValidationError as error:
            problem = _name_place(str(error), f"{place}[{number}]")
            if _NAN.search(data):
                problem = problem.replace("got `str`", "got NaN")
            bad.append(_BadMember(data, problem))
    return members, bad


def _name_place(problem: str, place: str) -> str:
    """Returns an error from decoding a list member, with the member's position in the file."""
    if "`$" in problem:
        return problem.replace("`$", f"`{place}")
    return f"{problem} - at `{place}`"
