"""Differences between plans and options, in words."""

from __future__ import annotations

from beam_tfr import diff


def test_differences_are_shown_in_short_lines() -> None:
    lines = diff.describe({"a": 1, "b": {"c": [1, 2], "d": 0}, "e": "x" * 99}, {"a": 1, "b": {"c": [1], "d": 0}})
    assert lines == f"\n  b.c: 1,2 there, 1 now\n  e: {'x' * 57}... there, not given now"
    assert diff.describe({"a": {"b": 1}}, {"a": None}) == "\n  a: {'b': 1} there, not given now"
    assert diff.describe({"a": [1]}, {"a": [1]}) == ""
    assert diff.describe({"image_size": [224, 224]}, {"image_size": [32, 48]}) == (
        "\n  image_size: 224x224 there, 32x48 now"
    )
