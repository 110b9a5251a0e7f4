"""Checks arguments of public functions against their declared types."""

import collections.abc
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from beam_tfr.schema.errors import (
    BeamTfrError,
    RunError,
    UsageError,
    check_text,
    describe_os_error,
    explain_starved,
    without_traceback,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_UNIONS = (typing.Union, types.UnionType)


class WrongTypeError(ValueError):
    """The error for a value that does not have the declared type."""


def public(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Checks the arguments of a function, and raises only our errors, without a stack trace.

    Checks strings, paths, booleans, functions, lists and dicts. Where a list is declared, any
    iterable is accepted and becomes a list. The function itself checks numbers, because it knows
    their range.
    """

    @without_traceback
    @functools.wraps(function)
    def call(*args: _P.args, **named: _P.kwargs) -> _R:
        bound = _signature_of(function).bind(*args, **named)
        for name, kind in _kinds_of(function).items():
            if name in bound.arguments:
                bound.arguments[name] = _check_argument(name, kind, bound.arguments[name])
        try:
            return function(*bound.args, **bound.kwargs)
        except BeamTfrError:
            raise
        except OSError as error:
            raise RunError(describe_os_error(error)) from error
        except (MemoryError, RuntimeError) as error:
            explanation = explain_starved(error)
            if not explanation:
                raise
            raise RunError(explanation) from error

    return call


@functools.cache
def _signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@functools.cache
def _kinds_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Returns the declared type of each named parameter."""
    annotations = {**function.__annotations__}
    annotations.pop("return", None)  # the return type may be imported only for type checkers
    for name, parameter in _signature_of(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            annotations.pop(name)
    holder = types.SimpleNamespace(__annotations__=annotations)
    return typing.get_type_hints(holder, function.__globals__, include_extras=True)


def _check_argument(name: str, kind: Any, value: Any) -> Any:
    try:
        return _parse(kind, value)
    except WrongTypeError:
        raise UsageError(f"must be {_describe(kind)}", option=name, value=value) from None
    except ValueError as error:
        raise UsageError(str(error), option=name, value=value) from None


def _parse(kind: Any, value: Any) -> Any:
    """Checks a value against its declared type; returns the value, with lists for iterables.

    Raises:
        WrongTypeError: the value has the wrong type.
        ValueError: a string in the value cannot be used.
    """
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in _UNIONS:
        return _parse_union(typing.get_args(kind), value)
    parse = _PARSERS.get(typing.get_origin(kind) or kind)
    return value if parse is None else parse(typing.get_args(kind), value)


def _parse_union(kinds: Sequence[Any], value: Any) -> Any:
    for kind in kinds:
        try:
            return _parse(kind, value)
        except WrongTypeError:
            continue
    raise WrongTypeError


def _parse_text(_: Any, value: Any) -> str:
    if not isinstance(value, str):
        raise WrongTypeError
    return check_text(value)


def _parse_path(_: Any, value: Any) -> str:
    if not isinstance(value, os.PathLike):
        raise WrongTypeError
    return _parse_text(_, os.fspath(value))


def _parse_boolean(_: Any, value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongTypeError
    return value


def _parse_none(_: Any, value: Any) -> None:
    if value is not None:
        raise WrongTypeError


def _parse_function(_: Any, value: Any) -> Any:
    if not callable(value):
        raise WrongTypeError
    return value


def _parse_list(members: Sequence[Any], value: Any) -> list[Any]:
    is_iterable = isinstance(value, Iterable)
    if not is_iterable or isinstance(value, (str, Mapping)):
        raise WrongTypeError
    try:
        return [_parse(members[0], member) for member in value]
    except TypeError:  # an array without dimensions
        raise WrongTypeError from None


def _parse_mapping(members: Sequence[Any], value: Any) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise WrongTypeError
    key_kind, value_kind = members
    return {_parse(key_kind, key): _parse(value_kind, item) for key, item in value.items()}


_PARSERS: dict[Any, Callable[[Sequence[Any], Any], Any]] = {
    str: _parse_text,
    bool: _parse_boolean,
    types.NoneType: _parse_none,
    os.PathLike: _parse_path,
    collections.abc.Callable: _parse_function,
    collections.abc.Sequence: _parse_list,
    collections.abc.Mapping: _parse_mapping,
}
_NOUNS: dict[Any, str] = {
    str: "text",
    bool: "True or False",
    types.NoneType: "None",
    os.PathLike: "a path",
    collections.abc.Callable: "a function",
    collections.abc.Mapping: "a dict",
}


def _describe(kind: Any) -> str:
    """Describes what a declared type allows, for messages: "True, False or a function"."""
    if typing.get_origin(kind) is typing.Annotated:
        return str(typing.get_args(kind)[1])
    if typing.get_origin(kind) not in _UNIONS:
        return _describe_one(kind)
    nouns = [_describe(member) for member in typing.get_args(kind)]
    if _NOUNS[os.PathLike] in nouns:  # a string can be a path
        nouns.remove(_NOUNS[str])
    *others, last = nouns
    return f"{', '.join(others)} or {last}" if others else last


def _describe_one(kind: Any) -> str:
    origin = typing.get_origin(kind) or kind
    if origin is not collections.abc.Sequence:
        return _NOUNS.get(origin, "something else")
    member = _describe(typing.get_args(kind)[0]).removeprefix("a ")
    return f"a list of {member}s"
