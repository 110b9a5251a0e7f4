"""Describes how a plan differs from the plan of the dataset in the output folder."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr.schema.differences import describe_changes, describe_id_changes
from beam_tfr.schema.plan import Plan
from beam_tfr.schema.spelling import spell_option

_DIGESTS = ("input_digest", "generations")


class PresentDataset(NamedTuple):
    """A dataset, or part of a dataset, in the output folder of a plan.

    Attributes:
        fields: the fields of the dataset's plan, or those of its manifest that a plan also has.
        matched: number of images.
        classes: names of the classes, in the order of their ids.
        folder: folder of the dataset if it is published, otherwise an empty string.
    """

    fields: Mapping[str, Any]
    matched: int
    classes: Sequence[str]
    folder: str = ""


def describe_differences(
    present: PresentDataset, plan: Plan, fields: Mapping[str, Any]
) -> list[str]:
    """Returns the differences between a dataset and a plan as lines, or [] if there are none.

    Args:
        present: the dataset.
        plan: the plan.
        fields: the fields of the plan to compare, as JSON values.
    """
    input_line = _describe_input(present, plan, fields)
    ids_line = _describe_class_ids(present.classes, plan.classes, present.folder)
    other_lines = describe_changes(_select_comparable(present.fields), _select_comparable(fields))
    return [*filter(None, [input_line, ids_line]), *other_lines]


def _describe_input(present: PresentDataset, plan: Plan, fields: Mapping[str, Any]) -> str:
    if present.matched != plan.matched:
        return f"  the input: {present.matched:,} {plan.noun} before, {plan.matched:,} now"
    if all(present.fields.get(name) == fields.get(name) for name in _DIGESTS):
        return ""
    if "layout" in plan.options:
        return f"  the input: different or changed {plan.noun}"
    if present.fields["options"] == plan.options:  # other options may change how rows are read
        return "  the input: different or changed rows"
    return ""


def _describe_class_ids(old: Sequence[str], new: Sequence[str], folder: str) -> str:
    changes = describe_id_changes(old, new)
    if not changes:
        return ""
    line = f"  the class ids: {changes}"
    if folder and list(old) != list(new[: len(old)]):
        line += f" (add {spell_option('classes', folder)} to keep the old ones)"
    return line


def _select_comparable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the fields of a plan that are compared one by one.

    Leaves out fields for which other functions describe the differences.
    """
    comparable = {**fields}
    for name in (*_DIGESTS, "labels"):
        comparable.pop(name, None)
    comparable["options"] = _spell_options(fields["options"])
    splits = fields.get("splits", {})
    comparable["splits"] = {name: {**split, "cuts": None} for name, split in splits.items()}
    return comparable


def _spell_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options with the compression level as users specify it: `compression=gzip:6`."""
    spelled = {**options}
    level = spelled.pop("gzip_level", "auto")
    if level != "auto":
        spelled["compression"] = f"gzip:{level}"
    return spelled
