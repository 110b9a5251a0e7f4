"""Digests of what conversions write, to compare two versions of the package.

    python -m benchmarks digests --save before.json      with the old version
    python -m benchmarks digests --against before.json   with the new one: lists what differs

The inputs are made anew from the bundled photos and from arithmetic, so that they are equal
everywhere. Each case is a command or several. What counts is every file of the result but the notes
for updates, which hold times; what `verify`, `inspect` and `diff` say of it; and what `Records`
returns. A change that means to change bytes shows here which ones it changed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from beam_tfr import cli
from benchmarks.measuring import ROOT, Table

SAMPLE = ROOT / "beam_tfr" / "sample"
CLASSES = ("hat", "shoes", "t-shirt")
BY_CLASS = ("--layout", "{label}/*")
LEFT_OUT = {".sources", "history.jsonl"}  # both hold times
DATE = re.compile(r"\d{4}-\d\d-\d\d")
SIDES = ("xmin", "ymin", "xmax", "ymax")


def run_cli(*arguments: object) -> str:
    """What a command prints on standard output.

    Raises:
        RuntimeError: it failed.
    """
    printed = io.StringIO()
    errors = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        code = cli.main([str(argument) for argument in arguments])
    if code != 0:
        raise RuntimeError(f"{arguments} ended with {code}: {errors.getvalue()}")
    return printed.getvalue()


def convert(output: Path, *arguments: object) -> None:
    """Converts into a dataset named `d`; rejects are welcome."""
    run_cli("convert", *arguments, "--output", output, "--name", "d", "--max_rejects", 0.9)


def save_image(path: Path, pixels: np.ndarray, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def painted(number: int, height: int, width: int) -> np.ndarray:
    """A picture that differs for each number: uint8 [height, width, 3]."""
    rows, columns = np.mgrid[0:height, 0:width]
    channels = [rows * 3 + number * 40, columns * 2 + number * 15, (rows + columns) * number]
    return np.stack(channels, axis=2).astype(np.uint8)


def write_inputs(folder: Path) -> None:
    """Photos of three classes, odd and broken files, pictures with objects, tables, archives."""
    write_photos(folder / "photos")
    write_odd_files(folder / "odd")
    write_objects(folder / "objects")
    write_coco(folder / "objects")
    write_voc_and_yolo(folder)
    write_archives(folder)
    write_parquet(folder)
    write_arrays(folder / "arrays")


def write_photos(folder: Path) -> None:
    for split in ("train", "test"):
        for label in CLASSES:
            photos = sorted((SAMPLE / split / label).iterdir())[:5]
            for photo in photos:
                target = folder / split / label / photo.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(photo, target)


def write_odd_files(folder: Path) -> None:
    """Other formats, an orientation, transparency, 16 bits, and files that are no sound images."""
    pixels = painted(3, 61, 83)
    for extension in ("png", "gif", "webp", "bmp", "tiff", "ppm", "jpg"):
        save_image(folder / "formats" / f"plain.{extension}", pixels)
    save_image(folder / "formats" / "gray.png", pixels[:, :, 0])
    save_image(folder / "formats" / "deep.png", pixels[:, :, 0].astype(np.uint16) * 257)
    save_image(folder / "formats" / "clear.png", np.dstack([pixels, pixels[:, :, 1]]))
    exif = Image.Exif()
    exif[0x0112] = 6
    save_image(folder / "formats" / "turned.jpg", pixels, exif=exif)
    save_image(folder / "formats" / "progressive.jpg", pixels, progressive=True)
    whole = (folder / "formats" / "plain.jpg").read_bytes()
    broken = folder / "formats"
    (broken / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (broken / "nearly.jpg").write_bytes(whole[:-40])
    (broken / "text.jpg").write_text("no image")
    (broken / "empty.png").write_bytes(b"")
    (broken / "wrong.png").write_bytes(whole)


def boxes_of(number: int) -> list[list[int]]:
    """Up to three boxes of a picture of 70x90: left, top, right, bottom."""
    return [[5 + 9 * i + number, 3 + 11 * i, 40 + 12 * i, 35 + 9 * i] for i in range(number % 4)]


def polygon_of(box: list[int]) -> list[int]:
    left, top, right, bottom = box
    return [left, top, right, top + 2, right - 3, bottom, left + 1, bottom - 1]


def write_objects(folder: Path) -> None:
    """Twelve pictures with boxes, keypoints, polygons, a mask and a second picture each."""
    rows = []
    for number in range(12):
        name = f"{number:02d}.png"
        save_image(folder / "images" / name, painted(number, 70, 90))
        save_image(folder / "masks" / name, painted(number, 70, 90)[:, :, 0] // 50)
        save_image(folder / "depth" / name, painted(number, 70, 90)[:, :, 1].astype(np.uint16) * 99)
        boxes = boxes_of(number)
        rows.append(
            {
                "path": f"images/{name}",
                "classes": [CLASSES[i % 3] for i in range(len(boxes))],
                "box": boxes,
                "joint": [[[box[0], box[1], 2], [box[2], box[3] + 30, 1]] for box in boxes],
                "outline": [[polygon_of(box)] for box in boxes],
                "segment": [[polygon_of(box)] for box in boxes],
                "depth_of_box": [0.5 + i for i in range(len(boxes))],
                "mask": f"masks/{name}",
                "depth": f"depth/{name}",
                "age": number if number % 3 else None,
                "size": "sml"[number % 3],
                "tags": ["a", "b"][: number % 3],
                "split": "test" if number % 5 == 0 else "train",
                "group": number % 5,
            }
        )
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with open(folder / "t.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "score", "split", "tags", "when"])
        for number in range(12):
            split = "test" if number % 4 == 0 else "train"
            tags = "|".join("ab"[: number % 3])
            path = f"images/{number:02d}.png"
            writer.writerow(
                [path, CLASSES[number % 3], number / 4, split, tags, f"2026-01-{number}"]
            )
        writer.writerow(["images/missing.png", "hat", 1, "train", "", ""])
        writer.writerow(["images/00.png.bad", "hat", "x", "train", "", ""])


def write_coco(folder: Path) -> None:
    images = []
    annotations = []
    for number in range(12):
        images.append(
            {"id": number + 7, "file_name": f"{number:02d}.png", "width": 90, "height": 70}
        )
        for i, box in enumerate(boxes_of(number)):
            left, top, right, bottom = box
            annotation: dict[str, Any] = {
                "id": len(annotations) + 1,
                "image_id": number + 7,
                "category_id": 2 * (i % 3) + 1,
                "bbox": [left, top, right - left, bottom - top],
                "area": (right - left) * (bottom - top),
                "iscrowd": 0,
                "segmentation": [polygon_of(box)],
                "keypoints": [left, top, 2, right, bottom, 1, 0, 0, 0],
            }
            if i == 2:
                before = 70 * left + top
                annotation["iscrowd"] = 1
                annotation["segmentation"] = {
                    "size": [70, 90],
                    "counts": [before, 20, 70 * 90 - before - 20],
                }
            annotations.append(annotation)
    categories = [{"id": 2 * i + 1, "name": name} for i, name in enumerate(CLASSES)]
    text = json.dumps({"images": images, "annotations": annotations, "categories": categories})
    (folder / "instances.json").write_text(text)


def write_voc_and_yolo(folder: Path) -> None:
    voc = folder / "voc"
    yolo = folder / "yolo"
    for number in range(6):
        save_image(voc / f"{number}.jpg", painted(number, 70, 90))
        save_image(yolo / "images" / "train" / f"{number}.png", painted(number, 70, 90))
        objects = ""
        lines = ""
        for i, box in enumerate(boxes_of(number)):
            tags = "".join(
                f"<{side}>{value}</{side}>" for side, value in zip(SIDES, box, strict=True)
            )
            objects += f"<object><name>{CLASSES[i]}</name><bndbox>{tags}</bndbox></object>"
            left, top, right, bottom = box
            center = ((left + right) / 180, (top + bottom) / 140)
            lines += f"{i} {center[0]} {center[1]} {(right - left) / 90} {(bottom - top) / 70}\n"
        size = "<size><width>90</width><height>70</height><depth>3</depth></size>"
        text = f"<annotation><filename>{number}.jpg</filename>{size}{objects}</annotation>"
        (voc / f"{number}.xml").write_text(text)
        label = yolo / "labels" / "train" / f"{number}.txt"
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text(lines)
    (yolo / "data.yaml").write_text("train: images/train\nnames: [hat, shoes, t-shirt]\n")


def write_archives(folder: Path) -> None:
    """A zip and a tar of photos, and a tar of WebDataset's samples."""
    photos = sorted((folder / "photos").rglob("*.jpg"))
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for photo in photos:
            archive.writestr(f"{photo.parent.name}/{photo.name}", photo.read_bytes())
    with tarfile.open(folder / "photos.tar", "w") as tar:
        for photo in photos:
            add_member(tar, f"{photo.parent.name}/{photo.name}", photo.read_bytes())
    with tarfile.open(folder / "samples.tar", "w") as tar:
        for number, photo in enumerate(photos):
            add_member(tar, f"{number:03d}.jpg", photo.read_bytes())
            add_member(tar, f"{number:03d}.cls", str(number % 3).encode())
            add_member(tar, f"{number:03d}.json", json.dumps({"at": number}).encode())


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write_parquet(folder: Path) -> None:
    photos = sorted((folder / "photos").rglob("*.jpg"))
    images = [{"bytes": photo.read_bytes(), "path": photo.name} for photo in photos]
    labels = [CLASSES.index(photo.parent.name) for photo in photos]
    table = pyarrow.table({"image": images, "label": labels, "price": [1.5 * n for n in labels]})
    pyarrow.parquet.write_table(table, folder / "photos.parquet", row_group_size=7)


def write_arrays(folder: Path) -> None:
    for number in range(6):
        path = folder / CLASSES[number % 3] / f"{number}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.arange(12, dtype=np.float32).reshape(3, 4) * number)


OBJECTS = {
    "box": "bbox[xyxy]",
    "joint": "points[xyv]",
    "outline": "points[xy]",
    "depth_of_box": "float[box]",
    "age": "int64=-1",
    "size": "enum(s|m|l)",
    "tags": "bytes[]",
}


def object_flags(folder: Path, **columns: str) -> list[object]:
    """The options that convert the table of pictures with objects, with more columns."""
    declared = ",".join(f"{name}:{kind}" for name, kind in {**OBJECTS, **columns}.items())
    flags: list[object] = ["--table", folder / "objects" / "t.jsonl", "--uri_column", "path"]
    flags += ["--label_column", "classes", "--split_column", "split"]
    return [*flags, "--feature_columns", declared, "--encoding", "png"]


Case = Callable[[Path, Path], None]  # given the folder of the inputs, and that of the result
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


@case
def sample(inputs: Path, output: Path) -> None:
    convert(output, "--input", SAMPLE, "--layout", "{split}/{label}/*", "--num_shards", 2)


@case
def classes_and_shares(inputs: Path, output: Path) -> None:
    shares = (
        "--splits",
        "train=0.6,validation=0.2,test=0.2",
        "--seed",
        5,
        "--examples_per_shard",
        4,
    )
    convert(output, "--input", inputs / "photos", *BY_CLASS, *shares)


@case
def limited(inputs: Path, output: Path) -> None:
    less = ("--limit", 17, "--exclude", "**/shoes/*2*", "--num_shards", 3)
    convert(output, "--input", inputs / "photos", *BY_CLASS, *less)


@case
def odd_files(inputs: Path, output: Path) -> None:
    convert(output, "--input", inputs / "odd", *BY_CLASS, "--image_size", "40x50")


@case
def odd_files_kept(inputs: Path, output: Path) -> None:
    kept = ("--encoding", "keep", "--resize", "none", "--color", "keep", "--damaged", "keep")
    convert(output, "--input", inputs / "odd", *BY_CLASS, *kept)


@case
def padded_webp(inputs: Path, output: Path) -> None:
    padded = ("--resize", "pad", "--background", "#102030", "--encoding", "webp", "--upscale")
    convert(output, "--input", inputs / "odd", *BY_CLASS, *padded, "--image_size", 64)


@case
def gray_raw_pixels(inputs: Path, output: Path) -> None:
    raw = ("--encoding", "raw", "--color", "gray", "--resize", "stretch", "--compression", "gzip:6")
    convert(output, "--input", inputs / "photos", *BY_CLASS, *raw)


@case
def shortest_uncompressed(inputs: Path, output: Path) -> None:
    flags = ("--resize", "shortest", "--image_size", 48, "--chroma", 444, "--compression", "none")
    convert(output, "--input", inputs / "photos", "--layout", "{split}/{label}/*", *flags)


@case
def zip_archive(inputs: Path, output: Path) -> None:
    convert(output, "--input", inputs / "photos.zip", *BY_CLASS)


@case
def tar_archive(inputs: Path, output: Path) -> None:
    convert(output, "--input", inputs / "photos.tar", *BY_CLASS, "--resize", "fit")


@case
def samples_of_webdataset(inputs: Path, output: Path) -> None:
    columns = ("--uri_column", "jpg", "--label_column", "cls", "--feature_columns", "*")
    convert(output, "--table", inputs / "samples.tar", *columns)


@case
def parquet_images(inputs: Path, output: Path) -> None:
    columns = (
        "--uri_column",
        "image",
        "--label_column",
        "label",
        "--feature_columns",
        "price:float",
    )
    convert(output, "--table", inputs / "photos.parquet", *columns)


@case
def csv_rows_of_images(inputs: Path, output: Path) -> None:
    roles = ("--uri_column", "path", "--label_column", "label", "--split_column", "split")
    columns = ("--feature_columns", "score:float=nan,tags:bytes[],when:bytes")
    convert(output, "--table", inputs / "objects" / "t.csv", *roles, *columns)


@case
def rows_without_images(inputs: Path, output: Path) -> None:
    convert(output, "--table", inputs / "objects" / "t.csv", "--key_column", "path")


@case
def groups_of_rows(inputs: Path, output: Path) -> None:
    roles = ("--uri_column", "path", "--group_column", "group", "--splits", "train=0.5,test=0.5")
    columns = ("--feature_columns", "age:int64=-1,split")  # so that no column says splits
    convert(output, "--table", inputs / "objects" / "t.jsonl", *roles, *columns)


@case
def boxes_and_points(inputs: Path, output: Path) -> None:
    convert(output, *object_flags(inputs), "--image_size", 48)


@case
def boxes_dropped(inputs: Path, output: Path) -> None:
    less = ("--min_visible", 0.6, "--bad_boxes", "drop", "--no_boxes", "reject", "--resize", "pad")
    convert(output, *object_flags(inputs), *less, "--image_size", 64)


@case
def masks_of_boxes(inputs: Path, output: Path) -> None:
    convert(output, *object_flags(inputs, segment="mask[box]"), "--resize", "none")


@case
def masks_and_pairs_of_columns(inputs: Path, output: Path) -> None:
    beside = {"mask": "mask[255]", "depth": "pair"}
    convert(output, *object_flags(inputs, **beside), "--resize", "pad", "--image_size", 64)


@case
def pairs_by_pattern(inputs: Path, output: Path) -> None:
    pair = ("--pair", "depth=../depth/{stem}.png[7]", "--layout", "*", "--resize", "stretch")
    convert(output, "--input", inputs / "objects" / "images", *pair)


@case
def coco(inputs: Path, output: Path) -> None:
    root = ("--image_root", inputs / "objects" / "images")
    convert(output, "--table", inputs / "objects" / "instances.json", *root)


@case
def coco_masks(inputs: Path, output: Path) -> None:
    root = ("--image_root", inputs / "objects" / "images")
    columns = ("--feature_columns", "box:bbox[xywh],segment:mask[box],keypoint:points[xyv]")
    convert(output, "--table", inputs / "objects" / "instances.json", *root, *columns)


@case
def voc(inputs: Path, output: Path) -> None:
    convert(output, "--table", inputs / "voc" / "*.xml")


@case
def yolo(inputs: Path, output: Path) -> None:
    convert(output, "--table", inputs / "yolo" / "data.yaml")


@case
def whole_files(inputs: Path, output: Path) -> None:
    convert(output, "--input", inputs / "arrays" / "**" / "*.npy", "--encoding", "bytes")


@case
def arrays(inputs: Path, output: Path) -> None:
    convert(output, "--input", inputs / "arrays" / "**" / "*.npy", "--encoding", "array")


@case
def dataset_again(inputs: Path, output: Path) -> None:
    first = output.with_name("first")
    convert(first, *object_flags(inputs), "--resize", "none")
    convert(output, "--table", first / "manifest.json", "--image_size", 32)


@case
def records_of_others(inputs: Path, output: Path) -> None:
    first = output.with_name("first")
    unpacked = ("--compression", "none", "--resize", "none")
    convert(first, "--input", inputs / "photos", *BY_CLASS, *unpacked)
    (shard,) = first.glob("d-*.tfrecord")
    records = output.with_name("records.tfrecord")
    shutil.copy(shard, records)
    roles = ("--uri_column", "image/encoded", "--label_column", "image/class/text")
    convert(output, "--table", records, *roles, "--image_size", 32)


@case
def update_and_remove(inputs: Path, output: Path) -> None:
    photos = output.with_name("changing")
    shutil.copytree(inputs / "photos", photos)
    convert(output, "--input", photos, "--layout", "{split}/{label}/*", "--num_shards", 2)
    (photos / "train" / "hat" / "new.png").write_bytes(
        (inputs / "odd/formats/plain.png").read_bytes()
    )
    next((photos / "test" / "shoes").iterdir()).unlink()
    run_cli("update", output, "--input", photos)
    keys = output.with_name("keys.txt")
    keys.write_text("train/hat/new.png\n")
    run_cli("remove", output, "--keys", keys)


@case
def update_of_options(inputs: Path, output: Path) -> None:
    convert(output, *object_flags(inputs), "--image_size", 48)
    run_cli("update", output, "--num_shards", 3, "--seed", 4)


def export_case(format_name: str) -> Case:
    def export(inputs: Path, output: Path) -> None:
        first = output.with_name("first")
        convert(
            first, *object_flags(inputs, mask="mask"), "--resize", "none", "--compression", "none"
        )
        run_cli("export", first, output, "--format", format_name)

    return export


for name in ("folder", "webdataset", "parquet", "tfds"):
    CASES[f"export_{name}"] = export_case(name)


def digest_files(folder: Path) -> dict[str, str]:
    """Name -> SHA-256 of each file of a result."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and LEFT_OUT.isdisjoint(name.split("/")):
            digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def digest_commands(folder: Path) -> dict[str, str]:
    """What commands say of a dataset."""
    verified = json.loads(run_cli("verify", folder, "--json"))
    del verified["seconds"]
    said = {
        "$ verify": json.dumps(verified),
        "$ inspect": run_cli("inspect", folder),
        "$ diff": run_cli("diff", folder, folder, "--json"),
    }
    place = str(folder.parent)
    texts = {name: DATE.sub("", text.replace(place, "")) for name, text in said.items()}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def digest_values(folder: Path) -> dict[str, str]:
    """What `Records` returns of each split, with its types and shapes."""
    from beam_tfr import Records

    digests = {}
    manifest = json.loads((folder / "manifest.json").read_text())
    boxes = {"boxes": "xyxy"} if f"image/object/bbox/{SIDES[0]}" in manifest["features"] else {}
    for split in manifest["splits"]:
        total = hashlib.sha256()
        for element in Records(folder, split=split, output="dict", **boxes):
            add_value(total, element)
        digests[f"Records {split}"] = total.hexdigest()
    return digests


def add_value(total: Any, value: Any) -> None:
    """Adds a value of any kind to a digest."""
    if isinstance(value, dict):
        for name in sorted(value):
            total.update(name.encode())
            add_value(total, value[name])
    elif isinstance(value, (list, tuple)):
        total.update(f"{len(value)} of".encode())
        for part in value:
            add_value(total, part)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        total.update(f"{value.dtype} {value.shape}".encode())
        total.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, np.ndarray):
        add_value(total, value.tolist())
    else:
        total.update(repr(value).encode())


def digest_case(name: str, inputs: Path, folder: Path) -> dict[str, str]:
    output = folder / name / "out"
    output.parent.mkdir()
    CASES[name](inputs, output)
    digests = digest_files(output)
    if (output / "manifest.json").exists():
        digests |= digest_commands(output)
        digests |= digest_values(output)
    return digests


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The names whose digests differ, or that only one has."""
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name) != after.get(name)]


@contextlib.contextmanager
def fixed_folder() -> Iterator[Path]:
    """A new folder of the same name each time: digests of inputs cover the paths of masks.

    Other processes that want it wait for it.
    """
    folder = Path(tempfile.gettempdir(), "beam_tfr-digests")
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the digests to this file")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with those of a file")
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), help="only these cases")


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    names = arguments.only or (["sample"] if arguments.quick else list(CASES))
    before = json.loads(arguments.against.read_text()) if arguments.against else {}
    digests: dict[str, dict[str, str]] = {}
    rows = []
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with fixed_folder() as folder:
        inputs = folder / "inputs"
        inputs.mkdir()
        write_inputs(inputs)
        for name in names:
            digests[name] = digest_case(name, inputs, folder)
            changed = differences(before[name], digests[name]) if name in before else None
            count = None if changed is None else len(changed)
            rows.append([name, len(digests[name]), count, ", ".join(changed or [])])
            print(*rows[-1], file=sys.stderr, flush=True)
    if arguments.save:
        arguments.save.write_text(json.dumps(digests, indent=1))
    columns = {"case": "", "files and values": "d", "changed": "d", "which": ""}
    yield Table(
        "digests: files and values that differ from those of the other version", columns, rows
    )
