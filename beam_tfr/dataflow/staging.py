"""What workers install: this package, and the codecs in the versions installed here.

This package is a wheel of its own files. Beam downloads the codecs' wheels with pip and stages them
beside `requirements.txt`. A worker first installs staged files without an index, after which
nothing is left to install, so it needs no index.
"""

import contextlib
import importlib.metadata
import tempfile
import zipfile
from collections.abc import Iterator
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
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of all files in a wheel: the same files give the same bytes


@contextlib.contextmanager
def staged(options: PipelineOptions) -> Iterator[DataflowRunner]:
    """A runner whose jobs bring this package and its codecs, unless an image does."""
    # Beam would list all that is installed here beside the job, with the addresses that it came
    # from.
    options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
    with no_folders_in_pickles(), tempfile.TemporaryDirectory(prefix="beam_tfr-staging-") as name:
        if options.view_as(WorkerOptions).sdk_container_image:
            yield DataflowRunner()
            return
        folder = Path(name)
        setup = options.view_as(SetupOptions)
        requirements = Path(setup.requirements_file).read_text() if setup.requirements_file else ""
        (folder / "requirements.txt").write_text(f"{codec_pins()}{requirements}")
        yield DataflowRunner(
            requirements_file=str(folder / "requirements.txt"),
            requirements_cache=str(folder / "cache"),
            extra_packages=[str(own_wheel(folder)), *(setup.extra_packages or [])],
        )


def codec_pins() -> str:
    """The codecs, and what else Beam's image lacks, as lines of a requirements file."""
    others = {name: importlib.metadata.version(name) for name in ("fastjsonschema", "msgspec")}
    versions = images.codec_versions() | others
    return "".join(
        f"{name}=={version}\n" for name, version in versions.items() if version != "none"
    )


def own_wheel(folder: Path) -> Path:
    """Packs this package without its photos, requiring only what a worker needs."""
    files = {
        f"{NAME}/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes()
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in (".py", ".json", ".md", ".txt", ".typed")
        and path.is_file()
        and "sample" not in path.parts
    }
    info = f"{NAME}-{__version__}.dist-info"
    requires = "".join(
        f"Requires-Dist: {line}\n"
        for line in (PACKAGE / "requirements.txt").read_text().splitlines()
    )
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {__version__}\n{requires}".encode()
    )
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: beam_tfr\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/RECORD"] = "".join(
        f"{name},,\n" for name in [*sorted(files), f"{info}/RECORD"]
    ).encode()
    path = folder / f"{NAME}-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in sorted(files.items()):
            archive.writestr(
                zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED, compresslevel=1
            )
    return path
