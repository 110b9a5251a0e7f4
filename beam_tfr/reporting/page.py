"""Makes the page about a dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import html
import os
from collections.abc import Callable, Iterator, Sequence
from importlib import resources

import jinja2

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import Printable
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.options import ConvertOptions
from beam_tfr.reporting import charts
from beam_tfr.reporting.facts import Facts
from beam_tfr.reporting.samples import show_text
from beam_tfr.reporting.source_files import SourceFiles
from beam_tfr.schema.arguments import public
from beam_tfr.schema.dataset import REPORT_FILE
from beam_tfr.schema.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ReportPage(Printable):
    """A page about a dataset.

    A notebook displays the page; `save` writes it to a file.

    Attributes:
        manifest: manifest of the dataset.
        html: the page, which needs no other file.
        findings: sentences about what deserves a look.
    """

    manifest: Manifest
    html: str
    findings: tuple[str, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, local or gs://.

        Raises:
            UsageError: the file cannot be written.
        """
        location = storage.check_path(path, option="path")
        try:
            scratch = location.rpartition("/")[0]
            data = self.html.encode(errors="replace")  # UTF-8 cannot encode all of a manifest
            storage.write_bytes(location, data, scratch=scratch)
        except OSError as error:
            message = f"cannot be written: {error.strerror or error}"
            raise UsageError(message, option="path", value=location) from None

    def lines(self) -> Iterator[str]:
        """Yields one line per finding."""
        if not self.findings:
            yield "nothing stands out"
        yield from self.findings

    def _repr_html_(self) -> str:
        page = html.escape(self.html)
        return (
            f'<iframe srcdoc="{page}" title="report" style="width: 100%; height: 800px; '
            'border: 0"></iframe>'
        )


@public
def report(
    path: str | os.PathLike[str],
    *,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    progress: Callable[[Progress], object] | None = None,
) -> ReportPage:
    """Makes a page about a dataset: what deserves a look, classes, samples, rejects, sizes, copies.

    Reads the manifest, the contents of all shards, and a few hundred single records.

    Args:
        path: folder of the dataset, local or gs://.
        sources: the patterns or tables that the dataset was made from, and the folder passed as
            `image_root=`, if any. With sources, rejects have thumbnails, and the most cropped, the
            darkest and other extreme images are shown next to their sources.
        progress: called with a `Progress` for each shard whose contents are read.

    Raises:
        NotFoundError: there is no such folder.
        DataError: the folder holds no complete dataset, or one of its files is missing or damaged.
        NotInstalledError: pyarrow is missing.
        UsageError: there is no such source.
    """
    dataset = read_manifest(storage.check_path(path))
    given = [sources] if isinstance(sources, str | os.PathLike) else sources
    paths = [os.fspath(source) for source in given]
    with contextlib.ExitStack() as stack:
        files = None
        if paths:
            files = stack.enter_context(SourceFiles(dataset, paths))
        facts = Facts(dataset, files, progress)
        variables = facts.as_variables()
    text = _template().render(variables, css=_read_file("page.css"), script=_read_file("page.js"))
    return ReportPage(manifest=dataset, html=text, findings=facts.findings)


def write_report(
    folder: str, options: ConvertOptions, progress: Callable[[Progress], object] | None = None
) -> None:
    """Writes the page about a new dataset into its folder.

    Args:
        folder: folder of the dataset.
        options: options of the run, which name the sources. If the options do not suffice to
            open the sources, the page is made without sources.
        progress: see `report`.

    Raises the errors of `report`.
    """
    sources = [*options.input, *options.table]
    if options.image_root:
        sources.append(storage.join(options.image_root, ""))
    try:
        page = report(folder, sources=sources, progress=progress)
    except UsageError:
        page = report(folder, progress=progress)
    page.save(storage.join(folder, REPORT_FILE))


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["bytes"] = charts.format_bytes
    environment.filters["text"] = show_text
    return environment.get_template("page.html")


def _read_file(name: str) -> str:
    return (resources.files("beam_tfr.reporting") / name).read_text(encoding="utf-8")
