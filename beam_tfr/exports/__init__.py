"""Writes a dataset in formats of other programs; the bytes of the images stay the same.

    shard           the exported records of a shard, and their content
    image_names     the file names, which depend on keys, and are checked before the export
    image_files     shared code of formats with one file per image
    folder          a file per image, with annotations of objects as in COCO
    yolo, voc       a file per image, with annotations as in YOLO and Pascal VOC
    shard_files     the formats with one file per shard
    export_formats  the table of formats, and how to write a shard in each of them

`transforms/shards` calls `export_formats.ExportJob.write` for each shard on any runner, and
`launch/exporting` does the rest.
"""
