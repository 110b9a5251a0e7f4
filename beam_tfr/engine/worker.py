"""A worker process of a local run, which ends with it.

`main` runs Beam's worker until its standard input ends, which the process that started it holds
open. Otherwise workers outlive a killed run (`kill -9`, out of
memory) for a while, and hold memory.
"""

import os
import runpy
import signal
import threading


def main() -> None:
    """Runs Beam's worker until it or standard input ends."""
    # A terminal sends it to every process; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_input, daemon=True).start()
    runpy.run_module(
        "apache_beam.runners.worker.sdk_worker_main", run_name="__main__", alter_sys=True
    )


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(1)
