"""Prism, and a portable job service with worker processes of their own, for tests.

    python -m tests.portable_runners     builds Prism now, where it is not in the cache

Prism is built from source by Go, once for each version of Beam, into BEAM_TFR_TEST_CACHE
(~/.cache/beam_tfr).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import apache_beam
import pytest

from tests.conftest import wait_for

MODULE = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{apache_beam.__version__}"
BUILD_TIMEOUT_S = 900
NO_GO = f"needs Prism: Go is not installed, or has no way to its module proxy (go install {MODULE})"


def build_prism() -> Path | None:
    """The path of Prism's binary, built first where it must be; None where it cannot be."""
    cache = Path(os.environ.get("BEAM_TFR_TEST_CACHE") or Path.home() / ".cache" / "beam_tfr")
    binary = cache / f"prism-{apache_beam.__version__}" / "prism"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        return None
    binary.parent.mkdir(parents=True, exist_ok=True)
    with open(binary.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one builds, others wait
        if not binary.exists():
            with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
                environment = {**os.environ, "GOBIN": folder, "GOFLAGS": "-modcacherw"}
                run = subprocess.run(
                    [go, "install", MODULE], env=environment, timeout=BUILD_TIMEOUT_S, check=False
                )
                if run.returncode:
                    return None
                os.replace(Path(folder) / "prism", binary)
    return binary


@pytest.fixture(scope="session")
def prism() -> Path:
    """The path of Prism's binary."""
    binary = build_prism()
    if binary is None:
        pytest.skip(NO_GO)
    return binary


def own_prism(prism: Path) -> list[str]:
    """The flags for a Prism that no other run of this process shares, perhaps from elsewhere."""
    return [
        "--runner=PrismRunner",
        f"--prism_location={prism}",
        "--experiments=disable_prism_server_singleton",
    ]


@contextlib.contextmanager
def job_service(prism: Path, log: Path) -> Iterator[str]:
    """Prism as a job service in a process of its own; gives its address."""
    with running([prism, "--serve_http=false", "--job_port={port}"], log) as port:
        yield f"localhost:{port}"


@contextlib.contextmanager
def worker_pool(
    python: str | Path, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Beam's worker pool, whose workers are processes of the given Python; gives its address."""
    folder = Path(python).parent  # the pool starts whatever `python` PATH finds first
    path = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = [python, "-m", "apache_beam.runners.worker.worker_pool_main", "--service_port={port}"]
    with running(command, log, {**(environment or {}), **path}) as port:
        yield f"localhost:{port}"


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """A server that listens at the port that takes the place of {port} in its command."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [str(part).replace("{port}", str(port)) for part in command]
    environment = {**os.environ, **(environment or {})}
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=log.parent,
        )

    def listens() -> bool:
        if process.poll() is not None:
            raise RuntimeError(
                f"{command[0]} ended with {process.returncode}: {log.read_text()[-2000:]}"
            )
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return True
        return False

    try:
        wait_for(listens)
        yield port
    finally:
        process.terminate()  # the pool ends its workers
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


THREADS = {
    "one thread": ["--direct_running_mode=in_memory", "--direct_num_workers=1"],
    "three threads": ["--direct_running_mode=multi_threading", "--direct_num_workers=3"],
    "not fused, four attempts": ["--runner=BundleBasedDirectRunner"],
}
PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]


@pytest.fixture
def portable(prism: Path, tmp_path: Path) -> Iterator[list[str]]:
    """Flags for a job service and a pool of worker processes, both outside of this process."""
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    with (
        job_service(prism, tmp_path / "service.log") as service,
        worker_pool(sys.executable, tmp_path / "pool.log", {"PYTHONPATH": path}) as pool,
    ):
        flags = ["--runner=PortableRunner", f"--job_endpoint={service}"]
        yield [*flags, "--environment_type=EXTERNAL", f"--environment_config={pool}"]


if __name__ == "__main__":
    sys.exit(NO_GO if build_prism() is None else None)
