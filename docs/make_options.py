"""Writes docs/options.md and templates/metadata.json from `beam_tfr.options`: `python
docs/make_options.py`."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from beam_tfr.options import ConvertOptions
from beam_tfr.options.groups import (
    BOXES,
    CARD,
    CLASSES,
    DATAFLOW,
    GROUPS,
    LIMITS,
    LOOK,
    REJECTS,
    TABLES,
    WHAT,
    Group,
)
from beam_tfr.options.kinds import BOOLEAN, INTEGER, NUMBER
from beam_tfr.options.table import Option, shown_default

PAGE = Path(__file__).parent / "options.md"
METADATA = PAGE.parents[1] / "templates" / "metadata.json"
HEAD = """# Options of convert

This page lists all options of `beam-tfr convert`. `convert --help` shows only the essential ones.

    beam-tfr convert --input photos --output /data/photos --image_size 256 --resize pad

In Python, pass the same names to `beam_tfr.convert`. You can add Beam's own options, such as
`--runner` and `--project`, to the same command line. The [Flex Template](../templates/README.md)
accepts all options except {others}.

To enable shell completion, run `pip install shtab` and

    shtab --shell=bash beam_tfr.cli.make_parser >>~/.bash_completion

`python docs/make_options.py` generates this page from `beam_tfr/options/`.
"""
TITLE = "Images to TFRecords"
ABOUT = (
    "Converts images on Cloud Storage to sharded, verified GZIP TFRecords of tf.train.Example. "
    "Every matching file becomes a record or is listed in rejects.jsonl with a reason; "
    "manifest.json, written last, describes the dataset."
)
FORMS = {
    BOOLEAN: "BOOLEAN",
    INTEGER: "NUMBER",
    NUMBER: "NUMBER",
}  # of the service, for kinds of values
ON_GCS = {
    "input": "TEXT",  # a list, of which the service would look for one file
    "input_list": "GCS_READ_FILE",
    "classes": "TEXT",  # a file, or the folder of a dataset
    "table": "TEXT",  # a list
    "output": "GCS_WRITE_FOLDER",
}
PAGES = {
    WHAT: "converting.md",
    CLASSES: "converting.md#labels-and-splits",
    TABLES: "tables.md",
    BOXES: "objects.md",
    LOOK: "images.md",
    LIMITS: "images.md#limits",
    CARD: "interoperability.md",
    REJECTS: "rejects.md",
    DATAFLOW: "dataflow.md",
}  # that explain the options of a group
TABLE = ["| option | default | meaning |", "| --- | --- | --- |"]
CODE = re.compile(r"(--[a-z_]+|'[^']+')")


def page() -> str:
    """The text of docs/options.md."""
    fields = dataclasses.fields(ConvertOptions)
    others = [f"`{field.name}`" for field in fields if not field.metadata["option"].template]
    sections = [HEAD.format(others=f"{', '.join(others[:-1])} and {others[-1]}")]
    for group in GROUPS:
        rows = [_row(field) for field in fields if field.metadata["option"].group == group]
        sections.append("\n".join([f"## {_heading(group)}", "", _when(group), *TABLE, *rows, ""]))
    return "\n".join(sections)


def _heading(group: Group) -> str:
    return group.title[0].upper() + group.title[1:]


def _when(group: Group) -> str:
    more = f" [More]({PAGES[group]})." if group in PAGES else ""
    return f"{_markdown(group.when)}{more}\n"


def _row(field: dataclasses.Field[object]) -> str:
    option: Option = field.metadata["option"]
    value = (option.metavar or option.kind.metavar or "|".join(option.choices)).replace("|", "\\|")
    if option.kind.many:
        value += "…"
    usage = f"--{field.name}" if option.kind is BOOLEAN else f"--{field.name} {value}"
    meaning, default = option.help, ""
    if found := re.fullmatch(r"(.*) \(default: (.*)\)", option.help):
        meaning, default = found.groups()
    elif field.default is dataclasses.MISSING:
        default = "required"
    else:
        default = shown_default(field)
    return f"| `{usage}` | {_markdown(default)} | {_markdown(meaning)} |"


def _markdown(text: str) -> str:
    """A help text, with flags and quoted patterns as code and everything else literal."""
    parts = CODE.split(text)
    return "".join(
        f"`{part}`".replace("|", "\\|") if number % 2 else re.sub(r"([*_|<>\[\]])", r"\\\1", part)
        for number, part in enumerate(parts)
    )


def metadata() -> dict[str, object]:
    """The content of templates/metadata.json: name, description and parameters, in the service's
    own form."""
    fields = [
        field for field in dataclasses.fields(ConvertOptions) if field.metadata["option"].template
    ]
    ordered = sorted(fields, key=lambda field: GROUPS.index(field.metadata["option"].group))
    return {
        "name": TITLE,
        "description": ABOUT,
        "parameters": [_parameter(field) for field in ordered],
    }


def _parameter(field: dataclasses.Field[object]) -> dict[str, object]:
    about: Option = field.metadata["option"]
    required = field.default is dataclasses.MISSING
    parameter: dict[str, object] = {
        "name": field.name,
        "label": field.name.replace("_", " ").capitalize(),
        "helpText": about.help + (". Separate several with commas" if about.kind.many else ""),
        "isOptional": not required,
        "groupName": _heading(about.group),
    }
    if about.choices:
        parameter |= {
            "paramType": "ENUM",
            "enumOptions": [{"value": value, "label": value} for value in about.choices],
        }
    else:
        parameter["paramType"] = ON_GCS.get(field.name) or FORMS.get(about.kind, "TEXT")
    if not required and field.default not in (None, "", ()):
        parameter["defaultValue"] = about.show or json.dumps(field.default).strip('"')
    pattern = "gs://.+" if field.name in ON_GCS else about.kind.pattern
    if pattern and not (about.choices or (about.kind.many and field.name not in ON_GCS)):
        parameter["regexes"] = [f"^({pattern})$" if required else f"^({pattern})?$"]
    return parameter


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    METADATA.write_text(json.dumps(metadata(), indent=2) + "\n", encoding="utf-8")
