"""Surveys the first paths of images in tables: whether files exist, and whether case matters."""

from collections.abc import Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.schema.errors import UsageError
from beam_tfr.tables.image_names import ImageFinder, ImageName
from beam_tfr.tables.paths import read_path

MOST_PATHS = 200  # first paths that are looked at
_MOST_REMOTE = 8  # each path takes a request


class WrittenPath(NamedTuple):
    """A path in a table.

    Attributes:
        text: the path, or name of an image, as written.
        base: the folder that the path starts from, with a trailing slash.
    """

    text: str
    base: str


class PathSurvey(NamedTuple):
    """The findings about the first paths.

    Attributes:
        ignores_case: whether some paths name a file that differs in case only.
        example: the message about one of these.
        missing: the message about paths if none of them has a file; mostly empty.
        strays: the paths without a file on a disk, if others have one.
    """

    ignores_case: bool = False
    example: str = ""
    missing: str = ""
    strays: tuple[WrittenPath, ...] = ()


def survey_paths(paths: Sequence[WrittenPath]) -> PathSurvey:
    """Looks for the files of some paths."""
    if any(storage.is_remote(path.base) for path in paths):
        return _survey_remote(paths[:_MOST_REMOTE])
    finder = ImageFinder()
    missing = [path for path in paths if not _is_there(path, finder)]
    finder = ImageFinder(ignores_case=True)
    for path in missing:
        if not isinstance(path.text, ImageName) and _is_there(path, finder):
            file = finder.find(path.text, path.base).removeprefix(path.base)
            example = (
                "where no file is at the path that is written, the one that differs by case alone "
                f"is taken, such as {file} for {path.text}"
            )
            return PathSurvey(ignores_case=True, example=example)
    has_files = len(missing) < len(paths)
    if has_files:
        return PathSurvey(strays=tuple(missing))
    return PathSurvey(missing=_describe_missing(missing))


def _survey_remote(paths: Sequence[WrittenPath]) -> PathSurvey:
    """Looks for the files of some paths on gs://, until one is found."""
    finder = ImageFinder()
    has_files = any(_is_there(path, finder) for path in paths)
    return PathSurvey(missing="" if has_files else _describe_missing(paths))


def _is_there(path: WrittenPath, finder: ImageFinder) -> bool:
    """Whether a path has a file; true if that cannot be found out."""
    try:
        return storage.find(finder.find(path.text, path.base)) is not None
    except UsageError:
        return True
    except ValueError:
        return False
    except OSError:
        return True


def _describe_missing(paths: Sequence[WrittenPath]) -> str:
    """Returns the message about paths without any file; empty if there are no paths."""
    if not paths:
        return ""
    text, base = paths[0]
    start = f"none of the first {len(paths)} images is there, such as "
    try:
        read_path(text)
    except ValueError as error:
        return f"{start}{error}"
    return (
        f"{start}{text:.200}, looked for below {base}: `image_root=` names the folder that their "
        "paths start from"
    )
