"""--max_decode_s: conversion in a process of its own, which is ended when it takes too long."""

from __future__ import annotations

from beam_tfr.options import ImageOptions
from beam_tfr.schema import Image


def convert_guarded(data: bytes, options: ImageOptions, name: str) -> Image:
    """`convert_image` in a guarded process, at most `options.max_decode_s` seconds.

    Raises:
        RejectError: `decode-timeout`, `crashed-decoder`, or what `convert_image` raises.
    """
    raise NotImplementedError
