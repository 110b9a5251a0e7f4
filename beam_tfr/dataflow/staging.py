"""Prepares the packages for workers to install: this one, and the codecs as installed here.

This package becomes a wheel of its own files. Beam downloads the codecs' wheels with pip and stages
them along with `requirements.txt`. A worker first installs staged files without an index; then
nothing is left to install, so the worker needs no index.
"""

import contextlib
import importlib.metadata
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from apache_beam.options.pipeline_options import (
    DebugOptions,
    PipelineOptions,
    SetupOptions,
    WorkerOptions,
)

from beam_tfr import images
from beam_tfr.engine.beam_internals import DataflowRunner, no_folders_in_pickles
from beam_tfr.version import __version__

PACKAGE = Path(__file__).parents[1]
NAME = "beam_tfr"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # time of all files in a wheel, so that equal files give equal bytes


_SUFFIXES = (".py", ".json", ".md", ".txt", ".typed")


@contextlib.contextmanager
def staging_runner(options: PipelineOptions) -> Iterator[DataflowRunner]:
    """Yields a runner whose jobs bring this package and its codecs unless a container has them."""
    # Beam would store a list of all packages installed here with the job, including their source
    # URLs.
    options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
    with no_folders_in_pickles(), tempfile.TemporaryDirectory(prefix="beam_tfr-staging-") as name:
        if options.view_as(WorkerOptions).sdk_container_image:
            yield DataflowRunner()
            return
        folder = Path(name)
        setup = options.view_as(SetupOptions)
        requirements = codec_pins()
        if setup.requirements_file:
            requirements += Path(setup.requirements_file).read_text()
        (folder / "requirements.txt").write_text(requirements)
        yield DataflowRunner(
            requirements_file=str(folder / "requirements.txt"),
            requirements_cache=str(folder / "cache"),
            extra_packages=[str(build_wheel(folder)), *(setup.extra_packages or [])],
        )


def codec_pins() -> str:
    """Returns lines of requirements for codecs, and for other packages that Beam's image lacks."""
    versions = dict(images.codec_versions())
    for name in ("fastjsonschema", "msgspec"):
        versions[name] = importlib.metadata.version(name)
    pins = [f"{name}=={version}\n" for name, version in versions.items() if version != "none"]
    return "".join(pins)


def build_wheel(folder: Path) -> Path:
    """Builds a wheel of this package, without its photos and with only a worker's requirements."""
    files = _package_files()
    requirements = (PACKAGE / "requirements.txt").read_text().splitlines()
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {NAME}",
        f"Version: {__version__}",
        *(f"Requires-Dist: {requirement}" for requirement in requirements),
    ]
    wheel = [
        "Wheel-Version: 1.0",
        "Generator: beam_tfr",
        "Root-Is-Purelib: true",
        "Tag: py3-none-any",
    ]
    info = f"{NAME}-{__version__}.dist-info"
    files[f"{info}/METADATA"] = _as_lines(metadata)
    files[f"{info}/WHEEL"] = _as_lines(wheel)
    names = [*sorted(files), f"{info}/RECORD"]
    files[f"{info}/RECORD"] = _as_lines([f"{name},," for name in names])
    path = folder / f"{NAME}-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=1)
    return path


def _package_files() -> dict[str, bytes]:
    """Returns name in the wheel -> content, for each file of this package."""
    files = {}
    for path in sorted(PACKAGE.rglob("*")):
        place = path.relative_to(PACKAGE)
        if path.suffix in _SUFFIXES and "sample" not in place.parts:
            files[f"{NAME}/{place.as_posix()}"] = path.read_bytes()
    return files


def _as_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
