"""Trees of well-known data sets: what is taken, or which cure is named, gives splits and classes.

Each tree is a few of its files, with what its authors mean: split/class, or nothing for images to
be left out.
"""

from __future__ import annotations

import collections
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from beam_tfr.inputs.patterns import compile_exclusion
from beam_tfr.layouts.class_folders import (
    describe_deep_folders,
    describe_last_folders,
    find_deep_folders,
)
from beam_tfr.layouts.folders import check_split_folders
from beam_tfr.layouts.ignored_splits import describe_ignored_split
from beam_tfr.layouts.mask_folders import describe_mask_folders
from beam_tfr.layouts.pair_folders import describe_pair_folders
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, parse_layout
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.pair_paths import fill_path

Tree = Mapping[str, str]

# Read by the default layout as they should be, without a word.
SOUND: Mapping[str, Tree] = {
    "Caltech-101": {
        "101_ObjectCategories/ant/image_0001.jpg": "train/ant",
        "101_ObjectCategories/bass/image_0001.jpg": "train/bass",
    },
    "Caltech-256": {
        "256_ObjectCategories/001.ak47/001_0001.jpg": "train/001.ak47",
        "256_ObjectCategories/002.flag/002_0001.jpg": "train/002.flag",
    },
    "EuroSAT": {
        "2750/AnnualCrop/AnnualCrop_1.jpg": "train/AnnualCrop",
        "2750/Forest/Forest_1.jpg": "train/Forest",
    },
    "Food-101": {
        "food-101/images/apple_pie/1005649.jpg": "train/apple_pie",
        "food-101/images/waffles/971.jpg": "train/waffles",
    },
    "Stanford Dogs": {
        "Images/n02085620-Chihuahua/n02085620_10074.jpg": "train/n02085620-Chihuahua",
        "Images/n02085782-Japanese/n02085782_1039.jpg": "train/n02085782-Japanese",
    },
    "LFW": {
        "lfw/Aaron_Eckhart/Aaron_Eckhart_0001.jpg": "train/Aaron_Eckhart",
        "lfw/Zoran_Djindjic/Zoran_Djindjic_0003.jpg": "train/Zoran_Djindjic",
    },
    "DTD": {
        "dtd/images/banded/banded_0002.jpg": "train/banded",
        "dtd/images/zigzagged/zigzagged_0001.jpg": "train/zigzagged",
    },
    "Kvasir": {
        "kvasir/polyps/a-1.jpg": "train/polyps",
        "kvasir/normal-z-line/b.jpg": "train/normal-z-line",
    },
    "iNaturalist 2018": {
        "train_val2018/Aves/2761/1.jpg": "train/2761",
        "train_val2018/Plantae/5229/2.jpg": "train/5229",
    },
    "PetImages": {"PetImages/Cat/0.jpg": "train/Cat", "PetImages/Dog/0.jpg": "train/Dog"},
    "LC25000": {
        "x/colon_image_sets/colon_n/c1.jpeg": "train/colon_n",
        "x/lung_image_sets/lung_n/l1.jpeg": "train/lung_n",
    },
    "ORL faces": {"s1/1.pgm": "train/s1", "s40/10.pgm": "train/s40"},
}

# Refused, with options that read them as they are meant.
REFUSED: Mapping[str, Tree] = {
    "brain tumors": {
        "Training/glioma/1.jpg": "Training/glioma",
        "Testing/none/2.jpg": "Testing/none",
    },
    "chest X-rays": {
        "chest_xray/train/NORMAL/1.jpeg": "train/NORMAL",
        "chest_xray/test/PNEUMONIA/2.jpeg": "test/PNEUMONIA",
        "chest_xray/val/NORMAL/3.jpeg": "val/NORMAL",
    },
    "numbered sets": {
        "images/Set1-Training/cat/1.jpg": "Training/cat",
        "images/Set2-Testing/cat/2.jpg": "Testing/cat",
    },
    "numbered splits": {"01_train/cat/1.jpg": "train/cat", "02_test/cat/2.jpg": "test/cat"},
    "numbered splits without classes": {"1-Train/1.jpg": "Train/", "2-Val/2.jpg": "Val/"},
    "folds": {
        "fold1/cat/1.jpg": "fold1/cat",
        "fold2/cat/2.jpg": "fold2/cat",
        "fold3/dog/3.jpg": "fold3/dog",
    },
    "folds without classes": {"data_fold1/1.jpg": "fold1/", "data_fold2/2.jpg": "fold2/"},
    "folds in classes": {
        "cat/fold1/1.jpg": "fold1/cat",
        "cat/fold2/2.jpg": "fold2/cat",
        "dog/fold1/3.jpg": "fold1/dog",
        "dog/fold2/3.jpg": "fold2/dog",
    },
    "ASL alphabet": {
        "asl_alphabet_train/asl_alphabet_train/A/A1.jpg": "train/A",
        "asl_alphabet_train/asl_alphabet_train/B/B1.jpg": "train/B",
        "asl_alphabet_test/asl_alphabet_test/A_test.jpg": "",
    },
    "Intel scenes": {
        "seg_train/seg_train/sea/1.jpg": "train/sea",
        "seg_test/seg_test/sea/2.jpg": "test/sea",
        "seg_pred/seg_pred/3.jpg": "",
    },
    "VGGFace2": {
        "train/n000002/0001_01.jpg": "train/n000002",
        "test/n000001/1.jpg": "test/n000001",
    },
    "FER": {"train/angry/1.jpg": "train/angry", "test/happy/2.jpg": "test/happy"},
    "GTSRB of its authors": {
        "GTSRB/Final_Training/Images/00000/00000_00000.ppm": "Training/00000",
        "GTSRB/Final_Training/Images/00001/00000_00000.ppm": "Training/00001",
        "GTSRB/Final_Test/Images/00000.ppm": "",
    },
    "Tiny ImageNet": {
        "tiny/train/n01443537/images/n01443537_0.JPEG": "train/n01443537",
        "tiny/train/n01629819/images/n01629819_0.JPEG": "train/n01629819",
        "tiny/val/images/val_0.JPEG": "",
        "tiny/test/images/test_0.JPEG": "",
    },
    "Dogs vs. Cats": {
        "train/cat.0.jpg": "train/cat",
        "train/cat.1.jpg": "train/cat",
        "train/dog.0.jpg": "train/dog",
        "test1/1.jpg": "",
    },
    "Edge Impulse": {
        "training/cat.2kl1a0b3.jpg": "training/cat",
        "training/dog.2kl1c9d4.jpg": "training/dog",
        "testing/cat.3ab4c5d6.jpg": "testing/cat",
    },
    "Edge Impulse, with names": {
        "training/cat.jpg.2kl1a0b3.jpg": "training/cat",
        "training/dog.1.2kl1c9d4.jpg": "training/dog",
        "testing/cat.a-1.jpg.3ab4c5d6.jpg": "testing/cat",
    },
    "Market-1501": {
        "bounding_box_train/0002_c1s1_000451_03.jpg": "train/0002",
        "bounding_box_train/0007_c2s3_000001_01.jpg": "train/0007",
        "bounding_box_test/0003_c1s6_015971_02.jpg": "test/0003",
    },
    "ImageNet, flat": {
        "train/n01440764_18.JPEG": "train/n01440764",
        "train/n01440764_36.JPEG": "train/n01440764",
        "train/n01443537_16.JPEG": "train/n01443537",
        "val/ILSVRC2012_val_00000001.JPEG": "",
    },
    "CIFAR-10": {
        "cifar/train/0_frog.png": "train/frog",
        "cifar/train/1_truck.png": "train/truck",
        "cifar/test/0_cat.png": "test/cat",
    },
    "splits of a list": {"split_1/cat/1.jpg": "split_1/cat", "split_2/cat/2.jpg": "split_2/cat"},
    "noisy and clean": {
        "noisy_train/cat/1.jpg": "train/cat",
        "clean_val/cat/2.jpg": "val/cat",
        "clean_test/dog/3.jpg": "test/dog",
    },
    "Planet": {
        "train-jpg/train_1.jpg": "train/",
        "test-jpg/test_1.jpg": "test/",
        "test-jpg-additional/file_1.jpg": "",
    },
    "a zip of Dogs vs. Cats": {
        "train/cat.0.jpg": "train/cat",
        "train/cat.1.jpg": "train/cat",
        "train/dog.0.jpg": "train/dog",
    },
    "garbage": {
        "all/glass1.jpg": "train/glass",
        "all/glass2.jpg": "train/glass",
        "all/metal1.jpg": "train/metal",
    },
    "photos that Windows numbered": {
        "all/cat (1).jpg": "train/cat",
        "all/cat (2).jpg": "train/cat",
        "all/dog (1).jpg": "train/dog",
    },
    "MNIST of Kaggle": {
        "trainingSet/trainingSet/0/img_1.jpg": "trainingSet/0",
        "trainingSet/trainingSet/1/img_2.jpg": "trainingSet/1",
        "trainingSample/trainingSample/0/img_1.jpg": "",
        "testSet/testSet/img_1.jpg": "",
    },
    "plant diseases": {
        "New(A)/New(A)/train/Apple_rust/a.JPG": "train/Apple_rust",
        "New(A)/New(A)/train/Corn_rust/a.JPG": "train/Corn_rust",
        "New(A)/New(A)/valid/Apple_rust/b.JPG": "valid/Apple_rust",
        "test/test/AppleRust1.JPG": "",
    },
    "ICDAR 2015": {
        "ch4_training_images/img_1.jpg": "training/",
        "ch4_test_images/img_1.jpg": "test/",
    },
    "DIV2K": {
        "DIV2K_train_HR/0001.png": "train/",
        "DIV2K_train_LR_bicubic/X2/0001x2.png": "",
        "DIV2K_valid_HR/0801.png": "valid/",
        "DIV2K_valid_LR_bicubic/X2/0801x2.png": "",
    },
    "cars": {"cars_train/cars_train/00001.jpg": "train/", "cars_test/cars_test/00001.jpg": "test/"},
}

# Read in another way than they are meant, with a line that names what reads them.
TOLD: Mapping[str, Tree] = {
    "BreakHis": {
        f"h/breast/{label}/SOB/{kind}/SOB_{number}/{zoom}X/1.png": f"train/{label}"
        for label, kind, number in (("benign", "adenosis", 1), ("malignant", "ductal", 2))
        for zoom in (100, 200, 400)[number - 1 :]
    },
    "CelebA": {"img_align_celeba/img_align_celeba/000001.jpg": "train/"},
    "Flowers-102": {"jpg/image_00001.jpg": "train/", "jpg/image_00002.jpg": "train/"},
    "ChestX-ray14": {"images_001/images/1.png": "train/", "images_002/images/2.png": "train/"},
    "HAM10000": {
        "HAM10000_images_part_1/ISIC_0024306.jpg": "train/",
        "HAM10000_images_part_2/ISIC_0029306.jpg": "train/",
    },
    "UTKFace": {"part1/25_0_1_2017.jpg": "train/", "part2/26_1_0_2017.jpg": "train/"},
    "iNaturalist 2021": {
        "train_mini/00001_Animalia/1.jpg": "train_mini/00001_Animalia",
        "val/00001_Animalia/2.jpg": "val/00001_Animalia",
    },
    "SVHN": {"train/1.png": "train/", "test/1.png": "test/", "extra/1.png": "extra/"},
    "GTSRB of Kaggle": {
        "Train/0/1.png": "Train/0",
        "Train/1/2.png": "Train/1",
        "Test/3.png": "",
        "Meta/0.png": "",
    },
    "Omniglot": {
        "Japanese/character01/1.png": "train/Japanese",
        "Japanese/character02/2.png": "train/Japanese",
        "Greek/character01/3.png": "train/Greek",
    },
    "Omniglot, both": {
        "images_background/Greek/character01/1.png": "train/Greek",
        "images_background/Latin/character01/2.png": "train/Latin",
        "images_evaluation/Tengwar/character01/3.png": "train/Tengwar",
    },
    "PlantVillage": {
        f"PlantVillage/{kind}/{label}/1.jpg": f"train/{kind}"
        for kind in ("color", "segmented")
        for label in ("Apple", "Corn")
    },
    "UCF-101": {
        "Archery/v_Archery_g01_c01/frame1.jpg": "train/Archery",
        "Archery/v_Archery_g02_c01/frame1.jpg": "train/Archery",
        "Biking/v_Biking_g01_c01/frame1.jpg": "train/Biking",
    },
    "clips": {
        "dog/clip1/1.jpg": "train/dog",
        "dog/clip2/1.jpg": "train/dog",
        "cat/clip3/1.jpg": "train/cat",
    },
    "Office-31": {
        "amazon/images/bike/1.jpg": "train/amazon",
        "dslr/images/bike/1.jpg": "train/dslr",
        "dslr/images/mug/1.jpg": "train/dslr",
    },
}
# Told, but only other names or a table cure it.
UNCURED: Mapping[str, Sequence[str]] = {
    "CycleGAN": ["horse2zebra/trainA/1.jpg", "horse2zebra/trainB/2.jpg", "horse2zebra/testA/1.jpg"],
    "DUTS": ["DUTS-TR/x/1.jpg", "DUTS-TE/x/1.jpg"],
    "short": ["tr/cat/1.jpg", "va/cat/2.jpg", "te/dog/3.jpg"],
    "nnU-Net": ["imagesTr/1.png", "imagesTs/2.png"],
    "Omniglot": [
        "images_background/Greek/character01/1.png",
        "images_evaluation/Roman/character02/2.png",
    ],
    "colon and lung": ["Train and Validation Set/colon/1.jpeg", "Test Set/colon/2.jpeg"],
}


def describe_tree(keys: Sequence[str]) -> tuple[str, bool]:
    """What is said of a tree, and whether it is refused."""
    folders = collections.Counter(map(os.path.dirname, keys))
    layout = parse_layout(DEFAULT_LAYOUT)

    def names_in(folder: str) -> Sequence[str]:
        return [os.path.basename(key) for key in keys if os.path.dirname(key) == folder]

    try:
        check_split_folders(folders, "", keys, names_in)
    except UsageError as error:
        return str(error), True
    masks = describe_mask_folders(folders, names_in)
    if masks:
        return masks, False
    lines = [
        describe_last_folders(folders),
        describe_ignored_split(folders),
        describe_deep_folders(find_deep_folders(folders, layout), layout),
        describe_pair_folders(folders, names_in),
    ]
    return "\n".join(filter(None, lines)), False


def read_tree(keys: Sequence[str], layout: str, exclude: Sequence[str] = ()) -> Tree:
    """The split and class of each key, empty for those that are left out or rejected."""
    excluded = compile_exclusion(exclude, "")
    values_of = {}
    for key in keys:
        values = parse_layout(layout).parse_key(key)
        if values is None or excluded.fullmatch(key):
            values_of[key] = ""
        else:
            values_of[key] = f"{values.get('split', 'train')}/{values.get('label', '')}"
    return values_of


def follow(text: str, keys: Sequence[str]) -> Tree:
    """What the first layout that a text names reads, without what it leaves out."""
    layouts = re.findall("`layout='([^']*)'`", text)
    assert layouts, text
    excluded = [
        part for parts in re.findall("`exclude=([^`]*)`", text) for part in parts.split("' '")
    ]
    return read_tree(keys, layouts[0], [part.strip("'") for part in excluded])


@pytest.mark.parametrize("name", SOUND)
def test_trees_that_are_read_as_they_are(name: str) -> None:
    tree = SOUND[name]
    assert describe_tree([*tree]) == ("", False)
    assert read_tree([*tree], DEFAULT_LAYOUT) == tree


@pytest.mark.parametrize("name", REFUSED)
def test_trees_that_are_refused_with_what_reads_them(name: str) -> None:
    text, is_refused = describe_tree([*REFUSED[name]])
    assert is_refused, text
    assert follow(text, [*REFUSED[name]]) == REFUSED[name], text


@pytest.mark.parametrize("name", TOLD)
def test_trees_that_are_told_with_what_reads_them(name: str) -> None:
    text, is_refused = describe_tree([*TOLD[name]])
    assert not is_refused, text
    assert follow(text, [*TOLD[name]]) == TOLD[name], text


@pytest.mark.parametrize("name", UNCURED)
def test_trees_that_need_other_names_are_told(name: str) -> None:
    text, _ = describe_tree(UNCURED[name])
    assert "rename" in text


@pytest.mark.parametrize("outer", ["", "set/", "set/v1/", "images/", "more/?/"])
@pytest.mark.parametrize("name", ["?", "?ing_data", "x_?", "x_?_y", "?-images"])
def test_offered_layouts_read_the_splits_of_all_images(outer: str, name: str) -> None:
    inner_folders = ["", "images/", "raw/", "raw/images/", "images/raw/", "JPEGImages/"]
    class_folders = ["", "cat/", "cat/images/", "images/cat/"]
    for inner, label in itertools.product(inner_folders, class_folders):
        folder = f"{outer}{name}/{inner}{label}"
        splits = ("train", "test")
        split_of = {f"{folder.replace('?', split)}1.jpg": split for split in splits}
        text, is_refused = describe_tree([*split_of])
        assert is_refused, split_of
        values_of = follow(text, [*split_of])
        for key, split in split_of.items():
            assert values_of[key].startswith(split), text


@pytest.mark.parametrize("inner", ["", "images/", "raw/images/"])
def test_splits_at_several_depths_are_read(inner: str) -> None:
    tree = {f"train/{inner}1.jpg": "train/", f"more/test/{inner}2.jpg": "test/"}
    text, _ = describe_tree([*tree])
    assert follow(text, [*tree]) == tree, text


def test_classes_in_other_splits_than_train_do_not_lose_it() -> None:
    tree = {"train/1.jpg": "train/", "val/more/2.jpg": "val/", "test/3.jpg": "test/"}
    text, _ = describe_tree([*tree])
    assert follow(text, [*tree]) == tree, text


@pytest.mark.parametrize("folder", ["test/images", "set/test/images", "set/test_data/images"])
def test_images_of_the_only_split_come_with_its_layout_alone(folder: str) -> None:
    text, _ = describe_tree([f"{folder}/1.jpg"])
    assert text.count("layout=") == 1
    assert set(follow(text, [f"{folder}/1.jpg"]).values()) == {"test/"}


class Masks(NamedTuple):
    """A tree of images and masks.

    Attributes:
        images: each image -> its mask and its split and class; empty for those to be left out.
        others: masks of other kinds, and those of images that are not in this table.
        folder: what the input becomes.
    """

    images: Mapping[str, tuple[str, str] | None]
    others: Sequence[str] = ()
    folder: str = ""


MASKS: Mapping[str, Masks] = {
    "Oxford Pets": Masks(
        {
            f"images/{name}.jpg": (f"annotations/trimaps/{name}.png", f"train/{name[:-2]}")
            for name in ("Abyssinian_1", "Abyssinian_2", "great_pyrenees_1")
        },
        folder="images",
    ),
    "MVTec": Masks(
        {
            "nut/train/good/0.png": ("", "train/good"),
            "nut/test/good/0.png": ("", "test/good"),
            "nut/test/cut/0.png": ("nut/ground_truth/cut/0_mask.png", "test/cut"),
            "nut/test/cut/1.png": ("nut/ground_truth/cut/1_mask.png", "test/cut"),
        },
        folder="nut",
    ),
    "Carvana": Masks(
        {
            "train/a_01.jpg": ("train_masks/a_01_mask.png", "train/"),
            "train/a_02.jpg": ("train_masks/a_02_mask.png", "train/"),
            "test/b_01.jpg": None,
        }
    ),
    "COVID-19": Masks(
        {
            f"{label}/images/{label}-{number}.png": (
                f"{label}/masks/{label}-{number}.png",
                f"train/{label}",
            )
            for label in ("COVID", "Normal")
            for number in (1, 2)
        }
    ),
    "Mapillary": Masks(
        {
            "training/images/a.jpg": ("training/v1.2/labels/a.png", "training/"),
            "validation/images/b.jpg": ("validation/v1.2/labels/b.png", "validation/"),
        },
        ["training/v1.2/instances/a.png"],
    ),
    "FloodNet": Masks(
        {
            "train/train-org-img/1.jpg": ("train/train-label-img/1_lab.png", "train/"),
            "val/val-org-img/2.jpg": ("val/val-label-img/2_lab.png", "val/"),
        }
    ),
    "KITTI": Masks(
        {
            "training/image_2/1_10.png": ("training/semantic/1_10.png", "training/"),
            "testing/image_2/2_10.png": None,
        },
        ["training/instance/1_10.png"],
    ),
    "VOC": Masks(
        {"JPEGImages/1.jpg": ("SegmentationClass/1.png", "train/")},
        ["SegmentationObject/1.png"],
        "JPEGImages",
    ),
    "VisA": Masks(
        {
            "candle/Data/Images/Normal/0.JPG": None,
            "candle/Data/Images/Anomaly/0.JPG": (
                "candle/Data/Masks/Anomaly/0.png",
                "train/Anomaly",
            ),
        },
        folder="candle/Data/Images",
    ),
    "mmsegmentation": Masks(
        {
            "img_dir/train/a.jpg": ("ann_dir/train/a.png", "train/"),
            "img_dir/val/b.jpg": ("ann_dir/val/b.png", "val/"),
        },
        folder="img_dir",
    ),
    "GID-15": Masks(
        {
            "GID/img_dir/train/a.tif": ("GID/ann_dir/train/a_15label.png", "train/"),
            "GID/img_dir/val/b.tif": ("GID/ann_dir/val/b_15label.png", "val/"),
            "GID/img_dir/test/c.tif": None,
        },
        folder="GID/img_dir",
    ),
    "xView2": Masks(
        {
            "train/images/a_pre.png": ("train/targets/a_pre_target.png", "train/"),
            "test/images/b_pre.png": ("test/targets/b_pre_target.png", "test/"),
        }
    ),
    "NYU": Masks(
        {
            "train/rgb/1.jpg": ("train/depth/1.png", "train/"),
            "test/rgb/2.jpg": ("test/depth/2.png", "test/"),
        }
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_trees_with_masks_keep_splits_and_classes(name: str) -> None:
    tree = MASKS[name]
    masks = {values[0] for values in tree.images.values() if values} - {""}
    text, _ = describe_tree([*tree.images, *masks, *tree.others])
    (path,) = re.findall("`pair=[a-z]+='([^']*)'`", text)
    path, optional, _ = path.partition("[optional]")
    assert (f"`input=DIR/{tree.folder}`" in text) == bool(tree.folder)
    start = f"{tree.folder}/" if tree.folder else ""
    images = [key for key in (*tree.images, *tree.others) if key.startswith(start)]
    taken = follow(text, [key.removeprefix(start) for key in images])
    for key in images:
        values = tree.images.get(key)
        assert taken[key.removeprefix(start)] == (values[1] if values else ""), text
        if values:
            mask = os.path.normpath(start + fill_path(path, key.removeprefix(start)))
            assert mask == values[0] or (optional and not values[0] and mask not in masks), text


def test_splits_whose_masks_have_other_names_are_told() -> None:
    keys = ["test/images/1_test.tif", "test/1st_manual/1_manual1.png"]  # DRIVE
    keys += [key.replace("test", "training").replace("1_", "21_") for key in keys]
    text, _ = describe_tree(keys)
    assert "masks in training/1st_manual have other names, such as 21_manual1.png" in text


def test_images_that_a_cure_for_masks_leaves_out_are_told() -> None:
    text, _ = describe_tree(["Day/1.jpg", "Night/2.jpg", "masks/1_m.png"])
    assert "this leaves out images in Night" in text
