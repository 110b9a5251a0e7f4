"""The commands as functions. All but `verify` import Beam.

Progress goes to `sys.stderr` (in a notebook, the cell), unless `progress=` says otherwise.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfr import storage
from beam_tfr.console.display import Progress, on_stderr
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.options.run import UpdateOptions
from beam_tfr.options.table import options_of
from beam_tfr.schema.encodings import noun_of
from beam_tfr.schema.errors import UsageError, without_traceback

if TYPE_CHECKING:
    from beam_tfr.launch import Result
    from beam_tfr.launch.exporting import Export
    from beam_tfr.preview import Preview
    from beam_tfr.verification import Report

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@without_traceback
def convert(
    *,
    output: str | os.PathLike[str],
    input: Paths = (),  # noqa: A002 - the name on the command line
    runner: str | None = None,
    beam_flags: Sequence[str] = (),
    progress: bool | Callable[[Progress], object] = True,
    **options: Any,
) -> Result:
    """Converts images to a TFRecord dataset; returns when it is complete.

    The same call resumes a run that was interrupted or failed, and returns at once if the dataset
    is already complete. In the main thread, Ctrl-C and a notebook's stop button end the run.

    Args:
        output: folder of the dataset, local or gs://.
        input: a folder or pattern of files, or several, local or gs://: "photos/**/*.jpg".
        runner: Beam's runner, such as "DataflowRunner"; None uses all cores of this machine.
        beam_flags: Beam's own options as on a command line: ["--project=p",
            "--region=europe-west1"].
        progress: whether to print progress, besides warnings, or a function that is called about
            every second with a `Progress`: `stage` ("listing", "converting", "publishing"), `done`,
            `total` (0 while unknown), `shards`, `num_shards`, `num_bytes` (read so far) and
            `rejected`.
        options: options of `beam-tfr convert` by name. Values are Python values, such as
            image_size=224 or (224, 256) (height, width), splits={"train": 0.9, "test": 0.1},
            overwrite=True, or text as on the command line: "224x256", "train=0.9,test=0.1".

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
    flags = _flags(runner, beam_flags)
    what = noun_of(checked.encoding)
    quiet = checked.quiet or progress is not True
    with on_stderr("convert", what=what, log_format=checked.log_format, quiet=quiet) as shown:
        from beam_tfr import launch

        report = shown if progress is True else progress or None
        return launch.convert(checked, flags, progress=report, say=shown.say)


@without_traceback
def update(
    folder: str | os.PathLike[str],
    *,
    input: Paths = (),  # noqa: A002 - the name on the command line
    runner: str | None = None,
    beam_flags: Sequence[str] = (),
    progress: bool | Callable[[Progress], object] = True,
    **options: Any,
) -> Result:
    """Brings a dataset up to date: adds, converts and drops what was added, changed and removed in
    its input.

    The result is byte for byte the dataset that `convert` would write, but records whose sources
    did not change are copied. The dataset that is there stays whole until the new one is complete.
    The same call resumes.

    Args:
        folder: folder of the dataset, local or gs://.
        input: see `convert`. Without an input (or `table=`) the images are those of the dataset,
            and only options of files, such as `num_shards=` and `compression=`, may differ.
        runner, beam_flags, progress: see `convert`.
        options: options of `beam-tfr update` by name. Those of `convert` are taken from the dataset
            unless given.

    Returns:
        The dataset; `changed` says how many records were added, removed, changed and relabelled.

    Raises:
        UsageError: the call is wrong; also a ValueError.
        NotFoundError: there is no such folder; also a FileNotFoundError.
        DataError, RunError, InterruptedRunError: as `convert` raises them; the dataset is then as
            it was.
    """
    own = {name: options.pop(name) for name in options_of(UpdateOptions).keys() & options.keys()}
    how = from_values(own, UpdateOptions)
    flags = _flags(runner, beam_flags)
    with on_stderr("update", quiet=progress is not True) as shown:
        from beam_tfr import launch

        report = shown if progress is True else progress or None
        given = {"input": _texts("input", input), **options}
        return launch.update(os.fspath(folder), given, how, flags, progress=report, say=shown.say)


def _flags(runner: str | None, beam_flags: Sequence[str]) -> list[str]:
    if not isinstance(beam_flags, (list, tuple)) or not all(
        isinstance(flag, str) for flag in beam_flags
    ):
        raise UsageError(
            'must be a list of texts, such as ["--project=p"]',
            option="beam_flags",
            value=beam_flags,
        )
    return [*([f"--runner={runner}"] if runner else []), *beam_flags]


@without_traceback
def plan(
    *,
    input: Paths = (),  # noqa: A002 - the name on the command line
    output: str | os.PathLike[str] | None = None,
    sample_size: int = 256,
    progress: bool | Callable[[Progress], object] = True,
    **options: Any,
) -> Preview:
    """Previews a conversion by listing its input and converting a sample; writes nothing.

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
        DataError: no file of the sample can be converted.
        RunError: no file of the sample can be read now.
    """
    checked = from_values(
        {"input": input, "output": output or "dataset", **options}, ConvertOptions
    )
    what = noun_of(checked.encoding)
    quiet = checked.quiet or progress is not True
    with on_stderr("plan", what=what, log_format=checked.log_format, quiet=quiet) as shown:
        importlib.import_module("beam_tfr.launch")  # its error names the missing extra
        from beam_tfr.preview import preview

        report = progress if callable(progress) else shown
        return preview(
            checked, check_output=output is not None, sample_size=sample_size, progress=report
        )


@without_traceback
def verify(
    folder: str | os.PathLike[str],
    *,
    sources: Paths = (),
    exclude: Paths = (),
    progress: bool | Callable[[Progress], object] = True,
    **options: Any,
) -> Report:
    """Checks a dataset against its manifest: checksums, records, images, labels, counts.

    Args:
        folder: folder of the dataset, local or gs://.
        sources: the `input` or `table` that the dataset was made from; compares each record with
            its source by SHA-256.
        exclude: patterns of files that are not sources.
        progress: whether to print progress, or a function that is called about twice a second with
            a `Progress`, which counts records; see `convert`.
        options: further arguments of `beam_tfr.verification.verify`, such as `threads`.

    Returns:
        A report: `ok`, and the first `problems`, each with `file`, `record` and `message`.

    Raises:
        UsageError: the path is malformed; also a ValueError.
        NotFoundError: there is no such folder; also a FileNotFoundError.
        DataError: the folder holds no complete dataset.
    """
    from beam_tfr import verification

    with on_stderr("verify", what="records", quiet=progress is not True) as shown:
        return verification.verify(
            storage.check_path(folder, option="folder"),
            sources=_texts("sources", sources),
            exclude=_texts("exclude", exclude),
            progress=progress if callable(progress) else shown,
            **options,
        )


@without_traceback
def export(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: str,  # noqa: A002 - the name on the command line
    split: str | None = None,
    where: str | Mapping[str, object] | None = None,
    runner: str | None = None,
    beam_flags: Sequence[str] = (),
    progress: bool | Callable[[Progress], object] = True,
) -> Export:
    """Writes a dataset in a format of other programs, with the bytes of its images as they are.

    The same call resumes a run that was interrupted or failed, and returns at once if the export is
    complete.

    Args:
        folder: folder of the dataset, local or gs://.
        output: folder of the export, local or gs://, which must be empty.
        format: "folder", "webdataset", "parquet", "tfds" or "dali-index": see
            docs/interoperability.md.
        split: name of a split, or of several, "train+test"; None for all.
        where: exports only records with this value: "label=hat", or several that must all fit,
            {"label": "hat"}. The names are those of columns of the contents, and of features, of
            which the last part is enough.
        runner, beam_flags, progress: see `convert`.

    Returns:
        The export: `folder`, `format`, `images`, `splits` with the number of images in each,
        `load`, a line of Python that opens it, and `fresh`, which is False if it was complete
        already.

    Raises:
        UsageError: the call is wrong, no record fits, or the output holds something else; also a
            ValueError.
        DataError: the dataset is damaged, or the key of an image cannot be the name of a file.
        RunError: the run failed, or another dataset replaced this one; the same call resumes.
        InterruptedRunError: the run was interrupted.
    """
    options: dict[str, Any] = {
        "split": split,
        "where": where,
        "beam_flags": _flags(runner, beam_flags),
    }
    with on_stderr("export", quiet=progress is not True) as shown:
        from beam_tfr import launch

        report = progress if callable(progress) else shown
        paths = os.fspath(folder), os.fspath(output)
        return launch.export(*paths, format, **options, progress=report, say=shown.say)


def _texts(option: str, paths: Paths) -> list[str]:
    try:
        return [
            os.fspath(path)
            for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)
        ]
    except TypeError:
        raise UsageError(
            "must be a path or pattern, or a list of them", option=option, value=repr(paths)
        ) from None
