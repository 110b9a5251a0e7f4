"""The Flex Template.

One table of options, the service's own form of a spec, an image that holds what it needs.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.cloud import dataflow_v1beta3
from google.protobuf import json_format
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from beam_tfr.options import ConvertOptions, kinds, table
from tests.worker_env import make_worker_env

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "templates"
MAKE, MAIN, SPEC = (
    runpy.run_path(str(ROOT / name))
    for name in ("docs/make_options.py", "templates/main.py", "templates/spec.py")
)
IMAGE = "europe-west4-docker.pkg.dev/my-project/images/beam-tfr:1"


def parameters() -> dict[str, dict[str, object]]:
    return {parameter["name"]: parameter for parameter in MAKE["metadata"]()["parameters"]}


# The spec


def test_the_spec_is_what_the_service_reads() -> None:
    printed = subprocess.run(
        [sys.executable, FOLDER / "spec.py", IMAGE],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    ).stdout
    spec = dataflow_v1beta3.ContainerSpec.pb(dataflow_v1beta3.ContainerSpec())
    json_format.Parse(printed, spec)  # refuses fields and values that it does not know
    assert spec.image == spec.default_environment.sdk_container_image == IMAGE
    assert spec.sdk_info.language == dataflow_v1beta3.SDKInfo.Language.PYTHON
    assert len(spec.metadata.parameters) == len(parameters())
    kinds = dataflow_v1beta3.ParameterType
    found = {parameter.name: parameter.param_type for parameter in spec.metadata.parameters}
    lists = [name for name, option in table.options_of(ConvertOptions).items() if option.kind.many]
    assert {found[name] for name in lists} == {kinds.TEXT}
    assert found["input_list"] == kinds.GCS_READ_FILE
    assert found["output"] == kinds.GCS_WRITE_FOLDER
    assert found["encoding"] == kinds.ENUM
    assert found["overwrite"] == kinds.BOOLEAN
    assert found["quality"] == kinds.NUMBER
    assert all(parameter.label and parameter.help_text for parameter in spec.metadata.parameters)


@pytest.mark.parametrize("arguments", [[], ["beam-tfr"], [IMAGE, IMAGE]])
def test_a_wrong_call_says_what_to_give(arguments: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, FOLDER / "spec.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("give an image in a registry, such as ")


def test_metadata_json_equals_the_option_table() -> None:
    assert json.loads((FOLDER / "metadata.json").read_text()) == MAKE["metadata"]()


def test_every_option_is_a_parameter_except_those_of_a_terminal() -> None:
    left_out = {field.name for field in dataclasses.fields(ConvertOptions)} - parameters().keys()
    assert left_out == {"json", "no_wait", "on_interrupt", "progress_format", "quiet", "report"}


def test_defaults_given_explicitly_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    table.add_arguments(parser, ConvertOptions)
    needed = ["--input=gs://b/*.jpg", "--output=gs://b/out"]
    bare = table.from_arguments(parser.parse_args(needed), ConvertOptions)
    defaults = [
        f"--{name}={value['defaultValue']}"
        for name, value in parameters().items()
        if "defaultValue" in value
    ]
    assert len(defaults) > 15
    empty = [
        f"--{name}="
        for name, value in parameters().items()
        if value["isOptional"] and "defaultValue" not in value
    ]
    assert len(empty) > 5
    empty.remove("--input=")
    assert (
        table.from_arguments(parser.parse_args([*needed, *defaults, *empty]), ConvertOptions)
        == bare
    )


SAMPLES = [
    *(
        "0",
        "-5",
        "+7",
        "12345678901234567890",
        "x",
        "1.5",
        "1e3",
        "0.5",
        ".5",
        "5.",
        "224",
        "224x160",
        "224X160",
        "x5",
    ),
    *(
        "#ff00AA",
        "#ff00a",
        "white",
        "Gray",
        "100MiB",
        "100 MiB",
        "1k",
        "1KB",
        "1q",
        "train=16,test=2",
        "train=x",
    ),
    *("train=0.8, test=0.2", "train=", "=1", "train=0.8,test=0.2", "train = 16", "", "-1", "1.2.3"),
]


WITH_PATTERN = {
    name: about
    for name, about in table.options_of(ConvertOptions).items()
    if about.kind.pattern and not about.kind.many
}


@pytest.mark.parametrize("name", WITH_PATTERN)
def test_forms_accept_what_is_allowed(name: str) -> None:
    about = WITH_PATTERN[name]
    any_range = [] if about.low is None else [-1 << 99, 1 << 99]
    for text in SAMPLES:
        shown = re.fullmatch(about.kind.pattern, text) is not None
        try:
            about.kind.parse_value(text, *any_range)
        except ValueError:
            taken = False
        else:
            taken = True
        assert shown or not taken or text[:1] in "+-", (
            f"{text!r} is allowed, but the form refuses it"
        )
        if about.kind not in (kinds.SHARES, kinds.SHARE_OR_COUNT):  # whose ranges no form tells
            assert taken or not shown, f"{text!r} is not allowed, but the form takes it"


# The launcher


def test_lists_in_one_value() -> None:
    given = [
        "--input=gs://a/{x,y}/*.jpg, gs://b/[a,b]*",
        "--exclude=thumbs/**,**/*.gif",
        "--input_list=",
        "--name=a,b",
    ]
    assert MAIN["launcher_arguments"]([*given, "--exclude="]) == [
        *(
            "--input=gs://a/{x,y}/*.jpg",
            "--input=gs://b/[a,b]*",
            "--exclude=thumbs/**",
            "--exclude=**/*.gif",
        ),
        *("--input_list=", "--name=a,b"),
    ]


def launch(
    main: Path, folder: Path, *flags: str, python: str | Path = sys.executable
) -> subprocess.CompletedProcess[str]:
    """main.py with the launcher's flags, without a network."""
    command = [
        python,
        main,
        "--runner=DataflowRunner",
        "--project=my-project",
        "--region=europe-west4",
    ]
    command += [
        "--job_name=from-template",
        f"--staging_location={folder}",
        f"--temp_location={folder}",
    ]
    command += [
        f"--template_location={folder}/job_object.json",
        "--dataflow_endpoint=http://localhost:1",
        "--no_auth",
    ]
    command += [
        f"--sdk_container_image={IMAGE}",
        '--labels={"goog-dataflow-provided-template-type": "flex"}',
    ]
    command += [
        "--input=gs://b/{train,test}/**/*.jpg,gs://b/more/*.png",
        "--output=gs://b/out",
        "--name=",
        *flags,
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("EMULATOR_HOST")
    }
    environment["PYTHONPATH"] = str(ROOT) if python == sys.executable else ""
    return subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_wrong_parameter_is_one_line_in_the_launchers_log(tmp_path: Path) -> None:
    run = launch(FOLDER / "main.py", tmp_path, "--quality=900")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "beam-tfr convert: --quality 900: must be a whole number from 1 to 100\n"
    assert not (tmp_path / "job_object.json").exists()


# The README

GCLOUD = """#!{python}
import json, pathlib, sys
with open("{log}", "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1:4] == ["storage", "cp", "-"]:
    pathlib.Path("{spec}").write_bytes(sys.stdin.buffer.read())
"""


def test_the_commands_of_the_readme_and_the_job_that_the_launcher_gets(tmp_path: Path) -> None:
    (shell,) = re.findall(
        r"^```sh\n(.*?)^```", (FOLDER / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    # A Python with nothing installed.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    log, spec, gcloud = (
        tmp_path / "log",
        tmp_path / "spec.json",
        tmp_path / "venv" / "bin" / "gcloud",
    )
    gcloud.write_text(GCLOUD.format(python=sys.executable, log=log, spec=spec))
    gcloud.chmod(0o755)
    environment = {"PATH": f"{gcloud.parent}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", shell], cwd=ROOT, env=environment, capture_output=True
    )
    assert (run.returncode, run.stderr) == (0, b"")
    commands = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(commands) == 11
    image = "europe-west4-docker.pkg.dev/my-project/images/beam-tfr:0.1.0"
    assert json.loads(spec.read_text()) == SPEC["spec"](image)
    assert ["storage", "cp", "-", "gs://my-project-images/templates/beam-tfr.json"] in commands
    (build,) = [command for command in commands if command[0] == "builds"]
    assert f"--substitutions=_IMAGE={image}" in build
    assert (
        ROOT / next(flag for flag in build if flag.startswith("--config=")).partition("=")[2]
    ).exists()
    (copied,) = [
        command[3] for command in commands if command[:3] == ["storage", "cp", "--recursive"]
    ]
    assert len(list((ROOT / copied).glob("*/*.jpg"))) > 10
    (given,) = [flag.partition("=")[2] for flag in commands[-1] if flag.startswith("--parameters=")]
    assert given.startswith("^~^")
    flags = [
        "--overwrite=true",
        "--upscale=false",
        "--quality=80",
        "--resize=stretch",
        "--classes=",
    ]
    launched = launch(
        FOLDER / "main.py",
        tmp_path,
        *(f"--{parameter}" for parameter in given[3:].split("~")),
        *flags,
    )
    assert launched.returncode == 0, launched.stderr
    assert launched.stdout == f"no job was created; its description: {tmp_path}/job_object.json\n"
    job = json.loads((tmp_path / "job_object.json").read_text())
    assert (job["name"], job["type"]) == ("from-template", "JOB_TYPE_BATCH")
    assert job["labels"] == {"goog-dataflow-provided-template-type": "flex"}
    (pool,) = job["environment"]["workerPools"]
    assert pool["workerHarnessContainerImage"] == IMAGE
    assert not pool.get("packages")
    assert (tmp_path / "pipeline.pb").stat().st_size > 10_000


# The image


def instructions() -> list[tuple[str, str]]:
    text = re.sub(
        r"\\\n", " ", re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    )
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line.strip()]  # type: ignore[misc]


def test_the_dockerfile_passes_a_linter() -> None:
    linter = shutil.which("hadolint") or Path(sys.executable).parent / "hadolint"
    run = subprocess.run(
        [linter, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, "")


def test_the_dockerfile_uses_the_pinned_beam() -> None:
    pins = dict(
        re.findall(r"^(\S+?)==(\S+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    )
    images = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert all(re.search(r":[^:]*\d", image) for image in images)
    assert images[-1].endswith(f"_sdk:{pins['apache-beam']}")


def test_the_image_installs_the_pinned_versions_by_hash() -> None:
    text = (FOLDER / "requirements.txt").read_text()
    pinned = dict(
        re.findall(r"^(\S+?)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    )
    assert len(pinned) == text.count("==")
    ours = [Requirement(line) for line in (ROOT / "requirements.txt").read_text().splitlines()]
    image = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux"}
    wanted = {
        one.name: str(one.specifier)[2:]
        for one in ours
        if not one.marker or one.marker.evaluate(image)
    }
    del pinned["setuptools"]  # builds the package
    assert pinned.items() <= wanted.items()
    required = {Requirement(line) for line in importlib.metadata.requires("beam_tfr") or []}
    extras = ("", "convert", "formats")
    needed = [
        one.name
        for one in required
        if not one.marker or any(one.marker.evaluate({"extra": e}) for e in extras)
    ]
    assert {canonicalize_name(name) for name in needed} <= pinned.keys()


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_the_install_line_and_the_entry_file_run_beside_beam(tmp_path: Path) -> None:
    python = make_worker_env(tmp_path / "image")
    work = tmp_path / "template"
    work.mkdir()
    variables: dict[str, str] = {}
    ran = 0
    for name, rest in instructions():
        if name == "COPY" and "--from" not in rest:
            *sources, target = rest.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                goal = work / target / Path(source).name if target.endswith("/") else work / target
                goal.parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, goal)
        elif name == "RUN":
            path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
            environment = {**os.environ, "PATH": path, "PYTHONPATH": "", "PIP_NO_COMPILE": "1"}
            run = subprocess.run(
                ["sh", "-ec", rest], cwd=work, env=environment, capture_output=True, text=True
            )
            assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
            ran += 1
        elif name == "ENV":
            variables |= dict(part.split("=", 1) for part in shlex.split(rest))
    assert ran == 1
    assert variables == {"FLEX_TEMPLATE_PYTHON_PY_FILE": "/template/main.py"}
    assert sorted(path.name for path in work.iterdir()) == ["main.py"]
    (tmp_path / "job").mkdir()
    run = launch(work / "main.py", tmp_path / "job", python=python)
    assert (run.returncode, run.stderr) == (0, "")
    assert (tmp_path / "job" / "job_object.json").exists()
    look = (
        "import importlib.util as u, beam_tfr; print(u.find_spec('tensorflow'), beam_tfr.__file__)"
    )
    found = subprocess.check_output([python, "-c", look], cwd=tmp_path, env={"PATH": ""}, text=True)
    assert found.startswith(f"None {tmp_path}/image/")
