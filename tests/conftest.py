"""Fixtures for all tests: real photos, real runs.

In CI (BEAM_TFR_NO_SKIP=1) a test that skips is a failure.

Some tests are left out unless asked for, and the end of the run says so: slow ones, and those
marked `needs` whose environment variable is not set.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest

from beam_tfr import cli, storage
from beam_tfr.output.sidecars import RECORDS
from beam_tfr.schema.dataset import SOURCES_FOLDER
from beam_tfr.schema.naming import parse_file_name
from tests import cheap_pipelines, converted, unfinished
from tests.converted import SAMPLE, converted_photos, write_photos

pytest_plugins = [
    "tests.portable_runners",
    "tests.gcs_fixtures",
    "tests.dataflow_fixtures",
    "tests.lock_fixtures",
    "tests.spoiled_dataset",
]
PYTORCH = bool(os.environ.get("BEAM_TFR_TORCH") and importlib.util.find_spec("torch"))
collect_ignore = [] if PYTORCH else ["test_torch_dataloader.py"]

LEFT_OUT = pytest.StashKey[dict[str, int]]()  # why tests are left out -> how many


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(50_000)  # there is little garbage, and many objects to look at
    # the same examples every time, and no limit on the time they take
    examples = hypothesis.settings(hypothesis.settings.get_profile("ci"), max_examples=50)
    hypothesis.settings.register_profile("few", examples)
    hypothesis.settings.load_profile("few")
    config.stash[LEFT_OUT] = {}
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the variable
        os.environ[converted.FOLDER] = tempfile.mkdtemp(prefix="beam_tfr-test-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(converted.FOLDER))


@pytest.hookimpl(wrapper=True, optionalhook=True)  # of xdist, for -n auto
def pytest_xdist_auto_num_workers() -> Iterator[None]:
    return (yield) + 1  # tests also wait, for servers, engines and other processes


def _long_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests, file by file, those with many slow tests first.

    This is so in the part that each worker begins with.

    A worker that has nothing left takes tests from the end of another's part, so that no long one
    is the last of all.
    """
    files = collections.defaultdict(list)
    for item in items:
        files[item.path].append(item)
    slow = {
        path: sum(item.get_closest_marker("slow") is not None for item in found)
        for path, found in files.items()
    }
    if not any(slow.values()):
        return items
    paths = sorted(files, key=lambda path: (-slow[path], path))
    return [
        item for worker in range(workers) for path in paths[worker::workers] for item in files[path]
    ]


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out slow tests, and those whose environment variable is not set."""
    groups = collections.defaultdict(list)
    for item in items:
        needs = item.get_closest_marker("needs")
        if needs and not os.environ.get(needs.args[0]):
            groups[f"need {needs.args[0]}"].append(item)
        elif item.get_closest_marker("slow") and not config.getoption("slow"):
            groups["are slow (--slow runs them)"].append(item)
        else:
            groups[""].append(item)
    items[:] = _long_first(
        groups.pop("", []), getattr(config, "workerinput", {}).get("workercount", 1)
    )
    for why, left_out in groups.items():
        config.stash[LEFT_OUT][why] = len(left_out)
        config.hook.pytest_deselected(items=left_out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node: Any) -> None:
    # The same in every worker; one that crashed has none.
    node.config.stash[LEFT_OUT] |= getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for why, number in config.stash[LEFT_OUT].items():
        terminalreporter.write_line(f"left out: {number} that {why}")
    if not PYTORCH:
        terminalreporter.write_line(
            "left out: test_torch_dataloader.py, which needs BEAM_TFR_TORCH=1 and PyTorch"
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("BEAM_TFR_NO_SKIP"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which must not happen here: {report.longrepr}"


@pytest.fixture(scope="session", autouse=True)
def _no_credentials() -> None:
    """Lets nobody look for credentials, which takes 20 seconds.

    The first process of xdist needs no Beam.
    """
    from apache_beam.internal.gcp import auth

    auth._Credentials._credentials_init = True


@pytest.fixture(scope="session", autouse=True)
def _cheap_pipelines() -> Iterator[None]:
    """Gives runs in this process one thread unless they are told otherwise.

    Runs in other processes have one for each core.
    """
    from beam_tfr.launch import flags

    cheap_pipelines.make_cheap()
    with pytest.MonkeyPatch.context() as patch:
        cheap_pipelines.make_parsers_cheap(patch)
        patch.setattr(flags, "default_threads", lambda: 1)
        patch.setattr(flags, "_choose_mode", cheap_pipelines.in_memory(flags._choose_mode))
        yield


class Run(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


@pytest.fixture
def beam_tfr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Run]:
    """Runs a command of the command line in this process.

    It shows no progress, which depends on the machine.
    """
    monkeypatch.setattr("beam_tfr.engine.runs.PROGRESS_S", 1e9)
    monkeypatch.setattr("beam_tfr.console.display.LINE_S", 1e9)

    def run(*arguments: object) -> Run:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        sys.stdout.write(captured.out)  # shown when the test fails
        sys.stderr.write(captured.err)
        return Run(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    """Gives each temporary folder a parent of its own.

    Runs look for files beside their input, and would look through the folders of all tests.
    """
    make_folder = tmp_path_factory.mktemp

    def make_own_folder(name: str, numbered: bool = True) -> Path:
        folder = make_folder(name, numbered) / "own"
        folder.mkdir()
        return folder

    tmp_path_factory.mktemp = make_own_folder  # type: ignore[method-assign]
    return tmp_path_factory


@pytest.fixture(scope="session")
def sample() -> Path:
    """The bundled photos: {train,validation,test}/{class}/*.jpg."""
    return SAMPLE


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of 18 photos to change at will; `converted.write_photos` says which."""
    write_photos(tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """What a conversion makes of `photos`, to change at will: {split}/{label}/*, named `d`."""
    return Path(shutil.copytree(converted_photos(), tmp_path / "finished"))


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with photos, `convert.toml`, their dataset, and an unfinished run."""
    folder = unfinished.copy_to(tmp_path / "pets")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A folder that any user may enter, for `as_nobody`."""
    with tempfile.TemporaryDirectory(prefix="beam_tfr-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@functools.cache
def _load_everything() -> None:
    """Imports, by a small conversion, what engines import late.

    The environment may be root's alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        pattern = f"{SAMPLE}/test/hat/*.jpg"
        assert (
            cli.main(["convert", "--input", pattern, "--output", f"{folder}/o", "--layout", "*"])
            == 0
        )


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Takes root's right to read and write everything away, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    _load_everything()
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def few_at_once(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """The cases of a parametrized test, of which all but some are slow."""
    return [case if case in fast else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def calls_of(function: Callable[[], Any]) -> int:
    """How many functions of Python and C a function calls.

    Unlike time, this does not depend on the machine.
    """
    events: collections.Counter[str] = collections.Counter()

    def note(_: Any, event: str, __: Any) -> None:
        events[event] += 1

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return events["call"] + events["c_call"]


def let_runs_end() -> None:
    """Waits for pipelines that go on in a thread after an interrupt."""
    for thread in threading.enumerate():
        if thread.name == "beam_tfr-pipeline":
            thread.join(60)


def wait_for(condition: Callable[[], Any], *, timeout_s: float = 240.0) -> Any:
    """Waits until the condition is true, and returns what it said."""
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout_s} s in vain")
        time.sleep(0.01)
    return value


@pytest.fixture(scope="session")
def gcs_emulator() -> Iterator[str]:
    """The address of a gcp-storage-emulator in a process of its own, with the bucket `photos`."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    address = f"http://localhost:{port}"
    command = [
        sys.executable,
        "-m",
        "gcp_storage_emulator",
        "start",
        "--host",
        "localhost",
        "--port",
        str(port),
    ]
    command += ["--in-memory", "--quiet", "--default-bucket", "photos"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"gcp-storage-emulator ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"{address}/storage/v1/b/photos", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:  # not yet
            return False

    try:
        wait_for(answers)
        yield address
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def gcs(gcs_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """gs:// is the emulator; the folder of this test in its bucket."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_emulator)
    storage.gcs_client.make_client.cache_clear()
    folder = f"gs://photos/{time.monotonic_ns()}"
    yield folder
    storage.gcs_client.make_client.cache_clear()


def finished_shards(output: Path) -> dict[str, Path]:
    """Name -> file of each finished shard of a folder, in its place or still in the work folder."""
    published = {
        parsed[1]: path for path in output.iterdir() if (parsed := parse_file_name(path.name))
    }
    built = (output / ".beam_tfr").glob(f"*-of-*{RECORDS}*")
    return published | {path.name.partition(".")[0]: path for path in built}


def files_of(folder: Path) -> dict[str, bytes]:
    """Name -> bytes of every file in a dataset's folder.

    The notes for updates, which hold times, are left out.
    """
    found = {
        str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {
        name: path.read_bytes()
        for name, path in found.items()
        if not name.startswith(f"{SOURCES_FOLDER}/")
    }
