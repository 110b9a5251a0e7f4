"""Lists of splits that nothing reads, as of well-known sets, are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import PIL.Image
import pytest

from beam_tfr.first_look import early_warnings
from beam_tfr.inputs.split_lists import describe_split_lists
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.sources import open_source
from tests.fake_gcs import FakeGcs

START = "files that seem to say which images are in which split"
# Of a set: its images, the files beside them, the input, and which of the files are named.
Tree = tuple[list[str], Mapping[str, str], str, list[str]]
TREES: dict[str, Tree] = {
    "Food-101": (
        ["images/pie/1005649.jpg", "images/pie/1014775.jpg", "images/ribs/1.jpg"],
        {
            "meta/train.txt": "pie/1005649\nribs/1\n",
            "meta/test.txt": "pie/1014775\n",
            "meta/train.json": '{"pie": ["pie/1005649"], "ribs": ["ribs/1"]}',
            "meta/classes.txt": "pie\nribs\n",
        },
        "images",
        ["meta/test.txt", "meta/train.json", "meta/train.txt"],
    ),
    "CUB-200-2011": (
        ["images/001.Albatross/Albatross_0001_79.jpg", "images/002.Auk/Auk_0001_79.jpg"],
        {
            "train_test_split.txt": "1 0\n2 1\n3 1\n",
            "images.txt": "1 001.Albatross/Albatross_0001_79.jpg\n",
        },
        "",
        ["train_test_split.txt"],
    ),
    "MIT Indoor67": (
        ["Images/gym/gym 1.jpg", "Images/bar/bar_2.jpg"],
        {"TrainImages.txt": "gym/gym 1.jpg\n", "TestImages.txt": "bar/bar_2.jpg\n"},
        "Images",
        ["TestImages.txt", "TrainImages.txt"],
    ),
    "DTD": (
        ["images/banded/banded_0002.jpg"],
        {"labels/train1.txt": "banded/banded_0002.jpg\n", "labels/labels_joint_anno.txt": "x"},
        "images",
        ["labels/train1.txt"],
    ),
    "FGVC-Aircraft": (
        ["data/images/1025794.jpg", "data/images/1340192.jpg"],
        {"data/images_train.txt": "1025794\n", "data/images_variant_val.txt": "1340192 707-320\n"},
        "data/images",
        ["data/images_train.txt", "data/images_variant_val.txt"],
    ),
    "CelebA": (
        ["img_align_celeba/000001.jpg"],
        {"Eval/list_eval_partition.txt": "000001.jpg 0\n000002.jpg 2\n"},
        "img_align_celeba",
        ["Eval/list_eval_partition.txt"],
    ),
    "CelebA of Kaggle": (
        ["img_align_celeba/img_align_celeba/000001.jpg"],
        {"list_eval_partition.csv": "image_id,partition\n000001.jpg,0\n000002.jpg,2\n"},
        "",
        ["list_eval_partition.csv"],
    ),
    "EuroSAT of Kaggle": (
        ["Forest/Forest_1.jpg", "River/River_2.jpg"],
        {
            "train.csv": ",Filename,Label\n0,Forest/Forest_1.jpg,1\n",
            "test.csv": ",Filename,Label\n0,River/River_2.jpg,2\n",
        },
        "",
        ["test.csv", "train.csv"],
    ),
    "DAVIS": (
        ["JPEGImages/480p/bear/00000.jpg", "JPEGImages/480p/dog/00000.jpg"],
        {"ImageSets/2017/train.txt": "bear\n", "ImageSets/2017/val.txt": "dog\n"},
        "JPEGImages",
        ["ImageSets/2017/train.txt", "ImageSets/2017/val.txt"],
    ),
    "other sets beside it": (
        ["faces/1.jpg", "faces/2.jpg"],
        {
            "birds/train.txt": "1.jpg\n",
            "splits/train.txt": "1.jpg\n8.jpg\n9.jpg\n",
            "labelstudio/local.csv": "image,label\nimages/1.jpg,a\n",
        },
        "faces",
        [],
    ),
    "one table": (["a/1.jpg", "b/2.jpg"], {"train.csv": "path,label\na/1.jpg,a\n"}, "", []),
    "Stanford Dogs": (
        ["Images/n02085620-Chihuahua/n02085620_10074.jpg"],
        {"lists/train_list.mat": "MATLAB 5.0", "lists/test_list.mat": "MATLAB 5.0"},
        "Images",
        ["lists/test_list.mat", "lists/train_list.mat"],
    ),
    "Flowers-102": (["jpg/image_00001.jpg"], {"setid.mat": "MATLAB 5.0"}, "", ["setid.mat"]),
    "Stanford 40": (
        ["JPEGImages/cooking_001.jpg"],
        {"ImageSplits/train.txt": "cooking_001.jpg\n", "ImageSplits/actions.txt": "cooking 9"},
        "JPEGImages",
        ["ImageSplits/train.txt"],
    ),
    "SUN397": (
        ["a/abbey/sun_aaa.jpg"],
        {"Partitions/Training_01.txt": "/a/abbey/sun_aaa.jpg\n"},
        "",
        ["Partitions/Training_01.txt"],
    ),
    "Pascal Context": (
        ["JPEGImages/2008_001.jpg", "SegmentationClassContext/2008_001.png"],
        {"ImageSets/SegmentationContext/val.txt": "2008_001\n"},
        "",
        ["ImageSets/SegmentationContext/val.txt"],
    ),
    "ImageNet": (
        ["val/n01/ILSVRC2012_val_00000001.JPEG"],
        {"meta/val.txt": "ILSVRC2012_val_00000001.JPEG 65\n"},
        "val/n01",
        [],
    ),
    "PACS": (
        ["kfold/photo/dog/pic_1.jpg", "kfold/sketch/dog/2.jpg"],
        {"pacs_label/photo_train_kfold.txt": "photo/dog/pic_1.jpg 1\n"},
        "kfold",
        ["pacs_label/photo_train_kfold.txt"],
    ),
    "Stanford Online Products": (
        ["bicycle_final/1_0.JPG"],
        {"Ebay_train.txt": "image_id class_id super_class_id path\n1 1 1 bicycle_final/1_0.JPG\n"},
        "",
        ["Ebay_train.txt"],
    ),
    "logs and notes": (
        ["cat/1.jpg", "dog/2.jpg"],
        {
            "train_log.txt": "epoch 1 loss 0.5\n",
            "test.json": '{"images": []}',
            "latest.txt": "v2",
            "latest.mat": "x",
        },
        "",
        [],
    ),
}


def write_tree(root: Path, tree: Tree) -> None:
    images, files, *_ = tree
    for image in images:
        path = root / image
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("RGB", (4, 4)).save(path)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def warnings_of(**options: object) -> list[str]:
    source = open_source(from_values({"output": "/nowhere/out", **options}, ConvertOptions))
    return [spell_as_flags(text) for text in early_warnings(source)]


@pytest.mark.parametrize("name", TREES)
def test_lists_of_splits_are_told(tmp_path: Path, name: str) -> None:
    write_tree(tmp_path, TREES[name])
    _, _, folder, lists = TREES[name]
    texts = [text for text in warnings_of(input=str(tmp_path / folder)) if text.startswith(START)]
    assert len(texts) == bool(lists)
    for path in lists:
        assert f"{tmp_path}/{path}" in texts[0]
    if lists:
        assert "--table" in texts[0]
        assert not describe_again(tmp_path / folder, splits={"train": 1})
        assert not describe_again(tmp_path / folder, layout="{split}/*")


def test_lists_as_input_say_their_split(tmp_path: Path) -> None:
    write_tree(tmp_path, TREES["Food-101"])
    for name, is_told in (("test", True), ("train", False), ("some", False)):
        path = tmp_path / f"{name}.txt"
        path.write_text(f"{tmp_path}/images/pie/1005649.jpg\n{tmp_path}/images/ribs/1.jpg\n")
        texts = warnings_of(input_list=str(path))
        assert not any(text.startswith(START) for text in texts)
        cures = [text for text in texts if f"--splits {name}=1 puts them into {name}" in text]
        assert len(cures) == is_told


def describe_again(folder: Path, **options: object) -> list[str]:
    texts = warnings_of(input=str(folder), **options)
    return [text for text in texts if text.startswith(START)]


def test_lists_beside_tables_are_told(tmp_path: Path) -> None:
    write_tree(tmp_path, TREES["Food-101"])
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nimages/pie/1005649.jpg,pie\nimages/pie/1014775.jpg,pie\n")
    given = {"table": str(table), "uri_column": "path", "label_column": "label"}
    (text,) = (text for text in warnings_of(**given) if text.startswith(START))
    assert f"{tmp_path}/meta/train.txt" in text
    assert not any(text.startswith(START) for text in warnings_of(**given, splits={"train": 1}))


def test_lists_on_gs_are_told(tmp_path: Path, fake: FakeGcs) -> None:
    write_tree(tmp_path, TREES["Food-101"])
    for path in tmp_path.rglob("*"):
        if path.is_file():
            fake.put(str(path.relative_to(tmp_path)), path.read_bytes())
    (text,) = (text for text in warnings_of(input="gs://b/images/") if text.startswith(START))
    assert "gs://b/meta/train.txt" in text


def test_lists_on_gs_are_told_beside_many_folders(tmp_path: Path, fake: FakeGcs) -> None:
    test_lists_on_gs_are_told(tmp_path, fake)
    for number in range(60):
        fake.put(f"a{number}/x.jpg", b"")
    (text,) = (text for text in warnings_of(input="gs://b/images/") if text.startswith(START))
    assert "gs://b/meta/train.txt" in text


def test_names_of_images_are_no_lists(tmp_path: Path) -> None:
    (tmp_path / "test_1.txt").write_text("0 0.5 0.5 0.1 0.1\n")  # labels of YOLO
    (tmp_path / "0.jpg").write_bytes(b"")
    assert not describe_split_lists([f"{tmp_path}/"], [f"{tmp_path}/0.jpg"])


def test_lists_of_texts_are_no_lists_of_splits(tmp_path: Path) -> None:
    write_tree(tmp_path, (["train/1.jpg"], {"rec_gt_train.txt": "train/1.jpg\tHELLO 1\n"}, "", []))
    assert not describe_again(tmp_path)


def test_lists_of_other_sets_are_none(tmp_path: Path) -> None:
    """Those of a set beside this one, whose images have other paths."""
    write_tree(tmp_path / "food", TREES["Food-101"])
    write_tree(tmp_path / "cub", TREES["CUB-200-2011"])
    same = {"train.txt": "cat/1.jpg\n"}
    write_tree(tmp_path / "same", (["cat/1.jpg", "dog/2.jpg"], same, "", []))
    write_tree(tmp_path / "mine", (["cat/1.jpg", "dog/2.jpg"], {}, "", []))
    assert not describe_again(tmp_path / "mine")


def test_lists_beside_a_yaml_that_names_none_are_told(tmp_path: Path) -> None:
    write_tree(tmp_path, (["images/1.jpg", "images/2.jpg"], {"train.txt": "images/1.jpg"}, "", []))
    (tmp_path / "labels").mkdir()
    for number in (1, 2):
        (tmp_path / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (tmp_path / "data.yaml").write_text("train: images\nnames: [cat]\n")
    (text,) = (text for text in warnings_of(table=f"{tmp_path}/data.yaml") if START in text)
    assert f"{tmp_path}/train.txt" in text
    assert "train: train.txt" in text
    (tmp_path / "data.yaml").write_text("train: train.txt\nnames: [cat]\n")
    assert not any(START in text for text in warnings_of(table=f"{tmp_path}/data.yaml"))


def test_lists_next_to_folders_of_images_below_the_input_are_told(tmp_path: Path) -> None:
    """As of Food-101, if the folder around it is the input."""
    root = tmp_path / "in" / "food-101"
    for label in ("cake", "pie"):
        (root / "images" / label).mkdir(parents=True)
        for number in range(4):
            (root / "images" / label / f"{number}.jpg").touch()
    (root / "meta").mkdir()
    for split, numbers in (("train", "012"), ("test", "3")):
        names = [f"{label}/{number}" for label in ("cake", "pie") for number in numbers]
        (root / "meta" / f"{split}.txt").write_text("\n".join(names))
    source = open_source(ConvertOptions(input=(str(tmp_path / "in"),), output="/o"))
    text = " ".join(early_warnings(source))
    assert f"{root}/meta/test.txt, {root}/meta/train.txt" in text
