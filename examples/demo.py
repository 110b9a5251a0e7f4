"""Converts, verifies, reads and shows the bundled sample photos, without a network: `python
examples/demo.py [DIR]`.

On the command line:

    beam-tfr convert --input beam_tfr/sample --output DIR --layout '{split}/{label}/*'
    beam-tfr verify DIR
    beam-tfr report DIR
"""

from __future__ import annotations

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow is quiet

import beam_tfr
from beam_tfr.reader import load

SAMPLE = pathlib.Path(beam_tfr.__file__).with_name("sample")


def main(folder: str) -> int:
    print(beam_tfr.convert(input=SAMPLE, output=folder, layout="{split}/{label}/*"))
    report = beam_tfr.verify(folder)
    print("verified:", report)
    images, labels = next(iter(load(folder, split="train", batch_size=8)))
    print(f"read:     {images.dtype.name} {[*images.shape]}, {labels.dtype.name} {[*labels.shape]}")
    page = pathlib.Path(folder).absolute() / "report.html"
    beam_tfr.report(folder, sources=SAMPLE).save(page)
    print(f"look:     {page.as_uri()}")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or ["beam_tfr_demo"]))
