"""MatchImages and ReadImages: patterns become keys, keys become bytes.

A key is the path of an image below the folder that all patterns share before their first wildcard, so that the same
images elsewhere give the same dataset. `patterns` says what matches, `listing` finds it, `reading` fetches it.
"""

from beam_tfr.inputs.listing import list_all, list_images
from beam_tfr.inputs.patterns import (
    all_patterns,
    batches,
    common_folder,
    common_root,
    exclusion,
    has_wildcard,
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
    "Content",
    "ReadAhead",
    "all_patterns",
    "batches",
    "common_folder",
    "common_root",
    "exclusion",
    "has_wildcard",
    "list_all",
    "list_images",
    "order_patterns",
    "read_image",
    "read_input_list",
    "sources",
    "split_pattern",
    "to_regex",
]
