"""MatchImages and ReadImages: from patterns to files, and from files to bytes.

The key of an image is its path below the folder that all patterns share before their first wildcard, so the same images
in another place give the same dataset. `patterns` says what matches, `listing` lists it, `reading` reads it.
"""

from beam_tfr.inputs.listing import list_all, list_images
from beam_tfr.inputs.patterns import (
    WILDCARD,
    all_patterns,
    batches,
    common_folder,
    common_root,
    exclusion,
    order_patterns,
    read_input_list,
    split_pattern,
    to_regex,
)
from beam_tfr.inputs.reading import (
    MAX_FILE_BYTES,
    READ_AHEAD_BYTES,
    Content,
    ReadAhead,
    read_image,
    sources,
)

__all__ = [
    "MAX_FILE_BYTES",
    "READ_AHEAD_BYTES",
    "WILDCARD",
    "Content",
    "ReadAhead",
    "all_patterns",
    "batches",
    "common_folder",
    "common_root",
    "exclusion",
    "list_all",
    "list_images",
    "order_patterns",
    "read_image",
    "read_input_list",
    "sources",
    "split_pattern",
    "to_regex",
]
