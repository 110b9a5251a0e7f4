"""What is said of files whose names are nearly those of a file that is not there."""

from __future__ import annotations

from pathlib import Path

from beam_tfr.inputs.near_names import describe_near_names


def test_a_link_that_leads_nowhere_is_not_near_itself(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").symlink_to("nowhere.jpg")
    assert describe_near_names(f"{tmp_path}/a.jpg") == ""
    (tmp_path / "A.jpg").touch()
    assert describe_near_names(f"{tmp_path}/a.jpg") == "there is A.jpg"
