"""The options of `convert`, each defined once: type, default, help, and whether it can change a record.

The command line, the options object and the Flex Template are made from the same table. An options object is always
valid: its constructor raises a `UsageError` with the option, the value, what is allowed, and the cure.
"""

from beam_tfr.options.convert import ConvertOptions, default_threads
from beam_tfr.options.hints import meant, nearest
from beam_tfr.options.image import ImageOptions
from beam_tfr.options.run import DisplayOptions
from beam_tfr.options.table import add_arguments, from_arguments, from_values

__all__ = [
    "ConvertOptions",
    "DisplayOptions",
    "ImageOptions",
    "add_arguments",
    "default_threads",
    "from_arguments",
    "from_values",
    "meant",
    "nearest",
]
