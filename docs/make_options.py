"""Writes docs/options.md and templates/metadata.json from `beam_tfr.options`: `python docs/make_options.py`."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from beam_tfr.dataflow import template
from beam_tfr.options import ConvertOptions
from beam_tfr.options.kinds import BOOLEAN
from beam_tfr.options.table import GROUPS, Option, shown_default

PAGE = Path(__file__).parent / "options.md"
METADATA = PAGE.parents[1] / "templates" / "metadata.json"
HEAD = """# Options of convert

Every option of `beam-tfr convert`. In Python, pass the same names to `beam_tfr.convert`. All but
{others} are also parameters of the
[Flex Template](../templates/README.md). Beam's own options (`--runner`, `--project`, …) go on the same command line.

This page is generated from `beam_tfr/options/` by `python docs/make_options.py`.
"""
CODE = re.compile(r"(--[a-z_]+|'[^']+')")


def page() -> str:
    """The text of docs/options.md."""
    fields = dataclasses.fields(ConvertOptions)
    others = [f"`{field.name}`" for field in fields if not field.metadata["option"].template]
    sections = [HEAD.format(others=f"{', '.join(others[:-1])} and {others[-1]}")]
    for group in GROUPS:
        rows = [_row(field) for field in fields if field.metadata["option"].group == group]
        head = ["| option | default | meaning |", "| --- | --- | --- |"]
        sections.append("\n".join([f"## {group[0].upper()}{group[1:]}", "", *head, *rows]) + "\n")
    return "\n".join(sections)


def _row(field: dataclasses.Field[object]) -> str:
    option: Option = field.metadata["option"]
    value = (option.placeholder or "|".join(option.choices)).replace("|", "\\|")
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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    METADATA.write_text(json.dumps(template.metadata(), indent=2) + "\n", encoding="utf-8")
