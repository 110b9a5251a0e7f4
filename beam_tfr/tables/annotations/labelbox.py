"""Recognizes exports of Labelbox, and says how to make a table of the boxes in an export.

See https://docs.labelbox.com/reference/export-image-annotations.
"""

from collections.abc import Iterable

# Keys that each member has, in exports with projects and in older exports.
_KEYS = frozenset({"data_row", "projects"})
_OLD_KEYS = frozenset({"Labeled Data", "Label"})
_OBJECTS = (
    ".data_row.external_id as $image | .projects[].labels[].annotations.objects[]? | "
    "select(.bounding_box) | [$image, .name, (.bounding_box | .left, .top, .width, .height)] | @csv"
)
_OLD_OBJECTS = (
    '."External ID" as $image | .Label.objects[]? | select(.bbox) | '
    "[$image, .title, (.bbox | .left, .top, .width, .height)] | @csv"
)


def describe_labelbox(keys: Iterable[str], *, in_lines: bool) -> str:
    """Describes an export of Labelbox and the command that converts it, or returns an empty string.

    Args:
        keys: the keys of a member of the array, or of an object in a line.
        in_lines: whether the file has an object in each line, rather than an array.
    """
    present = {*keys}
    objects = ""
    if present >= _KEYS:
        objects = _OBJECTS
    elif present >= _OLD_KEYS:
        objects = _OLD_OBJECTS
    if not objects:
        return ""
    program = objects if in_lines else f".[] | {objects}"
    return (
        "is a Labelbox export; write a row per box into a table: "
        f"(echo path,class,left,top,width,height; jq -r '{program}' FILE) > boxes.csv, "
        "which then lacks the images without a box"
    )
