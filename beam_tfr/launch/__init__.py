"""Starts conversions, repairs, checks and exports, on this machine or on another engine.

Beam's own options choose the engine. `beam-tfr convert` calls `start(options, beam_flags)` after
parsing; `convert` does the same and waits for the dataset. `results` describes the dataset.
"""

import importlib
import sys

from beam_tfr.schema.errors import NotInstalledError, UsageError

if sys.flags.optimize > 1:
    raise UsageError(
        "Apache Beam cannot be imported without docstrings: unset PYTHONOPTIMIZE, and call python "
        "without -OO"
    )
try:
    from beam_tfr.dataflow.jobs import Job as Job
    from beam_tfr.launch.exporting import export as export
    from beam_tfr.launch.flags import parse_beam_flags as parse_beam_flags
    from beam_tfr.launch.repairing import repair as repair
    from beam_tfr.launch.results import Result as Result
    from beam_tfr.launch.settling import convert as convert
    from beam_tfr.launch.settling import start as start
    from beam_tfr.launch.starting import prepare_run as prepare_run
    from beam_tfr.launch.updating import remove as remove
    from beam_tfr.launch.updating import update as update
    from beam_tfr.launch.verifying import verify_on as verify_on

    importlib.import_module("cykooz_resizer")  # needed by the first image
except ModuleNotFoundError as error:
    raise NotInstalledError(
        f"converting needs {error.name}: pip install 'beam_tfr[convert]'"
    ) from error
