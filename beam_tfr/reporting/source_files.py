"""Reads the sources of single records and rejects, in order to show them."""

import contextlib
import tempfile
from collections.abc import Sequence

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inputs import reading
from beam_tfr.verification.sources import open_sources


class SourceFiles(contextlib.AbstractContextManager["SourceFiles"]):
    """The sources of a dataset, read by their keys.

    Args:
        dataset: the dataset.
        sources: the patterns or tables that the dataset was made from; with tables, also the folder
            that was passed as `image_root`.

    Raises the errors of `open_sources`.
    """

    def __init__(self, dataset: Manifest, sources: Sequence[str]) -> None:
        self._sources = open_sources(dataset, sources)
        self._copies = tempfile.TemporaryDirectory(prefix="beam_tfr-")

    def __exit__(self, *_: object) -> None:
        self._copies.cleanup()

    def read(self, key: str) -> bytes:
        """Reads the bytes of the source with the given key.

        Raises:
            OSError, RejectError: the source cannot be read, or is too large.
        """
        source = self._sources.find(key)
        return reading.read_image(source, read_embedded=self._read_embedded)

    def _read_embedded(self, source: storage.Entry, _: int) -> bytes:
        return self._sources.read_place(source, self._copies.name)
