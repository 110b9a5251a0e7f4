"""Converts folders of images to sharded TFRecord datasets with Apache Beam.

`convert`, `diff`, `duplicates`, `export`, `inspect`, `plan`, `remove`, `report`, `update` and
`verify` are the commands as functions. Train with `beam_tfr.reader.load`, read single records with
`Records`, query a dataset's table of `contents`, and build pipelines with `beam_tfr.transforms`.
Importing this package loads neither Beam nor TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

from beam_tfr.version import __version__ as __version__

if TYPE_CHECKING:
    from beam_tfr.api import convert as convert
    from beam_tfr.api import export as export
    from beam_tfr.api import plan as plan
    from beam_tfr.api import remove as remove
    from beam_tfr.api import update as update
    from beam_tfr.api import verify as verify
    from beam_tfr.comparison import diff as diff
    from beam_tfr.copies import duplicates as duplicates
    from beam_tfr.inspection import inspect as inspect
    from beam_tfr.reporting import report as report
    from beam_tfr.schema.errors import BeamTfrError as BeamTfrError
    from beam_tfr.schema.errors import DataError as DataError
    from beam_tfr.schema.errors import InterruptedRunError as InterruptedRunError
    from beam_tfr.schema.errors import NotFoundError as NotFoundError
    from beam_tfr.schema.errors import NotInstalledError as NotInstalledError
    from beam_tfr.schema.errors import RunError as RunError
    from beam_tfr.schema.errors import UsageError as UsageError
    from beam_tfr.sequence import Records as Records
    from beam_tfr.sequence import contents as contents

_MODULES = {  # name -> its module, imported on first use
    "convert": "api",
    "export": "api",
    "plan": "api",
    "remove": "api",
    "update": "api",
    "verify": "api",
    "diff": "comparison",
    "duplicates": "copies",
    "inspect": "inspection",
    "report": "reporting",
    "BeamTfrError": "schema.errors",
    "DataError": "schema.errors",
    "InterruptedRunError": "schema.errors",
    "NotFoundError": "schema.errors",
    "NotInstalledError": "schema.errors",
    "RunError": "schema.errors",
    "UsageError": "schema.errors",
    "Records": "sequence",
    "contents": "sequence",
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
