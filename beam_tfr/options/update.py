"""The options of `update` beside those of `convert`."""

from __future__ import annotations

import dataclasses

from beam_tfr.options.run import of_run
from beam_tfr.options.table import Checked


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateOptions(Checked):
    """How a dataset is updated.

    Raises:
        UsageError: a value is not allowed.
    """

    compare: str = of_run(
        "auto",
        help="how to see whether an image has changed. auto: by size and time on a disk, by checksum on gs://, both as "
        "listed; checksum: read and hash all images; names: an image of the same name is the same",
        choices=("auto", "checksum", "names"),
        template=False,
    )
    retry_rejects: bool = of_run(
        False,
        help="read what was rejected again, and nothing else: new limits apply, or files were fixed",
        template=False,
    )
    keep_previous: bool = of_run(
        False,
        help="keep the dataset that is replaced beside it, in DIR.DIGEST: the digest of its manifest",
        template=False,
    )
    codecs: str = of_run(
        "",
        help="if other versions of the codecs made the dataset: keep its records and note that in the manifest, or "
        "convert all images again (default: neither, but say so)",
        choices=("keep", "convert"),
        template=False,
    )
