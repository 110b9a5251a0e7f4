"""Recognizes kinds of JSON files that are mistaken for COCO files with boxes."""

import contextlib
import re
from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

import msgspec

from beam_tfr.schema.extensions import has_image_name
from beam_tfr.tables.annotations import labelbox
from beam_tfr.tables.annotations.other_objects import describe_other_case
from beam_tfr.tables.annotations.row_lists import describe_row_lists

_BEGIN_BYTES = 4 << 10  # the beginning of a long file, with its first keys
_KEYS = re.compile(rb'"([A-Za-z_]{1,40})"\s*:')
_NESTED_VALUE = re.compile(rb'\s*\{\s*"(?:[^"\\]++|\\.)*+"\s*:\s*[\[{]')
_TEXT_BY_KEY = re.compile(rb'\s*\{\s*"(?:[^"\\]++|\\.)*+"\s*:\s*"')  # {"1": "a.jpg", …}
_ONE_CLASS = re.compile(rb'\s*\{\s*"(?:[^"\\]++|\\.)*+"\s*:\s*["0-9]')  # {"000000": 0, …}
_COCO = "a COCO file has `images`, `annotations` with boxes, and `categories`"


class _Kind(NamedTuple):
    """A kind of JSON file.

    Attributes:
        marks: the keys that all files of the kind have, as `_find_marks` yields them.
        message: what such a file is, and how to use it.
    """

    marks: frozenset[str]
    message: str


_INSTANCES = "use files of instances, such as `table='annotations/instances_*.json'`"
CAPTIONS = (
    f"has image captions, but no boxes; {_INSTANCES}, or write a table with "
    "the captions of each image: jq -c '(.images | map({(.id | tostring): .file_name}) | add) as "
    "$names | .annotations | group_by(.image_id)[] | {file: $names[.[0].image_id | tostring], "
    "captions: map(.caption)}' a.json > captions.jsonl, and give `uri_column=file` and "
    "`feature_columns='captions:bytes[]'`"
)
_WRITE_LINES = (
    "write one object per row and line: table.to_json('a.jsonl', orient='records', lines=True)"
)
_NAMES_AS_KEYS = (
    "has image names as keys; write one object per image and line to a .jsonl file: jq -c"
)
_LABEL_STUDIO = (
    "is a Label Studio export; export regions there in COCO's format, and image classes as CSV"
)
_VQA = (
    "has VQA's questions or answers; write one object per image and line to a .jsonl file: jq -sc "
    "'(map(.questions // []) | add | INDEX(.question_id)) as $questions | .[] | "
    "select(.annotations) | .data_subtype as $part | .annotations | group_by(.image_id)[] | "
    '{file: "\\($part)/COCO_\\($part)_\\("00000000000\\(.[0].image_id)"[-12:]).jpg", '
    "split: $part[:-4], question: map($questions[.question_id | tostring].question), "
    "answer: map(.multiple_choice_answer)}' *_annotations.json *_questions.json > vqa.jsonl, and "
    "give `uri_column=file`, `split_column=split` and "
    "`feature_columns='question:bytes[],answer:bytes[]'`"
)
_KINDS = (
    _Kind(
        frozenset({"annotations[].segments_info"}),
        "is a panoptic file, whose masks are in PNGs: the script in docs/objects.md#panoptic-masks "
        f"writes masks of classes; {_INSTANCES}",
    ),
    _Kind(
        frozenset({"annotations[].caption"}),
        CAPTIONS,
    ),
    _Kind(frozenset({"data_subtype"}), _VQA),
    _Kind(
        frozenset({"[].image_id", "[].category_id"}),
        f"has objects, such as detection results, but no images; {_COCO}",
    ),
    _Kind(
        frozenset({"shapes", "imagePath"}),
        "is a LabelMe file; convert all of them to one COCO file with labelme2coco.py from "
        "labelme's examples",
    ),
    _Kind(
        frozenset({"imgHeight", "imgWidth", "objects"}),
        "has the polygons of one Cityscapes image, which PNGs next to it hold as masks: give the "
        "folder of images as `input=`, and these masks as `pair=`, such as "
        "`pair=mask='../gtFine/{path%_leftImg8bit}_gtFine_labelIds.png'`",
    ),
    _Kind(frozenset({"_via_img_metadata"}), "is a VIA project; export it there in COCO's format"),
    _Kind(
        frozenset({".filename", ".regions"}),
        "has VIA annotations; export them there in COCO's format",
    ),
    _Kind(
        frozenset({"annotation", ".filename"}),
        "is a Pascal VOC file as JSON; write it as XML again: pip install xmltodict, python -c "
        '\'import json, sys, xmltodict; [open(path[:-5] + ".xml", '
        '"w").write(xmltodict.unparse(json.load(open(path)))) for path in sys.argv[1:]]\' *.json',
    ),
    _Kind(
        frozenset({"[].data", "[].annotations"}),
        _LABEL_STUDIO,
    ),
    _Kind(
        frozenset({"objects", "size"}),
        "is a Supervisely file; export the project there in COCO's format",
    ),
    _Kind(
        frozenset({"labels", "classes", "one class per label"}),
        "has FiftyOne labels without the extensions of images; if these are in the folder data as "
        ".jpg, write one object per image and line to a .jsonl file: jq -c '.classes as $names | "
        '.labels | to_entries[] | {path: ("data/" + .key + ".jpg"), label: (.value | if type == '
        '"number" then $names[.] else . end)}\' a.json > a.jsonl, and give '
        "`uri_column=path` and `label_column=label`",
    ),
    _Kind(
        frozenset({"labels", "classes"}),
        "has FiftyOne labels; export the dataset there as COCODetectionDataset, or images with "
        "one class each as ImageClassificationDirectoryTree",
    ),
    _Kind(
        frozenset({"samples"}),
        "is a FiftyOne dataset; export it there as COCODetectionDataset, or images with one class "
        "each as ImageClassificationDirectoryTree",
    ),
    _Kind(
        frozenset({"version", "files"}),
        "has Edge Impulse labels; write one object per image and line to a .jsonl file: jq -c "
        "'.files[] | {path, label: .label.label, split: .category | rtrimstr(\"ing\")}' a.json > "
        "a.jsonl, and give `uri_column=path`, `label_column=label` and `split_column=split`",
    ),
    _Kind(
        frozenset({"asset", "regions"}),
        "is a VoTT file for one image; export the project there as CSV or Pascal VOC",
    ),
    _Kind(
        frozenset({"assets", "tags"}),
        "is a VoTT export; export the project there as CSV or Pascal VOC",
    ),
    _Kind(
        frozenset({"items", "categories"}),
        "is a Datumaro file; export it there in COCO's format",
    ),
    _Kind(
        frozenset({"names of images", ".instances", ".metadata"}),
        "is a SuperAnnotate export; write one object per image and line to a .jsonl file, with "
        "its boxes and those around polygons: jq -c 'to_entries[] | [.value.instances[] | "
        'select(.type == "bbox" or .type == "polygon")] as $objects | {path: .key, class: '
        '$objects | map(.className), box: $objects | map(.points | if type == "array" then '
        "[.[range(0; length; 2)]] as $x | [.[range(1; length; 2)]] as $y | [($x | min), ($y | "
        "min), ($x | max), ($y | max)] else [.x1, .y1, .x2, .y2] end)}' a.json > a.jsonl, and give "
        "`uri_column=path`, `label_column=class` and `feature_columns='box:bbox[xyxy]'`",
    ),
    _Kind(
        frozenset({"names of images", "fields as values"}),
        f"{_NAMES_AS_KEYS} 'to_entries[] | {{path: .key}} + .value' a.json > a.jsonl",
    ),
    _Kind(
        frozenset({"names of images", "objects as values"}),
        f"{_NAMES_AS_KEYS} 'to_entries[] | {{path: .key, objects: .value}}' a.json > a.jsonl",
    ),
    _Kind(
        frozenset({"names of images", "lists as values"}),
        f"{_NAMES_AS_KEYS} "
        "'to_entries[] | {path: .key, box: .value}' a.json > a.jsonl, and give `uri_column=path` "
        "and, for boxes of left, top, right and bottom, `feature_columns='box:bbox[xyxy]'`",
    ),
    _Kind(
        frozenset({"names of images"}),
        f"{_NAMES_AS_KEYS} 'to_entries[] | {{path: .key, label: .value}}' a.json > a.jsonl",
    ),
    _Kind(
        frozenset({"fields of one image", "annotations", "categories"}),
        "is a file about one image, as in SODA-A: in the folder of such files, jq -s '{categories: "
        "map(.categories[]) | unique_by(.id), images: [to_entries[] | .value.images + {id: .key}], "
        "annotations: [to_entries[] | .key as $image | .value.annotations[] | . + {image_id: "
        "$image, segmentation: (.segmentation // [.poly // empty])} | del(.poly)]}' *.json "
        "> ../all.json writes one COCO file",
    ),
    _Kind(
        frozenset({"images", "annotations", "members by id"}),
        "has objects in place of COCO's lists: jq 'with_entries(if (.value | type) == \"object\" "
        'and .key != "info" then .value |= ([.[]] | flatten(1)) else . end)\' a.json > b.json '
        "writes a COCO file",
    ),
    _Kind(
        frozenset({"images", "annotations", "images by id"}),
        "has names of images by id and corners of boxes, as in Animal-Pose: jq '.images |= "
        "(to_entries | map({id: (.key | tonumber? // .), file_name: .value})) | .annotations[] |= "
        "((.bbox |= [.[0], .[1], .[2] - .[0], .[3] - .[1]]) | .keypoints |= flatten)' a.json "
        "> b.json writes a COCO file",
    ),
    _Kind(
        frozenset({"images[].image_id", "categories[].category_id"}),
        "has ids with different names than in COCO, as in Herbarium; rename them: jq '.images[] |= "
        "(.id = .image_id) | .categories[] |= (.id = .category_id | .name //= .scientificName)' "
        "a.json > b.json",
    ),
    _Kind(
        frozenset({"type", "features"}),
        "is GeoJSON, as in xView; write one object per box and line to a .jsonl file: jq -c "
        "'.features[].properties | {image: .image_id, class: .type_id, box: .bounds_imcoords}' "
        "a.json > a.jsonl, and give `uri_column=image`, `label_column=class` and "
        "`feature_columns='box:bbox[xyxy]'`",
    ),
    _Kind(
        frozenset({"name", "frames"}),
        "is a BDD100K file for one image; write one object per image and line to a .jsonl file: "
        "jq -c '{image: (.name + \".jpg\"), objects: .frames[0].objects}' *.json > a.jsonl",
    ),
    _Kind(
        frozenset({"image", "annotations"}),
        "is a file about one image, as in SA-1B; write one object per image and line to a .jsonl "
        "file: jq -c '{image: .image.file_name, box: [.annotations[].bbox]}' *.json > a.jsonl, and "
        "give `uri_column=image` and `feature_columns='box:bbox[xywh]'`",
    ),
    _Kind(
        frozenset({".bbox", ".height"}),
        "has image names as keys, as in Kvasir-SEG; write one object per image and line to a "
        ".jsonl file: jq -c 'to_entries[] | {image: .key, objects: .value.bbox}' a.json > a.jsonl",
    ),
    _Kind(
        frozenset({"[].annotation_id", "[].lead_time"}),
        _LABEL_STUDIO,
    ),
    _Kind(
        frozenset({"categories without images"}),
        f"has class names, but no images; {_COCO}",
    ),
    _Kind(
        frozenset({"schema", "data"}),
        f"is a pandas table with its schema; {_WRITE_LINES}",
    ),
    _Kind(
        frozenset({"columns", "index", "data"}),
        f"is a pandas table in parts; {_WRITE_LINES}",
    ),
    _Kind(
        frozenset({".0"}),
        f"is a pandas table with an object for each column; {_WRITE_LINES}",
    ),
    _Kind(
        frozenset({"0"}),
        f"has an object for each row; {_WRITE_LINES}",
    ),
    _Kind(
        frozenset({"[] of lists"}),
        f"is an array of lists, without column names; {_WRITE_LINES}",
    ),
    _Kind(
        frozenset({"[] of texts"}),
        "is an array of strings; if these are image names, write one object per image and line "
        "to a .jsonl file: jq -c '.[] | {path: .}' a.json > a.jsonl, and give `uri_column=path`",
    ),
    _Kind(
        frozenset({"[] without annotations"}),
        "is an array of rows; write one object per line to a .jsonl file: jq -c '.[]' a.json > "
        "a.jsonl",
    ),
)


def describe_kind(data: bytes) -> str:
    """Describes a JSON file of a known kind without COCO boxes, or returns an empty string.

    Raises:
        MsgspecError, RecursionError: the file is not JSON.
    """
    first_line, _, rest = data.strip().partition(b"\n")
    if rest.lstrip().startswith(b"{") and _keys_of(msgspec.Raw(first_line)):
        return "has an object in each line, and so is JSON Lines: rename it to end in .jsonl"
    content = msgspec.json.decode(data, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    if isinstance(content, list) and content:
        export = labelbox.describe_labelbox(_keys_of(content[0]), in_lines=False)
        if export:
            return export
    if isinstance(content, list):
        return _describe_marks({*_find_marks(content)})
    other_case = describe_other_case(content)
    return other_case or _describe_marks({*_find_marks(content)}) or describe_row_lists(content)


def describe_begin(begin: bytes) -> str:
    """Describes a JSON file from its first bytes; see `describe_kind`.

    A file that is longer than these bytes is judged by its keys alone.
    """
    with contextlib.suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return describe_kind(begin)
    return _describe_marks({key.decode() for key in _KEYS.findall(begin[:_BEGIN_BYTES])})


def _describe_marks(marks: Set[str]) -> str:
    """Returns the message for the first kind of JSON with these marks, or an empty string."""
    for kind in _KINDS:
        if kind.marks <= marks:
            return kind.message
    return ""


def _find_marks(content: dict[str, msgspec.Raw] | list[msgspec.Raw]) -> Iterator[str]:
    """Yields the keys of a file, of the first members of COCO's lists, and of the first value.

    These keys are spelled `key`, `images[].key`, and `.key`, or `[].key` if the file is a list.
    """
    if isinstance(content, list):
        yield from _find_marks_of_list(content)
        return
    yield from content
    if "categories" in content and "images" not in content:
        yield "categories without images"
    if has_image_name(next(iter(content), "")):
        yield "names of images"
    if _ONE_CLASS.match(memoryview(content.get("labels", b""))):
        yield "one class per label"
    for name in ("images", "categories", "annotations"):
        yield from _find_marks_of_member(name, content.get(name, msgspec.Raw(b"[]")))
    for member in [*content.values()][:1]:
        yield from _find_marks_of_value(member)


def _find_marks_of_member(name: str, data: msgspec.Raw) -> Iterator[str]:
    """Yields the marks of one of COCO's lists, which may also be an object."""
    members = _decode_list(data)
    if members:
        yield from (f"{name}[].{key}" for key in _keys_of(members[0]))
    keys = _keys_of(data)
    if "file_name" in keys:
        yield "fields of one image"
    elif name == "images" and _TEXT_BY_KEY.match(memoryview(data)):
        yield "images by id"
    elif keys and _NESTED_VALUE.match(memoryview(data)):
        yield "members by id"


def _find_marks_of_list(content: Sequence[msgspec.Raw]) -> Iterator[str]:
    """Yields the marks of a file that is a list."""
    keys = _keys_of(content[0]) if content else []
    yield from (f"[].{key}" for key in keys)
    if keys and {"annotations", "annotation"}.isdisjoint(keys):
        yield "[] without annotations"
    if content and not keys and _begins(content[0], b"["):
        yield "[] of lists"
    if content and _begins(content[0], b'"'):
        yield "[] of texts"


def _find_marks_of_value(value: msgspec.Raw) -> Iterator[str]:
    """Yields the keys of a file's first value, and the kind of the value if known."""
    keys = _keys_of(value)
    yield from (f".{key}" for key in keys)
    if keys:
        yield "fields as values"
    members = _decode_list(value)
    if members and _keys_of(members[0]):
        yield "objects as values"
    if members and _begins(members[0], b"["):
        yield "lists as values"


def _begins(data: msgspec.Raw | None, mark: bytes) -> bool:
    """Whether JSON data exists and begins with `mark`."""
    return data is not None and memoryview(data)[:1] == mark


def _decode_list(data: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(data, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        return []


def _keys_of(data: msgspec.Raw) -> list[str]:
    """Lists the keys of an object; returns an empty list if the value is not an object."""
    try:
        return [*msgspec.json.decode(data, type=dict[str, Any])]
    except msgspec.DecodeError:
        return []
