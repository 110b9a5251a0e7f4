"""Beam's own flags, and the engine that they name."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    StandardOptions,
    _BeamArgumentParser,
)
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.runner import PipelineRunner, create_runner

from beam_tfr.options import ConvertOptions, default_threads
from beam_tfr.schema import UsageError

OWN_FLAGS = [f"--{field.name}" for field in dataclasses.fields(ConvertOptions)]
LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner", "SwitchingDirectRunner")


class _LocalRunner(fn_runner.FnApiRunner):
    """Beam's, whose worker processes end with this one, and start where the path of Python has a space."""

    def run_via_runner_api(self, pipeline_proto: Any, options: PipelineOptions) -> Any:
        command = f"exec {shlex.quote(sys.executable)} -m beam_tfr.worker {os.getpid()}"  # no shell stays in between
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.SUBPROCESS_SDK:
                environment.payload = command.encode()
        return super().run_via_runner_api(pipeline_proto, options)


class _BeamParser(_BeamArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def beam_parser() -> argparse.ArgumentParser:
    """All options that Beam knows, of every runner."""
    parser = _BeamParser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for known in PipelineOptions.__subclasses__():
        known._add_argparse_args(parser)
    return parser


def parse_beam_flags(flags: Sequence[str]) -> PipelineOptions:
    """Beam's options from the flags that are not ours.

    Raises:
        UsageError: a value that Beam does not allow, or a flag that neither knows; names the nearest that one does.
    """
    module = (beam_parser().parse_known_args(list(flags))[0].runner or "").rpartition(".")[0]
    if module:  # a runner from elsewhere may bring options of its own
        with contextlib.suppress(ImportError):  # `choose_runner` tells
            importlib.import_module(module)
    parser = beam_parser()
    _, unknown = parser.parse_known_args(list(flags))
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [option for action in parser._actions for option in action.option_strings]
        near = difflib.get_close_matches(flag, [*OWN_FLAGS, *known], n=1)
        hint = f"did you mean {near[0]}?" if near else "beam-tfr convert --help lists ours; Beam's own are accepted too"
        kind = "flag" if flag.startswith("-") else "argument"
        raise UsageError(f"{flag}: unknown {kind}; {hint}")
    return PipelineOptions(list(flags))


def choose_runner(beam_options: PipelineOptions, flags: Sequence[str]) -> PipelineRunner:
    """The runner named by --runner, or Beam's FnApiRunner in this process with a thread for every core.

    Beam's DirectRunner would first look for another engine on the internet, so its name means the FnApiRunner here too.

    Raises:
        UsageError: there is no such runner.
    """
    name = beam_options.view_as(StandardOptions).runner or LOCAL_RUNNERS[0]
    if name.rsplit(".", 1)[-1] not in LOCAL_RUNNERS:
        try:
            return create_runner(name)
        except (ValueError, ImportError, AttributeError) as error:
            raise UsageError(f"--runner {name}: {error}") from error
    # Beam's flush by the clock runs in a thread of its own beside the writer, and loses what that writes meanwhile: of
    # 100,000 references, in bundles that took longer than the second, up to 2,500. Without it, size alone decides.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0
    given = {flag.partition("=")[0] for flag in flags}
    direct = beam_options.view_as(DirectOptions)
    if direct.direct_num_workers < 0:
        raise UsageError(f"--direct_num_workers {direct.direct_num_workers}: must be 1 or more, or 0 for every core")
    if "--direct_num_workers" not in given and direct.direct_running_mode != "in_memory":
        direct.direct_num_workers = default_threads()
    if "--direct_running_mode" not in given:
        direct.direct_running_mode = "multi_threading"
        if "--direct_num_workers" not in given:
            direct.direct_num_workers = default_threads()
    # Worker processes get the options through the provision info only.
    encoded = JobServiceHandle.encode_pipeline_options(beam_options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return _LocalRunner(provision_info=fn_runner.ExtendedProvisionInfo(info))
