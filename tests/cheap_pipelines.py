"""Saves almost half of a small conversion in this process.

What Beam finds out again and again, always alike, is found out once.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from beam_tfr import cli

checks_types = False  # for tests of these checks


def make_cheap() -> None:
    """Lets Beam remember, and Python look for garbage among new objects alone.

    Half a million are those of loaded modules.
    """
    _inspect_functions_once()
    _inspect_types_once()
    _read_sources_once()
    _look_for_state_once()
    _look_for_submodules_once()
    _make_options_once()
    _view_options_once()
    _compress_once()
    _weigh_nothing()
    _pickle_once()
    _check_no_types()
    _list_options_quickly()
    gc.collect()
    gc.freeze()


def in_memory(choose_mode: Callable[[int], str]) -> Callable[[int], str]:
    """Lets a run with one worker have no gRPC, and so no progress within its bundles."""

    @functools.wraps(choose_mode)
    def choose(workers: int) -> str:
        return "in_memory" if workers == 1 else choose_mode(workers)

    return choose


def make_parsers_cheap(patch: pytest.MonkeyPatch) -> None:
    """Lets commands make the parsers of their flags once; nothing changes a parser."""
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_tfr.engine import beam_internals
    from beam_tfr.launch import flags

    patch.setattr(cli, "make_parser", functools.cache(cli.make_parser))
    parser_of = functools.cache(lambda *_: beam_internals.beam_parser())
    patch.setattr(flags, "beam_parser", lambda: parser_of(*PipelineOptions.__subclasses__()))


def _remember(module: Any, name: str, key: Callable[..., Any]) -> None:
    """Lets a function of a module remember what it returns for each key.

    With a key of None, nothing is remembered.
    """
    function, results = getattr(module, name), dict[Any, Any]()

    @functools.wraps(function)
    def remembered(*arguments: Any) -> Any:
        of = key(*arguments)
        if of is None:
            return function(*arguments)
        if of not in results:
            results[of] = function(*arguments)
        return results[of]

    setattr(module, name, remembered)


def _inspect_functions_once() -> None:
    """Beam inspects each method of each DoFn five times."""
    from apache_beam.transforms import core

    inspected = core.get_function_args_defaults
    of_method = functools.cache(lambda function: inspected(function.__get__(object())))

    def remembered(function: Callable[..., Any]) -> tuple[list[str], list[Any]]:
        if not isinstance(function, types.MethodType):
            return inspected(function)
        names, defaults = of_method(function.__func__)
        return names[:], defaults[:]

    core.get_function_args_defaults = remembered


def _inspect_types_once() -> None:
    """Lets Beam take the types of a method from its function, for every DoFn.

    Nobody asks where they were declared.
    """
    from apache_beam.typehints.decorators import IOTypeHints

    inspected, of_method = IOTypeHints.from_callable, dict[Any, Any]()

    def remembered(function: Callable[..., Any]) -> Any:
        if not isinstance(function, types.MethodType):
            return inspected(function)
        if function.__func__ not in of_method:
            of_method[function.__func__] = inspected(function)
        return of_method[function.__func__]

    IOTypeHints.from_callable = staticmethod(remembered)
    IOTypeHints._make_origin = staticmethod(lambda *_, **__: [])


def _read_sources_once() -> None:
    """Beam reads the source of each function, and looks for one that yields and returns."""
    from apache_beam.transforms import core

    _remember(
        core, "_check_fn_use_yield_and_return", lambda function: getattr(function, "__code__", None)
    )


def _look_for_state_once() -> None:
    """Lets Beam look for state and timers of a DoFn in its functions.

    Otherwise it looks through all attributes of each DoFn, six times.
    """
    from apache_beam.transforms import userstate

    specs_of = userstate.get_dofn_specs
    found = dict[Any, tuple[set[Any], set[Any]]]()

    def remembered(dofn: Any) -> tuple[set[Any], set[Any]]:
        methods = [
            (name, of.__func__)
            for name, of in vars(dofn).items()
            if isinstance(of, types.MethodType)
        ]
        key = type(dofn), *methods
        if key not in found:
            found[key] = specs_of(dofn)
        states, timers = found[key]
        return {*states}, {*timers}

    userstate.get_dofn_specs = remembered


def _look_for_submodules_once() -> None:
    """For each function that is pickled, all loaded modules are looked through."""
    from apache_beam.internal.cloudpickle import cloudpickle

    _remember(cloudpickle, "_find_imported_submodules", lambda code, _: (code, len(sys.modules)))


def _make_options_once() -> None:
    """Makes the parser of Beam's options once.

    Otherwise each look at the options makes one with all of them, with help formatters and
    translations.
    """
    from apache_beam.options import pipeline_options

    parser = pipeline_options._BeamArgumentParser
    formatter = parser()._get_formatter()
    actions = dict[Any, argparse.Action]()

    def add_argument(self: Any, *names: str, **how: Any) -> argparse.Action:
        key = names, *how.items()
        with contextlib.suppress(TypeError, KeyError):  # lists are not hashable
            return self._add_action(actions[key])
        self._get_formatter = lambda: formatter  # which only checks the option here
        try:
            action = argparse.ArgumentParser.add_argument(self, *names, **how)
        finally:
            del self._get_formatter
        with contextlib.suppress(TypeError):
            actions[key] = action
        return action

    parser.add_argument = add_argument
    argparse._ = str  # not gettext, which looks for files


def _view_options_once() -> None:
    """Lets each object of options make each of its views once: they share their values."""
    from apache_beam.options.pipeline_options import PipelineOptions

    make_view = PipelineOptions.view_as
    views_of = weakref.WeakKeyDictionary[Any, dict[Any, Any]]()

    @functools.wraps(make_view)
    def remembered(self: Any, kind: type[PipelineOptions]) -> PipelineOptions:
        views = views_of.setdefault(self, {})
        if kind not in views:
            views[kind] = make_view(self, kind)
        return views[kind]

    PipelineOptions.view_as = remembered


def _compress_once() -> None:
    """Beam compresses each pickle; most of them are types and coders, which are always alike."""
    from apache_beam.internal import cloudpickle_pickler

    compress = functools.lru_cache(4096)(bz2.compress)
    decompress = functools.lru_cache(4096)(bz2.decompress)
    cloudpickle_pickler.bz2 = types.SimpleNamespace(compress=compress, decompress=decompress)


def _weigh_nothing() -> None:
    """To find the size of a side input, Beam looks through all loaded modules."""
    from apache_beam.runners.worker import statecache

    statecache.get_deep_size = lambda *_: 1


def _pickle_once() -> None:
    """Each function is pickled and unpickled when its step is made, only to see that it can be.

    It is pickled again when the pipeline runs.
    """
    from apache_beam.transforms import ptransform

    ptransform.pickler = types.SimpleNamespace(
        **vars(ptransform.pickler) | {"roundtrip": lambda value: value}
    )


def _check_no_types() -> None:
    """Beam compares the types of all steps, as runs in other processes still let it do."""
    from apache_beam.transforms import ptransform

    def only_if_asked(check: Callable[..., None]) -> Callable[..., None]:
        return lambda *arguments: check(*arguments) if checks_types else None

    for kind in (ptransform.PTransform, ptransform.PTransformWithSideInputs):
        kind.type_check_inputs = only_if_asked(kind.type_check_inputs)
    ptransform.PTransform.type_check_outputs = only_if_asked(
        ptransform.PTransform.type_check_outputs
    )


def _list_options_quickly() -> None:
    """For each look at an option, Beam lists and sorts the attributes of an object."""
    from apache_beam.options.pipeline_options import PipelineOptions

    PipelineOptions._visible_option_list = lambda self: sorted(vars(self._visible_options))
