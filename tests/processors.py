"""The same program under the settings that make the codecs behave as on other processors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# What OpenCV and libjpeg-turbo read; RESIZER is for `_PRELUDE`, since cykooz-resizer has a setting but no variable.
PROCESSORS = {
    "all": {},
    "IPP disabled": {"OPENCV_IPP": "disabled"},
    "IPP sse42": {"OPENCV_IPP": "sse42", "JSIMD_FORCESSE2": "1"},
    "IPP avx2": {"OPENCV_IPP": "avx2"},
    "IPP avx512": {"OPENCV_IPP": "avx512"},
    "no AVX512": {"OPENCV_CPU_DISABLE": "AVX512-SKX"},
    "no AVX2": {"OPENCV_CPU_DISABLE": "AVX2,FMA3,AVX512-SKX", "RESIZER": "sse4_1"},
    "baseline": {
        "OPENCV_CPU_DISABLE": "SSE4.1,SSE4.2,AVX,FP16,FMA3,AVX2,AVX512-SKX",
        "OPENCV_IPP": "disabled",
        "JSIMD_FORCENONE": "1",
        "RESIZER": "none",
    },
}
_PRELUDE = """
import os
import cykooz_resizer

class OtherResizer(cykooz_resizer.Resizer):
    def __init__(self):
        super().__init__()
        self.cpu_extensions = cykooz_resizer.CpuExtensions[os.environ["RESIZER"]]

if "RESIZER" in os.environ:
    cykooz_resizer.Resizer = OtherResizer
"""


def check_on_every_processor(program: str, *arguments: str) -> None:
    """Runs a program that adds all its results to `digest`, a hash, once for each of `PROCESSORS`.

    Raises:
        AssertionError: one fails, two hashes differ, or the settings have no effect.
    """
    program = _PRELUDE + program + "\nimport cv2\nprint(cv2.getCPUFeaturesLine())\nprint(digest.hexdigest())\n"
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OPENCV_", "JSIMD_"))}
    children = {
        name: subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=clean | variables,
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # of libtiff, about damaged files
            text=True,
        )
        for name, variables in PROCESSORS.items()
    }
    found = {name: child.communicate()[0].splitlines() for name, child in children.items()}
    assert {name: child.returncode for name, child in children.items()} == dict.fromkeys(PROCESSORS, 0)
    assert len({lines[1] for lines in found.values()}) == 1, found
    if "AVX2" in found["all"][0]:
        assert found["all"][0] != found["baseline"][0]
        assert found["all"][0] != found["no AVX2"][0]
