"""Reads annotations in Pascal VOC's format: an XML file for each image.

In the PASCAL VOC devkit, pixels count from 1, and the last pixel belongs to its box. Many programs
count from 0. Two columns have the boxes in either reading; `box` has the devkit's reading, unless a
file shows that its pixels count from 0. Our exports state that their pixels count from 1:

    box          like `box_from_1`, or an `OtherColumn` if a box with an area begins at 0
    box_from_0   as written
    box_from_1   left and top minus 1; in files from Roboflow, all sides minus 1
"""

import codecs
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, Self
from xml.etree import ElementTree  # nosec B405  # a document with entities is refused

from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.options.implied import VOC_FROM_0, VOC_FROM_1
from beam_tfr.schema.dataset import VOC_DATABASE
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.feature_names import SOURCE_HEIGHT, SOURCE_WIDTH
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.annotations.text import check_length, read_at_most
from beam_tfr.tables.base import OtherColumn
from beam_tfr.tables.image_names import ImageName

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_FIRST_SIDES = _SIDES[:2]
_DECLARATION = re.compile(rb"<\?xml[^>]{0,100}?\sencoding\s*=\s*[\"']([A-Za-z0-9._:-]{1,40})[\"']")
_BYTE_ORDER_MARKS = {  # longer marks first
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# The first bytes of "<?" without a byte order mark.
_WIDE_STARTS = {b"<\0?\0": "utf-16-le", b"\0<\0?": "utf-16-be"}
# Declared encodings -> the newer encodings that programs really write, as on the web.
_NEWER_CODECS = {"gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932"}
# Python codecs that are not encodings of files.
_NO_ENCODINGS = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "utf-7")
# A DOCTYPE without declarations; Python's parsers do not read the file that it may name.
_DOCTYPE = re.compile(r"<!DOCTYPE[^\[<>]*>")
_CORNER = re.compile(r"([xy])[0-9]*")
_UNSPECIFIED = ("", "unspecified")
# Elements that are about the image, in lower case; `imagesize` is from LabelMe on the web.
_ABOUT_IMAGE = frozenset(
    {
        "folder",
        "filename",
        "path",
        "source",
        "size",
        "imagesize",
        "width",
        "height",
        "depth",
        "segmented",
        "owner",
    }
)
_BOX_NUMBERS = 4  # a text with this many numbers may be a box
_CLASS_FIELDS = frozenset({"name", "class", "label", "category"})  # in lower case


class _Box(NamedTuple):
    """The xmin, ymin, xmax and ymax of an object, or why there is no box.

    Attributes:
        from_0: the box if pixels count from 0: as written.
        from_1: the box if pixels count from 1; the last pixel belongs to the box, except in files
            from Roboflow.
    """

    from_0: list[float] | BadCell
    from_1: list[float] | BadCell

    @classmethod
    def same(cls, box: list[float] | BadCell) -> Self:
        """Returns a box that is the same in either reading."""
        return cls(box, box)


class _CountedBoxes(list[list[float] | BadCell]):
    """The boxes of a file that is known to count pixels from 1, since our export wrote it."""


def read_voc(path: str, file: IO[bytes], _: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """Yields the only row of a file.

    Raises:
        ValueError, ElementTree.ParseError: the file is not Pascal VOC, or its objects are in the
            wrong places.
    """
    root = parse_voc(file)
    own_name = _stem_of(path)
    name = _text_of(root, "filename")
    if not name:
        _check_root(root)
        name = own_name
    _check_objects(root)
    objects = [obj for obj in root.iterfind("object") if not _is_deleted(obj)]
    counts_ends = _counts_ends_from_1(root)
    boxes = [_read_box(obj, counts_ends=counts_ends) for obj in objects]
    moved = [box.from_1 for box in boxes]
    is_ours = _text_of(root, "source/database") == VOC_DATABASE
    yield {
        "file": ImageName(
            name,
            _text_of(root, "folder") or "",
            own_name,
            is_of_another=_is_of_another(name, path),
        ),
        "class": [_read_name(obj) for obj in objects],
        "box": _CountedBoxes(moved) if is_ours else _find_zero(boxes) or moved,
        VOC_FROM_0: [box.from_0 for box in boxes],
        VOC_FROM_1: moved,
        "image/source_id": name,
        SOURCE_WIDTH: _text_of(root, "size/width"),
        SOURCE_HEIGHT: _text_of(root, "size/height"),
        "image/object/difficult": [_read_flag(obj, "difficult") for obj in objects],
        "image/object/truncated": [_read_flag(obj, "truncated") for obj in objects],
    }


def _counts_ends_from_1(root: ElementTree.Element) -> bool:
    """Whether a file adds 1 to all sides of boxes, as Roboflow does, and not just to left and top.

    In such a file, a box over all 640 pixels goes from 1 to 641.
    """
    return (_text_of(root, "source/database") or "").startswith("roboflow")


def _is_deleted(obj: ElementTree.Element) -> bool:
    """Whether an object was deleted in LabelMe on the web, which keeps such objects in the file."""
    return _text_of(obj, "deleted") == "1"


def _is_of_another(name: str, path: str) -> bool:
    """Whether the image that a file names belongs to another file in the same folder.

    The other file has the same stem as the image, and names the image too.
    """
    stem = _image_stem(name)
    folder, _, file = path.rpartition("/")
    if not stem or stem.casefold() == _stem_of(file).casefold():
        return False
    other = f"{folder}/{stem}{os.path.splitext(file)[1]}"
    return _image_stem(_read_image_name(other)) == stem


def _image_stem(name: str) -> str:
    """Returns the stem of an image path, like `_stem_of`, even for a Windows path."""
    return _stem_of(name.replace("\\", "/"))


def _read_image_name(path: str) -> str:
    """Returns the image that a file names, or an empty string if the file cannot be read."""
    try:
        with storage.open_binary(path) as file:
            return _text_of(parse_voc(file), "filename") or ""
    except (OSError, ValueError, ElementTree.ParseError):
        return ""


def _check_root(root: ElementTree.Element) -> None:
    """Checks that a file that names no image is a Pascal VOC file.

    Raises:
        ValueError: the file is not in this format.
    """
    if root.tag == "annotations":
        raise ValueError("is a CVAT file for all images; export it there as Pascal VOC or COCO")
    if root.tag == "dataset" and root.find("images/image[@file]") is not None:
        raise ValueError(
            "is an imglab file of dlib for all images; write a CSV with a row for each box, and "
            "the header filename,x,y,w,h,class, from <image file=…> and the left, top, width and "
            "height of its <box>"
        )
    if root.tag != "annotation":
        raise ValueError(f"begins with <{root.tag}>, not with <annotation>, and names no image")


def _check_objects(root: ElementTree.Element) -> None:
    """Checks that a file has no objects outside of its `object` elements.

    Raises:
        ValueError: another element has a `bndbox`; or there is no `object`, and elements that are
            not about the image may hold objects.
    """
    others = [element for element in root if element.tag != "object"]
    problem = ""
    if len(others) == len(root):
        problem = ", but no <object>"
        elements = [element for element in others if _may_hold_objects(element)]
        elements = elements or _list_fields(others)
    else:
        elements = [element for element in others if element.find(".//bndbox") is not None]
    if not elements:
        return
    names = join_names([f"<{tag:.60}>" for tag in dict.fromkeys(el.tag for el in elements)])
    raise ValueError(
        f"holds {names}{problem or ' with a <bndbox>, next to <object>'}: each object must be an "
        f"<object> directly in <{root.tag:.60}>, with a <name> and a <bndbox>; move or rename the "
        "elements of objects, or write a CSV with a row for each box, and the header "
        "filename,xmin,ymin,xmax,ymax,class; if the image has no other objects, remove "
        f"{names}"
    )


def _may_hold_objects(element: ElementTree.Element) -> bool:
    """Whether an element of the root is not about the image and may hold objects or a box."""
    if element.tag.lower() in _ABOUT_IMAGE:
        return False
    if len(element) or element.attrib:
        return True
    return _count_numbers(element) >= _BOX_NUMBERS


def _count_numbers(element: ElementTree.Element) -> int:
    """Counts the numbers in the text of an element."""
    numbers = [_parse_number(text) for text in re.split(r"[\s,;]+", element.text or "")]
    return len(numbers) - numbers.count(None)


def _list_fields(elements: Sequence[ElementTree.Element]) -> list[ElementTree.Element]:
    """Lists elements with plain text that may be the class or the box of a single object.

    Args:
        elements: elements of the root that are not objects.
    """
    classes = []
    numbers = []
    for element in elements:
        tag = element.tag.lower()
        if tag in _CLASS_FIELDS and (element.text or "").strip():
            classes.append(element)
        elif tag not in _ABOUT_IMAGE and _count_numbers(element) == 1:
            numbers.append(element)
    return classes + numbers if classes or len(numbers) >= _BOX_NUMBERS else []


def parse_voc(file: IO[bytes]) -> ElementTree.Element:
    """Returns the root element of a file.

    Raises:
        ValueError, ElementTree.ParseError: the file is not XML, or declares entities.
    """
    text = decode_xml(read_at_most(file))
    rest = _DOCTYPE.sub("", text, count=1)
    if "<!" in rest.replace("<!--", "").replace("<![CDATA[", ""):
        raise ValueError("has a DOCTYPE with declarations, or an entity, which no such file needs")
    return ElementTree.fromstring(text)  # noqa: S314  # nosec B314


def decode_xml(data: bytes) -> str:
    """Decodes the text of a small XML file in the encoding that it declares; UTF-8 by default.

    See https://www.w3.org/TR/xml/#sec-guessing.

    Args:
        data: the bytes from `read_at_most`.

    Raises:
        ValueError: the file is too long, does not match its encoding, or the encoding is unknown.
    """
    check_length(data)
    encoding = _find_encoding(data)
    try:
        return data.decode(encoding)
    except LookupError:
        raise ValueError(f"its encoding {encoding!r} is unknown") from None


def _find_encoding(data: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return encoding
    wide = _WIDE_STARTS.get(data[:4])
    if wide:
        return wide
    declaration = _DECLARATION.match(data)
    if declaration is None:
        return "utf-8"
    return _known_encoding(declaration[1].decode())


def _known_encoding(declared: str) -> str:
    """Returns the codec for a declared encoding, if the declaration itself uses single bytes."""
    try:
        name = codecs.lookup(declared).name
    except LookupError:
        return declared
    if name.startswith(("utf-16", "utf-32")):
        return "utf-8"  # UTF-16 or UTF-32 is impossible: the declaration has single bytes
    if name in _NO_ENCODINGS:
        raise ValueError(f"its encoding {declared!r} is unknown")
    return _NEWER_CODECS.get(name, name)


def _stem_of(path: str) -> str:
    """Returns the name of a file without folders or extension."""
    return os.path.splitext(path.rpartition("/")[2])[0]


def _text_of(element: ElementTree.Element, path: str) -> str | None:
    """Returns the text of the first element at a path, without surrounding spaces."""
    text = element.findtext(path)
    return None if text is None else text.strip()


def _read_box(obj: ElementTree.Element, *, counts_ends: bool) -> _Box:
    """Returns the box of an object, or why there is no box.

    Args:
        obj: the object.
        counts_ends: whether the file adds 1 to all sides of boxes.
    """
    bndbox = obj.find("bndbox")
    if bndbox is None or not len(bndbox):
        return _Box.same(_read_without_bndbox(obj))
    repeated = _find_repeated(obj, ("bndbox",)) or _find_repeated(bndbox, _SIDES)
    if repeated:
        return _Box.same(BadCell(f"has more than one {repeated}"))
    sides = []
    for side in _SIDES:
        text = _text_of(bndbox, side)
        if not text:
            return _Box.same(BadCell(f"its bndbox has no {side}"))
        number = _parse_number(text)
        if number is None:
            return _Box.same(BadCell(f"its {side} is {text!r:.60}, which is not a number"))
        sides.append(number)
    left, top, right, bottom = sides
    begins_at_0 = min(left, top) < 1
    if begins_at_0 and (right <= left or bottom <= top):
        return _Box(from_0=sides, from_1=BadCell(f"its bndbox {sides} has no area"))
    if counts_ends:
        return _Box(from_0=sides, from_1=[side - 1 for side in sides])
    return _Box(from_0=sides, from_1=[left - 1, top - 1, right, bottom])


def _find_repeated(element: ElementTree.Element, tags: Sequence[str]) -> str:
    """Returns the first of the tags that an element contains more than once, or an empty string."""
    for tag in tags:
        if len(element.findall(tag)) > 1:
            return tag
    return ""


def _read_name(obj: ElementTree.Element) -> str | BadCell | None:
    """Returns the class of an object; None if there is no class."""
    if _find_repeated(obj, ("name",)):
        return BadCell("has more than one name")
    return _text_of(obj, "name")


def _read_without_bndbox(obj: ElementTree.Element) -> list[float] | BadCell:
    """Returns the box around the polygon of an object without a `bndbox`."""
    if obj.find("polygon") is not None:
        return _enclose_polygon(obj)
    if obj.find("robndbox") is not None:
        return BadCell("it has a rotated box (robndbox), but no bndbox")
    return BadCell("there is no bndbox")


def _parse_number(text: str) -> float | None:
    """Parses a text as a number; None for anything else, such as NaN."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _enclose_polygon(obj: ElementTree.Element) -> list[float] | BadCell:
    """Returns the box around the corners of a polygon: elements x1, y1, x2, …, or x and y.

    The corners are points rather than pixels, so they do not count from 1.
    """
    places: dict[str, list[float]] = {"x": [], "y": []}
    for element in obj.iterfind("polygon//*"):
        corner = _CORNER.fullmatch(element.tag)
        if corner is None:
            continue
        text = (element.text or "").strip()
        number = _parse_number(text)
        if number is None:
            return BadCell(
                f"the {element.tag} of its polygon is {text!r:.60}, which is not a number"
            )
        places[corner[1]].append(number)
    across = places["x"]
    down = places["y"]
    if not across or not down:
        return BadCell("there is no bndbox, and its polygon has no corners")
    return [min(across), min(down), max(across), max(down)]


def _find_zero(boxes: Sequence[_Box]) -> OtherColumn | None:
    """Returns a stand-in for the boxes if a box shows that pixels count from 0; otherwise None."""
    for box in boxes:
        if isinstance(box.from_0, BadCell) or box.from_0 is box.from_1:
            continue
        if _is_placeholder(box.from_0):
            continue
        for side, number in zip(_FIRST_SIDES, box.from_0, strict=False):
            if 0 <= number < 1:
                return _take_from_0(f"its {side} is {number:g}")
    return None


def _is_placeholder(box: Sequence[float]) -> bool:
    """Whether a box, as written, has no area or covers only the first pixel."""
    left, top, right, bottom = box
    has_area = right > left and bottom > top
    return not has_area or max(box) <= 1


def _take_from_0(evidence: str) -> OtherColumn:
    return OtherColumn(
        f"{evidence}, so its pixels count from 0, but not those of the first files; "
        f"{spell_option('feature_columns', f'{VOC_FROM_0}:bbox[xyxy]')} takes all boxes as they "
        f"are written, {VOC_FROM_1} subtracts 1 from the left and top of all",
        column=VOC_FROM_0,
        notice=f"{evidence}, so the pixels of all files count from 0, and boxes stay as they are "
        "written; if that is a mistake, "
        f"{spell_option('feature_columns', f'{VOC_FROM_1}:bbox[xyxy]')} subtracts 1 from the left "
        "and top of all",
    )


def describe_other_names(cells: Mapping[str, Sequence[Any]]) -> str:
    """Returns the message about files that name an image of another file, or an empty string.

    Args:
        cells: column -> its cells in the first files, with the column `file`.
    """
    others = [cell for cell in cells["file"] if getattr(cell, "is_of_another", False)]
    if not others:
        return ""
    verb = "names" if len(others) == 1 else "name"
    return (
        f"{len(others):,} of the first {len(cells['file']):,} XML files {verb} the image of "
        f"another file, as {others[0].own}.xml names {others[0]!s:.100}: the image with the name "
        "of the XML file is used if there is one"
    )


def describe_origin(cells: Mapping[str, Sequence[Any]]) -> str:
    """Says why it is uncertain whether pixels count from 0 or 1, or returns an empty string.

    Args:
        cells: column -> its cells in the first files, with the columns `box` and `box_from_0`.
    """
    counts_from_0 = any(isinstance(cell, OtherColumn) for cell in cells["box"])
    if counts_from_0:
        return _describe_contradiction(cells)
    firsts = []
    for cell, written in zip(cells["box"], cells[VOC_FROM_0], strict=True):
        if isinstance(cell, _CountedBoxes):
            return ""
        firsts += [side for box in _moved_boxes(cell, written) for side in box[:2]]
    if not firsts or 0 in firsts:
        return ""
    return (
        "no box of the first files begins at pixel 0 or 1, so they are assumed to count from 1, as "
        f"in Pascal VOC's devkit; if they count from 0, use "
        f"{spell_option('feature_columns', f'{VOC_FROM_0}:bbox[xyxy]')}"
    )


def _moved_boxes(cell: Any, written: Sequence[Any]) -> list[list[float]]:
    """Lists the boxes in a cell of `box` in which pixels were counted from 1, without placeholders.

    Boxes that are the same in either reading, such as boxes around polygons, are left out too.

    Args:
        cell: the cell.
        written: the boxes as written.
    """
    if not isinstance(cell, list):
        return []
    moved = []
    for box, written_box in zip(cell, written, strict=True):
        if isinstance(box, list) and box != written_box:
            left, top, right, bottom = box
            if not _is_placeholder([left + 1, top + 1, right, bottom]):
                moved.append(box)
    return moved


def _describe_contradiction(cells: Mapping[str, Sequence[Any]]) -> str:
    """Says what suggests that pixels count from 1 although they are assumed to count from 0."""
    names = ("file", SOURCE_WIDTH, SOURCE_HEIGHT)
    texts = [cells.get(name, itertools.repeat("")) for name in names]
    for boxes, file, width, height in zip(cells[VOC_FROM_0], *texts, strict=False):
        for box in boxes:
            end = "" if isinstance(box, BadCell) else _find_last_pixel(box, width, height)
            if end:
                return (
                    f"{file}: {end}, and it does not begin at 0, as if pixels counted from 1, "
                    "while other boxes count from 0; look at some boxes that begin at 0, and if "
                    "that is a mistake, use "
                    f"{spell_option('feature_columns', f'{VOC_FROM_1}:bbox[xyxy]')}"
                )
    return ""


def _find_last_pixel(box: Sequence[float], width: str | None, height: str | None) -> str:
    """Says which written side of a box is the size of its image, or returns an empty string."""
    left, top, right, bottom = box
    if left < 1 or top < 1:
        return ""
    if width and right == _parse_number(width):
        return f"the xmax of a box is the width {width}"
    if height and bottom == _parse_number(height):
        return f"the ymax of a box is the height {height}"
    return ""


def _read_flag(obj: ElementTree.Element, name: str) -> str:
    """Returns a flag of an object: 0 if missing or `Unspecified`, 1 for a fraction, or its text."""
    text = _text_of(obj, name) or ""
    if text.lower() in _UNSPECIFIED:
        return "0"
    share = _parse_number(text)
    if share is not None and 0 < share < 1:
        return "1"
    return text
