"""`python -m beam_tfr` is `beam-tfr`."""

import sys

from beam_tfr.cli import main

if __name__ == "__main__":
    sys.exit(main())
