"""Differences between plans and options, in words."""

from __future__ import annotations

from beam_tfr.schema import differences


def test_differences_are_shown_in_short_lines() -> None:
    lines = differences.describe_changes(
        {"a": 1, "b": {"c": [1, 2], "d": 0}, "e": "x" * 99}, {"a": 1, "b": {"c": [1], "d": 0}}
    )
    assert lines == ["  b.c: 1,2 before, 1 now", f"  e: {'x' * 60}... before, not given now"]
    lines = differences.describe_changes({"a": {"b": 1}}, {"a": None})
    assert lines == ["  a: {'b': 1} before, not given now"]
    assert differences.describe_changes({"a": [1]}, {"a": [1]}) == []
    lines = differences.describe_changes({"image_size": [224, 224]}, {"image_size": [32, 48]})
    assert lines == ["  image_size: 224x224 before, 32x48 now"]
    lines = differences.describe_changes(dict.fromkeys("abcdefghijklm"), dict.fromkeys("b", 1))
    assert lines == ["  b: not given before, 1 now"]
    lines = differences.describe_changes({}, dict.fromkeys("abcdefghijklm", 1))
    assert lines[9:] == ["  j: not given before, 1 now", "  and 3 more"]


def test_class_ids_that_differ_are_named() -> None:
    assert (
        differences.describe_id_changes(["cat", "dog"], ["bird", "cat", "dog"])
        == "cat 0 -> 1, dog 1 -> 2, new: bird"
    )
    assert (
        differences.describe_id_changes(["cat", "dog", "eel"], ["dog", "cat"])
        == "cat 0 -> 1, dog 1 -> 0, gone: eel"
    )
    assert differences.describe_id_changes(["cat"], ["cat", "bird"]) == "new: bird"
    assert differences.describe_id_changes(["cat"], ["cat"]) == ""
    many = [f"{number:02}" for number in range(12)]
    assert (
        differences.describe_id_changes([], many)
        == "new: 00, 01, 02, 03, 04, 05, 06, 07, 08, 09, and 2 more"
    )


def test_texts_are_joined_with_one_and() -> None:
    texts = ["a", "b", "c"]
    assert differences.join_texts(texts, 3, " and ") == "a and b and c"
    assert differences.join_texts(texts, 1, " and ") == "a and 2 more"
    assert differences.join_texts(texts, 1) == "a; and 2 more"
