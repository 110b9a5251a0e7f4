"""Shows rejects as lines and as a contact sheet."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from PIL import Image as PillowImage
from PIL import ImageDraw, ImageOps

from beam_tfr import storage
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.inspection import sheets
from beam_tfr.inspection.fonts import find_font
from beam_tfr.inspection.pictures import GROUND, INK
from beam_tfr.reporting.refused import RejectsOfReason, list_rejects
from beam_tfr.reporting.samples import SIDE, show_text
from beam_tfr.reporting.source_files import SourceFiles

_COLUMNS = 6  # so wide that reasons and cures fit


class ShownRejects(NamedTuple):
    """The rejects of a dataset, or some of many.

    Attributes:
        folder: folder of the dataset.
        groups: the rejects by reason, the most frequent first.
    """

    folder: str
    groups: Sequence[RejectsOfReason]

    @property
    def number(self) -> int:
        """The number of all rejects."""
        return sum(group.number for group in self.groups)

    def lines(self) -> Iterator[str]:
        """Yields a line for each reason, and some of its rejects below it."""
        yield f"{self.folder}: {self.number:,} rejected"
        for group in self.groups:
            yield _heading(group)
            for reject in group.rejects:
                yield f"  {show_text(reject.key)}: {show_text(reject.detail)}"
            if group.number > len(group.rejects):
                yield f"  and {group.number - len(group.rejects):,} more"

    def contact_sheet(self) -> PillowImage.Image:
        """Draws a row for each reason: pictures of sources that decode, with their keys below."""
        rows = [sheets.Row(_cells(group), _heading(group)) for group in self.groups]
        return sheets.draw_rows(rows, [], SIDE, columns=_COLUMNS)


def read_rejects(folder: str, sources: Sequence[str]) -> ShownRejects:
    """Reads the rejects of a dataset, and pictures of their sources.

    Raises:
        NotFoundError, DataError: there is no dataset, or its list of rejects is damaged.
        UsageError: the sources are not those of the dataset.
    """
    dataset = read_manifest(storage.check_path(folder, option="path"))
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(SourceFiles(dataset, sources)) if sources else None
        return ShownRejects(folder, list_rejects(dataset, files))


def _heading(group: RejectsOfReason) -> str:
    """Returns a reason, with its number and what to do about it."""
    heading = f"{group.reason}: {group.number:,}"
    return f"{heading}; {group.cure}" if group.cure else heading


def _cells(group: RejectsOfReason) -> list[sheets.Cell]:
    """Returns a thumbnail for each reject, gray if its source does not decode."""
    images = {thumbnail.key: thumbnail.image for thumbnail in group.pictures}
    cells = []
    for reject in group.rejects:
        draw = functools.partial(_draw, images.get(show_text(reject.key)))
        cells.append(sheets.Cell(draw, show_text(reject.detail), show_text(reject.key)))
    return cells


def _draw(image: PillowImage.Image | None, side: int) -> PillowImage.Image:
    """Draws a picture as a square; gray without one."""
    if image is None:
        blank = PillowImage.new("RGB", (side, side), GROUND)
        ImageDraw.Draw(blank).text((8, 8), "no picture", fill=INK, font=find_font("", 12))
        return blank
    return ImageOps.pad(image, (side, side), color=GROUND)
