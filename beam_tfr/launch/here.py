"""Runs a conversion with an engine that this process waits for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.runner import PipelineRunner

from beam_tfr.claim import Progress
from beam_tfr.launch.errors import translate
from beam_tfr.launch.results import Beginning, Result, Saved
from beam_tfr.launch.running import RESUME, Reporter, build, held, on_interrupt, quiet, wait
from beam_tfr.pipeline import Convert
from beam_tfr.schema import InterruptedRunError


def run(
    step: Convert,
    runner: PipelineRunner,
    beam_options: PipelineOptions,
    *,
    progress: Callable[[Progress], object] | None,
) -> Result | Saved:
    """Runs it and waits for its end; errors as of `start`."""
    beginning = Beginning(step.options)
    # From here on Ctrl-C only sets a flag: raised in the middle of Beam's code, an exception might be swallowed.
    with on_interrupt() as interrupted, held(step):
        pipeline = build(step, runner, beam_options)
        reporter = Reporter(step.options, progress)
        with quiet():
            try:
                if isinstance(runner, fn_runner.FnApiRunner):  # `run` returns when all is done
                    wait(lambda: pipeline.run().wait_until_finish(), interrupted=interrupted, tick=reporter.tick)
                else:
                    try:
                        result = pipeline.run()  # some want the main thread for it
                    except Exception as error:
                        raise translate(error) from error

                    def cancel() -> str:
                        with contextlib.suppress(Exception):
                            result.cancel()
                        return RESUME

                    wait(result.wait_until_finish, interrupted=interrupted, tick=reporter.tick, stop=cancel)
            except InterruptedRunError:
                if not beginning.is_published():
                    raise
                # Too late: the dataset was published in that moment, and to say otherwise would be wrong.
    return beginning.result()
