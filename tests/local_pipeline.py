"""Pipelines on Beam's engine in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_tfr.engine.failures import translate_error


def metrics_of(build: Callable[[beam.Pipeline], object]) -> Any:
    """The result of a pipeline on Beam's engine in this process."""
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as p:
        build(p)
    return p.result


COLLECTED: dict[str, list[Any]] = {}


def collect(element: Any, key: str) -> None:
    COLLECTED[key].append(element)


def run(build: Callable[[beam.Pipeline], beam.PCollection[Any]]) -> list[Any]:
    """The elements that come out, from Beam's engine in this process."""
    key = uuid.uuid4().hex
    COLLECTED[key] = []
    try:
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as p:
            build(p) | "Collect" >> beam.Map(collect, key=key)
    except Exception as error:
        raise translate_error(error) from error
    return COLLECTED.pop(key)
