"""One command line, every engine, the same bytes. Retried bundles: test_transforms."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.worker import data_plane

from beam_tfr import guarded
from beam_tfr.engine import interrupt, runs
from beam_tfr.engine.failures import UNPUBLISHED, Outcome, translate_error
from beam_tfr.engine.processes import ForkServer, StartedWorker
from beam_tfr.inputs.archives import DamagedArchiveError
from beam_tfr.launch import flags as launch_flags
from beam_tfr.launch.flags import (
    LONG_RUN,
    LONG_RUN_OF_MANY_CORES,
    choose_runner,
    engine_advice,
    fit_workers,
    parse_beam_flags,
)
from beam_tfr.launch.workload import has_many_images
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.records.tfrecords import RecordError
from beam_tfr.schema.errors import BeamTfrError, DataError, InterruptedRunError, RunError
from beam_tfr.sources import open_source
from beam_tfr.tables.base import DamagedTableError
from tests.commands import finish, start
from tests.conftest import Run, files_of, wait_for
from tests.converted import converted_spoiled_photos, spoiled_photos
from tests.portable_runners import PROCESSES, THREADS, own_prism

Command = Callable[..., Run]
WORKER = r".* from beam_tfr import worker; worker\."  # in the command of one


def command(photos: Path, output: Path) -> list[object]:
    flags = [
        "--name",
        "d",
        "--layout",
        "{split}/{label}/*",
        "--num_shards",
        "train=3,test=2",
        "--max_rejects",
        "7",
    ]
    return ["convert", "--input", f"{photos}/**/*.jpg", "--output", output, *flags]


def convert(beam_tfr: Command, photos: Path, output: Path, *flags: str) -> Run:
    return beam_tfr(*command(photos, output), *flags)


@pytest.fixture
def photos() -> Path:
    """Photos of which some are bad; not to be changed."""
    return spoiled_photos()


@pytest.fixture
def expected() -> dict[str, bytes]:
    """What the default engine makes of `photos`."""
    return files_of(converted_spoiled_photos())


@pytest.mark.parametrize("engine", THREADS)
def test_beams_own_engines_write_the_same_bytes(
    beam_tfr: Command, photos: Path, tmp_path: Path, expected: dict[str, bytes], engine: str
) -> None:
    assert convert(beam_tfr, photos, tmp_path / "there", *THREADS[engine]).code == 0
    assert files_of(tmp_path / "there") == expected


@pytest.mark.slow
def test_so_do_processes_also_when_the_path_of_python_has_a_space(
    beam_tfr: Command,
    photos: Path,
    tmp_path: Path,
    expected: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    python = tmp_path / "the folder" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho started >> "$0.log"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert convert(beam_tfr, photos, tmp_path / "there", *PROCESSES).code == 0
    assert (tmp_path / "the folder" / "python.log").read_text() == "started\n"  # then it forks
    assert files_of(tmp_path / "there") == expected


def slowly(count: int) -> Iterator[tuple[str, int]]:
    for number in range(count):
        time.sleep(0.001)
        yield "all", number


def write_down(path: Path, numbers: list[int]) -> None:
    path.write_text(" ".join(map(str, sorted(numbers))))


def test_a_slow_bundle_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam's flush by the clock loses what is written while it hands over.

    Here it would every 20 ms, and slowly.
    """
    enqueue = data_plane._GrpcDataChannel._enqueue_to_send

    def as_into_a_full_queue(channel: Any, elements: Any) -> None:
        time.sleep(0.01)
        enqueue(channel, elements)

    monkeypatch.setattr(data_plane._GrpcDataChannel, "_enqueue_to_send", as_into_a_full_queue)
    monkeypatch.setattr(worker_handlers, "DATA_BUFFER_TIME_LIMIT_MS", 20)
    options = parse_beam_flags(["--direct_num_workers=2"])
    pipeline = beam.Pipeline(
        runner=choose_runner(options, ["--direct_num_workers=2"]), options=options
    )
    grouped = pipeline | beam.Create([300]) | beam.FlatMap(slowly) | beam.GroupByKey()
    grouped | beam.MapTuple(lambda _, numbers: write_down(tmp_path / "found", list(numbers)))
    pipeline.run().wait_until_finish()
    assert (tmp_path / "found").read_text().split() == [str(number) for number in range(300)]


@pytest.mark.parametrize(
    ("cores", "flags", "expected"),
    [
        (1, [], ("multi_threading", 1)),
        (2, [], ("multi_threading", 2)),
        (4, [], ("multi_threading", 4)),
        (5, [], ("multi_processing", 5)),
        (8, ["--direct_num_workers=3"], ("multi_threading", 3)),
        (2, ["--direct_num_workers=8"], ("multi_processing", 8)),
        (16, ["--direct_num_workers=0"], ("multi_processing", 16)),
        (16, ["--direct_running_mode=multi_threading"], ("multi_threading", 16)),
        (2, ["--direct_running_mode=multi_processing"], ("multi_processing", 2)),
        (16, ["--direct_running_mode=in_memory"], ("in_memory", 1)),
    ],
)
def test_up_to_four_cores_have_threads_and_more_have_processes(
    monkeypatch: pytest.MonkeyPatch, cores: int, flags: list[str], expected: tuple[str, int]
) -> None:
    monkeypatch.setattr(launch_flags, "default_threads", lambda: cores)
    monkeypatch.setattr(launch_flags, "_choose_mode", inspect.unwrap(launch_flags._choose_mode))
    options = parse_beam_flags(flags)
    choose_runner(options, flags)
    direct = options.view_as(DirectOptions)
    assert (direct.direct_running_mode, direct.direct_num_workers) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--runner=FlinkRunner"], "0"),
        (["--runner=SparkRunner"], "0"),
        (["--runner=PortableRunner", "--job_endpoint=localhost:1"], "0"),
        (["--runner=FlinkRunner", "--sdk_worker_parallelism=3"], "3"),
        (["--runner=SparkRunner", "--sdk_worker_parallelism", "1"], "1"),
    ],
)
def test_each_node_of_an_engine_has_a_worker_process_for_each_core_but_one(
    flags: list[str], expected: str
) -> None:
    options = parse_beam_flags(flags)
    choose_runner(options, flags)
    # as they are sent to a job server
    sent = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    assert sent["beam:option:sdk_worker_parallelism:v1"] == expected


@pytest.mark.parametrize(
    ("flags", "is_told"),
    [
        (["--runner=FlinkRunner", "--flink_master=http://cluster:8081"], True),
        (["--runner=FlinkRunner", "--flink_master=http://cluster:8081", "--parallelism=8"], False),
        (["--runner=FlinkRunner"], False),  # all cores of this machine
        (["--runner=SparkRunner"], False),
        ([], False),
    ],
)
def test_a_cluster_of_flink_without_parallelism_is_told(flags: list[str], is_told: bool) -> None:
    options = parse_beam_flags(flags)
    advice = engine_advice(choose_runner(options, flags), options)
    assert ("`parallelism=" in advice) is is_told


THREADED = "multi_threading"
FORKED = "multi_processing"


@pytest.mark.parametrize(
    ("cores", "flags", "images", "expected"),
    [
        (1, [], LONG_RUN, (THREADED, 1)),
        (2, [], LONG_RUN - 1, (THREADED, 2)),
        (2, [], LONG_RUN, (FORKED, 2)),
        (16, [], LONG_RUN_OF_MANY_CORES - 1, (THREADED, 4)),
        (16, [], LONG_RUN_OF_MANY_CORES, (FORKED, 16)),
        (16, ["--direct_num_workers=3"], LONG_RUN - 1, (THREADED, 3)),
        (16, ["--direct_num_workers=3"], LONG_RUN, (FORKED, 3)),
        (2, ["--direct_num_workers=8"], 1, (FORKED, 8)),
        (2, ["--direct_running_mode=multi_threading"], LONG_RUN, (THREADED, 2)),
        (16, ["--direct_running_mode=multi_processing"], 1, (FORKED, 16)),
        (16, ["--direct_running_mode=in_memory"], LONG_RUN, ("in_memory", 1)),
    ],
)
def test_long_runs_have_processes_and_short_ones_threads(
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    flags: list[str],
    images: int,
    expected: tuple[str, int],
) -> None:
    monkeypatch.setattr(launch_flags, "default_threads", lambda: cores)
    monkeypatch.setattr(launch_flags, "_choose_mode", inspect.unwrap(launch_flags._choose_mode))
    monkeypatch.setattr("beam_tfr.launch.flags.FORKS", True)
    options = parse_beam_flags(flags)
    choose_runner(options, flags)
    fit_workers(options, flags, lambda number: images >= number)
    direct = options.view_as(DirectOptions)
    assert (direct.direct_running_mode, direct.direct_num_workers) == expected


def test_the_images_of_an_input_are_counted_as_far_as_it_matters(
    photos: Path, tmp_path: Path
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,label\n" + "images/1.jpg,cat\n" * 1000)
    archive = tmp_path / "a.zip"
    archive.write_bytes(bytes(3_000_000))  # 100 photos

    def count(least: int, most: int, **values: Any) -> None:
        options = from_values({"output": "/o", "layout": "{label}/*", **values}, ConvertOptions)
        source = open_source(options)
        assert has_many_images(source, options, least)
        assert not has_many_images(source, options, most)

    count(25, 26, input=f"{photos}/**/*.jpg")
    count(7, 8, input=f"{photos}/**/*.jpg", limit=7)
    count(90, 200, input=str(archive))
    count(30, 3000, table=str(table), encoding="row", layout="")


@pytest.mark.slow
def test_prism_writes_the_same_bytes(
    beam_tfr: Command, photos: Path, tmp_path: Path, expected: dict[str, bytes], prism: Path
) -> None:
    # Without the singleton: another test of this process may have started one from elsewhere.
    flags = own_prism(prism)
    assert convert(beam_tfr, photos, tmp_path / "there", *flags).code == 0
    assert files_of(tmp_path / "there") == expected


@pytest.mark.parametrize("engine", ["not fused, four attempts", "processes", "prism"])
@pytest.mark.slow
def test_a_failing_run_is_one_sentence_on_every_engine(
    photos: Path, tmp_path: Path, prism: Path, engine: str
) -> None:
    flags = {
        **THREADS,
        "processes": PROCESSES,
        "prism": ["--runner=PrismRunner", f"--prism_location={prism}"],
    }[engine]
    call = [
        "--input",
        f"{photos}/**/*.jpg",
        "--output",
        tmp_path / "o",
        "--max_rejects",
        "5",
        "--quiet",
    ]
    call += ["--layout", "{label}/*"]
    # in a process: engines print past Python's sys.stderr
    run = finish(start("convert", *call, *flags))
    assert (run.code, run.out) == (1, "")
    said = (
        r"beam-tfr convert: 6 of 25 images were rejected \(.*\), --max_rejects 5 allows "
        r"5\. Nothing is published\..*\n"
    )
    assert re.fullmatch(said, run.err, re.DOTALL)


@pytest.mark.slow
def test_a_job_service_with_its_own_workers_writes_the_same_bytes(
    beam_tfr: Command, photos: Path, tmp_path: Path, expected: dict[str, bytes], portable: list[str]
) -> None:
    assert convert(beam_tfr, photos, tmp_path / "there", *portable).code == 0
    assert files_of(tmp_path / "there") == expected
    others = [*portable, "--quality=50"]
    refused = convert(beam_tfr, photos, tmp_path / "there", *others)  # found out by a worker
    if "did not report its error" in refused.err:
        refused = convert(beam_tfr, photos, tmp_path / "there", *others)
    assert refused.code == 2
    assert "options.quality: 90 before, 50 now" in refused.err
    assert files_of(tmp_path / "there") == expected


# of a beam-runners-flink-VERSION-job-server.jar; Java 11 or 17
@pytest.mark.needs("BEAM_TFR_TEST_FLINK_JAR")
def test_flink_writes_the_same_bytes(
    beam_tfr: Command, photos: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    jar = os.environ["BEAM_TFR_TEST_FLINK_JAR"]
    flags = ["--runner=FlinkRunner", f"--flink_job_server_jar={jar}", "--flink_master=[auto]"]
    assert convert(beam_tfr, photos, tmp_path / "there", *flags).code == 0
    assert files_of(tmp_path / "there") == expected


def test_a_missing_engine_is_an_error(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    flags = ["--prism_location=/nowhere/prism", "--experiments=disable_prism_server_singleton"]
    run = convert(beam_tfr, photos, tmp_path / "there", "--runner=PrismRunner", *flags)
    assert run.code == 1
    assert re.search(r"/nowhere/prism", run.err)
    assert "Traceback" not in run.err
    assert not (tmp_path / "there").exists()


def test_worker_processes_import_from_where_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that is installed for no Python may be on `sys.path` alone."""
    package = tmp_path / "beam_tfr"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "worker.py").write_text("raise SystemExit('this one')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for worker in (StartedWorker(os.environ), ForkServer().fork(os.environ)):
        assert (worker.wait(), worker.last_message()) == (1, "this one")


def test_processes_import_the_package_when_the_program_has_left_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -c` in a checkout has the current folder, "", in `sys.path`."""
    root = str(Path(guarded.__file__).parents[1])
    others = [path for path in sys.path if path != root]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *others])
    assert guarded.import_paths() == [root, "", *others]
    program = "from beam_tfr import guarded; print(guarded.__file__)"
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    start = "import sys; sys.path[:] = sys.argv[1:]; "
    there = subprocess.run(
        [sys.executable, "-c", start + program, *guarded.import_paths()],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == guarded.__file__
    monkeypatch.setattr(sys, "path", others)
    assert guarded.import_paths() == others


def test_a_worker_process_that_does_not_start_ends_the_run_with_its_last_line(
    beam_tfr: Command, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Traceback >&2\necho 'no module' >&2\nexit 3\n")
    python.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        run = convert(beam_tfr, photos, tmp_path / "there", *PROCESSES)
    assert run.code == 1
    assert "a worker process ended with exit code 3: no module. Nothing is published" in run.err
    assert convert(beam_tfr, photos, tmp_path / "there").code == 0  # in this process


class ExitOnce(beam.DoFn):
    """Ends its process."""

    def process(self, number: int) -> None:
        print("told last", file=sys.stderr, flush=True)
        os._exit(7)


@pytest.mark.slow
def test_so_does_one_that_ends_amid_its_work() -> None:
    options = parse_beam_flags(PROCESSES)
    runner = choose_runner(options, PROCESSES)
    pipeline = beam.Pipeline(runner=runner, options=options)
    pipeline | beam.Create(range(10)) | beam.Reshuffle() | beam.ParDo(ExitOnce())
    run = runs.LocalRun(pipeline, runner)
    with pytest.raises(RunError, match=r"^a worker process ended with exit code 7: told last\. "):
        runs.follow_run(run, None, UNPUBLISHED)


class LosesThread(beam.DoFn):
    """Waits for a thread that fails to start another one."""

    def process(self, number: int) -> None:
        threading.Thread(target=self._start_thread).start()
        threading.Event().wait()

    def _start_thread(self) -> None:
        raise RuntimeError("can't start new thread")


@pytest.mark.slow
def test_so_does_one_that_lacks_threads() -> None:
    options = parse_beam_flags(PROCESSES)
    runner = choose_runner(options, PROCESSES)
    pipeline = beam.Pipeline(runner=runner, options=options)
    pipeline | beam.Create(range(10)) | beam.Reshuffle() | beam.ParDo(LosesThread())
    told = r"^a worker process ended with exit code 1: .*can't start new thread.*raise the limits"
    with pytest.raises(RunError, match=told):
        runs.follow_run(runs.LocalRun(pipeline, runner), None, UNPUBLISHED)


class NeverEnds(beam.DoFn):
    """Lets its process go on when it is asked to end."""

    def teardown(self) -> None:
        threading.Event().wait()

    def process(self, number: int) -> Iterator[int]:
        yield number


@pytest.mark.slow
def test_a_worker_process_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beam_tfr.engine.beam_internals.END_S", 1.0)
    options = parse_beam_flags(PROCESSES)
    runner = choose_runner(options, PROCESSES)
    pipeline = beam.Pipeline(runner=runner, options=options)
    pipeline | beam.Create(range(10)) | beam.Reshuffle() | beam.ParDo(NeverEnds())
    assert runs.follow_run(runs.LocalRun(pipeline, runner), None, UNPUBLISHED) == {}


@pytest.mark.slow
def test_workers_are_not_forked_from_a_process_with_another_thread(
    beam_tfr: Command,
    photos: Path,
    tmp_path: Path,
    expected: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A debugger or a profiler may have started it, which a fork would lose."""
    code = "import threading, time; threading.Thread(target=time.sleep, args=(99,), daemon=True)"
    (tmp_path / "sitecustomize.py").write_text(
        f"{code}.start()\nopen({str(tmp_path / 'starts')!r}, 'a').write('started ')"
    )
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    assert convert(beam_tfr, photos, tmp_path / "there", *PROCESSES).code == 0
    assert files_of(tmp_path / "there") == expected
    assert (tmp_path / "starts").read_text() == "started " * 3


@pytest.fixture
def by_processes(photos: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that is stopped (SIGSTOP) when its two worker processes have been started."""
    run = start(*command(photos, tmp_path / "out"), *PROCESSES)
    wait_for(lambda: run.poll() is not None or len(workers_of(run)) == 2)
    run.send_signal(signal.SIGSTOP)
    yield run
    run.kill()
    run.communicate()


def workers_of(run: subprocess.Popen[str]) -> list[int]:
    """The process ids of the workers of a run, which are forked by another process of it."""
    for server in processes(rf"{run.pid} {WORKER}"):
        return processes(rf"{server} {WORKER}")
    return []


def wait_for_the_end_of(workers: list[int]) -> None:
    wait_for(lambda: not {*workers} & {*processes(rf".* {WORKER}")})


def processes(pattern: str) -> list[int]:
    """The ids of the processes whose parent and command match."""
    listed = subprocess.check_output(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], text=True
    ).splitlines()
    fields = [line.split(maxsplit=1) for line in listed]
    return [int(pid) for pid, rest in fields if re.match(pattern, rest)]


@pytest.mark.slow
def test_worker_processes_end_with_a_killed_run_and_the_next_one_completes_it(
    by_processes: subprocess.Popen[str],
    beam_tfr: Command,
    photos: Path,
    tmp_path: Path,
    expected: dict[str, bytes],
) -> None:
    workers = workers_of(by_processes)
    by_processes.kill()
    assert by_processes.wait() == -signal.SIGKILL
    wait_for_the_end_of(workers)
    assert convert(beam_tfr, photos, tmp_path / "out").code == 0
    assert files_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_ctrl_c_ends_worker_processes_that_hang(by_processes: subprocess.Popen[str]) -> None:
    workers = workers_of(by_processes)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    by_processes.send_signal(signal.SIGINT)
    by_processes.send_signal(signal.SIGCONT)
    run = finish(by_processes)
    assert (run.code, run.out) == (130, "")
    assert re.fullmatch("beam-tfr convert: interrupted: nothing is published; .*\n", run.err)
    wait_for_the_end_of(workers)


@pytest.mark.slow
@pytest.mark.parametrize("also", [0, 1], ids=["alone", "and a worker"])
def test_a_run_ends_with_the_process_that_forks_its_workers(
    by_processes: subprocess.Popen[str], also: int
) -> None:
    workers = workers_of(by_processes)
    killed = [*processes(rf"{by_processes.pid} {WORKER}"), *workers[:also]]
    for process in killed:
        os.kill(process, signal.SIGKILL)
    by_processes.send_signal(signal.SIGCONT)
    run = finish(by_processes)
    assert (run.code, run.out) == (1, "")
    assert "a worker process was killed (SIGKILL)" in run.err
    wait_for_the_end_of(workers)


@pytest.mark.slow
def test_a_killed_worker_process_is_named_with_the_signal_and_the_cure(
    by_processes: subprocess.Popen[str],
    beam_tfr: Command,
    photos: Path,
    tmp_path: Path,
    expected: dict[str, bytes],
) -> None:
    os.kill(workers_of(by_processes)[0], signal.SIGKILL)
    by_processes.send_signal(signal.SIGCONT)
    run = finish(by_processes)
    assert (run.code, run.out) == (1, "")
    assert run.err == (
        "beam-tfr convert: a worker process was killed (SIGKILL), most likely because memory ran "
        "out. Nothing is "
        "published; run the same command again to resume from the finished shards, with fewer "
        "workers: "
        "--direct_num_workers 1\n"
    )
    assert convert(beam_tfr, photos, tmp_path / "out").code == 0
    assert files_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_killed_prism_is_told_in_a_sentence(
    beam_tfr: Command, photos: Path, tmp_path: Path, expected: dict[str, bytes], prism: Path
) -> None:
    flags = own_prism(prism)
    run = start(*command(photos, tmp_path / "o"), *flags)
    engines = wait_for(lambda: run.poll() is not None or processes(rf"{run.pid} {prism} "))
    wait_for(
        lambda: run.poll() is not None or (tmp_path / "o" / ".beam_tfr" / "plan.json").exists()
    )
    os.kill(engines[0], signal.SIGKILL)
    ended = finish(run)
    assert (ended.code, ended.out) == (1, "")
    said = (
        r"beam-tfr convert: the connection to the engine was lost \(.*\), most likely because the "
        r"engine was killed or ran out of memory\. Nothing is published; run the same "
        r"command again to resume from the finished shards\n"
    )
    assert re.fullmatch(said, ended.err)
    assert convert(beam_tfr, photos, tmp_path / "o").code == 0
    assert files_of(tmp_path / "o") == expected


@pytest.mark.slow
def test_prism_ends_with_an_interrupted_run(photos: Path, tmp_path: Path, prism: Path) -> None:
    flags = own_prism(prism)
    run = start(*command(photos, tmp_path / "o"), *flags)
    engines = wait_for(lambda: run.poll() is not None or processes(rf"{run.pid} {prism} "))
    run.send_signal(signal.SIGINT)
    assert finish(run).code == 130
    wait_for(lambda: not Path(f"/proc/{engines[0]}").exists())


FULL = "[Errno 28] No space left on device: '/o/.beam_tfr/.tmp-1'"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            f"Traceback (most recent call last):\n  File ...\nRuntimeError: OSError: {FULL} "
            f"[while running 'Write']\n",
            "No space left on device: '/o/.beam_tfr/.tmp-1'. Nothing is published; make room on "
            "the disk, and run",
        ),
        (
            "OSError: [Errno 24] Too many open files: '/o/a'",
            "Too many open files: '/o/a'. Nothing is published; raise the limit of open files "
            "(ulimit -n), or use ",
        ),
        (
            "PermissionError: [Errno 13] Permission denied: '/o/a'",
            "Permission denied: '/o/a'. Nothing is published; allow this user to read and write "
            "there, and run",
        ),
        (
            "IsADirectoryError: [Errno 21] Is a directory: '/o/.beam_tfr/.tmp-1' -> '/o/a.json'",
            "Is a directory: '/o/.beam_tfr/.tmp-1' -> '/o/a.json'. Nothing is published; move "
            "the existing file or folder away, and run",
        ),
        (
            "RuntimeError: ValueError: it is 5",
            "the run failed: ValueError: it is 5. Nothing is published; ",
        ),
        ("RuntimeError: it is 5", "the run failed: RuntimeError: it is 5. Nothing is published; "),
        (
            "Traceback\nAttributeError: 'EmptySideInput' object has no attribute 'complete'",
            "a step failed, and the engine did not report its error. Nothing is published; ",
        ),
    ],
)
def test_what_the_system_refused_is_told_with_the_cure(told: str, expected: str) -> None:
    assert str(translate_error(RuntimeError(told))).startswith(expected)


class Waiting:
    """A run that never ends."""

    patience_s = 0.0
    session = contextlib.nullcontext

    def __init__(self, begin: Callable[[], object]) -> None:
        self.begin, self.ended = begin, threading.Event()

    def result(self) -> Mapping[str, int]:
        self.begin()
        self.ended.wait()
        return {}

    def counters(self) -> Mapping[str, int]:
        return {}

    def stop(self) -> str:
        return ""


def test_a_run_ends_when_a_thread_of_its_engine_found_no_memory() -> None:
    def starve() -> None:
        raise RuntimeError("can't start new thread")

    run = Waiting(threading.Thread(target=starve).start)
    try:
        with pytest.raises(RunError, match=r"out of memory, .*can't start new thread.*ulimit -v"):
            runs.follow_run(run, lambda _: None, UNPUBLISHED)
    finally:
        run.ended.set()
        interrupt.requested.clear()


def test_what_does_not_publish_says_so_in_its_own_words() -> None:
    run, outcome = (
        Waiting(interrupt.requested.set),
        Outcome("nothing is verified", "run the same command again"),
    )
    try:
        with pytest.raises(
            InterruptedRunError,
            match=r"^interrupted: nothing is verified; run the same command again$",
        ):
            runs.follow_run(run, lambda _: None, outcome)
    finally:
        run.ended.set()
        interrupt.requested.clear()
    outcome = Outcome(
        "nothing is lost", "run the same command again to rebuild the remaining shards"
    )
    said = (
        ". Nothing is lost; make room on the disk, and run the same command again to rebuild the "
        "remaining shards"
    )
    assert str(translate_error(RuntimeError(f"OSError: {FULL}"), outcome)).endswith(said)


def test_a_damaged_record_is_an_error_of_the_data() -> None:
    damaged = RecordError("/t.tfrecord", 7, 900, "its data does not match the checksum")
    text = (
        f"Traceback\nbeam_tfr.records.tfrecords.RecordError: {damaged} [while running "
        f"'Read'] and so on"
    )
    for error in (RuntimeError(text), damaged):
        found = translate_error(error)
        assert isinstance(found, DataError)
        assert (
            str(found) == "/t.tfrecord: record 7 at byte 900: its data does not match the checksum"
        )


def kinds_of(kind: type[BeamTfrError]) -> list[type[BeamTfrError]]:
    """An error of ours, and those that it has as kinds."""
    kinds = [kind]
    for other in kind.__subclasses__():
        kinds += kinds_of(other)
    return kinds


ALL_KINDS = {*kinds_of(BeamTfrError), DamagedTableError, DamagedArchiveError, RecordError}


@pytest.mark.parametrize("kind", sorted(ALL_KINDS - {BeamTfrError}, key=lambda kind: kind.__name__))
def test_every_error_of_ours_comes_back_from_a_worker(kind: type[BeamTfrError]) -> None:
    name = f"{kind.__module__}.{kind.__qualname__}"
    text = f"Traceback\n{name}: t.csv, row 3: read it by beam_tfr.reader [while running 'Read']"
    found = translate_error(RuntimeError(text))
    assert str(found) == "t.csv, row 3: read it by beam_tfr.reader"
    assert isinstance(found, DataError) == issubclass(kind, DataError)
    assert found.exit_code == kind.exit_code
