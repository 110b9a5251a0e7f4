"""Opens the patterns or tables that a conversion reads, before the pipeline starts."""

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Sequence

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.manifest import find_manifest
from beam_tfr.inputs import patterns as globs
from beam_tfr.inputs.labels import Labeler, read_classes
from beam_tfr.inputs.listing import PatternPart, list_parts, suggest_dataset
from beam_tfr.inputs.skipped import SkippedFiles, describe_missed
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, Layout, parse_layout
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import is_dataset
from beam_tfr.planning.drafts import PlanSettings
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.features import companions_of
from beam_tfr.schema.naming import file_name, parse_file_name, shard_name
from beam_tfr.tables.formats import split_suffix
from beam_tfr.tables.opening import find_content, open_tables
from beam_tfr.tables.rows import Tables

MOST_LOOKED_AT = 10_000  # files, before the work begins
MOST_NAMES = 1_000  # of a pattern on gs://, which one request lists
# Archives that are compressed as a whole, and TFRecords, which are tables.
_SOLID = re.compile(r"(?i)\.(?:tar\.[a-z0-9]+|t[gbxz]z2?|tzst|7z|rar|tfrec(?:ords?)?[^/]*)\Z")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """The input of a conversion, and what is known about it before the pipeline runs.

    Attributes:
        root: folder that all keys are relative to, with a trailing slash.
        input, exclude: patterns of files to convert and to skip; folders end in /, and exclude the
            output.
        origin: opened tables; or the labeler, which reads labels and splits from paths; or a
            dataset, whose images are taken as they were listed for it.
        plan: name, suffix, options and so on of the future plan.
    """

    root: str
    input: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    origin: Tables | Labeler | BaseDataset
    plan: PlanSettings

    @property
    def layout(self) -> Layout:
        """The layout of paths; one without values for tables and datasets."""
        return self.origin.layout if isinstance(self.origin, Labeler) else Layout(("*",))


def open_source(options: ConvertOptions, classes: Sequence[str] | None = None) -> Input:
    """Reads the list of patterns, the classes, and the first rows of the tables.

    Args:
        options: checked options.
        classes: those of a dataset that had `classes=`; the options may name others.

    Raises:
        UsageError: a file cannot be read or is wrong, the inputs have no folder in common, or they
            match what the conversion writes.
    """
    class_names, first = (
        (classes, ()) if classes and not options.classes else _choose_classes(options.classes)
    )
    known = None if class_names is None else frozenset(class_names)
    origin: Tables | Labeler
    patterns = globs.mark_folders(options.input)
    exclude = options.exclude
    if options.table:
        content = find_content(options)
        _check_outside(options, content.files)
        options = content.options
        origin = open_tables(content, known)
        first = first or (content.class_names if class_names is None else ())
        columns = {column: column_type.text for column, column_type in origin.types.items()}
        data_options = options.data_options(
            class_names, columns=columns, multi_label=origin.multi_label
        )
        root = origin.root
        labelled = bool(options.label_column)
    else:
        all_patterns = [*patterns, *globs.read_input_list(options.input_list)]
        root = globs.common_root(all_patterns)
        if any(
            f"{options.output}/".startswith(folder) for folder in patterns if folder.endswith("/")
        ):
            exclude = (*exclude, f"{globs.escape_pattern(options.output.rstrip('/'))}/**")
        beside = companions_of(
            vars(options)
        )  # which may be below the folder of the images, as such
        exclude = (*exclude, *(companion.glob for companion in beside))
        _check_archives(options, all_patterns)
        _check_apart(options, all_patterns, globs.compile_exclusion(exclude, root))
        data_options = options.data_options(class_names)
        origin = Labeler(parse_layout(options.layout or DEFAULT_LAYOUT), options.splits, known)
        labelled = any("{label}" in part for part in origin.layout.parts)
    plan = PlanSettings(
        name=options.name,
        suffix=options.suffix,
        options=data_options,
        labelled=labelled,
        first=first,
    )
    return Input(root=root, input=patterns, exclude=exclude, origin=origin, plan=plan)


def check_gcs_access(options: ConvertOptions) -> None:
    """Checks that gs:// can be reached if it is used.

    Raises:
        UsageError: there are no credentials.
    """
    places = [
        *options.input,
        *options.table,
        options.output,
        options.input_list or "",
        options.classes or "",
    ]
    place = next(filter(storage.is_gcs, places), "")
    if place:
        try:
            storage.connect()
        except OSError as error:
            raise UsageError(f"{place} cannot be reached: {error.strerror}") from error


def early_warnings(source: Input) -> Iterator[str]:
    """Warns, from the first files, of images that the patterns miss and of paths that fit the
    layout in several ways.

    Raises:
        InputNotFoundError: a pattern matches nothing.
        UsageError: one cannot be listed.
    """
    if isinstance(source.origin, Tables):
        yield from source.origin.warnings
    if storage.is_gcs(source.root) and not source.layout.longest:
        return  # the summary reports missed images
    exclude = globs.compile_exclusion(source.exclude, source.root)
    skipped = SkippedFiles(source.input, exclude)
    parts = [PatternPart(*pair) for pair in globs.order_patterns(source.input)]
    listed = itertools.chain.from_iterable(
        list_parts(parts, exclude=exclude, limit=MOST_NAMES, skipped=skipped)
    )
    files = [
        entry
        for entry in itertools.islice(listed, MOST_LOOKED_AT)
        if isinstance(entry, storage.Entry)
    ]
    keys = [file.path.removeprefix(source.root) for file in files]
    yield from filter(
        None, [describe_missed(skipped.kinds, source.root), source.layout.describe_ambiguity(keys)]
    )


def _choose_classes(path: str | None) -> tuple[Sequence[str] | None, Sequence[str]]:
    """The classes in a file, in order (None: any class), or those of a dataset, which get the first
    ids.

    Raises:
        UsageError: the path is neither.
    """
    if path is None:
        return None, ()
    folder = (
        storage.check_path(path, option="classes").rstrip("/").removesuffix(f"/{MANIFEST_FILE}")
    )
    try:
        dataset = find_manifest(folder)
    except (DataError, OSError) as error:
        problem = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be read: {problem}", option="classes", value=path) from None
    if dataset is None:
        return read_classes(path), ()
    if not dataset.class_names:
        raise UsageError("is a dataset without classes", option="classes", value=path)
    return None, dataset.class_names


def _check_archives(options: ConvertOptions, patterns: Sequence[str]) -> None:
    """Refuses archives of which no single image can be read, and any archive if no images are read.

    Raises:
        UsageError: a pattern matches such archives.
    """
    reads_images = options.encoding in IMAGE_ENCODINGS
    wrong = next(filter((_SOLID if reads_images else globs.ARCHIVE).search, patterns), None)
    cause = (
        f"stands for images in archives, and `encoding={options.encoding}` reads files: unpack them"
    )
    if reads_images:
        cause = "no image in it can be read alone: unpack it, or make a .zip or .tar of it; TFRecords are a `table=`"
    if wrong:
        raise UsageError(
            cause + suggest_dataset(wrong.rpartition("/")[0]), option="input", value=wrong
        )


def _check_apart(
    options: ConvertOptions, patterns: Sequence[str], exclude: re.Pattern[str]
) -> None:
    """Refuses patterns that match what the conversion writes, which it would then read as images.

    Raises:
        UsageError: a pattern does.
    """
    own = [MANIFEST_FILE, file_name(options.name, shard_name("train", 0, 1), options.suffix)]
    written = [
        storage.work_path(options.output, "lock"),
        *(storage.join(options.output, name) for name in own),
    ]
    for pattern in filter(globs.is_wild, patterns):
        if pattern == f"{options.output.rstrip('/')}/":
            raise UsageError(
                "is the folder of `input=`; choose another", option="output", value=options.output
            )
        if pattern.endswith("/") and options.encoding not in IMAGE_ENCODINGS:
            below = globs.escape_pattern(pattern)
            glob = "**/*.npy" if options.encoding == "array" else "**"
            message = f"is a folder, which stands for all images below it; use '{below}{glob}'"
            raise UsageError(message, option="input", value=pattern)
        matches = globs.compile_pattern(pattern).fullmatch
        if any(matches(path) and not exclude.fullmatch(path) for path in written):
            cure = "choose one elsewhere, use a narrower pattern, such as **/*.jpg, or leave it out with `exclude=`"
            message = f"`input={pattern}` also matches the output folder; {cure}"
            raise UsageError(message, option="output", value=options.output)


def _check_outside(options: ConvertOptions, files: Sequence[str]) -> None:
    """Refuses an output folder that holds shards to read, or is below the folder of a dataset;
    links are followed.

    Raises:
        UsageError: it does or is.
    """
    output = f"{storage.real_path(options.output)}/"
    folders = [
        f"{storage.real_path(path.rpartition('/')[0])}/"
        for path in filter(is_dataset, options.table)
    ]
    if not folders:  # the real path of each of many small tables would take seconds
        files = [path for path in files if os.path.islink(path) or _is_shard(path)]
    inside = [path for path in map(storage.real_path, files) if path.startswith(output)]
    if output.startswith(tuple(folders)) or any(folders or _is_shard(path) for path in inside):
        options.refuse(
            "output",
            "holds what `table=` reads, or is below the folder of the dataset; choose another",
        )


def _is_shard(path: str) -> bool:
    """Whether a file has the name of a shard, or of its contents."""
    return parse_file_name(f"{split_suffix(path.rpartition('/')[2])[0]}.tfrecord") is not None
