"""Reports files that a listing skips: files that are not images, and images that patterns miss."""

import collections
import dataclasses
import re
import threading
from collections.abc import Iterator, Mapping, Sequence

from beam_tfr.inputs.annotation_content import annotation_extension
from beam_tfr.inputs.annotation_files import MOST_LOOKED_INTO
from beam_tfr.inputs.empty_folders import EmptyFolders
from beam_tfr.inputs.patterns import ARCHIVE, NOTHING, compile_pattern, is_wild, split_pattern
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import (
    FORMAT_OF,
    IN_ARCHIVE,
    OTHER_FILES,
    OTHER_NAMES,
    PACKED,
    RAW,
    kind_of_name,
)
from beam_tfr.schema.spelling import spell_option

PACKED_LABELS_CURE = (
    "give WebDataset tars as `table=` instead of `input=`; unpack other archives, and give "
    "their labels as `table=`"
)
_MOST_KINDS = 1_000  # counted separately, in addition to kinds of images
_MOST_KINDS_SHOWN = 20
MOST_PATTERNS = 16  # with more, nothing is counted, since each file is compared with each pattern


@dataclasses.dataclass
class CountedPaths:
    """The number of paths of a kind, and an example.

    Attributes:
        number: number of paths.
        example: the first path.
    """

    number: int = 0
    example: str = ""

    def add(self, path: str) -> None:
        """Counts a path."""
        self.number += 1
        self.example = min(path, self.example or path)


class RepeatedFolders(CountedPaths):
    """Links to folders that are already listed under another path, and are not listed again."""

    def describe(self) -> str:
        """Returns a message about the links, or an empty string if there are none."""
        if not self.number:
            return ""
        return (
            f"links to folders that are already listed are skipped ({self.number:,}), such as "
            f"{self.example}: each folder is listed once"
        )


class GuessedNames(CountedPaths):
    """Images in zips whose names are not UTF-8 and have no declared encoding."""

    def describe(self) -> str:
        """Returns a message about the names, or an empty string if there are none."""
        if not self.number:
            return ""
        return (
            f"names in zips that are not UTF-8 are read in code page 437 ({self.number:,}), such "
            f"as {self.example}; if that is wrong, unpack the zip with its own encoding, as with "
            "`unzip -O gbk FILE`, and give the folder as `input=`"
        )


class PackedLabels(CountedPaths):
    """Files in archives whose names suggest that they hold labels."""

    def describe(self) -> str:
        """Returns a message about the files, or an empty string if there are none."""
        if not self.number:
            return ""
        return (
            f"files in archives that may hold labels or splits are skipped ({self.number:,}), such "
            f"as {self.example}: {PACKED_LABELS_CURE}"
        )


class SkippedFiles:
    """A thread-safe count of the files that match no pattern, each counted once.

    For a folder, these are files without an image extension. For `*.jpg`, these are files that
    `*.*` would match and that look like images, such as 1.JPG and 1.png.

    Args:
        patterns: all patterns of the call; folders end in /.
        exclude: result of `compile_exclusion`; files that match it are not counted.
        exclusions: the patterns of `exclude`, each compiled separately.

    Attributes:
        kinds: kind of name, such as ".txt" -> number of files.
        annotations: extension -> the first files in folders that may hold annotations.
        repeats: links to folders that are already listed under another path.
        guessed_names: images in zips whose name encoding is uncertain.
        packed_labels: files in archives that may hold labels.
        empty: folders without images next to folders with images.
        used_exclusions: 1-based numbers of the `exclude` patterns that match a file.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        exclude: re.Pattern[str],
        exclusions: Sequence[re.Pattern[str]] = (),
    ) -> None:
        wild = sorted(filter(is_wild, patterns))
        self.kinds = collections.Counter[str]()
        self.annotations = collections.defaultdict[str, list[str]](list)
        self.repeats = RepeatedFolders()
        self.guessed_names = GuessedNames()
        self.packed_labels = PackedLabels()
        self.empty = EmptyFolders()
        self.used_exclusions = set[int]()
        self._unused = dict(enumerate(exclusions, start=1))
        self._lock = threading.Lock()
        self._paths = {*patterns}
        self._matched = [exclude, *map(compile_pattern, wild)]
        self._reach = {}
        if len(wild) <= MOST_PATTERNS:
            self._reach = {pattern: _compile_reach(pattern) for pattern in wild}

    def add(self, pattern: str, path: str) -> None:
        """Counts a file that was listed for a pattern but does not match it."""
        self._note_use(path)
        if not self._is_first(pattern, path):
            return
        self._note_annotations(path)
        if pattern.endswith("/"):
            name = path.removeprefix(pattern)
        else:
            name = path.rpartition("/")[2]
            folder = split_pattern(pattern)[0]
            if not compile_pattern(f"{folder}/").fullmatch(path):
                return  # hidden, or not an image
        if path in self._paths or any(regex.fullmatch(path) for regex in self._matched):
            return
        self.add_kind(name)

    def note_excluded(self, path: str) -> None:
        """Records a file that is excluded."""
        self.empty.fill([path])
        self._note_use(path)

    def _note_use(self, path: str) -> None:
        """Records which patterns of `exclude` match a file."""
        for number, regex in [*self._unused.items()]:
            if regex.fullmatch(path):
                self.used_exclusions.add(number)
                self._unused.pop(number, None)  # another thread may have removed it

    def _note_annotations(self, path: str) -> None:
        """Records a file that may hold annotations, if it is one of the first such files."""
        extension = annotation_extension(path)
        if extension is None or path in self._paths:
            return
        with self._lock:
            if len(self.annotations) >= _MOST_KINDS and extension not in self.annotations:
                return
            if len(self.annotations[extension]) < MOST_LOOKED_INTO:
                self.annotations[extension].append(path)

    def _is_first(self, pattern: str, path: str) -> bool:
        """Whether a pattern is the first that could have meant a file, and so counts the file."""
        for other, reach in self._reach.items():
            if reach.fullmatch(path):
                return other == pattern
        return False

    def add_folder(self, path: str) -> None:
        """Ignores a folder whose name matches a pattern, unlike `FoundFolders`."""

    def enter_folder(self, path: str) -> None:
        """Records a folder on disk that is listed."""
        self.empty.enter(path)

    def add_repeat(self, path: str) -> None:
        """Counts a link to a folder that is already listed under another path."""
        with self._lock:
            self.repeats.add(path)

    def add_guessed_name(self, path: str) -> None:
        """Counts an image in a zip whose name encoding is uncertain."""
        with self._lock:
            self.guessed_names.add(path)

    def add_packed_label(self, path: str) -> None:
        """Counts a file in an archive that may hold labels."""
        with self._lock:
            self.packed_labels.add(path)

    def add_kind(self, path: str) -> None:
        """Counts a file by the kind of its name."""
        self._count_kind(kind_of_name(path))

    def add_packed_kind(self, path: str) -> None:
        """Counts a file in an archive by the kind of its name."""
        kind = kind_of_name(path)
        if _is_archive(kind):
            kind += IN_ARCHIVE
        self._count_kind(kind)

    def _count_kind(self, kind: str) -> None:
        """Counts a file of a kind.

        Beyond the limit, all new kinds count as one kind, since each hidden file may be a kind of
        its own.
        """
        with self._lock:
            if len(self.kinds) >= _MOST_KINDS and kind not in self.kinds and not _is_image(kind):
                kind = OTHER_NAMES
            self.kinds[kind] += 1


class UncountedFiles(SkippedFiles):
    """A substitute for `SkippedFiles` that counts nothing."""

    def __init__(self) -> None:
        super().__init__((), NOTHING)

    def add_kind(self, path: str) -> None:
        pass

    def add_packed_kind(self, path: str) -> None:
        pass

    def enter_folder(self, path: str) -> None:
        pass

    def note_excluded(self, path: str) -> None:
        pass

    def add_repeat(self, path: str) -> None:
        pass

    def add_guessed_name(self, path: str) -> None:
        pass

    def add_packed_label(self, path: str) -> None:
        pass


class UsedExclusions(UncountedFiles):
    """A thread-safe record of the `exclude` patterns that match a file, and of nothing else."""

    def __init__(self, exclusions: Sequence[re.Pattern[str]]) -> None:
        super().__init__()
        self._unused = dict(enumerate(exclusions, start=1))

    def note_excluded(self, path: str) -> None:
        self._note_use(path)


class FoundFolders(UncountedFiles):
    """A thread-safe list of links, and of folders whose names match a pattern of files.

    Attributes:
        folders: paths of the folders, in no particular order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folders = list[str]()

    def add_folder(self, path: str) -> None:
        self.folders.append(path)

    def add_repeat(self, path: str) -> None:
        SkippedFiles.add_repeat(self, path)


UNCOUNTED = UncountedFiles()


def _compile_reach(pattern: str) -> re.Pattern[str]:
    """Compiles the widest sense of a pattern.

    A folder then matches everything below it; other patterns match names with any extension.
    """
    if pattern.endswith("/"):
        return re.compile(f"{re.escape(pattern)}.*", re.DOTALL)
    try:
        return compile_pattern(f"{pattern.rpartition('.')[0]}.*")
    except UsageError:  # alternatives with dots in them
        return NOTHING


def describe_skipped(kinds: Mapping[str, int]) -> str:
    """Returns how many files in a folder are skipped, or an empty string if none are.

    For example, "2 without an image extension (1 .md, 1 other names)".
    """
    number, names = describe_kinds(kinds, images=False)
    if not number:
        return ""
    return "; ".join([f"{number:,} without an image extension ({names})", *describe_cures(kinds)])


def count_archives(kinds: Mapping[str, int]) -> int:
    """Counts the files that are archives and can be inputs."""
    return sum(number for kind, number in kinds.items() if ARCHIVE.fullmatch(kind))


def count_packed(kinds: Mapping[str, int]) -> int:
    """Counts the files that are archives and must be unpacked."""
    return sum(number for kind, number in kinds.items() if _must_be_unpacked(kind))


def count_raw(kinds: Mapping[str, int]) -> int:
    """Counts the files that are raw camera photos."""
    return sum(number for kind, number in kinds.items() if RAW.fullmatch(kind))


def _must_be_unpacked(kind: str) -> bool:
    return kind.endswith(IN_ARCHIVE) or PACKED.fullmatch(kind) is not None


def _is_archive(kind: str) -> bool:
    return any(pattern.fullmatch(kind) for pattern in (ARCHIVE, PACKED))


def describe_cures(kinds: Mapping[str, int]) -> Iterator[str]:
    """Yields how to read the archives and raw photos among skipped files."""
    number = count_archives(kinds)
    if number:
        yield f"archives (.zip, .tar: {number:,}) are read if they are also given as `input=`"
    packed = {kind: count for kind, count in kinds.items() if _must_be_unpacked(kind)}
    if packed:
        _, names = describe_kinds(packed, images=False)
        yield f"archives such as these must be unpacked: {names}"
    raw = {kind: count for kind, count in kinds.items() if RAW.fullmatch(kind)}
    if raw:
        yield from describe_other_files(raw)


def describe_other_files(kinds: Mapping[str, int]) -> Iterator[str]:
    """Yields the steps that turn skipped files in other formats into readable images."""
    for other in OTHER_FILES:
        present = {kind: count for kind, count in kinds.items() if other.names.fullmatch(kind)}
        if present:
            _, names = describe_kinds(present, images=False)
            yield f"{other.noun} ({names}) {other.cure}"


def describe_missed(kinds: Mapping[str, int], root: str) -> str:
    """Returns which images the patterns miss, and how to include them.

    Args:
        kinds: kind of name -> number of files.
        root: the folder that all inputs share.
    """
    number, names = describe_kinds(kinds, images=True)
    if not number:
        return ""
    return (
        f"other images there are skipped ({names}): {spell_option('input', root)} includes all "
        "images"
    )


def describe_kinds(kinds: Mapping[str, int], *, images: bool) -> tuple[int, str]:
    """Returns how many of the files are images (or are not), and a list of their kinds.

    For example, "10 .JPG, 3 .jpeg".
    """
    chosen = _choose_kinds(kinds, images=images)
    return sum(chosen.values()), list_kinds(chosen)


def list_kinds(kinds: Mapping[str, int]) -> str:
    """Returns a list of kinds with their numbers, the most common kinds first."""
    counts = sorted(kinds.items(), key=lambda count: (-count[1], count[0]))
    names = [f"{number:,} {kind:.60}" for kind, number in counts]
    return join_texts(names, _MOST_KINDS_SHOWN, ", ")


def without_images(kinds: Mapping[str, int]) -> dict[str, int]:
    """Returns the kinds that are not images."""
    return _choose_kinds(kinds, images=False)


def _choose_kinds(kinds: Mapping[str, int], *, images: bool) -> dict[str, int]:
    return {kind: number for kind, number in kinds.items() if _is_image(kind) == images}


def _is_image(kind: str) -> bool:
    """Whether a kind of name, such as ".jpg", is an image extension."""
    return kind[1:].lower() in FORMAT_OF
