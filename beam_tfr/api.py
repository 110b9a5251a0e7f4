"""Provides the commands as functions; all except `verify` import Beam."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from beam_tfr import storage
from beam_tfr.console.display import Progress, on_stderr
from beam_tfr.console.terminal import open_descriptors
from beam_tfr.dataset.conditions import Where, parse_conditions
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.options.run import DisplayOptions, UpdateOptions
from beam_tfr.options.table import options_of
from beam_tfr.schema.arguments import public
from beam_tfr.schema.encodings import noun_of

if TYPE_CHECKING:
    from beam_tfr.launch import Result
    from beam_tfr.launch.exporting import Export
    from beam_tfr.preview import Preview
    from beam_tfr.verification import Report

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
ShowProgress = bool | Callable[[Progress], object]


@public
def convert(
    *,
    output: str | os.PathLike[str],
    input: Paths = (),  # noqa: A002 - the name on the command line
    runner: str | None = None,
    beam_flags: Sequence[str] = (),
    progress: ShowProgress = True,
    **options: Any,
) -> Result:
    """Converts images to a TFRecord dataset; returns when the dataset is complete.

    The same call resumes a run that was interrupted or failed, and returns at once if the dataset
    is already complete. In the main thread, Ctrl-C and a notebook's stop button end the run.

    Args:
        output: folder of the dataset, local or gs://.
        input: a folder or pattern of files, or several, local or gs://: `photos/**/*.jpg`.
        runner: Beam's runner, such as "DataflowRunner"; None uses all cores of this machine.
        beam_flags: Beam's own options as on a command line: ["--project=p",
            "--region=europe-west1"].
        progress: whether to print progress in addition to warnings, or a function that is called
            about every second with a `Progress`: `stage` ("listing", "converting", "publishing"),
            `done`, `total` (0 while unknown), `shards`, `num_shards`, `num_bytes` (read so far) and
            `rejected`.
        options: options of `beam-tfr convert` by name. Values are Python values, such as
            image_size=224 or (224, 256) (height, width), splits={"train": 0.9, "test": 0.1},
            overwrite=True, or strings as on the command line: "224x256", "train=0.9,test=0.1".

    Returns:
        The complete dataset: `folder`, `class_names`, `splits` with counts per class, `rejects`,
        `digest`.

    Raises:
        UsageError: the call is wrong; also a ValueError, and a FileNotFoundError if the input is
            missing.
        DataError: there are too many rejects, or all images of a split or class were rejected.
        RunError: the run failed; the same call resumes it.
        InterruptedRunError: the run was interrupted.
    """
    checked = from_values({"input": input, "output": output, **options}, ConvertOptions)
    flags = _beam_flags(runner, beam_flags)
    with _listening("convert", progress, checked, noun_of(checked.encoding)) as listener:
        from beam_tfr import launch

        result = launch.convert(checked, flags, progress=listener.report, say=listener.say)
        if checked.report:
            from beam_tfr.reporting import write_report

            write_report(result.folder, checked, listener.report)
        return result


@public
def update(
    folder: str | os.PathLike[str],
    *,
    input: Paths = (),  # noqa: A002 - the name on the command line
    runner: str | None = None,
    beam_flags: Sequence[str] = (),
    progress: ShowProgress = True,
    **options: Any,
) -> Result:
    """Brings a dataset up to date with its input.

    Converts images that were added to the input or changed in it, and drops the images that were
    removed from it.

    The result is byte for byte the dataset that `convert` would write, but unchanged records are
    copied. The existing dataset stays intact until the new one is complete. The same call resumes
    an update that was interrupted or failed.

    Args:
        folder: folder of the dataset, local or gs://.
        input: see `convert`. Without an input (or `table=`), the dataset keeps its images, and only
            options about files, such as `num_shards=` and `compression=`, may change.
        runner, beam_flags, progress: see `convert`.
        options: options of `beam-tfr update` by name. Options of `convert` that are not set keep
            the dataset's values.

    Returns:
        The dataset; `changed` has the numbers of records that were added, removed, changed,
            relabelled and renamed.

    Raises:
        UsageError: the call is wrong; also a ValueError.
        NotFoundError: the folder does not exist; also a FileNotFoundError.
        DataError: as for `convert`, or more than half of the dataset's images are missing from the
            input; `max_removed=` sets another limit. The dataset is unchanged.
        RunError, InterruptedRunError: as for `convert`; the dataset is unchanged.
    """
    names = options_of(UpdateOptions).keys() & options.keys()
    update_options = from_values({name: options.pop(name) for name in names}, UpdateOptions)
    flags = _beam_flags(runner, beam_flags)
    with _listening("update", progress) as listener:
        from beam_tfr import launch

        return launch.update(
            os.fspath(folder),
            {"input": _as_texts(input), **options},
            update_options,
            flags,
            progress=listener.report,
            say=listener.say,
        )


@public
def remove(
    folder: str | os.PathLike[str],
    *,
    keys: str | Sequence[str] = (),
    sha256: str | Sequence[str] = (),
    where: Where = None,
    allow_missing: bool = False,
    runner: str | None = None,
    beam_flags: Sequence[str] = (),
    progress: ShowProgress = True,
) -> Result:
    """Takes images down, and keeps them out of later conversions and updates.

    Also takes down images with the same bytes under other keys. The same call resumes a removal
    that was interrupted or failed.

    Args:
        folder: folder of the dataset, local or gs://.
        keys: keys of images, as the contents show them.
        sha256: SHA-256 of source files, 64 hex digits each.
        where: condition that the images meet, such as "label=hat"; see `export`.
        allow_missing: whether to allow keys and hashes that the dataset does not have, and
            conditions that no image meets.
        runner, beam_flags, progress: see `convert`.

    Returns:
        The dataset; `changed["removed"]` is the number of removed records, and `copies_that_stay`
        lists the keys of images that look like removed images, but were kept because their bytes
        differ.

    Raises:
        UsageError: the call is wrong; also a ValueError.
        NotFoundError: the folder does not exist; also a FileNotFoundError.
        DataError: the dataset lacks an image that the call names; nothing was removed.
        RunError, InterruptedRunError: as for `update`.
    """
    from beam_tfr import launch
    from beam_tfr.output.removed import select_images

    selection = select_images(
        _as_texts(keys),
        _as_texts(sha256),
        parse_conditions(where),
    )
    flags = _beam_flags(runner, beam_flags)
    with _listening("remove", progress) as listener:
        return launch.remove(
            os.fspath(folder),
            selection,
            flags,
            allow_missing=allow_missing,
            progress=listener.report,
            say=listener.say,
        )


@public
def plan(
    *,
    input: Paths = (),  # noqa: A002 - the name on the command line
    output: str | os.PathLike[str] | None = None,
    sample_size: int = 256,
    progress: ShowProgress = True,
    **options: Any,
) -> Preview:
    """Previews a conversion: lists the input and converts a sample of it, but writes nothing.

    Args:
        input, options: see `convert`.
        output: see `convert`; None for a folder that holds nothing yet.
        sample_size: number of images to convert.
        progress: whether to print progress, or a function that is called often with a `Progress`;
            see `convert`.

    Returns:
        The preview: `plan` with splits, shards and classes; `num_bytes`, `seconds` and
        `cpu_seconds`; `rejects`, reason -> number; `warnings`.

    Raises:
        UsageError: the call is wrong, or the input cannot be listed; also a ValueError.
        DataError: no file in the sample can be converted.
        RunError: no file in the sample can be read now.
    """
    checked = from_values(
        {"input": input, "output": output or "dataset", **options}, ConvertOptions
    )
    with _listening("plan", progress, checked, noun_of(checked.encoding)) as listener:
        importlib.import_module("beam_tfr.launch")  # its error names the missing extra
        from beam_tfr.preview import preview

        return preview(
            checked,
            check_output=output is not None,
            sample_size=sample_size,
            progress=listener.report,
        )


@public
def verify(
    folder: str | os.PathLike[str],
    *,
    sources: Paths = (),
    exclude: Paths = (),
    threads: int | None = None,
    progress: ShowProgress = True,
) -> Report:
    """Checks a dataset against its manifest: checksums, records, labels, counts.

    Args:
        folder: folder of the dataset, local or gs://.
        sources: the `input` or `table` that the dataset was made from; compares each record with
            its source by SHA-256.
        exclude: patterns of files that are not sources.
        threads: number of threads that read shards; None for one per core.
        progress: whether to print progress, or a function that is called about twice a second with
            a `Progress`, which counts records; see `convert`.

    Returns:
        A report: `ok`, and the first `problems`, each with `file`, `record` and `message`.

    Raises:
        UsageError: the path is malformed; also a ValueError.
        NotFoundError: the folder does not exist; also a FileNotFoundError.
        DataError: the folder holds no complete dataset.
    """
    from beam_tfr import verification

    with _listening("verify", progress, noun="records") as listener:
        return verification.verify(
            storage.check_path(folder, option="folder"),
            sources=_as_texts(sources),
            exclude=_as_texts(exclude),
            threads=threads,
            progress=listener.report,
        )


@public
def export(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: str,  # noqa: A002 - the name on the command line
    split: str | None = None,
    where: Where = None,
    runner: str | None = None,
    beam_flags: Sequence[str] = (),
    progress: ShowProgress = True,
) -> Export:
    """Writes a dataset in a format for other programs; the bytes of its images do not change.

    The same call resumes a run that was interrupted or failed, and returns at once if the export is
    complete.

    Args:
        folder: folder of the dataset, local or gs://.
        output: folder of the export, local or gs://, which must be empty.
        format: "folder", "yolo", "voc", "webdataset", "parquet", "tfds" or "dali-index": see
            docs/interoperability.md.
        split: name of a split; several splits, such as "train+test" or "all-test"; None for all
            splits.
        where: condition on the records to export, such as "label=hat"; or several conditions that
            must all be met, as a dict such as {"label": "hat"}. A name is that of a column of the
            contents or of a feature; the last part of a feature's name is enough.
        runner, beam_flags, progress: see `convert`.

    Returns:
        The export: `folder`, `format`, `images`, `splits` with the number of images in each,
        `load`, a line of Python that opens the export, and `fresh`, which is False if the export
        was already complete.

    Raises:
        UsageError: the call is wrong, no record matches, or the output folder holds other files;
            also a ValueError.
        DataError: the dataset is damaged, or the key of an image cannot be a file name.
        RunError: the run failed, or another dataset replaced the exported dataset; the same call
            resumes the run.
        InterruptedRunError: the run was interrupted.
    """
    flags = _beam_flags(runner, beam_flags)
    with _listening("export", progress) as listener:
        from beam_tfr import launch

        return launch.export(
            os.fspath(folder),
            os.fspath(output),
            format,
            split=split,
            where=where,
            beam_flags=flags,
            progress=listener.report,
            say=listener.say,
        )


class _Listener(NamedTuple):
    """The functions that receive the progress and messages of a command.

    Attributes:
        report: called with a `Progress`.
        say: called with messages, one line each.
    """

    report: Callable[[Progress], object]
    say: Callable[[str], object]


@contextlib.contextmanager
def _listening(
    command: str,
    progress: ShowProgress,
    options: DisplayOptions | None = None,
    noun: str = "images",
) -> Iterator[_Listener]:
    """Yields a listener that prints to standard error, or calls the caller's function.

    Args:
        command: name of the command, for messages.
        progress: the caller's function, or whether to print progress.
        options: how to print progress; None for the default.
        noun: plural noun for the counted items.
    """
    open_descriptors()
    options = options or DisplayOptions()
    quiet = options.quiet or progress is not True
    shown = on_stderr(command, noun=noun, progress_format=options.progress_format, quiet=quiet)
    with shown as display:
        yield _Listener(progress if callable(progress) else display, display.say)


def _beam_flags(runner: str | None, flags: Sequence[str]) -> list[str]:
    """Returns Beam's flags, including the flag of the runner."""
    return [f"--runner={runner}", *flags] if runner else [*flags]


def _as_texts(paths: Paths) -> list[str]:
    """Returns one or several paths as a list; `public` has already turned them into strings."""
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [os.fspath(path) for path in several]
