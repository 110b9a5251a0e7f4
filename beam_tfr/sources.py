"""Opens the patterns or tables of a conversion before the pipeline starts."""

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.manifest import find_manifest
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.inputs.class_files import read_class_file
from beam_tfr.inputs.input_lists import open_input_list
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.listing import PatternPart, list_parts, order_parts
from beam_tfr.inputs.no_match import find_records, suggest_dataset
from beam_tfr.inputs.patterns import (
    ARCHIVE,
    common_root,
    compile_exclusion,
    compile_exclusions,
    compile_pattern,
    describe_misplaced,
    is_wild,
    mark_folders,
)
from beam_tfr.inputs.skipped import UNCOUNTED, SkippedFiles
from beam_tfr.inputs.webdataset import check_webdataset
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, Layout, parse_layout
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import is_dataset
from beam_tfr.planning.drafts import PlanSettings
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.extensions import PACKED, has_image_name
from beam_tfr.schema.naming import file_name, parse_file_name, shard_name
from beam_tfr.schema.renames import parse_renames
from beam_tfr.schema.spelling import quote_word, spell_option
from beam_tfr.schema.value_places import ValuePlaces
from beam_tfr.schema.wildcards import escape_pattern
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.formats import format_of, has_table_name, split_suffix
from beam_tfr.tables.numbered_names import NumberedNames, find_numbered_names
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables
from beam_tfr.tables.tfrecord_rows import TfRecord

MOST_RECORDS = 10  # files that may be opened to see whether they are TFRecords
_MOST_FILES = 10_000  # files whose classes are checked for numbers
_MOST_NAMES = 1_000  # names of a pattern on gs:// that one request lists
# Archives that must be unpacked, and TFRecords, which are tables.
_REFUSED = re.compile(rf"{PACKED.pattern}|\.tfrec(?:ords?)?[^/]*\Z")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """The input of a conversion, and what is known about it before the pipeline runs.

    Attributes:
        root: folder that all keys are relative to, with a trailing slash.
        input, exclude: patterns of files to convert and to skip; folders end in /, and `exclude`
            includes the output.
        origin: opened tables; or the labeler, which reads labels and splits from paths; or a
            dataset, whose own list of images is used.
        plan: name, suffix, options and other fields of the future plan.
        renames: class -> its new name.
        has_default_layout: whether no option sets the layout of paths.
        has_list: whether a list names additional files.
        notes: sentences about choices that no option makes.
    """

    root: str
    input: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    origin: Tables | Labeler | BaseDataset
    plan: PlanSettings
    renames: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_default_layout: bool = False
    has_list: bool = False
    notes: tuple[str, ...] = ()

    @property
    def encoding(self) -> str:
        """The option `encoding`, or the encoding of the rows in the first table."""
        encoding: str = self.plan.options["encoding"]
        return encoding

    @property
    def layout(self) -> Layout:
        """The layout of paths; an empty layout for tables and datasets."""
        return self.origin.layout if isinstance(self.origin, Labeler) else Layout(("*",))

    @property
    def has_groups(self) -> bool:
        """Whether images may be in groups that must share a split."""
        if isinstance(self.origin, Tables):
            return bool(self.origin.options.group_column)
        return "{group}" in str(self.layout)

    @property
    def has_archives(self) -> bool:
        """Whether images may be in archives."""
        return any(map(ARCHIVE.search, self.input))

    @property
    def pairs(self) -> list[str]:
        """The names that readers use for the masks and other images of each image."""
        features = FeaturesDict.from_options(self.plan.options)
        return [companion.key for companion in features.companions]

    @property
    def places(self) -> ValuePlaces:
        """Where classes and splits come from; unknown for the images of a dataset."""
        return ValuePlaces() if isinstance(self.origin, BaseDataset) else self.origin.places

    @property
    def missing(self) -> str:
        """A message if none of the first images in the tables exist; otherwise an empty string."""
        return self.origin.missing if isinstance(self.origin, Tables) else ""

    @property
    def exclusion(self) -> re.Pattern[str]:
        """The regular expression of the files to skip."""
        return compile_exclusion(self.exclude, self.root)

    def count_skipped(self) -> SkippedFiles:
        """Returns a new counter of the files that the patterns miss."""
        exclusions = compile_exclusions(self.exclude, self.root)
        return SkippedFiles(self.input, self.exclusion, exclusions)

    def list_first(
        self, skipped: SkippedFiles = UNCOUNTED
    ) -> Iterator[storage.Entry | PatternPart]:
        """Yields the first files that the patterns match, and the parts of patterns left unlisted.

        No archive is opened. On gs://, one request lists the first names of a pattern.

        Args:
            skipped: counts the files that the patterns miss.

        Raises:
            InputNotFoundError: a pattern matches nothing.
            UsageError: a pattern cannot be listed.
        """
        return _list_first(self.input, self.exclusion, skipped)


def _list_first(
    patterns: Sequence[str], exclusion: re.Pattern[str], skipped: SkippedFiles = UNCOUNTED
) -> Iterator[storage.Entry | PatternPart]:
    """Yields the first files of patterns; see `Input.list_first`."""
    parts = order_parts(patterns, ())
    batches = list_parts(parts, exclude=exclusion, limit=_MOST_NAMES, skipped=skipped)
    return itertools.chain.from_iterable(batches)


class _Classes(NamedTuple):
    """The classes that `classes=` names.

    Attributes:
        allowed: the allowed classes, in order; None if any class is allowed.
        first: classes of a dataset, which get the first ids.
        first_number: number of the first class, if the file has numbers.
        note: what the file may be if it is not a list of classes; usually an empty string.
        id_note: a note that ids differ from the numbers in the file; usually an empty string.
    """

    allowed: Sequence[str] | None = None
    first: Sequence[str] = ()
    first_number: int | None = None
    note: str = ""
    id_note: str = ""

    @property
    def notes(self) -> list[str]:
        return [*filter(None, [self.note, self.id_note])]

    def allowed_set(self) -> frozenset[str] | None:
        return None if self.allowed is None else frozenset(self.allowed)


def open_source(options: ConvertOptions, classes: Sequence[str] | None = None) -> Input:
    """Reads the list of patterns, the classes, and the first rows of the tables.

    Args:
        options: checked options.
        classes: classes of a dataset that was made with `classes=`; the options may name other
            classes.

    Raises:
        UsageError: a file is wrong or cannot be read, the inputs have no common folder, or they
            match the files that the conversion writes.
    """
    if options.classes:
        chosen = _read_classes(options.classes)
    else:
        chosen = _Classes(allowed=classes or None)
    if options.table:
        return _open_tables(options, chosen)
    return _open_patterns(options, chosen)


def _open_tables(options: ConvertOptions, classes: _Classes) -> Input:
    content = find_content(options)
    _check_outside(options, content.files)
    tables = open_tables(
        content, classes.allowed, may_number=not classes.note, first_number=classes.first_number
    )
    options = content.options
    if tables.numbered_names:
        classes = classes._replace(allowed=[*tables.numbered_names])
        options = _rename_numbers(options, tables.numbered_names)
    if tables.options.split_column != options.split_column:  # the first rows imply another column
        options = dataclasses.replace(options, split_column=tables.options.split_column)
    first = classes.first
    if classes.allowed is None and not first:
        first = content.class_names
    columns = {feature.name: feature.text for feature in tables.features}
    plan = PlanSettings(
        name=options.name,
        suffix=options.suffix,
        options=options.data_options(
            classes.allowed, columns=columns, multi_label=tables.multi_label
        ),
        labelled=bool(options.label_column),
        first=rename_all(first, options),
    )
    return Input(
        root=tables.root,
        exclude=options.exclude,
        origin=tables,
        plan=plan,
        renames=parse_renames(options.rename),
        notes=(*classes.notes, *_describe_padding(options, plan)),
    )


def _open_patterns(options: ConvertOptions, classes: _Classes) -> Input:
    patterns = mark_folders(options.input)
    listed = open_input_list(options.input_list)
    all_patterns = [*patterns, *listed.patterns]
    root = common_root(all_patterns)
    exclude = _list_exclusions(options, patterns)
    _check_archives(options, all_patterns)
    if not options.layout:
        check_webdataset(patterns)
    refuse_records(options.encoding, itertools.filterfalse(is_wild, all_patterns))
    _refuse_tables(options.encoding, patterns)
    _check_apart(options, all_patterns, compile_exclusion(exclude, root))
    layout = parse_layout(options.layout or DEFAULT_LAYOUT)
    numbered = NumberedNames()
    if options.classes and classes.allowed and not classes.note and not options.rename:
        entries = _list_first(patterns, compile_exclusion(exclude, root))
        numbered = _number_folders(entries, root, layout, classes)
    if numbered.name_of:
        classes = classes._replace(allowed=[*numbered.name_of])
        options = _rename_numbers(options, numbered.name_of)
    plan = PlanSettings(
        name=options.name,
        suffix=options.suffix,
        options=options.data_options(classes.allowed),
        labelled="{label}" in str(layout),
        first=rename_all(classes.first, options),
    )
    labeler = Labeler(layout, options.shares, classes.allowed_set(), options.stratify)
    return Input(
        root=root,
        input=patterns,
        exclude=exclude,
        origin=labeler,
        plan=plan,
        renames=parse_renames(options.rename),
        has_default_layout=not options.layout,
        has_list=options.input_list is not None,
        notes=(
            *_describe_padding(options, plan),
            *_describe_packed_pairs(options, all_patterns),
            *describe_misplaced(options.exclude, root),
            *filter(
                None,
                [
                    labeler.describe_root(root),
                    listed.note,
                    labeler.describe_list(options.input_list),
                    *classes.notes,
                    numbered.warning,
                ],
            ),
        ),
    )


def _number_folders(
    entries: Iterable[storage.Entry | PatternPart], root: str, layout: Layout, classes: _Classes
) -> NumberedNames:
    """Finds the names of classes whose numbers are folder names.

    A layout may also read classes from other parts of paths.

    Args:
        entries: the first files; files in archives are unknown.
        root: folder that keys are relative to, with a trailing slash.
        layout: how to read keys.
        classes: the names.
    """
    labels = set[str]()
    with contextlib.suppress(UsageError):  # the run reports errors in patterns
        for entry in itertools.islice(entries, _MOST_FILES):
            if not isinstance(entry, storage.Entry):
                continue
            values = layout.parse_key(entry.path.removeprefix(root))
            if values and "label" in values:
                labels.add(values["label"])
    names = classes.allowed or ()
    return find_numbered_names("folders", labels, names, first_number=classes.first_number)


def _rename_numbers(options: ConvertOptions, name_of: Mapping[str, str]) -> ConvertOptions:
    """Returns the options with renames that turn numbered classes into their names."""
    renames = tuple(f"{number}={name}" for number, name in name_of.items())
    return dataclasses.replace(options, rename=renames)


def rename_all(classes: Sequence[str], options: ConvertOptions) -> list[str]:
    """Returns the classes under their names from `rename=`, each class once."""
    renames = parse_renames(options.rename)
    return [*dict.fromkeys(renames.get(name, name) for name in classes)]


def _describe_padding(options: ConvertOptions, plan: PlanSettings) -> Iterator[str]:
    """Yields messages about the effect of padding on boxes and masks, if no option sets it."""
    if plan.options.get("resize") != "pad":
        return
    if not options.resize:
        yield (
            "images are padded, not cropped: the sides that `resize=crop` cuts off also hold "
            "boxes, points or masks; set `resize=` to choose"
        )
    features = FeaturesDict.from_options(plan.options)
    masks = [companion for companion in features.companions if companion.marks_places]
    if any(not mask.handling.outside for mask in masks):
        yield (
            "masks have 0 where images are padded: fine if 0 is their background, else add "
            "a different value after their path or type, such as [255]"
        )


def _describe_packed_pairs(options: ConvertOptions, patterns: Sequence[str]) -> Iterator[str]:
    """Yields a message if masks or pairs are not read because images are in archives."""
    if options.pair and any(map(ARCHIVE.search, patterns)):
        yield (
            "`pair=` reads files from a disk or gs://, but not from archives: unpack archives "
            "that hold masks or other images of pairs"
        )


def _list_exclusions(options: ConvertOptions, patterns: Sequence[str]) -> tuple[str, ...]:
    """Lists the patterns of files to skip.

    In addition to the patterns in the options, these patterns skip the output, and masks and other
    images of pairs, all of which may be in a folder of the input.
    """
    exclude = list(options.exclude)
    output = options.output.rstrip("/")
    folders = tuple(pattern for pattern in patterns if pattern.endswith("/"))
    if f"{output}/".startswith(folders):
        exclude.append(f"{escape_pattern(output)}/**")
    features = FeaturesDict.from_options(vars(options))
    exclude += [companion.glob for companion in features.companions]
    return tuple(exclude)


def check_gcs_access(options: ConvertOptions) -> None:
    """Checks that gs:// can be accessed, if it is used.

    Raises:
        UsageError: there are no credentials.
    """
    files = filter(None, [options.input_list, options.classes])
    for path in [*options.input, *options.table, options.output, *files]:
        if storage.is_gcs(path):
            try:
                storage.connect()
            except OSError as error:
                raise UsageError(f"{path} cannot be reached: {error.strerror}") from error
            return


def refuse_records(encoding: str, paths: Iterable[str]) -> None:
    """Raises an error for TFRecords where images are expected.

    Checks the first files that are neither images nor archives, judging by their names.

    Raises:
        UsageError: one of these files is a TFRecord.
    """
    if encoding not in IMAGE_ENCODINGS:
        return
    others = (path for path in paths if not has_image_name(path) and not ARCHIVE.search(path))
    record = find_records(itertools.islice(others, MOST_RECORDS))
    if record:
        raise UsageError("holds TFRecords; specify it with `table=`", option="input", value=record)


def _refuse_tables(encoding: str, patterns: Iterable[str]) -> None:
    """Raises an error for tables, recognized by name, where images are expected.

    Raises:
        UsageError: a pattern matches tables.
    """
    if encoding not in IMAGE_ENCODINGS:
        return
    for pattern in patterns:
        if has_table_name(pattern) and not ARCHIVE.search(pattern):
            kind = "a table"
            if isinstance(format_of(pattern), TfRecord):
                kind += " of TFRecords"
            raise UsageError(
                f"is {kind}, not images: specify it with {spell_option('table', pattern)}",
                option="input",
                value=pattern,
            )


def _read_classes(path: str) -> _Classes:
    """Reads the classes in a file or of a dataset.

    Raises:
        UsageError: the path is neither a list of classes nor a dataset.
    """
    folder = storage.check_path(path, option="classes").rstrip("/")
    folder = folder.removesuffix(f"/{MANIFEST_FILE}")
    try:
        dataset = find_manifest(folder)
    except (DataError, OSError) as error:
        problem = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be read: {problem}", option="classes", value=path) from None
    if dataset is None:
        classes = read_class_file(path)
        number = classes.first_number
        id_note = ""
        if number:
            id_note = (
                f"{spell_option('classes', path)} counts from {number}, but ids count from 0, "
                f"which is the id of {classes.names[0]}"
            )
        return _Classes(
            allowed=classes.names, first_number=number, note=classes.note, id_note=id_note
        )
    if not dataset.class_names:
        raise UsageError("is a dataset without classes", option="classes", value=path)
    return _Classes(first=dataset.class_names)


def _check_archives(options: ConvertOptions, patterns: Sequence[str]) -> None:
    """Checks that images can be read from all archives, and that only images are read from them.

    Raises:
        UsageError: a pattern matches other archives.
    """
    if options.encoding in IMAGE_ENCODINGS:
        refused = _REFUSED
        problem = (
            "images in it cannot be read one by one: unpack it, or turn it into a .zip or .tar, "
            "in one piece if it is split; specify TFRecords with `table=`"
        )
    else:
        refused = ARCHIVE
        problem = (
            f"stands for images in archives, but {spell_option('encoding', options.encoding)} "
            "reads files: unpack them"
        )
    for pattern in patterns:
        if refused.search(pattern):
            advice = suggest_dataset(pattern.rpartition("/")[0])
            raise UsageError(problem + advice, option="input", value=pattern)


def _check_apart(
    options: ConvertOptions, patterns: Sequence[str], exclude: re.Pattern[str]
) -> None:
    """Checks that no pattern matches the output, whose files would be read as images.

    Raises:
        UsageError: a pattern matches it.
    """
    shard = file_name(options.name, shard_name("train", 0, 1), options.suffix)
    written = [
        storage.work_path(options.output, "lock"),
        storage.join(options.output, MANIFEST_FILE),
        storage.join(options.output, shard),
    ]
    read_again = [path for path in written if not exclude.fullmatch(path)]
    for pattern in filter(is_wild, patterns):
        if pattern.endswith("/"):
            _check_folder(options, pattern)
        if any(map(compile_pattern(pattern).fullmatch, read_again)):
            raise UsageError(
                f"also matches files of the dataset, {options.output}: choose another folder for "
                "it, use a narrower pattern, such as **/*.jpg, or skip it with `exclude=`",
                option="input",
                value=pattern,
            )


def _check_folder(options: ConvertOptions, folder: str) -> None:
    """Checks that a folder in the input is not the output, and that images are read from it.

    Raises:
        UsageError: the folder is the output, or other files are read.
    """
    if folder == f"{options.output.rstrip('/')}/":
        raise UsageError(
            "is also the folder of the dataset; choose another", option="input", value=folder
        )
    if options.encoding not in IMAGE_ENCODINGS:
        files = "**/*.npy" if options.encoding == "array" else "**"
        raise UsageError(
            "is a folder, which stands for all images below it; use "
            f"{quote_word(f'{escape_pattern(folder)}{files}', f'FOLDER/{files}')}",
            option="input",
            value=folder,
        )


def _check_outside(options: ConvertOptions, files: Sequence[str]) -> None:
    """Checks that the output is not inside datasets that are converted; follows links.

    Raises:
        UsageError: the output folder holds shards to read, or is below the folder of a dataset.
    """
    output = f"{storage.real_path(options.output)}/"
    datasets = [path.rpartition("/")[0] for path in options.table if is_dataset(path)]
    folders = tuple(f"{storage.real_path(folder)}/" for folder in datasets)
    paths: Iterator[str]
    if folders:
        paths = map(storage.real_path, files)
    else:
        paths = _real_shards(files)
    holds_shards = any(path.startswith(output) for path in paths)
    if holds_shards or output.startswith(folders):
        options.refuse(
            "output",
            (
                "holds files that `table=` reads, or is below the folder of the dataset; choose "
                "another"
            ),
        )


def _real_shards(files: Sequence[str]) -> Iterator[str]:
    """Yields the real paths of the files that are shards, or links to shards.

    Leaves out other files, because finding the real paths of many small tables would take seconds.
    """
    for path in files:
        if os.path.islink(path) or _is_shard(path):
            real_path = storage.real_path(path)
            if _is_shard(real_path):
                yield real_path


def _is_shard(path: str) -> bool:
    """Whether a file has the name of a shard, or of its contents."""
    stem, _ = split_suffix(path.rpartition("/")[2])
    return parse_file_name(f"{stem}.tfrecord") is not None
