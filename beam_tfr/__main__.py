"""`python -m beam_tfr` is `beam-tfr`."""

from beam_tfr.cli import run

if __name__ == "__main__":
    run()
