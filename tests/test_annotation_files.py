"""Annotations in a folder that is converted for its images are told."""

from __future__ import annotations

from pathlib import Path

import PIL.Image
import pytest

import beam_tfr
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.sources import early_warnings, open_source

FILES = {
    "Annotations/a.xml": ("<annotation><filename>a.jpg</filename></annotation>", "*.xml"),
    "anno/a.XML": ('<?xml version="1.0"?>\n<annotation verified="no">\n</annotation>', "*.XML"),
    "instances.json": ('{"info": {}, "images": [], "annotations": []}', "instances.json"),
    "ml.json": ('[{"image": "a", "annotations": [{"coordinates": {}}]}]', "ml.json"),
    "a.json": ('{"version": "5", "flags": {}, "shapes": [], "imagePath": "a.jpg"}', "a.json"),
    "data.yaml": ("train: images\nnames: [cat]\n", "data.yaml"),
    "metadata.csv": ("file_name,label\na.jpg,cat\nb.jpg,dog\n", "metadata.csv"),
    "metadata.jsonl": ('{"file_name": "a.jpg"}\n{"file_name": "b.jpg"}\n', "metadata.jsonl"),
    "labels/a.txt": ("0 0.5 0.5 0.2 0.2\n1 .1 .2 .3 4e-1 .9\n", "*.txt"),
    "notes.txt": ("0 0.5 0.5 0.2 0.2\nhello\n", ""),
    "labels.csv": ("id,Label\n0,cat\n1,dog\n", "labels.csv"),
    "prices.csv": ("item,price\nhat,7\n", ""),
    "pom.xml": ("<project></project>", ""),
    "package.json": ('{"images": 7}', ""),
    "config.yml": ("lr: 0.1\n", ""),
}


@pytest.mark.parametrize("name", [*FILES])
def test_annotations_among_skipped_files_are_told(name: str, tmp_path: Path) -> None:
    content, table = FILES[name]
    images = tmp_path / "in" / "JPEGImages"
    images.mkdir(parents=True)
    PIL.Image.new("RGB", (9, 9)).save(images / "a.jpg")
    path = tmp_path / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    given = {"input": str(tmp_path / "in")}
    plan = beam_tfr.plan(**given, progress=False)
    options = from_values({**given, "output": tmp_path / "d"}, ConvertOptions)
    notes = [*early_warnings(open_source(options))]
    for told in (notes, plan.warnings):
        tables = [note for note in told if "`table=`" in note]
        assert len(tables) == bool(table)
        assert all(f"{path.parent}/{table}" in note for note in tables)
