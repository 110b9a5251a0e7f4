"""Writes a dataset in formats of other programs.

The bytes of its images stay as they are.

    shard          the records of a shard that are exported, and what they say
    image_names    the names that keys give to files, which are checked before anything is written
    image_files    what formats with a file for each image have in common
    folder         such files, with annotations of objects as in COCO
    yolo, voc      such files, with those of YOLO and Pascal VOC
    shard_files    the formats of a file for each shard
    formats        the table of formats, and how a shard is written in any of them

`transforms/shards` calls `formats.Job.write` for each shard on any runner, and `launch/exporting`
does the rest.
"""
