"""Compares each worker's codec versions with those in the plan; they affect a dataset's bytes."""

import functools
import json
import zlib
from collections.abc import Mapping
from typing import Any

from beam_tfr import images
from beam_tfr.records.shard_file import gzip_level
from beam_tfr.schema.differences import find_other_versions
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import RunError


def used_versions(options: Mapping[str, Any]) -> dict[str, str]:
    """Returns library -> installed version for libraries that can affect the bytes of a dataset.

    Args:
        options: options of the plan.
    """
    versions = images.codec_versions() if options["encoding"] in IMAGE_ENCODINGS else {}
    if gzip_level(options["compression"], options["gzip_level"], options["encoding"]):  # 0 stores
        versions = versions | {"zlib": zlib.ZLIB_RUNTIME_VERSION}
    return versions


@functools.cache  # checked once in each process, unless it fails
def check_versions(planned: str) -> None:
    """Checks that this process has the codec versions in the plan.

    Args:
        planned: codec versions of a `Shard`.

    Raises:
        RunError: the version of a codec differs.
    """
    installed = images.codec_versions() | {"zlib": zlib.ZLIB_RUNTIME_VERSION}
    expected: dict[str, str] = json.loads(planned)
    others = find_other_versions(expected, installed)
    wrong = [f"{name} {installed[name]} instead of {other}" for name, other in others.items()]
    if wrong:
        raise RunError(
            "a worker's codec versions differ from those of the worker that began this dataset: "
            f"{', '.join(wrong)}. Its images would have different bytes. Start all workers from "
            "the same image or environment (a tag can move, a digest cannot), and run the same "
            "command again"
        )
