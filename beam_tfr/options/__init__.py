"""Defines the options of `convert`, each once: type, default, help, and whether it changes records.

The command line, the options object and the Flex Template are made from the same table. An options
object is always valid: its constructor raises a `UsageError` that names the option, the value, the
allowed values, and the fix.
"""

from beam_tfr.options.convert import ConvertOptions as ConvertOptions
from beam_tfr.options.convert import default_threads as default_threads
from beam_tfr.options.image import ImageOptions as ImageOptions
from beam_tfr.options.run import DisplayOptions as DisplayOptions
from beam_tfr.options.table import add_arguments as add_arguments
from beam_tfr.options.table import from_arguments as from_arguments
from beam_tfr.options.table import from_values as from_values
from beam_tfr.options.table import suggest_name as suggest_name
