"""Finds objects in a COCO file that are outside of the list `annotations`."""

import contextlib
import re
from collections.abc import Iterable, Mapping

import msgspec

from beam_tfr.schema.differences import join_names

_LISTS = ("images", "annotations", "categories")
# Keys that do not hold objects in images.
_WITHOUT_OBJECTS = frozenset({*_LISTS, "info", "license", "licenses", "type", "videos"})
# Objects or lists inside a list or an object: [{"bbox": …}], [[1, 2, 3, 4]] or {"1.jpg": […]}.
_NESTED = re.compile(rb'\s*(?:\[|\{\s*"(?:[^"\\]++|\\.)*+"\s*:)\s*[\[{]')
_COCO_OBJECT = frozenset({"image_id", "category_id"})
_PLAIN_KEY = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_Members = Mapping[str, msgspec.Raw]
_NULL = msgspec.Raw(b"null")
_IMAGES = msgspec.json.Decoder(list[msgspec.Raw])
_IMAGE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def describe_other_objects(lists: _Members) -> str:
    """Returns a message about objects in a COCO file that are not in `annotations`, if any.

    Next to an empty list of annotations, only objects with the fields of COCO's annotations count.

    Args:
        lists: the content of the file, whose `images` are a list.
    """
    name = _find_nested(lists, _WITHOUT_OBJECTS)
    rename = _rename_list(name, lists[name]) if name else ""
    if "annotations" in lists and lists["annotations"] != _NULL:
        return f"has no `annotations`, but `{name}`{rename}" if rename else ""
    if name:
        return _describe_list(f"`{name}`", rename)
    for image in _IMAGES.decode(lists["images"]):
        with contextlib.suppress(msgspec.ValidationError):  # the image is a reject
            name = _find_nested(_IMAGE.decode(image), ())
        if name:
            return _describe_list(f"`{name}` in `images`", "")
    return ""


def describe_other_case(keys: Iterable[str]) -> str:
    """Reports keys of COCO in capitals, such as `Annotations`, or returns an empty string."""
    known_keys = {*keys}
    others = [key for key in known_keys if key.lower() in _LISTS and key.lower() not in known_keys]
    if not others:
        return ""
    return (
        f"holds {join_names(sorted(others))}, which COCO writes without capitals: "
        "jq 'with_entries(.key |= ascii_downcase)' a.json > b.json writes a COCO file"
    )


def _find_nested(members: _Members, without_objects: Iterable[str]) -> str:
    """Returns the first key whose value holds objects or lists, or an empty string."""
    for key, value in members.items():
        if key not in without_objects and _NESTED.match(memoryview(value)):
            return key
    return ""


def _rename_list(name: str, value: msgspec.Raw) -> str:
    """Returns the command that renames a list of COCO objects, or an empty string."""
    try:
        objects = _OBJECTS.decode(value)
    except msgspec.ValidationError:
        return ""
    if not all(map(_COCO_OBJECT.issubset, objects)) or not _PLAIN_KEY.fullmatch(name):
        return ""
    return f": jq '.annotations = .{name} | del(.{name})' a.json > b.json renames it"


def _describe_list(name: str, rename: str) -> str:
    """Returns the message about objects in another list.

    Args:
        name: the name of the list for messages.
        rename: the command that renames the list; may be empty.
    """
    cure = rename or (
        ": write the objects as that list, with the `image_id`, `category_id` and `bbox` of each"
    )
    return (
        f"holds {name}, but no list `annotations` next to `images`{cure}; if no image has objects, "
        'add "annotations": []'
    )
