"""Makes a table of boxes from annotations of COCO, Pascal VOC or YOLO, and prints the line that converts it.

    python examples/boxes_table.py instances_val2017.json val2017 boxes.jsonl       # COCO
    python examples/boxes_table.py Annotations JPEGImages boxes.jsonl               # Pascal VOC
    python examples/boxes_table.py labels images boxes.jsonl --classes data.yaml    # YOLO

Each row has an image, its boxes, and the name of the class of each. An image without objects has an empty list.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

Row = dict[str, Any]
FORMATS = {"coco": "bbox[xywh]", "voc": "bbox[xyxy]", "yolo": "bbox[rel_center_xywh]"}
IMAGES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


def from_coco(file: pathlib.Path, images: pathlib.Path) -> Iterator[Row]:
    """The rows of a COCO file, in memory: left, top, width and height of each box."""
    content = json.loads(file.read_text())
    names = {category["id"]: category["name"] for category in content["categories"]}
    objects = collections.defaultdict(list)
    for annotation in content["annotations"]:
        objects[annotation["image_id"]].append(annotation)
    for image in content["images"]:
        found = objects.pop(image["id"], [])
        yield {
            "path": str(images / image["file_name"]),
            "box": [annotation["bbox"] for annotation in found],
            "name": [names[annotation["category_id"]] for annotation in found],
            "iscrowd": [annotation.get("iscrowd", 0) for annotation in found],
        }
    if objects:
        print(
            f"{len(objects)} images have annotations, but are not in the file, such as {min(objects)}", file=sys.stderr
        )


def from_voc(folder: pathlib.Path, images: pathlib.Path) -> Iterator[Row]:
    """The rows of a folder of XML files. Their pixels count from 1, and the last one belongs to the box."""
    for file in sorted(folder.glob("*.xml")):
        if "<!DOCTYPE" in (text := file.read_text()):
            raise SystemExit(f"{file}: has a DOCTYPE, which no file of Pascal VOC needs")
        root = ElementTree.fromstring(text)  # noqa: S314  # without a DOCTYPE there are no entities
        objects = root.findall("object")
        boxes = [
            {side: float(one.findtext(f"bndbox/{side}")) for side in ("xmin", "ymin", "xmax", "ymax")}
            for one in objects
        ]
        yield {
            "path": str(images / root.findtext("filename")),
            "box": [[box["xmin"] - 1, box["ymin"] - 1, box["xmax"], box["ymax"]] for box in boxes],
            "name": [one.findtext("name") for one in objects],
            "difficult": [int(one.findtext("difficult") or 0) for one in objects],
        }


def from_yolo(folder: pathlib.Path, images: pathlib.Path, classes: pathlib.Path) -> Iterator[Row]:
    """The rows of a folder of text files with the names of the images; one that has none has no objects."""
    if classes.suffix in (".yaml", ".yml"):
        import yaml

        names = yaml.safe_load(classes.read_text())["names"]
    else:
        names = classes.read_text().splitlines()
    for image in sorted(path for path in images.rglob("*") if path.suffix.lower() in IMAGES):
        file = (folder / image.relative_to(images)).with_suffix(".txt")
        lines = [line.split() for line in file.read_text().splitlines() if line.strip()] if file.exists() else []
        if wrong := [line for line in lines if len(line) != 5]:
            raise SystemExit(f"{file}: {' '.join(wrong[0])!r} is no class with the four numbers of a box")
        yield {
            "path": str(image),
            "box": [[*map(float, line[1:])] for line in lines],
            "name": [names[int(line[0])] for line in lines],
        }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations", type=pathlib.Path, help="COCO's file, or the folder of XML or text files")
    parser.add_argument("images", type=pathlib.Path, help="folder of the images")
    parser.add_argument("table", type=pathlib.Path, help="file to write, with the extension .jsonl")
    parser.add_argument("--classes", type=pathlib.Path, help="YOLO's data.yaml, or a file with a class a line")
    given = parser.parse_args(arguments)
    images, beside = given.images.resolve(), ""
    if given.annotations.is_file():
        kind, rows, beside = "coco", from_coco(given.annotations, images), ",iscrowd:int64[box]"
    elif given.classes:
        kind, rows = "yolo", from_yolo(given.annotations, images, given.classes)
    else:
        kind, rows, beside = "voc", from_voc(given.annotations, images), ",difficult:int64[box]"
    with given.table.open("w") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    columns = ["--uri_column", "path", "--label_column", "name", "--feature_columns", f"box:{FORMATS[kind]}{beside}"]
    line = ["beam-tfr", "convert", "--table", given.table, "--image_root", images, *columns, "--output", "DIR"]
    print(shlex.join(map(str, line)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
