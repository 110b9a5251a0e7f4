"""Writes README.md, the dataset card, from card.md next to this module."""

import json
import pathlib
import re
import string
from collections.abc import Sequence

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.metadata.summary import (
    GIVEN_OPTIONS,
    LICENSE_ID,
    describe_dataset,
    given_texts,
    quote,
    splits_with_records,
)
from beam_tfr.dataset.tallies import count_rows
from beam_tfr.schema.naming import contents_name

_TEMPLATE = pathlib.Path(__file__).with_name("card.md")
_NOTHING_GIVEN = (
    "License, source and citation are not stated here: they are those of the source images."
)
MAX_CARD_BYTES = 16 << 20  # 16 MiB; a longer README.md is not ours
_MARK = b"<!-- beam-tfr writes this file anew"


def is_own_card(data: bytes) -> bool:
    """Whether beam-tfr wrote a README.md, and no user has taken it over.

    Args:
        data: the content of the file, or at least its first `MAX_CARD_BYTES` + 1 bytes.
    """
    return len(data) <= MAX_CARD_BYTES and _MARK in data


def dataset_card(dataset: Manifest) -> str:
    """Returns the content of README.md."""
    splits = splits_with_records(dataset)
    patterns = [_contents_pattern(dataset.name, split) for split in splits]
    first_split = next(iter(splits), "train")
    license_text = dataset.options.get("license", "")
    template = string.Template(_TEMPLATE.read_text())
    return template.substitute(
        name=dataset.name,
        patterns="\n".join(patterns),
        license=_license_lines(license_text),
        title=_without_markup(dataset.name),
        given=_given_paragraphs(dataset),
        about=describe_dataset(dataset),
        counts=_count_table(dataset),
        split=first_split,
        others=_tfds_line(dataset, first_split),
        version=dataset.fields["tool_version"],
        options=_option_lines(dataset),
    )


def _contents_pattern(dataset: str, split: str) -> str:
    """Returns the front matter about the contents of a split."""
    path = contents_name(f"{dataset}-{split}-*.tfrecord")
    return f'  - split: "{split}"\n    path: {path}'


def _license_lines(license_text: str) -> str:
    """Returns the front matter about the license."""
    if not license_text:
        return ""
    if LICENSE_ID.fullmatch(license_text):
        return f"license: {license_text}\n"
    return f"license: other\nlicense_link: {quote(license_text)}\n"


def _given_paragraphs(dataset: Manifest) -> str:
    """Returns the user's texts about the dataset, with a paragraph for each option."""
    paragraphs = []
    for option, text in given_texts(dataset).items():
        title = option.capitalize()
        paragraphs.append(f"{title}: {_without_markup(text)}")
    return "\n\n".join(paragraphs) or _NOTHING_GIVEN


def _count_table(dataset: Manifest) -> str:
    """Returns the counts by split and class as a Markdown table."""
    rows = count_rows(dataset.splits, dataset.class_names)
    _, columns = next(rows)
    alignments = ["---:"] * len(columns)
    lines = [_table_line("", columns), _table_line("---", alignments)]
    for title, cells in rows:
        lines.append(_table_line(_without_markup(title.strip()), cells))
    return "\n".join(lines)


def _table_line(title: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([title, *cells])} |"


def _tfds_line(dataset: Manifest, split: str) -> str:
    if dataset.compression != "none":
        return ""
    call = f"tfds.builder_from_directory(DIR).as_dataset(split={split!r})"
    return f"\nTensorFlow Datasets reads it by `{call}`.\n"


def _option_lines(dataset: Manifest) -> str:
    """Lists the options that made the dataset, except those shown elsewhere in the card."""
    lines = []
    for name in sorted(dataset.options.keys() - {"classes", *GIVEN_OPTIONS}):
        value = json.dumps(dataset.options[name])
        lines.append(f"    {name} = {value}")
    return "\n".join(lines)


def _without_markup(text: str) -> str:
    """Escapes a string so that Markdown shows it unchanged."""
    return re.sub(r"[^\w .,-]", lambda match: f"&#{ord(match[0])};", text)
