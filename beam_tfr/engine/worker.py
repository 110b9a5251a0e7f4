"""A worker process of a local run, which ends with it.

`python -m beam_tfr.engine.worker PID` runs Beam's worker until the process PID ends. Otherwise workers outlive a
killed run (`kill -9`, out of memory) for a while, and hold memory.
"""

import os
import runpy
import signal
import sys
import threading
import time

LOOK_EVERY_S = 0.5


def main() -> None:
    """Runs Beam's worker until it or the process given as the first argument ends."""
    parent = int(sys.argv.pop(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to every process; the parent decides
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()
    runpy.run_module("apache_beam.runners.worker.sdk_worker_main", run_name="__main__", alter_sys=True)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os._exit(1)


if __name__ == "__main__":
    main()
