"""Lists the files that match patterns, each once: the first half of MatchImages."""

import collections
import contextlib
import dataclasses
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.inputs import archives, ranges
from beam_tfr.inputs.no_match import describe_no_match
from beam_tfr.inputs.patterns import (
    ARCHIVE,
    EVERYTHING,
    NOTHING,
    OPTIONS_OF_IMAGES,
    compile_pattern,
    is_wild,
    literal_start,
    order_patterns,
    split_pattern,
)
from beam_tfr.inputs.pool import Pool
from beam_tfr.inputs.skipped import (
    UNCOUNTED,
    SkippedFiles,
)
from beam_tfr.schema.errors import InputNotFoundError, UsageError
from beam_tfr.schema.extensions import has_image_name, is_junk

LIST_THREADS = 32
DIVIDE_THREADS = 10  # the number of connections of the client
LIST_BATCH = 1000  # files passed on at a time


class PatternPart(NamedTuple):
    """A part of a listing: files that match a pattern, or are in a range of names or an archive.

    Attributes:
        pattern: local or gs://.
        before: earlier patterns, whose files are left out; see `order_patterns`.
        start, end: which names in the bucket to list: from `start` on, before `end`; empty for all.
        archive: the fields of the archive whose images are listed; empty if there is none.
        may_be_missing: whether the pattern is the path of an image that counts as listed even if it
            does not exist.
    """

    pattern: str
    before: Sequence[str] = ()
    start: str = ""
    end: str = ""
    archive: Sequence[Any] = ()
    may_be_missing: bool = False


def order_parts(patterns: Sequence[str], lines: Sequence[str]) -> list[PatternPart]:
    """Returns the parts to list for patterns, and for the lines of a list.

    A line that is the path of an image always counts as listed, so a missing file becomes a reject
    when it is read, instead of ending the run.

    Raises:
        UsageError: see `order_patterns`.
    """
    option = "input_list" if lines else "input"
    images = {line for line in lines if not is_wild(line) and not ARCHIVE.search(line)}
    images.difference_update(patterns)
    return [
        PatternPart(pattern, before, may_be_missing=pattern in images)
        for pattern, before in order_patterns([*patterns, *lines], option=option)
    ]


_Listed = storage.Entry | PatternPart


def match_files(
    patterns: Sequence[tuple[str, Sequence[str]]] | Sequence[PatternPart],
    *,
    exclude: re.Pattern[str] = NOTHING,
    option: str = "input",
    skipped: SkippedFiles = UNCOUNTED,
    keep_damaged: bool = False,
) -> Iterator[storage.Entry]:
    """Lists the files that match patterns, and the images in archives.

    Parts are listed in parallel, in no particular order, and in bounded memory.

    Args:
        patterns: pairs of a pattern and the earlier patterns whose files it leaves out, from
            `order_patterns`; or the parts of `order_parts`.
        exclude: result of `compile_exclusion`.
        option: the option or argument that specifies the patterns.
        skipped: counts files that are listed but do not match.
        keep_damaged: whether to yield a damaged archive, with its problem, in place of its images.

    Raises:
        UsageError: nothing matches, or the bucket or folder is missing or cannot be listed.
        DataError: an archive is damaged.
    """
    parts = [PatternPart(*pair) for pair in patterns]
    listed = list_parts(
        parts, exclude=exclude, option=option, skipped=skipped, keep_damaged=keep_damaged
    )
    for batch in listed:
        yield from (entry for entry in batch if isinstance(entry, storage.Entry))


def list_parts(
    parts: Sequence[PatternPart],
    *,
    exclude: re.Pattern[str] = NOTHING,
    limit: int | None = None,
    option: str = "input",
    skipped: SkippedFiles = UNCOUNTED,
    keep_damaged: bool = False,
) -> Iterator[list[storage.Entry | PatternPart]]:
    """Lists files as `match_files` does, but also yields remaining parts, such as archives.

    With a limit, no archive is opened, and the rest of a long part is yielded as a remaining part.

    Args:
        parts: parts that do not overlap.
        exclude: result of `compile_exclusion`.
        limit: maximum number of names to list per part on gs://, matching or not; listing goes on
            beyond this limit until the first match. None for no limit.
        option, skipped, keep_damaged: see `match_files`.

    Raises:
        UsageError, DataError: see `match_files`.
    """
    most = sys.maxsize if limit is None else limit
    lister = _Lister(exclude, most, option, skipped, keep_damaged=keep_damaged)
    waiting = collections.deque[Iterator[_Listed]]()
    for i in range(min(LIST_THREADS, len(parts))):
        waiting.append(lister.list_parts(parts[i::LIST_THREADS]))
    running = collections.deque[_Batches]()
    with contextlib.closing(Pool(LIST_THREADS, "beam_tfr-list")) as pool:
        while waiting or running:
            while waiting and len(running) < LIST_THREADS:
                running.append(_Batches(waiting.popleft(), pool))
            batches = running.popleft()
            batch = batches.take()
            if not batch:
                continue
            running.append(batches)
            if limit is None:
                in_archives = [part for part in batch if isinstance(part, PatternPart)]
                waiting.extend(map(lister.list_part, in_archives))
            yield batch


class _Batches:
    """Lists a part in batches; prepares the next batch in a thread of a pool."""

    def __init__(self, listing: Iterator[_Listed], pool: Pool) -> None:
        self._listing = listing
        self._pool = pool
        self._next = pool.submit(self._make_batch)

    def take(self) -> list[_Listed]:
        """Returns the next batch (empty at the end), and starts to prepare the one after it."""
        batch = self._next.result()
        if batch:
            self._next = self._pool.submit(self._make_batch)
        return batch

    def _make_batch(self) -> list[_Listed]:
        return list(itertools.islice(self._listing, LIST_BATCH))


@dataclasses.dataclass(frozen=True)
class _Lister:
    """A lister of parts; its attributes are the arguments of the function `list_parts`."""

    exclude: re.Pattern[str]
    limit: int
    option: str
    skipped: SkippedFiles
    keep_damaged: bool

    def list_parts(self, parts: Iterable[PatternPart]) -> Iterator[_Listed]:
        """Yields the results of `list_part` for all parts."""
        return itertools.chain.from_iterable(map(self.list_part, parts))

    def list_part(self, part: PatternPart) -> Iterator[_Listed]:
        """Yields files, archives as further parts, and the rest of the part beyond the limit."""
        if part.archive:
            return self._list_archive(part)
        return self._list_pattern(part)

    def _list_archive(self, part: PatternPart) -> Iterator[storage.Entry]:
        archive = storage.Entry(*part.archive)
        try:
            with _naming_errors(part.pattern, self.option):
                yield from archives.list_images(archive, self.exclude, self.skipped)
        except archives.DamagedArchiveError as error:
            if self.keep_damaged:
                yield archive._replace(problem=error.problem)
                return
            if self.option == "input":
                error.args = (f"{error}, or give `max_rejects=1` to count it as a reject",)
            raise

    def _list_pattern(self, part: PatternPart) -> Iterator[_Listed]:
        pattern = part.pattern
        are_archives = self.option in OPTIONS_OF_IMAGES and ARCHIVE.search(pattern) is not None
        before = [*map(compile_pattern, part.before)]
        has_matches = bool(part.start)  # the range before this one may have matches
        with _naming_errors(pattern, self.option):
            for listed in self._walk_matches(part):
                has_matches = True
                if isinstance(listed, PatternPart):
                    yield listed
                elif not self._is_left_out(listed.path, before):
                    yield PatternPart(pattern, archive=listed) if are_archives else listed
        if not has_matches:
            yield from self._list_missing(part)

    def _walk_matches(self, part: PatternPart) -> Iterator[_Listed]:
        """Yields all files that match a pattern, and the rest of the part beyond the limit.

        Counts files that do not match.
        """
        pattern = part.pattern
        limit = self.limit if storage.is_gcs(pattern) else sys.maxsize
        # A path without wildcards lists only itself.
        regex = compile_pattern(pattern, option=self.option) if is_wild(pattern) else EVERYTHING

        def note_folder(path: str) -> None:
            self.skipped.enter_folder(path)
            if regex.fullmatch(path):
                self.skipped.add_folder(path)

        has_matches = bool(part.start)
        walked = _walk(part, self.option, note_folder, self.skipped.add_repeat)
        for number, entry in enumerate(walked):
            if number >= limit and has_matches:
                yield part._replace(start=storage.split_gcs(entry.path)[1])
                return
            if regex.fullmatch(entry.path):
                has_matches = True
                yield entry
            else:
                self.skipped.add(pattern, entry.path)

    def _list_missing(self, part: PatternPart) -> Iterator[storage.Entry]:
        """Yields the path of an image that counts as listed although it does not exist.

        Raises:
            InputNotFoundError: the pattern is not such a path.
        """
        pattern = part.pattern
        if not part.may_be_missing or storage.is_folder(pattern):
            advice = describe_no_match(pattern, self.option, self.skipped.kinds)
            raise InputNotFoundError(f"matches no file{advice}", option=self.option, value=pattern)
        if not self._is_left_out(pattern):
            yield storage.Entry(pattern, 0, 0)

    def _is_left_out(self, path: str, before: Sequence[re.Pattern[str]] = ()) -> bool:
        """Whether a matching file is excluded, or belongs to one of the earlier patterns."""
        if self.exclude.fullmatch(path):
            self.skipped.note_excluded(path)
            return True
        return any(other.fullmatch(path) for other in before)


def divide_part(part: PatternPart, parts: int) -> list[PatternPart]:
    """Divides a part on gs:// into about `parts` or more parts; into fewer if it has few names.

    Raises:
        UsageError: the bucket cannot be listed.
    """
    bucket, literal = storage.split_gcs(literal_start(part.pattern))

    def list_first(start: str, end: str) -> list[str]:
        listed = storage.walk(f"{storage.GCS}{bucket}", lambda _: True, start=start, end=end)
        first = itertools.islice(listed, ranges.FEW)
        return [storage.split_gcs(entry.path)[1] for entry in first]

    end = part.end or ranges.after_prefix(literal)
    with (
        contextlib.closing(Pool(DIVIDE_THREADS, "beam_tfr-divide")) as pool,
        _naming_errors(part.pattern, "input"),
    ):
        divided = ranges.divide(list_first, part.start, end, parts, run=pool.map)
    return [part._replace(start=names.start, end=names.end) for names in divided]


@contextlib.contextmanager
def _naming_errors(pattern: str, option: str) -> Iterator[None]:
    """Turns a listing error in the block into a UsageError that mentions the pattern."""
    try:
        yield
    except OSError as error:
        message = f"cannot be listed: {error.filename}: {error.strerror}"
        raise UsageError(message, option=option, value=pattern) from error


def _walk(
    part: PatternPart,
    option: str,
    note_folder: Callable[[str], object],
    note_repeat: Callable[[str], object],
) -> Iterable[storage.Entry]:
    """Yields the files that the pattern of a part may match.

    Args:
        part, option: see `list_parts`.
        note_folder: called with each folder that the walk meets on disk.
        note_repeat: see `storage.walk`.
    """
    pattern = part.pattern
    if not is_wild(pattern):
        entry = storage.find(pattern)
        return [entry] if entry else []
    folder, rest = split_pattern(pattern, option=option)
    base = folder.rstrip("/")
    is_deep = not rest or "**" in rest or "{" in rest  # alternatives may contain slashes
    may_hold_matches = _may_hold_matches(base, rest, is_deep)

    def enter_folder(path: str) -> bool:
        note_folder(path)
        return may_hold_matches(path)

    return storage.walk(
        folder,
        enter_folder,
        prefix=literal_start(pattern)[len(base) + 1 :],
        deep=is_deep or "/" in rest,
        start=part.start,
        end=part.end,
        note_repeat=note_repeat,
    )


def _may_hold_matches(base: str, rest: str, is_deep: bool) -> Callable[[str], bool]:
    """Returns a function that decides whether files below a folder may match a pattern.

    A folder above the first ** must match its part of the pattern. Any folder below the first **
    may hold a match. If the pattern has alternatives, which may contain slashes, any folder may
    hold a match.

    Args:
        base, rest: the two parts that `split_pattern` returns.
        is_deep: whether folders at any depth may hold a match.
    """
    names = [] if "{" in rest else rest.split("/")[:-1]
    above = itertools.takewhile(lambda name: "**" not in name, names)
    folders = itertools.accumulate([base, *above], "{}/{}".format)
    levels = [compile_pattern(folder) for folder in folders]
    base_depth = base.count("/")

    def may_hold_matches(path: str) -> bool:
        level = path.count("/") - base_depth
        if level < len(levels):
            return levels[level].fullmatch(path) is not None
        return is_deep

    return may_hold_matches


def list_names(root: str, folder: str) -> list[str]:
    """Returns the names of the first images in a folder, except hidden images."""
    with contextlib.suppress(OSError):
        first = itertools.islice(
            storage.walk(root + folder, lambda _: False, deep=False), LIST_BATCH
        )
        names = [entry.name for entry in first]
        return [name for name in names if has_image_name(name) and not is_junk(name)]
    return []
