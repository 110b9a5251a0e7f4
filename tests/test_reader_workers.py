"""`load` under tf.distribute with two workers, which are two processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.converted import SAMPLE

tf = pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'beam_tfr[reader]'")

WORKER = """
import json, sys
import tensorflow as tf
from beam_tfr.reader import load

strategy = tf.distribute.MultiWorkerMirroredStrategy()
examples = load(sys.argv[1], split="train", batch_size=4, output="dict", remainder="keep")
steps = []
for batch in strategy.experimental_distribute_dataset(examples):
    names = strategy.experimental_local_results(batch["image/filename"])
    steps.append([name.decode() for part in names for name in part.numpy().tolist()])
print("STEPS", json.dumps(steps))
"""


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


@pytest.mark.slow
def test_two_workers_see_each_example_once(beam_tfr: Callable[..., Run], tmp_path: Path) -> None:
    photos = f"{SAMPLE}/train/{{dress,hat}}/*.jpg"
    flags = ["--limit", 10, "--num_shards", 2, "--image_size", 24]
    run = beam_tfr("convert", "--input", photos, "--output", tmp_path / "d", *flags)
    assert run.code == 0, run.err
    workers = [f"localhost:{port}" for port in free_ports(2)]
    processes = []
    for index in range(2):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        environment = os.environ | {"TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": "-1"}
        command = [sys.executable, "-c", WORKER, str(tmp_path / "d")]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        )
    steps = []
    for process in processes:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        steps.append(json.loads(out.rpartition("STEPS ")[2]))
    assert [len(of_worker) for of_worker in steps] == [3, 3]
    names = [name for of_worker in steps for step in of_worker for name in step]
    assert len(names) == len(set(names)) == 10
