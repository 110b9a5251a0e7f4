"""Dataflow without a network.

What a submission brings, what is refused before it, and what becomes of the job.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.utils import retry

from beam_tfr import images
from beam_tfr.console.display import Progress
from beam_tfr.dataflow import jobs, staging
from beam_tfr.engine import interrupt, runs
from beam_tfr.launch import convert
from beam_tfr.options import ConvertOptions
from beam_tfr.output.claim import BegunPlan, Claim
from tests.claims import make_plan
from tests.conftest import SAMPLE, wait_for
from tests.converted import converted_photos
from tests.dataflow_fixtures import IMAGE, Command, pickles_of, submit
from tests.fake_dataflow import JOB_ID, FakeDataflow

LINK = f"https://console.cloud.google.com/dataflow/jobs/europe-west4/{JOB_ID}?project=my-project"


def options_of(job: dict[str, Any]) -> dict[str, Any]:
    return dict(job["environment"]["sdkPipelineOptions"]["options"])


# What is submitted


def test_no_image_is_shuffled_and_the_stages_that_have_them_fuse(
    service: FakeDataflow, beam_tfr: Command
) -> None:
    run = submit(beam_tfr, service, "--no_wait")
    assert (run.code, run.out) == (0, f"job {JOB_ID} was created and runs on its own: {LINK}\n")
    assert f"convert: job {JOB_ID}: {LINK}\n" in run.err
    assert len(service.jobs()) == 1
    components = service.pipeline().components
    grouping = (
        "beam:transform:group_by_key:v1",
        "beam:transform:reshuffle:v1",
        "beam:transform:combine_per_key:v1",
    )
    shuffled = {t.unique_name for t in components.transforms.values() if t.spec.urn in grouping}
    steps = {name.split("/")[1] for name in shuffled}
    assert steps == {"MatchImages", "PlanShards", "WriteManifest"}  # which groups counts of shards
    assert "Convert/PlanShards/GroupByShard" in shuffled
    leaves = {t.unique_name: t for t in components.transforms.values() if not t.subtransforms}
    chain = [
        "PlanShards/Order",
        "ReadImages/Read",
        "ResizeImages/ResizeImages",
        "BuildExamples/BuildExamples",
    ]
    before = leaves["Convert/PlanShards/GroupByShard"]
    for name in [*chain, "WriteShards/Write"]:
        step = leaves[f"Convert/{name}"]
        assert list(step.inputs.values()) == list(before.outputs.values()), name
        assert step.environment_id == leaves["Convert/PlanShards/Order"].environment_id
        assert step.spec.urn == "beam:transform:pardo:v1"
        payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
        assert not payload.side_inputs
        assert not payload.state_specs
        function = pickler.loads(payload.do_fn.payload)[0]
        ends_bundles = type(function).finish_bundle is not beam.DoFn.finish_bundle
        # which makes nothing there, and only checks
        assert ends_bundles == (name == "WriteShards/Write")
        before = step
    assert not any(environment.resource_hints for environment in components.environments.values())
    for name in chain:  # and nothing else takes what it makes
        (made,) = leaves[f"Convert/{name}"].outputs.values()
        assert sum(made in step.inputs.values() for step in leaves.values()) == 1


def test_options_reach_the_job(
    service: FakeDataflow, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "us-central1")  # as gcloud's configuration has it
    flags = [
        "--job_name=my-job",
        "--labels=team=vision",
        '--labels={"cost": "low"}',
        "--num_workers=3",
    ]
    flags += [
        "--max_num_workers=7",
        "--machine_type=n2-standard-4",
        "--disk_size_gb=50",
        "--disk_type=pd-ssd",
    ]
    flags += [
        "--service_account_email=w@p.iam.gserviceaccount.com",
        "--impersonate_service_account=a@x",
    ]
    flags += ["--no_use_public_ips", "--gcs_project=payer"]
    flags += [
        "--subnetwork=regions/europe-west4/subnetworks/s",
        "--number_of_worker_harness_threads=2",
    ]
    flags += ["--autoscaling_algorithm=THROUGHPUT_BASED", "--dataflow_service_options=enable_prime"]
    assert submit(beam_tfr, service, "--no_wait", "--region=", *flags).code == 0
    (job,) = service.jobs()
    assert (job["name"], job["labels"]) == ("my-job", {"team": "vision", "cost": "low"})
    assert job["environment"]["serviceAccountEmail"] == "w@p.iam.gserviceaccount.com"
    assert job["environment"]["serviceOptions"] == ["enable_prime"]
    (pool,) = job["environment"]["workerPools"]
    found = {
        key: pool[key]
        for key in ("numWorkers", "machineType", "diskSizeGb", "diskType", "subnetwork")
    }
    assert found == {
        "numWorkers": 3,
        "machineType": "n2-standard-4",
        "diskSizeGb": 50,
        "diskType": "pd-ssd",
        "subnetwork": "regions/europe-west4/subnetworks/s",
    }
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 7
    assert pool["numThreadsPerWorker"] == 2
    assert pool["workerHarnessContainerImage"] == IMAGE
    assert (options_of(job)["gcs_project"], options_of(job)["region"]) == ("payer", "us-central1")
    assert "impersonate_service_account" not in options_of(job)


def test_no_secret_and_no_local_path_leaves_this_machine(
    service: FakeDataflow, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    classes = tmp_path / "classes.txt"
    classes.write_text("\n".join(sorted(path.name for path in (SAMPLE / "test").iterdir())))
    monkeypatch.setenv("BEAM_TFR_SECRET", "hunter2")
    monkeypatch.setattr(staging, "codec_pins", str)
    run = submit(beam_tfr, service, "--no_wait", "--sdk_container_image=", f"--classes={classes}")
    assert run.code == 0
    staged = {
        name.rpartition("/")[2]: service.get(name)
        for name in service.names()
        if name.startswith("tmp/")
    }
    assert set(staged) == {
        "requirements.txt",
        "extra_packages.txt",
        "pipeline.pb",
        "beam_tfr-0.1.0-py3-none-any.whl",
    }
    pickles = list(pickles_of(service.pipeline()))
    assert any(b"beam_tfr.transforms.values" in pickle for pickle in pickles)
    home = os.environ.get("HOME", "/root").encode()
    for text in [
        json.dumps(service.jobs()).encode(),
        staged["pipeline.pb"],
        staged["extra_packages.txt"],
        *pickles,
    ]:
        for private in (
            b"hunter2",
            bytes(tmp_path),
            os.fsencode(staging.PACKAGE.parent),
            home + b"/",
            b"/tmp/",
        ):
            assert private not in text.replace(b"b/tmp/", b""), private


def test_a_dry_run_creates_nothing(service: FakeDataflow, beam_tfr: Command) -> None:
    run = submit(beam_tfr, service, "--dry_run=True", "--json")
    assert (run.code, run.json) == (0, {"job_id": None, "template": ""})
    assert service.jobs() == []
    assert not any(name.startswith(("tmp", "out")) for name in service.names())


def test_codec_versions_are_not_read_where_a_job_is_submitted(
    service: FakeDataflow, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "codec_versions", lambda: pytest.fail("the workers' count"))
    assert submit(beam_tfr, service, "--no_wait").code == 0


# What its workers install


def test_the_own_wheel(tmp_path: Path) -> None:
    """It is our files without photos and the font, and has the same bytes every time.

    It requires what a worker needs.
    """
    (tmp_path / "2").mkdir()
    first, second = staging.build_wheel(tmp_path), staging.build_wheel(tmp_path / "2")
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 2 << 20
    with zipfile.ZipFile(first) as wheel:
        found = {name: wheel.read(name) for name in wheel.namelist()}
    info = "beam_tfr-0.1.0.dist-info"
    described = found.pop(f"{info}/METADATA").decode()
    del found[f"{info}/WHEEL"], found[f"{info}/RECORD"]
    package = [
        path
        for path in staging.PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    files = {str(path.relative_to(staging.PACKAGE.parent)): path.read_bytes() for path in package}
    for_people = (
        "beam_tfr/sample/",
        "beam_tfr/inspection/DejaVuSans.",
        "beam_tfr/reporting/page.css",
        "beam_tfr/reporting/page.html",
        "beam_tfr/reporting/page.js",
    )
    assert found == {name: data for name, data in files.items() if not name.startswith(for_people)}
    required = re.findall(r"^Requires-Dist: (.*)$", described, re.MULTILINE)
    assert required == (staging.PACKAGE / "requirements.txt").read_text().splitlines()
    assert not {"tensorflow", "keras", "torch"} & {
        re.split(r"[\[<>=]", line)[0] for line in required
    }


def test_everything_that_beams_image_lacks_is_staged() -> None:
    from tests.worker_env import BEAM, closure

    requirements = (staging.PACKAGE / "requirements.txt").read_text().splitlines()
    needed = set().union(*map(closure, requirements))
    lacking = {
        "fastjsonschema",
        "msgspec",
        "simplejpeg",
        "cykooz-resizer",
        "opencv-python-headless",
    }
    assert needed - closure(BEAM) == lacking
    pins = dict(line.split("==") for line in staging.codec_pins().split())
    codecs = {
        "numpy",
        "simplejpeg",
        "cykooz-resizer",
        "opencv-python-headless",
        "pillow",
        "pillow-heif",
    }
    assert codecs | {"fastjsonschema", "msgspec"} == {name.replace("_", "-") for name in pins}
    assert all(version == importlib.metadata.version(name) for name, version in pins.items())
    assert {"fastjsonschema", "msgspec"}.isdisjoint(images.codec_versions())  # which a plan holds


@pytest.mark.slow  # pip tries one platform after the other
def test_codecs_that_pip_cannot_download(
    service: FakeDataflow, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    run = submit(beam_tfr, service, "--no_wait", "--sdk_container_image=")
    assert run.code == 2
    said = (
        r"workers need \(ERROR: No matching distribution found for \S+\); .*--sdk_container_image"
    )
    assert re.search(said, run.err)
    assert service.jobs() == []


# What is refused before anything is asked of the network

CLOUD = "--dataflow_endpoint=http://127.0.0.1"  # any but localhost
WRONG = [
    (["--project="], "--project: is required for Dataflow, such as --project my-project"),
    ([CLOUD, "--project=12345"], "Invalid Project ID (12345)"),
    (["--region="], "--region: is required for Dataflow, such as --region europe-west4"),
    (
        ["--temp_location="],
        "--temp_location: is required for Dataflow, such as --temp_location gs://",
    ),
    ([CLOUD], "Invalid GCS bucket (gs://b/tmp), given for the option: temp_location"),
    (
        [CLOUD, "--temp_location=gs://bucket"],
        "Invalid GCS path: 'gs://bucket' given for option: temp_location",
    ),
    (
        ["--impersonate_service_account=a@x"],
        "--impersonate_service_account a@x: only submits the job, because Beam does not pass "
        "it on to the workers: also set "
        "--service_account_email",
    ),
    (
        ["--output=/data/out"],
        "--output /data/out: must be on gs://, where Dataflow's workers can reach it",
    ),
    (["--input=/data/*.jpg"], "--input /data/*.jpg: must be on gs://"),
    (["--input_list=/data/list"], "--input_list /data/list: must be on gs://"),
    (
        ["--num_workers=9", "--max_num_workers=3"],
        "num_workers (9) cannot exceed max_num_workers (3)",
    ),
    ([CLOUD, "--job_name=No Name"], "Invalid job_name (No Name)"),
    (
        ["--streaming"],
        "--streaming: is not possible: a conversion is a batch job, and a streaming job would "
        "retry",
    ),
    (["--on_interrupt=stop"], "--on_interrupt stop: must be one of: ask, cancel, leave"),
    (["--number_of_workers=2"], "--number_of_workers: unknown flag; did you mean"),
]


@pytest.mark.parametrize(("flags", "said"), WRONG)
def test_a_wrong_call_fails_before_any_request(
    service: FakeDataflow,
    beam_tfr: Command,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    said: str,
) -> None:
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    service.take_log()
    run = submit(beam_tfr, service, *flags)
    assert run.code == 2, run.err
    assert said in run.err
    assert "Traceback" not in run.err
    assert service.take_log() == []


def test_with_credentials_folders_must_be_on_gs(service: FakeDataflow, beam_tfr: Command) -> None:
    flags = [*(flag for flag in service.flags if flag != "--no_auth"), CLOUD]
    command = [
        "convert",
        "--input=gs://b/photos/**",
        "--output=gs://b/out",
        f"--sdk_container_image={IMAGE}",
        *flags,
    ]
    for folder in ("temp_location", "staging_location"):
        run = beam_tfr(*command, f"--{folder}=/tmp/x")
        assert (
            run.code,
            f"Invalid GCS path (/tmp/x), given for the option: {folder}" in run.err,
        ) == (2, True)


def test_options_that_need_dataflow(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    for flag in ("--no_wait", "--on_interrupt=leave"):
        run = beam_tfr(
            "convert", "--input", f"{photos}/**/*.jpg", "--output", tmp_path / "out", flag
        )
        assert run.code == 2
        assert f"{flag.partition('=')[0]} has no effect without --runner DataflowRunner" in run.err


# What becomes of the job


def terminal(typed: str) -> io.StringIO:
    """What is typed at a terminal."""
    lines = io.StringIO(typed)
    lines.isatty = lambda: True  # type: ignore[method-assign]
    return lines


def failed(text: str) -> dict[str, Any]:
    message = {"id": "1", "time": "2026-01-01T00:00:00Z", "messageText": text}
    return {
        "state": "JOB_STATE_FAILED",
        "messages": [{**message, "messageImportance": "JOB_MESSAGE_ERROR"}],
    }


def test_an_error_on_a_worker_reads_as_in_a_local_run(
    service: FakeDataflow, beam_tfr: Command
) -> None:
    text = (
        'Traceback (most recent call last):\n  File "common.py", line 1\n'
        "beam_tfr.schema.DataError: 7 of 25 images were rejected [while running "
        "'Convert/WriteManifest/Publish']\n"
    )
    service.set_service(**failed(text))
    run = submit(beam_tfr, service)
    assert run.code == 1
    assert run.err.splitlines()[-1] == "beam-tfr convert: 7 of 25 images were rejected"
    service.set_service(
        **failed(text.replace("DataError: 7 of 25", "UsageError: --layout x: 7 of 25"))
    )
    assert submit(beam_tfr, service).code == 2


def test_workers_that_do_not_start_are_reported(service: FakeDataflow, beam_tfr: Command) -> None:
    service.set_service(
        **failed("Startup of the worker pool in zone z failed to bring up any workers.")
    )
    run = submit(beam_tfr, service)
    assert run.code == 1
    assert (
        "convert: Dataflow, error: Startup of the worker pool in zone z failed to bring up any "
        "workers." in run.err
    )
    assert "the run failed: Startup of the worker pool" in run.err


def test_a_job_cancelled_elsewhere(service: FakeDataflow, beam_tfr: Command) -> None:
    service.set_service(state="JOB_STATE_CANCELLED")
    run = submit(beam_tfr, service)
    assert run.code == 1
    assert f"job {JOB_ID} was cancelled. Nothing is published" in run.err


def test_a_refused_job(service: FakeDataflow, beam_tfr: Command) -> None:
    service.set_service(refuses=403)
    run = submit(beam_tfr, service)
    assert run.code == 1
    assert "said 403" in run.err
    assert "Traceback" not in run.err


def test_a_service_that_cannot_be_reached_is_waited_for_aloud(
    service: FakeDataflow, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beam_tfr.console.display.LINE_S", 0.0)
    monkeypatch.setattr("beam_tfr.engine.runs.PROGRESS_S", 0.1)
    monkeypatch.setattr(retry.Clock, "sleep", lambda *_: threading.Event().wait(0.2))
    nobody = "--dataflow_endpoint=http://localhost:9"
    for more in ((), ("--no_wait",)):
        run = submit(beam_tfr, service, nobody, *more)
        assert run.code == 1
        assert "convert: submitting\n" in run.err
        assert run.err.count("a request to Google Cloud failed and is repeated: ") == 1


def test_a_job_that_is_done_without_a_dataset(service: FakeDataflow, beam_tfr: Command) -> None:
    service.set_service(state="JOB_STATE_DONE")
    run = submit(beam_tfr, service)
    assert run.code == 1
    assert "the runner reports success, but it lost elements:" in run.err


def test_progress_and_summary_come_from_the_counters_of_a_job(
    service: FakeDataflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PERIOD_S", 0.0)
    monkeypatch.setattr(runs, "PROGRESS_S", 0.0)
    plan = make_plan()
    begun = BegunPlan(plan, run_id="earlier", claim=Claim(replaces=0, overwrite=False))
    service.put("out/.beam_tfr/plan.json", begun.to_json())
    write = {
        "images": 2,
        "resumed-images": 1,
        "rewritten-shards": 1,
        "rejected": 1,
        "bytes-written": 70,
    }
    seen: list[Progress] = []

    def follow(progress: Progress) -> None:
        seen.append(progress)
        if not service.jobs():
            return
        counters = {
            "MatchImages/List": {"listed": 10, "skipped": 3},
            "MatchImages/ListRanges": {"listed": 2},
        }
        counters |= {"ReadImages/Read": {"bytes-read": 60}, "WriteShards/Write": write}
        metrics = service.metrics({f"Convert/{step}": of for step, of in counters.items()})
        state = "JOB_STATE_RUNNING"
        if progress.num_bytes:
            service.put_folder(converted_photos(), "out")
            state = "JOB_STATE_DONE"
        service.set_service(state=state, metrics=metrics)

    options = ConvertOptions(input=("gs://b/photos/**/*.jpg",), output="gs://b/out")
    flags = [flag for flag in service.flags if flag != "--no_auth"]
    result = convert(options, [*flags, f"--sdk_container_image={IMAGE}"], progress=follow)
    counted = {"num_bytes": 60, "rejected": 1}
    assert Progress("converting", 3, 5, 0, 3, **counted) in seen
    assert seen[-1] == Progress("publishing", 18, 18, 2, 2, **counted)
    told = result.as_json()
    assert (told["skipped"], told["resumed"], told["rewritten_shards"]) == (3, 1, 1)
    assert told["images_per_second"] == pytest.approx((18 - 1) / told["seconds"], rel=0.02, abs=0.1)


@pytest.mark.parametrize(
    ("on_interrupt", "answer", "cancelled"),
    [
        ("cancel", "n", True),
        ("leave", "y", False),
        ("ask", "y", True),
        ("ask", "YES ", True),
        ("ask", "", False),
    ],
)
def test_who_says_that_a_job_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, on_interrupt: str, answer: str, cancelled: bool
) -> None:
    calls: list[str] = []

    class Result:
        def cancel(self) -> None:
            calls.append("cancel")

    monkeypatch.setattr("sys.stdin", terminal(f"{answer}\n"))
    assert jobs.stop_job(Result(), jobs.Job(JOB_ID, LINK), on_interrupt) is cancelled
    assert calls == ["cancel"] * cancelled


@pytest.mark.parametrize(("answer", "cancelled"), [("leave", False), ("y", True)])
def test_ctrl_c(
    service: FakeDataflow,
    beam_tfr: Command,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    cancelled: bool,
) -> None:
    flags = [f"--on_interrupt={answer}"] if len(answer) > 1 else []
    asked = terminal(f"{answer}\n")
    monkeypatch.setattr("sys.stdin", asked)
    threading.Thread(
        target=lambda: wait_for(service.jobs) and interrupt.requested.set(), daemon=True
    ).start()
    run = submit(beam_tfr, service, *flags)
    assert run.code == 130
    puts = [r["body"] for r in service.take_log() if r["method"] == "PUT" and "body" in r]
    assert len(puts) == cancelled
    assert (f"job {JOB_ID} is cancelled" in run.err) is cancelled
    assert (f"job {JOB_ID} continues ({LINK})" in run.err) is not cancelled
    assert bool(asked.tell()) is (not flags)
    interrupt.requested.clear()  # for pipelines of other tests that are not launched


@pytest.mark.slow
def test_ctrl_c_while_a_service_does_not_answer(service: FakeDataflow, tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as silent:
        command = [
            "convert",
            "--input",
            "gs://b/photos/**/*.jpg",
            "--output",
            "gs://b/out",
            *service.flags,
        ]
        command += [
            "--quiet",
            f"--dataflow_endpoint=http://localhost:{silent.getsockname()[1]}",
            f"--sdk_container_image={IMAGE}",
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "beam_tfr", *command], stderr=subprocess.PIPE, text=True
        )
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=240)
    assert (process.returncode, error) == (
        130,
        "beam-tfr convert: interrupted: the job was being submitted; if it was created after "
        "all, the console lists "
        "it\n",
    )
    assert not [name for name in service.names() if name.startswith("out/")]  # the lock is released


# Who holds the output


def test_a_job_that_was_left_holds_the_output(
    service: FakeDataflow, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        FakeDataflow, "flags", [flag for flag in service.flags if flag != "--no_auth"]
    )
    assert submit(beam_tfr, service, "--no_wait").code == 0
    (name,) = [name for name in service.names() if name.startswith("out/")]
    left = json.loads(service.get(name))
    assert left["machine"] == f"job {JOB_ID}"
    again = submit(beam_tfr, service, "--no_wait")
    assert again.code == 1
    assert f"another run holds gs://b/out: job {JOB_ID} (running), since " in again.err
    assert len(service.jobs()) == 1
    patched = [request["name"] for request in service.take_log() if request["method"] == "PATCH"]
    assert all("may-move" in name for name in patched), patched  # no heartbeat
    for state in ("QUEUED", "PENDING", "CANCELLING", "RESOURCE_CLEANING_UP"):
        service.set_service(state=f"JOB_STATE_{state}")
        assert submit(beam_tfr, service, "--no_wait").code == 1, state
    # which has no such job
    assert submit(beam_tfr, service, "--no_wait", "--project=other-project").code == 1
    service.set_service(state="JOB_STATE_FAILED")
    assert submit(beam_tfr, service, "--no_wait").code == 0
    assert len(service.jobs()) == 2


def test_a_job_that_is_followed_holds_the_output_itself(
    service: FakeDataflow, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        FakeDataflow, "flags", [flag for flag in service.flags if flag != "--no_auth"]
    )
    service.set_service(state="JOB_STATE_FAILED")
    assert submit(beam_tfr, service).code == 1
    (name,) = [name for name in service.names() if name.startswith("out/")]
    assert json.loads(service.get(name))["machine"] == f"job {JOB_ID}"
    assert submit(beam_tfr, service, "--no_wait").code == 0


def test_an_unwritable_output_is_found_before_staging(
    service: FakeDataflow, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        FakeDataflow, "flags", [flag for flag in service.flags if flag != "--no_auth"]
    )
    service.set(denied=["POST"])
    run = submit(beam_tfr, service)
    assert run.code == 2
    assert re.search(
        r"gs://b/out: cannot be written to: .*storage\.objects\.create on gs://b", run.err
    )
    assert service.jobs() == []
