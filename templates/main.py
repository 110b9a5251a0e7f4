"""What the Flex Template's launcher runs: `beam-tfr convert` with the template's parameters."""

import sys

from beam_tfr.cli import run
from beam_tfr.dataflow.template import launcher_arguments

if __name__ == "__main__":
    sys.argv[1:] = ["convert", *launcher_arguments(sys.argv[1:])]
    run()
