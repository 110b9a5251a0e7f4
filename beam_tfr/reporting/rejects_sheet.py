"""Shows rejects as lines and as a contact sheet."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from PIL import Image as PillowImage
from PIL import ImageDraw, ImageOps

from beam_tfr import storage
from beam_tfr.dataset.manifest import find_manifest, read_manifest
from beam_tfr.inspection import sheets
from beam_tfr.inspection.fonts import find_font
from beam_tfr.inspection.pictures import GROUND, INK
from beam_tfr.reporting.refused import RejectsOfReason, list_rejects, list_unfinished_rejects
from beam_tfr.reporting.samples import SIDE, show_text
from beam_tfr.reporting.source_files import SourceFiles
from beam_tfr.schema.dataset import FIRST_FOLDER, REJECTS_FILE
from beam_tfr.schema.errors import UsageError

_COLUMNS = 6  # wide enough for reasons and what to do about them


class ShownRejects(NamedTuple):
    """The rejects of a dataset, or some of them if there are many.

    Attributes:
        folder: folder of the dataset.
        groups: the rejects by reason, the most frequent first.
        is_complete: whether the rejects are from a complete dataset, not from a failed run.
        note: a sentence about a failed run in the folder; empty if there is none.
    """

    folder: str
    groups: Sequence[RejectsOfReason]
    is_complete: bool = True
    note: str = ""

    @property
    def number(self) -> int:
        """The total number of rejects."""
        return sum(group.number for group in self.groups)

    def lines(self) -> Iterator[str]:
        """Yields a line for each reason, followed by lines for some of its rejects."""
        yield f"{self.folder}: {self.number:,} rejected"
        for group in self.groups:
            yield _heading(group)
            for reject in group.rejects:
                yield f"  {show_text(reject.key)}: {show_text(reject.detail)}"
            if group.number > len(group.rejects):
                yield f"  and {group.number - len(group.rejects):,} more"
        if self.note:
            yield f"note: {self.note}"

    def contact_sheet(self) -> PillowImage.Image:
        """Draws a row for each reason: the sources that can be decoded, with keys below."""
        rows = [sheets.Row(_cells(group), _heading(group)) for group in self.groups]
        return sheets.draw_rows(rows, [], SIDE, columns=_COLUMNS)


def read_rejects(folder: str, sources: Sequence[str]) -> ShownRejects:
    """Reads the rejects of a dataset, and pictures of their sources.

    Without a complete dataset, reads the rejects of the run that failed because of them.

    Raises:
        NotFoundError, DataError: there is neither a dataset nor a failed run, or the list of
            rejects is damaged.
        UsageError: the sources are not those of the dataset, or the dataset is not complete.
    """
    path = storage.check_path(folder, option="path")
    left = _find_left_rejects(path)
    if left and find_manifest(path) is None:
        return _read_left_rejects(folder, left, sources)
    dataset = read_manifest(path)
    note = f"a later run failed with too many rejects: {left} lists them" if left else ""
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(SourceFiles(dataset, sources)) if sources else None
        return ShownRejects(folder, list_rejects(dataset, files), note=note)


def _read_left_rejects(folder: str, path: str, sources: Sequence[str]) -> ShownRejects:
    """Reads the rejects that a failed run has left behind.

    Raises:
        UsageError: sources are specified, but only a complete dataset has the options to open them.
    """
    if sources:
        raise UsageError(
            f"{folder} is not a complete dataset, and rejects of a failed run are shown without "
            "pictures: omit `sources=`"
        )
    note = (
        f"{folder} is not a complete dataset: the last run failed with these rejects. Fix them, or "
        "raise `max_rejects=`, and run the same command again: it resumes"
    )
    return ShownRejects(folder, list_unfinished_rejects(path), is_complete=False, note=note)


def _find_left_rejects(folder: str) -> str:
    """Returns the path of the rejects that a failed run has left behind, or an empty string."""
    for output in (folder, storage.work_path(folder, FIRST_FOLDER)):
        path = storage.work_path(output, REJECTS_FILE)
        if storage.find(path):
            return path
    return ""


def _heading(group: RejectsOfReason) -> str:
    """Returns a reason, with the number of its rejects and what to do about them."""
    heading = f"{group.reason}: {group.number:,}"
    return f"{heading}; {group.cure}" if group.cure else heading


def _cells(group: RejectsOfReason) -> list[sheets.Cell]:
    """Returns a thumbnail for each reject, gray if its source cannot be decoded."""
    images = {thumbnail.key: thumbnail.image for thumbnail in group.pictures}
    cells = []
    for reject in group.rejects:
        draw = functools.partial(_draw, images.get(show_text(reject.key)))
        cells.append(sheets.Cell(draw, show_text(reject.detail), show_text(reject.key)))
    return cells


def _draw(image: PillowImage.Image | None, side: int) -> PillowImage.Image:
    """Draws a picture in a square, or a gray square if there is no picture."""
    if image is None:
        blank = PillowImage.new("RGB", (side, side), GROUND)
        ImageDraw.Draw(blank).text((8, 8), "no picture", fill=INK, font=find_font("", 12))
        return blank
    return ImageOps.pad(image, (side, side), color=GROUND)
