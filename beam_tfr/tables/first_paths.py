"""Surveys the first image paths in tables: whether the files exist, and whether case matters."""

from collections.abc import Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.schema.errors import UsageError
from beam_tfr.tables.image_names import ImageFinder, ImageName
from beam_tfr.tables.paths import read_path

MOST_PATHS = 200  # first paths that are checked
_MOST_REMOTE = 8  # each path takes a request


class WrittenPath(NamedTuple):
    """A path in a table.

    Attributes:
        text: the path or image name, as written in the table.
        base: the folder that the path is relative to, with a trailing slash.
    """

    text: str
    base: str


class PathSurvey(NamedTuple):
    """The findings about the first paths.

    Attributes:
        ignores_case: whether some paths differ from the names of their files only in case.
        example: a message with such a path, or an empty string.
        missing: the message if none of the paths leads to a file; otherwise an empty string.
        strays: the paths that lead to no file on disk, if other paths lead to files.
    """

    ignores_case: bool = False
    example: str = ""
    missing: str = ""
    strays: tuple[WrittenPath, ...] = ()


def survey_paths(paths: Sequence[WrittenPath]) -> PathSurvey:
    """Checks which paths have files."""
    if any(storage.is_remote(path.base) for path in paths):
        return _survey_remote(paths[:_MOST_REMOTE])
    finder = ImageFinder()
    missing = [path for path in paths if not _is_there(path, finder)]
    finder = ImageFinder(ignores_case=True)
    for path in missing:
        if not isinstance(path.text, ImageName) and _is_there(path, finder):
            file = finder.find(path.text, path.base).removeprefix(path.base)
            example = (
                "if there is no file at a path as written, the file that differs only in case is "
                f"used, such as {file} for {path.text}"
            )
            return PathSurvey(ignores_case=True, example=example)
    has_files = len(missing) < len(paths)
    if has_files:
        return PathSurvey(strays=tuple(missing))
    return PathSurvey(missing=_describe_missing(missing))


def _survey_remote(paths: Sequence[WrittenPath]) -> PathSurvey:
    """Checks whether any of the paths on gs:// leads to a file."""
    finder = ImageFinder()
    has_files = any(_is_there(path, finder) for path in paths)
    return PathSurvey(missing="" if has_files else _describe_missing(paths))


def _is_there(path: WrittenPath, finder: ImageFinder) -> bool:
    """Whether a path leads to a file; true if this cannot be determined."""
    try:
        return storage.find(finder.find(path.text, path.base)) is not None
    except UsageError:
        return True
    except ValueError:
        return False
    except OSError:
        return True


def _describe_missing(paths: Sequence[WrittenPath]) -> str:
    """Returns the message for paths none of which leads to a file, or an empty string."""
    if not paths:
        return ""
    text, base = paths[0]
    start = f"none of the first {len(paths)} images exists: for example, "
    try:
        read_path(text)
    except ValueError as error:
        return f"{start}{error}"
    return (
        f"{start}{text:.200} in {base}: `image_root=` names the folder that their paths start from"
    )
