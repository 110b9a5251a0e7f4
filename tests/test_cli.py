"""The command line.

Messages and exit codes of wrong calls, what is printed, and real processes that are disturbed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beam_tfr import __version__, cli
from beam_tfr.console import signals
from beam_tfr.console.terminal import counted
from beam_tfr.engine import interrupt
from beam_tfr.output import claim
from tests.commands import ENVIRONMENT, REPOSITORY, finish, start
from tests.conftest import SAMPLE, Run, as_nobody, files_of, finished_shards, wait_for
from tests.converted import converted_photos, once

Command = Callable[..., Run]


# Calls that are wrong


def test_without_arguments_it_lists_the_commands(beam_tfr: Command) -> None:
    run = beam_tfr()
    assert run.code == 0
    for command in cli.MODULES:
        assert command in run.out
    assert "getting started:\n  beam-tfr convert --input photos --output /data/photos " in run.out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"beam-tfr {__version__}\n"


WRONG_CALLS: list[tuple[list[str], str]] = [
    (["convrt"], "beam-tfr: convrt: unknown command; did you mean convert?"),
    (
        ["x"],
        "beam-tfr: x: unknown command; the commands are: plan, convert, verify, update, remove, "
        "repair, inspect",
    ),
    (["a " * 300], f"beam-tfr: {'a ' * 125}…{'a ' * 125}: unknown command; the commands are: "),
    (["verify", "a", "--b" + " b" * 300], f"unknown: --b{' b' * 123} …{' b' * 125}; see "),
    (["verify", "s3://" + "a " * 300], f"{'a ' * 125}: only local paths and gs:// are supported"),
    (["help"], "beam-tfr: help: unknown command; did you mean --help?"),
    (["--foo"], "beam-tfr: unknown: --foo; see beam-tfr --help"),
    (["--foo", "convert"], "beam-tfr: --foo: unknown flag; "),
    (
        ["verify"],
        "beam-tfr verify: the following arguments are required: DIR; see beam-tfr verify --help",
    ),
    (["verify", "a", "b"], "beam-tfr verify: unknown: b; see beam-tfr verify --help"),
    (["verify", "a", "--qick"], "beam-tfr verify: unknown: --qick; see beam-tfr verify --help"),
    (["verify", "a", "--quite"], "beam-tfr verify: unknown: --quite; did you mean --quiet?"),
    (
        ["inspect", "a", "b", "c"],
        "beam-tfr inspect: accepts one PATH, not 3; put a pattern into quotes, such as 'train-",
    ),
    (["inspect", "*.xyz"], "/*.xyz: matches no file"),
    (["verify", "s3://x"], "beam-tfr verify: s3://x: only local paths and gs:// are supported"),
    (["convert"], "beam-tfr convert: --output is required: "),
    (["convert", "--input", "a/*"], "beam-tfr convert: --output is required: "),
    (
        ["convert", "--input", "--output", "o"],
        "beam-tfr convert: argument --input: expected at least one argument",
    ),
    (
        ["convert", "--inptu", "a/*", "--output", "o"],
        "--inptu: unknown flag; did you mean --input?",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--qualty=3"],
        "--qualty: unknown flag; did you mean --quality?",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--qual", "3"],
        "--qual: unknown flag; did you mean --quality?",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--runer=x"],
        "--runer: unknown flag; did you mean --runner?",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--image-size=9x9"],
        "--image-size: unknown flag; did you mean --im",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--zzzzzz"],
        "--zzzzzz: unknown flag; --help-all lists",
    ),
    (
        ["convert", "my photos", "ds"],
        "my photos: unknown argument; use a flag, such as --input 'my photos' --output ds",
    ),
    (["convert", "-i", "a", "-o", "ds"], "-i: unknown flag; did you mean --input?"),
    (
        ["plan", "--input_list", "a.txt", "b c.txt"],
        "b c.txt: unknown argument; --input_list accepts one list: `cat FIRST 'b c.txt' > all.txt`",
    ),
    (["plan", "a"], "a: unknown argument; use a flag, such as --input a"),
    (
        ["plan", "--input", "not_there"],
        "/not_there: matches no file; there is no folder or file with this name",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--overwrit"],
        "--overwrit: unknown flag; --help-all ",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--verbsoe"],
        "--verbsoe: unknown flag; did you mean --verbose?",
    ),
    (["convert", "photos", "out"], "photos: unknown argument; "),
    (["plan", "photos"], "beam-tfr plan: photos: unknown argument; "),
    (["convert", "--input", "a", "--output", "o", "--resize", "224"], "none\n"),
    (["diff", "a", "b", "--jsn"], "diff: unknown: --jsn; did you mean --json?"),
    (
        ["convert", "--input", "a/*", "--output", "o", "--streaming"],
        "--streaming: is not possible: a conversion is ",
    ),
    (
        ["verify", "a", "--runner=PrismRunner", "--streaming"],
        "--streaming: is not possible: a conversion is a batch ",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--number_of_worker_harness_threads=12"],
        "--number_of_worker_harness_threads: has no effect without --runner DataflowRunner",
    ),
    (
        ["plan", "--input", "a/*", "--sample_sise=9"],
        "--sample_sise: unknown flag; did you mean --sample_size?",
    ),
    (["repair", "a", "--josn"], "--josn: unknown flag; did you mean --json?"),
    (
        ["convert", "--input", "a/*", "--output", "o", "--dry_run=true"],
        "--dry_run: has no effect without --runner DataflowRunner\n",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--dry_run"],
        "--dry_run: `beam-tfr plan` shows what convert would do, ",
    ),
    (["convert", "a.jpg", "--input", "a/*", "--output", "o"], "a.jpg: unknown argument; "),
    (
        ["convert", "--input", "a/*", "--output", "o", "--quality", "500"],
        "--quality 500: must be a whole number",
    ),
    *(
        (
            [*command, f"--runner={name}"],
            f"beam-tfr {command[0]}: --runner {name}: must be one of DataflowRunner, ",
        )
        for command in (
            ["convert", "--input", "a/*", "--output", "o"],
            ["verify", "a"],
            ["export", "a", "o", "--format=x"],
        )
        for name in ("Foo", "a.b.Foo", "json.Foo", "json.dumps")
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--direct_num_workers=x"],
        "argument --direct_num_workers: invalid int",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--direct_num_workers=-2"],
        "--direct_num_workers=-2: must be 1 or m",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--direct_running_mode=x"],
        "--direct_running_mode: invalid choice: 'x'",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--runner=DataflowRunner"],
        "--project: is required for Dataflow",
    ),
    (["convert", "--input", "a/*", "--output", "o"], "/a/*: matches no file; there is no folder "),
    (
        ["convert", "--input", "a[/*", "--output", "o"],
        "/a[/*: [ is not closed; write [[] for the character itself",
    ),
    (
        ["convert", "--input", "a/*", "gs://b/*", "--output", "o"],
        "--input: patterns must all be local or all on gs://",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--layout=x/*"],
        "--layout x/*: 'x' is not one of {label}, {split}",
    ),
    (
        ["convert", "--input", "a/*", "--output", "o", "--classes=c.txt"],
        "--classes c.txt: cannot be read: No such file",
    ),
    (
        ["convert", "--input", "a/*", "--output", "s3://o"],
        "--output s3://o: only local paths and gs:// are supported",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_CALLS, ids=lambda value: str(value)[:60])
def test_a_wrong_call_exits_with_2_and_a_sentence(
    beam_tfr: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = beam_tfr(*arguments)
    assert run.code == 2
    assert message in run.err
    assert re.match(
        r"beam-tfr( convert| plan| verify| repair| inspect| diff| export| bench)?: ", run.err
    )
    assert "Traceback" not in run.err
    assert run.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image_sise = 9", "--image_sise: unknown flag; did you mean --image_size?"),
        ("image-size = 9", "--image-size: unknown flag; did you mean --image_size?"),
        ("zzz = 9", "--zzz: unknown flag; --help-all lists ours; Beam's own are accepted too"),
        ("[images]\nsize = 9", "--images: unknown flag; did you mean --image_size?"),
    ],
)
def test_an_unknown_key_of_a_file_is_named(
    beam_tfr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(f"input = 'a'\noutput = 'o'\n{text}\n")
    run = beam_tfr("convert", "--config", "c.toml")
    assert (run.code, run.err) == (
        2,
        f"beam-tfr convert: {said.replace('c.toml', str(tmp_path / 'c.toml'))}\n",
    )


def test_a_class_list_with_duplicates(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    classes = tmp_path / "classes.txt"
    classes.write_text("hat\nshoes\nhat\n")
    arguments = [
        "convert",
        "--input",
        f"{photos}/**/*.jpg",
        "--output",
        tmp_path / "o",
        "--classes",
        classes,
    ]
    run = beam_tfr(*arguments)
    assert (run.code, run.out) == (2, "")
    assert run.err == (
        f"beam-tfr convert: --classes {classes}: class 'hat' is on line 1 and again on line 3; "
        f"remove one\n"
    )
    assert not (tmp_path / "o").exists()


def test_an_unwritable_output_is_an_error(
    beam_tfr: Command, photos: Path, public_path: Path
) -> None:
    source = public_path / "photos"
    source.mkdir()
    for path in (photos / "train" / "hat").iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    (public_path / "file").write_text("mine")
    (public_path / "closed").mkdir()
    (public_path / "kept" / ".beam_tfr").mkdir(parents=True)
    (public_path / "kept" / ".beam_tfr").chmod(0o777)
    for output, said in (
        (public_path / "kept", "Permission denied"),
        (public_path / "file", "exists|Not a directory"),
        (public_path / "file" / "out", "Not a directory"),
        (public_path / "closed" / "out", "Permission denied"),
        (public_path / "closed", "Permission denied"),
        (Path("/proc/nowhere"), "No such file or directory"),
    ):
        with as_nobody():
            run = beam_tfr("convert", "--input", f"{source}/*.jpg", "--output", output)
        assert run.code == 2
        cure = "choose a folder that you can write to"
        assert re.search(f"{output}: cannot be written to: ({said}); {cure}\n", run.err)
        assert "Traceback" not in run.err
    assert list((public_path / "closed").iterdir()) == []
    assert (public_path / "file").read_text() == "mine"


def test_an_unreadable_photo_is_a_reject_if_accepted_and_an_unreadable_folder_an_error(
    beam_tfr: Command, photos: Path, public_path: Path
) -> None:
    source, output = public_path / "photos", public_path / "out"
    (source / "hat").mkdir(parents=True)
    for path in (photos / "train" / "hat").iterdir():
        (source / "hat" / path.name).write_bytes(path.read_bytes())
    (source / "hat" / "secret.jpg").write_bytes(b"x")
    (source / "hat" / "secret.jpg").chmod(0)
    output.mkdir()
    output.chmod(0o777)
    arguments = ["convert", "--input", f"{source}/**/*.jpg", "--output", output]
    with as_nobody():
        assert beam_tfr(*arguments, "--max_rejects", "1").code == 1
        run = beam_tfr(*arguments, "--max_rejects", "1", "--accept_unreadable")
    assert run.code == 0
    (reject,) = map(json.loads, (output / "rejects.jsonl").read_text().splitlines())
    assert (reject["key"], reject["reason"], reject["detail"]) == (
        "hat/secret.jpg",
        "unreadable",
        "Permission denied",
    )
    (source / "closed").mkdir(mode=0)
    with as_nobody():
        run = beam_tfr(*arguments)
    assert run.code == 2
    assert f"cannot be listed: {source}/closed: Permission denied" in run.err


def test_verify_names_file_and_record(beam_tfr: Command, tmp_path: Path) -> None:
    output = Path(shutil.copytree(converted_photos("--compression none"), tmp_path / "out"))
    sound = beam_tfr("verify", output)
    assert (sound.code, sound.err) == (0, "")
    assert sound.out.startswith(f"{output}: 18 records in 2 shards, ")
    assert sound.out.endswith("OK: the dataset matches its manifest\n")
    shard = output / "d-train-00000-of-00001.tfrecord"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    damaged = beam_tfr("verify", output)
    assert damaged.code == 1
    assert re.search(rf"{shard.name}, record \d+", damaged.err)
    assert re.search(r"\n\d+ problems\n$", damaged.out)
    (output / "manifest.json").unlink()
    for folder, said in (
        (output, "manifest.json is missing"),
        (tmp_path / "none", "the folder does not exist\n"),
    ):
        run = beam_tfr("verify", folder)
        assert (run.code, run.out) == (1, "")
        assert run.err.startswith(f"beam-tfr verify: {folder} is not a complete dataset: ")
        assert said in run.err


RUNNER = """
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
class Options(PipelineOptions):
    @classmethod
    def _add_argparse_args(cls, parser):
        parser.add_argument("--my_address")
class Runner(FnApiRunner):
    pass
"""


@pytest.mark.slow
def test_a_custom_runner_brings_its_own_flags(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "my_runner.py").write_text(RUNNER)
    environment = ENVIRONMENT | {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    command = [
        "convert",
        "--input",
        f"{photos}/**/*.jpg",
        "--output",
        f"{tmp_path}/o",
        "--runner=my_runner.Runner",
    ]
    command += ["--layout", "{label}/*", "--quiet"]
    # A process of its own: Beam keeps the flags of every runner that it has seen.
    program = (
        "from beam_tfr.cli import main\n"
        f"assert main({[*command, '--my_address=x']}) == 0\n"
        f"raise SystemExit(main({[*command, '--my_adress=x']}))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 2
    assert run.stderr == "beam-tfr convert: --my_adress: unknown flag; did you mean --my_address?\n"


# What is printed


def test_numbers_have_their_nouns() -> None:
    assert [counted(number, "record") for number in (0, 1, 2000)] == [
        "0 records",
        "1 record",
        "2,000 records",
    ]


def test_json_is_one_object_on_stdout_and_nothing_else(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    (photos / "train" / "hat" / "empty.jpg").touch()
    command = [
        "convert",
        "--input",
        f"{photos}/**/*.jpg",
        "--output",
        tmp_path / "o",
        "--layout",
        "{split}/{label}/*",
    ]
    run = finish(start(*command, "--json", "--max_rejects=1"))
    assert run.code == 0
    assert run.out.count("\n") == 1
    summary = json.loads(run.out)
    digest = json.loads((tmp_path / "o" / "manifest.json").read_text())["dataset_digest"]
    assert summary.pop("seconds") > 0
    assert summary.pop("images_per_second") > 0
    assert summary.pop("splits").keys() == {"train", "test"}
    examples = summary.pop("examples")
    assert [(item["split"], item["split_from"]) for item in examples] == [
        ("train", "folder"),
        ("test", "folder"),
    ]
    assert summary == {
        "adjusted": {},
        "changed": {},
        "rewritten_shards": 0,
        "columns": {},
        "complete_already": False,
        "cropped": 0.2565,
        "boxes": None,
        "masks": None,
        "dataset_digest": digest,
        "new_ids": "",
        "matched": 19,
        "name": "o",
        "output": str(tmp_path / "o"),
        "rejected": {"empty-file": 1},
        "resumed": 0,
        "missed": 0,
        "archives": 0,
        "packed_archives": 0,
        "raw_photos": 0,
        "repeated_folders": 0,
        "guessed_names": 0,
        "duplicates": {},
        "packed_labels": 0,
        "repeated_rows": 0,
        "nested": 0,
        "last_folders": 0,
        "ignored_split": 0,
        "split_folders": 0,
        "mask_names": 0,
        "empty_folders": 0,
        "mask_folders": 0,
        "pair_folders": 0,
        "left_out": 0,
        "renamed": {},
        "moved": 0,
        "followed": 0,
        "unhashed": 0,
        "crowded": 0,
        "notes": [],
        "skipped": 0,
        "skipped_kinds": {},
        "written": 18,
    }
    assert "balance: " not in run.err
    failed = beam_tfr(*command, "--json", "--quality=3")
    assert (failed.code, failed.out) == (2, "")


def test_the_summary_balances_and_names_what_comes_next(
    beam_tfr: Command, photos: Path, tmp_path: Path
) -> None:
    (photos / "train" / "hat" / "empty.jpg").touch()
    output = tmp_path / "my out"
    call = ("convert", "--input", f"{photos}/**/*.jpg", "--output", output, "--layout", "{label}/*")
    run = beam_tfr(*call, "--max_rejects", "1")
    assert (run.code, run.err) == (0, "")
    lines = run.out.splitlines()
    assert lines[0].split() == ["train", "total"]
    assert [line.split() for line in lines[1:4]] == [
        ["matched", "19", "19"],
        ["rejected", "1", "1"],
        ["written", "18", "18"],
    ]
    assert "balance: 19 matched = 18 written + 1 rejected" in lines
    assert "  empty-file: 1" in lines
    assert lines[-1] == f"next:    beam-tfr verify '{output}'"


@pytest.mark.slow
def test_beam_needs_docstrings(photos: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-OO", "-m", "beam_tfr", "plan", "--input", str(photos)]
    run = subprocess.run(command, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    (line,) = run.stderr.splitlines()
    assert "PYTHONOPTIMIZE" in line


@pytest.mark.slow
def test_closed_or_full_pipes_neither_hang_nor_hurt(photos: Path, tmp_path: Path) -> None:
    def run(output: str, redirection: str) -> subprocess.CompletedProcess[str]:
        command = (
            f"'{sys.executable}' -m beam_tfr convert --input '{photos}/**/*.jpg' --output "
            f"'{output}' "
            f"--layout '{{label}}/*' {redirection}"
        )
        return subprocess.run(
            ["bash", "-c", command],
            env=ENVIRONMENT,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    gone = run("a", "--quiet 2> errors | true; echo ${PIPESTATUS[0]}")
    assert gone.stdout == "1\n"
    said = (tmp_path / "errors").read_text()
    assert said == ""
    expected = files_of(tmp_path / "a")
    assert "manifest.json" in expected
    assert run("c", "--name a >&- 2>&- <&-").returncode == 0
    assert files_of(tmp_path / "c") == expected
    full = run("a", "> /dev/full")
    assert full.returncode == 1
    assert "No space left on device" in full.stderr
    assert "Traceback" not in full.stderr


@pytest.mark.slow
def test_names_that_the_terminal_cannot_show_are_escaped(photos: Path, tmp_path: Path) -> None:
    (photos / "train" / "hat").rename(photos / "train" / "帽子")
    output = tmp_path / "ő"
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    command = ["convert", "--quiet", "--input", f"{photos}/train/**/*.jpg", "--output", output]
    run = finish(start(*command, env=environment))
    assert (run.code, run.err) == (0, "")
    assert "\\u5e3d\\u5b50" in run.out
    assert (output / "labels.txt").read_text(encoding="utf-8").split() == [
        "shoes",
        "t-shirt",
        "帽子",
    ]


# Processes that are disturbed


@pytest.fixture(scope="module")
def many() -> Path:
    """The sample, 10 times over, as links: enough for a run of some seconds."""

    def link(folder: Path) -> None:
        for path in sorted(SAMPLE.glob("*/*/*.jpg")):
            target = folder / path.parent.relative_to(SAMPLE)
            target.mkdir(parents=True, exist_ok=True)
            for copy in range(10):
                (target / f"{copy:02d}-{path.name}").symlink_to(path)

    return once("many", link)


def arguments(many: Path, output: Path) -> list[str]:
    more = [
        "--layout",
        "{split}/{label}/*",
        "--name",
        "d",
        "--num_shards",
        "train=24,validation=3,test=3",
        "--quiet",
    ]
    return ["convert", "--input", f"{many}/**/*.jpg", "--output", str(output), *more]


@pytest.fixture(scope="module")
def undisturbed(many: Path) -> dict[str, bytes]:
    def convert(output: Path) -> None:
        assert cli.main(arguments(many, output)) == 0

    return files_of(once("undisturbed", convert))


@pytest.fixture
def running(many: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose first shard is there, and which is not at its end."""
    process = start(*arguments(many, tmp_path / "out"), cwd=tmp_path)

    def begun() -> bool:
        assert process.poll() is None, process.communicate()
        return (tmp_path / "out").exists() and bool(finished_shards(tmp_path / "out"))

    wait_for(begun)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def locks(output: Path) -> list[Path]:
    return list(output.glob(".beam_tfr/lock*"))


def complete(beam_tfr: Command, many: Path, output: Path, expected: dict[str, bytes]) -> None:
    """Runs the same command again.

    It leaves the same files as an undisturbed run and no other, and finished shards untouched.
    """
    finished = {name: path.stat().st_ino for name, path in finished_shards(output).items()}
    assert finished
    assert not (output / "manifest.json").exists()
    run = beam_tfr(*arguments(many, output))
    earlier = r"convert: an earlier run has finished \d+ of 30 shards\n"
    assert (run.code, re.sub(earlier, "", run.err)) == (0, "")
    assert files_of(output) == expected
    kept = [
        name
        for name, path in finished_shards(output).items()
        if path.stat().st_ino == finished.get(name)
    ]
    # a shard may have been without its sidecar yet, one for each thread
    assert len(kept) >= len(finished) - 2


@pytest.mark.slow
def test_ctrl_c_and_a_second_run_at_the_same_time(
    running: subprocess.Popen[str],
    many: Path,
    undisturbed: dict[str, bytes],
    tmp_path: Path,
    beam_tfr: Command,
) -> None:
    output = tmp_path / "out"
    running.send_signal(signal.SIGSTOP)  # so that it does not end meanwhile
    second = finish(start(*arguments(many, output)))
    running.send_signal(signal.SIGCONT)
    assert (second.code, second.out) == (1, "")
    holder = f"another run holds {output}: process {running.pid} on {socket.gethostname()}, since "
    assert second.err.startswith(f"beam-tfr convert: {holder}")
    assert f"Wait for it, or stop it (kill {running.pid}) and try again" in second.err

    running.send_signal(signal.SIGINT)
    interrupted = finish(running)
    assert (interrupted.code, interrupted.out) == (130, "")
    assert interrupted.err == (
        "beam-tfr convert: interrupted: nothing is published; run the same command again to "
        "resume from the finished "
        "shards\n"
    )
    assert not locks(output)
    complete(beam_tfr, many, output, undisturbed)


@pytest.mark.slow
def test_a_killed_run_is_resumed_despite_its_lock(
    running: subprocess.Popen[str],
    many: Path,
    undisturbed: dict[str, bytes],
    tmp_path: Path,
    beam_tfr: Command,
) -> None:
    running.send_signal(signal.SIGKILL)
    assert finish(running).code == -signal.SIGKILL
    assert locks(tmp_path / "out")
    complete(beam_tfr, many, tmp_path / "out", undisturbed)


@pytest.mark.slow
def test_ctrl_c_before_anything_is_written(many: Path, tmp_path: Path) -> None:
    process = start(*arguments(many, tmp_path / "out"))
    wait_for(lambda: locks(tmp_path / "out"))
    process.send_signal(signal.SIGINT)
    run = finish(process)
    assert (run.code, run.out) == (130, "")
    assert "Traceback" not in run.err
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert not locks(tmp_path / "out")


def test_ctrl_c_during_imports() -> None:
    program = (
        "import sys\n"
        "class Late:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'beam_tfr.storage': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Late())\n"
        "from beam_tfr.__main__ import run\n"
        "run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        130,
        "",
        "beam-tfr: interrupted: run the same command again\n",
    )


def test_ctrl_c_while_the_dataset_is_published_comes_too_late_and_is_told(
    photos: Path, tmp_path: Path, beam_tfr: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish_claim = claim.remove_work_folder

    def finish_late(output: str, run_id: str, shards: list[str]) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(interrupt.requested.is_set)
        finish_claim(output, run_id, shards)

    monkeypatch.setattr(claim, "remove_work_folder", finish_late)
    run = beam_tfr(
        "convert", "--input", f"{photos}/**/*.jpg", "--output", tmp_path / "o", "--layout", "*"
    )
    assert (run.code, run.out) == (130, "")
    assert run.err == (
        "beam-tfr convert: interrupted after all work was done: run the same command again to "
        "see the result\n"
    )
    assert (tmp_path / "o" / "manifest.json").exists()


@pytest.mark.parametrize("number", signals.NUMBERS)
@pytest.mark.parametrize(
    "moment",
    [
        "beam_tfr.cli.make_parser = interrupt",  # before the engine
        "beam_tfr.cli._run_command = interrupt_lost",
        "beam_tfr.cli._run_command = lambda *_: 0; atexit.register(interrupt)",
        "beam_tfr.cli.open_standard_streams = interrupt_lost",
    ],
)
def test_a_signal_at_any_moment_is_told(moment: str, number: int) -> None:
    program = (
        "import atexit, os, sys\n"
        "import beam_tfr.cli\n"
        "from beam_tfr.__main__ import run\n"
        f"def interrupt(*_): os.kill(os.getpid(), {number})\n"
        "class Lost:\n"
        "    def __del__(self): interrupt()\n"
        "def interrupt_lost(*_):\n"
        "    Lost()\n"
        "    return 0\n"
        f"{moment}\n"
        "sys.argv[1:] = ['inspect', '/nowhere']\n"
        "run()\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (130, "")
    told = r"beam-tfr(?: inspect)?: interrupted: run the same command again"
    assert re.fullmatch(told, done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_sigterm_ends_a_run_like_ctrl_c(running: subprocess.Popen[str], tmp_path: Path) -> None:
    running.send_signal(signal.SIGTERM)
    run = finish(running)
    assert (run.code, run.out) == (130, "")
    assert "Traceback" not in run.err
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.slow
def test_ctrl_c_with_several_processes_at_work(
    many: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    engine = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    process = start(*arguments(many, output), *engine, start_new_session=True)
    wait_for(lambda: process.poll() is not None or (output.exists() and finished_shards(output)))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    run = finish(process)
    assert (run.code, run.out) == (130, "")
    assert "Traceback" not in run.err
    finished = {
        f"d-{name}.tfrecord.gz": path.read_bytes() for name, path in finished_shards(output).items()
    }
    assert finished
    assert finished.items() < undisturbed.items()
    assert not (output / "manifest.json").exists()


def test_a_flag_that_is_given_twice_is_told_and_refused_by_remove(beam_tfr: Command) -> None:
    run = beam_tfr("remove", "d", "--keys", "a.txt", "--keys", "b.txt")
    assert run.code == 2
    assert "--keys is specified more than once" in run.err
    run = beam_tfr("convert", "--table", "no.csv", "--label_column", "a", "--label_column=b")
    assert "--label_column is specified more than once: the last one counts" in run.err
