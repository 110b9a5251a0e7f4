"""Lists rejects for the page, with thumbnails if their sources are available and can be decoded."""

import collections
import contextlib
import itertools
from collections.abc import Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.reject_lines import read_rejects
from beam_tfr.inspection import pictures
from beam_tfr.output.rejects import take_examples
from beam_tfr.reporting.samples import SIDE, Thumbnail, show_text
from beam_tfr.reporting.source_files import SourceFiles
from beam_tfr.schema.dataset import REJECTS_FILE
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Reject

_SHOWN = 6  # rejects per reason
_MOST_READ = 100_000  # lines of rejects.jsonl
# Rejects for these reasons get no picture: decoding might take long, or end the process.
_DANGEROUS = {
    "crashed-decoder",
    "decode-timeout",
    "file-too-large",
    "too-many-pixels",
    "too-many-scans",
    "too-much-memory",
}
_CURES = {
    "layout-mismatch": "set --layout to match these paths",
    "unknown-class": "add the class to the file of --classes, or fix its name",
    "bad-value": "fix the value in the table or label file that the detail names",
    "without-boxes": "requested by --no_boxes reject",
    "not-found": "put the file where the table says, or fix --image_root",
    "changed-while-reading": "run the same command again",
    "unreadable": "make the file readable, and run again without --accept_unreadable",
    "unusable-file": "replace the file",
    "empty-file": "replace the file",
    "file-too-large": "raise --max_file_bytes",
    "not-an-image": "replace the file, or leave it out with --exclude",
    "unsupported-image": "install what the detail names, or convert the file",
    "damaged-image": "replace the file, or keep nearly whole images with --damaged keep",
    "too-many-pixels": "raise --max_pixels",
    "masks-too-large": "resize the image and its masks",
    "too-much-memory": "raise --max_decode_bytes",
    "too-many-scans": "save the image as an ordinary JPEG",
    "duplicate": "requested by --duplicates drop",
    "taken-down": "requested by beam-tfr remove",
    "too-few-pixels": "lower --min_pixels",
    "extreme-aspect": "raise --max_aspect",
    "several-frames": "use --frames first to keep the first frame",
    "decode-timeout": "replace the file",
    "crashed-decoder": "replace the file",
    "left-out": "requested by your own step",
    "not-an-array": "replace the file with a .npy file of numbers or strings",
    "damaged-array": "replace the file",
}


class RejectsOfReason(NamedTuple):
    """Some rejects with the same reason.

    Attributes:
        reason: the reason.
        number: total number of rejects with this reason.
        cure: what to do about them.
        rejects: the first rejects.
        pictures: pictures of the rejects whose sources can be decoded.
    """

    reason: str
    number: int
    cure: str
    rejects: list[Reject]
    pictures: list[Thumbnail]


def list_rejects(dataset: Manifest, sources: SourceFiles | None) -> list[RejectsOfReason]:
    """Lists the rejects of a dataset by reason, the most frequent first.

    Args:
        dataset: the dataset.
        sources: the sources of the dataset; None if they are not available.

    Raises:
        DataError: rejects.jsonl is damaged.
    """
    path = storage.join(dataset.folder, REJECTS_FILE)
    return _list_rejects(path, dataset.counts["rejected"], sources)


def list_unfinished_rejects(path: str) -> list[RejectsOfReason]:
    """Lists the rejects in a file that a failed run has left behind; see `list_rejects`."""
    numbers = collections.Counter(reject.reason for reject in read_rejects(path))
    return _list_rejects(path, numbers, None)


def _list_rejects(
    path: str, numbers: Mapping[str, int], sources: SourceFiles | None
) -> list[RejectsOfReason]:
    if not numbers:
        return []
    first_lines = itertools.islice(read_rejects(path), _MOST_READ)
    shown = {reason: min(number, _SHOWN) for reason, number in numbers.items()}
    examples = take_examples(first_lines, shown)
    groups = []
    for reason in sorted(numbers, key=lambda name: (-numbers[name], name)):
        rejects = examples[reason]
        thumbnails = list[Thumbnail]()
        if sources and reason not in _DANGEROUS:
            thumbnails = _draw_sources(sources, rejects)
        cure = _CURES.get(reason, "")
        groups.append(RejectsOfReason(reason, numbers[reason], cure, rejects, thumbnails))
    return groups


def _draw_sources(sources: SourceFiles, rejects: list[Reject]) -> list[Thumbnail]:
    thumbnails = []
    for reject in rejects:
        with contextlib.suppress(OSError, RejectError):
            image = pictures.draw_source(sources.read(reject.key), SIDE)
            if image:
                thumbnails.append(Thumbnail(image, show_text(reject.key), ""))
    return thumbnails
