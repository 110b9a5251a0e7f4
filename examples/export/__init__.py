"""Writes a dataset in formats of other programs, with the bytes of its images as they are: `python examples/export`.

A program of beam_tfr's repository, not of the package:

    command     the command line
    run         checks a call, runs the pipeline, and completes the export
    transform   ExportShards: writes each shard on one worker, on any runner
    formats     the table of formats: how a shard of each is written, and what completes an export
    conditions  the records that fit `--where`, by the contents of their shard
    shard       the records of a shard, those that are wanted, and what they say
    mark        export.json: what an export is made from, and whether it is complete

A module for each format writes it: `folder` (with `coco`), `webdataset`, `parquet`, `tfds` and `dali`.

Workers have the package, but not this program, so `transform` sends its functions to them by value. Hence its modules
import functions and classes of each other, never modules, and keep no state.
"""
