"""Marks a folder as an export."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from beam_tfr import storage
from beam_tfr.schema import differences
from beam_tfr.schema.dataset import EXPORT_FILE
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.untrusted import parse_json


class ExportMark:
    """`export.json`: the source of an export, and whether the export is complete.

    The mark of a complete export also holds the size of the export.

    Args:
        output: folder of the export.
        made_from: dataset, format and choice of records, as JSON values.
    """

    def __init__(self, output: str, made_from: Mapping[str, Any]) -> None:
        self._output = output
        self._made_from = made_from
        self._path = storage.join(output, EXPORT_FILE)

    def is_complete(self) -> bool:
        """Whether the folder holds the complete export.

        Returns:
            False if the folder is empty, or holds a part of the export.

        Raises:
            UsageError: the folder holds other files, or files were changed after the export.
        """
        if not storage.find(self._path):
            self._refuse_other_files()
            return False
        try:
            content = dict(parse_json(storage.read_bytes(self._path)))
        except (ValueError, TypeError):
            raise UsageError(
                f"{self._path} does not belong to an export; choose an empty folder"
            ) from None
        changes = _describe_changes(content, self._made_from)
        if changes:
            raise UsageError(
                f"{self._output} holds another export; choose an empty folder:", *changes
            )
        if not content.get("complete"):
            return False
        changes = _describe_changes(content, self._measure())
        if changes:
            raise UsageError(
                f"{self._output} has changed since the export was completed; choose an empty "
                "folder to export again:",
                *changes,
            )
        return True

    def begin(self) -> None:
        """Notes that the export has begun.

        Raises:
            UsageError: a folder in the export is a link, so files would be written to its target.
        """
        link = storage.find_link(self._output)
        if link:
            raise UsageError(
                f"{link} is a link, and files of the export might be written to its target: "
                "remove it, or choose an empty folder"
            )
        self._write(complete=False)

    def complete(self) -> None:
        """Notes that the export is complete."""
        self._write(complete=True, **self._measure())

    def _write(self, **state: int) -> None:
        text = json.dumps({**self._made_from, **state}, indent=1, sort_keys=True)
        scratch = storage.work_path(self._output, "")
        storage.write_bytes(self._path, text.encode() + b"\n", scratch=scratch)

    def _measure(self) -> dict[str, int]:
        """Counts the files and their bytes, without the mark and hidden files."""
        sizes = []
        for entry in storage.walk(self._output, lambda _: True):
            name = entry.path.removeprefix(self._output)
            if name != f"/{EXPORT_FILE}" and "/." not in name:
                sizes.append(entry.size_bytes)
        return {"files": len(sizes), "bytes": sum(sizes)}

    def _refuse_other_files(self) -> None:
        """Raises an error if a folder without a mark holds files, except files of a started run."""
        work_folder = storage.work_path(self._output, "")
        with contextlib.suppress(NotADirectoryError):  # a parent is a file, so locking fails
            for entry in storage.walk(self._output, lambda _: True):
                if not entry.path.startswith(work_folder):
                    raise UsageError(
                        f"{self._output} holds other files, such as {entry.path}; choose an empty "
                        "folder"
                    )


def _describe_changes(content: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Returns how a mark differs from the expected one, or an empty list if it does not differ."""
    return differences.describe_changes({name: content.get(name) for name in expected}, expected)
