"""Writes a dataset in formats of other programs; the bytes of its images stay the same.

    shard           the exported records of a shard, and their content
    image_names     the file names that follow from keys; checked before anything is written
    image_files     shared code of formats with one file per image
    folder          such files, with annotations of objects as in COCO
    yolo, voc       such files, with annotations as in YOLO and Pascal VOC
    shard_files     the formats with one file per shard
    export_formats  the table of formats, and how to write a shard in each of them

`transforms/shards` calls `export_formats.ExportJob.write` for each shard on any runner, and
`launch/exporting` does the rest.
"""
