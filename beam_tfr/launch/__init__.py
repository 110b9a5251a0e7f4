"""Starts a conversion: here, or wherever Beam's own options say.

`start(options, beam_flags)` is what `beam-tfr convert` does after parsing, `convert` the same for Python.
"""

from beam_tfr.dataflow.jobs import Job
from beam_tfr.launch.failures import translate
from beam_tfr.launch.flags import choose_runner, parse_beam_flags
from beam_tfr.launch.results import Result, Saved
from beam_tfr.launch.starting import convert, start

__all__ = ["Job", "Result", "Saved", "choose_runner", "convert", "parse_beam_flags", "start", "translate"]
