"""Layouts that are not what they look like: folders of splits, and labels in names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

import beam_tfr
from beam_tfr.first_look import early_warnings
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.png_kinds import find_kind
from beam_tfr.layouts.class_folders import (
    describe_camera_folders,
    describe_deep_folders,
    describe_last_folders,
    describe_ranges,
    find_deep_folders,
)
from beam_tfr.layouts.class_names import describe_class_names
from beam_tfr.layouts.copy_folders import describe_copy_folders
from beam_tfr.layouts.folders import check_split_folders
from beam_tfr.layouts.ignored_splits import describe_ignored_split
from beam_tfr.layouts.mask_folders import describe_mask_folders, without_mask_folders
from beam_tfr.layouts.mask_paths import find_mask_name
from beam_tfr.layouts.named_classes import describe_numbered_classes, suggest_layout
from beam_tfr.layouts.pair_folders import describe_pair_folders
from beam_tfr.layouts.pair_names import describe_pair_names
from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.layouts.same_names import describe_same_names
from beam_tfr.layouts.sample_folders import describe_sample_folders
from beam_tfr.layouts.twin_names import describe_twins
from beam_tfr.layouts.unnamed_masks import FileKind
from beam_tfr.options import ConvertOptions
from beam_tfr.planning.survey import Survey
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.sources import open_source
from beam_tfr.storage import Entry
from tests.conftest import SAMPLE, Run
from tests.cpu_limit import bounded_cpu

Command = Callable[..., Run]


def folders(*keys: str) -> Mapping[str, int]:
    surveys = Survey(0), Survey(0)
    for number, key in enumerate(keys):
        ref = Labeler(parse_layout("{label}/*")).label(Entry(f"/{key}", 1, 1), key)
        assert not ref.reason
        surveys[number % 2].add([ref.encode()])
    surveys[0].merge(surveys[1])
    return surveys[0].folders


def refusal(*keys: str, images: Sequence[str] = ()) -> str:
    """What is said of folders of splits that the default layout ignores."""
    with pytest.raises(UsageError) as caught:
        check_split_folders(folders(*keys), "", images)
    return str(caught.value)


@pytest.mark.parametrize(
    ("keys", "layout"),
    [
        (["train/cat/1", "test/cat/1"], "{split}/{label}/*"),
        (["all/Train/cat/1", "all/VAL/cat/1", "all/VAL/cat/2"], "{split}/{label}/*"),
        (["train/images/cat/1", "holdout/images/cat/1"], "{split}/*/{label}/*"),
        (["train/cat/images/1", "test/dog/images/1"], "{split}/{label}/**"),
        (["train/old/cat/imgs/1", "test/new/dog/imgs/1"], "{split}/*/{label}/**"),
        (["train/images/1", "test/images/1"], "{split}/**"),
        (["set/train/images/1", "set/test/images/1"], "*/{split}/**"),
        (["set/a/train/images/1", "set/test/images/1"], "{split}/*/*"),
        (["train/part1/1", "train/part2/1", "test/part1/2"], "{split}/**"),
        (["train/cat/images/1", "test/dog/photos/1"], "{split}/*/{label}/*"),  # classes
        (["train2017/cat/1", "val2017/cat/1"], "{split}/{label}/*"),
        (["training_set/cat/1", "Test-Set/cat/1"], "{split}/{label}/*"),
        (["train/1", "test/1"], "{split}/*"),
        (["cat/train/1", "cat/dev/1", "dog/train/1"], "{label}/{split}/*"),
        (["test/1", "cat/1", "train/1"], ""),  # classes
        (["train/cat/1", "train/dog/1"], ""),
        (["train/cat/1", "Train/cat/1", "TRAIN/dog/1"], ""),
        (["train/cat/1", "more/test/dog/1"], "{split}/{label}/*"),
        (["train/cat/1", "test/old/cat/1"], "{split}/{label}/**"),  # at different levels
        (["all/train/cat/1", "all/test/old/cat/1"], "*/{split}/{label}/**"),
        (["vehicles/train/1", "vehicles/car/1", "exams/test/1"], ""),
        (["train/cat/1", "train/dog/1", "test/1"], "{split}/{label}/**"),  # test has no classes
        (["all/train/cat/1", "all/test/1"], "*/{split}/{label}/**"),
        (["train/steam/1", "test/1", "car/1"], ""),  # classes
        (["cat/1"], ""),
        (["seg_train/sea/1", "seg_test/sea/1"], "seg_{split}/{label}/*"),
        (["train_images/sea/1", "test_images/sea/1"], "{split}_images/{label}/*"),
        (["a_train_set/sea/1", "a_test_set/sea/1"], "a_{split}_set/{label}/*"),
        (["my_train/sea/1", "my_val/sea/1"], "my_{split}/{label}/*"),
        (["Images-Train/sea/1", "Images-Test/sea/1"], "Images-{split}/{label}/*"),
        (["all/seg_train/seg_train/sea/1", "all/seg_test/seg_test/sea/1"], "seg_{split}/{label}/*"),
        (
            ["seg_train/seg_train/sea/1", "seg_test/seg_test/sea/1", "seg_pred/seg_pred/1"],
            "seg_{split}/*/{label}/*",
        ),
        (["train/train/sea/1", "test/test/sea/1", "val/val/1"], "{split}/*/{label}/*"),
        (["x_train/sea/1", "x_test/sea/1", "x_pred/1"], "x_{split}/{label}/*"),
        (["cat_train/1", "cat_test/1", "dog_train/1", "dog_val/1"], "{label}_{split}/*"),
        (["x_train/1", "x_test/1"], "x_{split}/*"),
        (["a{_train/cat/1", "a{_test/cat/1"], "*_{split}/{label}/*"),
        (["Train-Set/cat/1", "Test-Set/cat/1"], "{split}-Set/{label}/*"),
        (["Train Data/cat/1", "Test Data/cat/1"], "{split} Data/{label}/*"),
        (["train-1/cat/1", "train-2/cat/1", "test-1/cat/1"], "{split}-*/{label}/*"),
        (["Train-Set/1", "Test-Set/1"], "{split}-Set/*"),
        (["Seg_train/sea/1", "seg_Test/sea/1"], "*_{split}/{label}/*"),
        (["my train-set/sea/1", "my test-set/sea/1"], "my {split}-set/{label}/*"),
        (["train_cat/1", "test_cat/1", "train_dog/1", "test_dog/1"], "{split}_{label}/*"),
        (["train.sea/old/1", "test.sea/old/1"], "{split}.sea/{label}/*"),
        (["train/n0/images/1", "train/n1/images/2", "val/images/3"], "{split}/{label}/**"),
        (["training/image_2/1", "testing/image_2/1"], "{split}/**"),
        (["f/Training/a/1", "f/Test/a/1", "f/more/1"], "*/{split}/{label}/**"),  # Fruits-360
        (["i_Training_In/1", "i_Test_In/1"], "i_{split}_In/*"),
        (["i_train_x/cat/1", "i_val_x/cat/1"], "i_{split}_x/{label}/*"),
        (["a_train_x/1", "a_test_x/1", "b_train_x/1", "b_test_x/1"], "{label}_{split}_x/*"),
        (["a_train_x/1", "a_test_y/1", "b_train_y/1"], ""),
        (["test_tube/1", "train_station/1"], ""),  # classes
        (["bullet_train/1", "steam_train/1"], ""),  # classes
        (["cat/train/1", "cat/val/1", "dog/train/1", "dog/val/1", "bird/1"], "{label}/{split}/*"),
        (["cat/train/1", "cat/val/1", "bird/1"], ""),
        (["blood_test/1", "steam_train/1", "train/1"], ""),
        (["bullet_train/old/1", "crash_test/old/1"], ""),
        (["train/cat/raw/1", "train/dog/raw/1", "test/dog/raw/1"], "{split}/{label}/**"),
        (
            ["all/train/cat/raw/1", "all/train/dog/raw/1", "all/dev/dog/raw/1"],
            "*/{split}/{label}/**",
        ),
        (["train/old/cat/1", "train/new/dog/1", "test/old/cat/1"], "{split}/*/{label}/*"),
        (
            [
                f"{split}/{name}/{name}_{number}/1"
                for split in ("train", "val")
                for name in ("airport", "zoo")
                for number in range(2)
            ],
            "{split}/{label}/**",  # fMoW
        ),
        (
            ["train/dance/Ab3/1", "train/run/Cd4/1", "val/dance/Ef5/1", "val/run/Gh6/1"],
            "{split}/{label}/**",  # Kinetics
        ),
    ],
)
def test_folders_that_are_splits(keys: Sequence[str], layout: str) -> None:
    found = folders(*keys)
    if not layout:
        check_split_folders(found, "")
        return
    for option, cure in (
        ("", f"use `layout='{layout}'`"),
        ("splits", f"use `layout='{layout}'` without `splits=`"),
    ):
        with pytest.raises(UsageError, match=re.escape(cure)):
            check_split_folders(found, option)
    levels = len(layout.split("/"))
    assert all(parse_layout(layout).parse_key(key) for key in keys if key.count("/") + 1 >= levels)


@pytest.mark.parametrize(
    "part", ["segmentationclass", "aSegmentationClass", "_masks-for-participants", "_"]
)
def test_folders_of_names_that_no_disk_takes_take_no_time(part: str) -> None:
    names = [part * (65_000 // len(part)) + f"!{i}" for i in range(8)]
    images_in = dict.fromkeys(names, 1)
    with bounded_cpu():
        without_mask_folders(images_in)
        check_split_folders(images_in, "")


@pytest.mark.timeout(100)
def test_thousands_of_folders_in_each_other_are_no_splits() -> None:
    """The time was more than the square of their number."""
    found = folders("train/test/" * 1_000 + "1", "test/train/" * 1_000 + "1")
    with pytest.raises(UsageError, match="folders have the names of splits"):
        check_split_folders(found, "")
    assert not describe_ignored_split(folders(*(f"{n}/" + "a/" * 9_000 + "1" for n in range(9))))


@pytest.mark.parametrize(
    ("keys", "cure"),
    [
        (
            ["train/images/1", "train/masks/1", "val/images/2", "val/masks/2"],
            "pair=mask='{folder}/../masks/{stem}.png'` `layout='{split}/*/*'",
        ),
        (
            ["images/train/1", "masks/train/1", "images/val/2", "masks/val/2"],
            "input=DIR/images` `pair=mask='../masks/{path}.png'` `layout='{split}/*'",
        ),
    ],
)
def test_masks_in_or_around_splits_come_with_the_pair(keys: Sequence[str], cure: str) -> None:
    text = refusal(*keys)
    assert cure in text


def test_masks_that_need_a_table_come_with_the_layout_of_splits() -> None:
    text = refusal("train/images/1", "train/masks/a/1", "val/images/2")
    assert "use `layout='{split}" in text
    assert "a column of type mask" in text


def test_images_without_a_class_in_folders_of_splits_can_be_left_out() -> None:
    text = refusal("train/n0/images/1", "train/n1/images/2", "val/images/3")  # as of Tiny ImageNet
    assert "gives images in val/images the class images" in text
    assert "`exclude='val/images/*'`" in text


@pytest.mark.parametrize(
    ("keys", "excluded"),
    [
        (["train/n0/1", "train/n1/2", "val/3", "test/4"], "'test/*' 'val/*'"),  # as of ImageNet
        (
            ["t/train/n0/images/1", "t/val/images/3", "t/test/images/4"],
            "'t/test/images/*' 't/val/images/*'",
        ),
        (["train/n0/1", "val/images/3", "test/4"], "'test/*' 'val/images/*'"),
    ],
)
def test_all_splits_without_classes_can_be_left_out(keys: Sequence[str], excluded: str) -> None:
    text = refusal(*keys)
    assert f"--exclude {excluded} leaves" in spell_as_flags(text)
    assert "there is no split test, val" in text
    flat_layout = parse_layout(re.findall("`layout='([^']*)'` keeps all", text)[0])
    splits = {(flat_layout.parse_key(key) or {})["split"] for key in keys}
    assert splits == {"train", "val", "test"}


def test_folders_of_splits_within_others_are_no_classes() -> None:
    keys = ["x_train/x_train/A/1", "x_train/x_train/B/2", "x_test/x_test/3"]
    text = refusal(*keys)
    assert "`exclude='x_test/x_test/*'`" in text


def test_splits_without_classes_beside_other_folders_are_told() -> None:
    keys = ["Train/0/1", "Train/1/2", "Test/3", "Meta/4"]  # as of GTSRB
    check_split_folders(folders(*keys), "")
    text = describe_ignored_split(folders(*keys))
    for cure in ("layout='{split}/{label}/**'", "exclude='Meta/*' 'Test/*'"):
        assert cure in text
    layout = parse_layout("{label}/*")
    text = describe_deep_folders(find_deep_folders(folders(*keys), layout), layout)
    assert "`layout='{split}/{label}/**'` reads 'Train' as a split" in text


def test_folders_around_splits_may_be_classes() -> None:
    folders_around = [f"{label}/{split}/images/1" for label in "xy" for split in ("train", "test")]
    text = refusal(*folders_around)
    assert (
        "`layout='*/{split}/**'` for no classes, or `layout='{label}/{split}/**'` for x, y" in text
    )
    assert "for no classes" not in refusal("x/train/images/1", "x/test/images/1")


def test_folders_in_the_folders_of_splits_may_be_classes_or_videos() -> None:
    text = refusal("train/dance/Ab3/1", "train/run/Cd4/1", "val/dance/Ef5/1")  # as of Kinetics
    assert "use `layout='{split}/{label}/**'` for the classes dance, run" in text
    assert "or `layout='{split}/*/{label}/*'` for Ab3, Cd4, Ef5, or `layout='{label}/*'`" in text
    text = refusal("train/old/cat/1", "train/new/dog/1", "val/old/cat/1", "val/new/dog/2")
    assert "use `layout='{split}/*/{label}/*'` for the classes cat, dog" in text
    assert "or `layout='{split}/{label}/*/*'` for new, old, or `layout='{label}/*'`" in text


def test_classes_that_no_two_splits_share_may_be_none() -> None:
    text = refusal("train/M02/img1/1", "train/M04/img1/1", "test/M01/img1/1")  # as of MOT17
    assert "use `layout='{split}/{label}/**'` for the classes M01, M02, M04" in text
    assert "or `layout='{split}/**'` for no classes, since no two splits share a class" in text
    assert "no classes" not in refusal("train/M02/img1/1", "train/M04/img1/1", "test/M02/img1/1")


def test_folders_that_would_be_other_splits_can_be_left_out() -> None:
    keys = ["nut/train/good/1", "nut/test/good/2", "nut/test/cut/3", "nut/ground_truth/cut/3"]
    text = refusal(*keys)  # as of MVTec
    assert "into the split ground_truth" in text
    assert "`exclude='**/ground_truth/**'`" in text


# As of GroceryStoreDataset: classes at two depths, and a folder beside those of splits.
GROCERIES = [
    f"{split}/{folder}/1"
    for split in ("train", "val", "icons")
    for folder in ("Fruit/Apple/Fuji", "Fruit/Apple/Gala", "Fruit/Pear", "Drinks/Juice/Fresh")
]


def test_classes_at_several_depths_in_splits_have_the_layout_that_reads_all() -> None:
    text = refusal(*GROCERIES)
    assert "use `layout='{split}/*/{label}/**'` for the classes Apple, Juice, Pear" in text
    assert "`layout='{split}/{label}/**'` for Drinks, Fruit" in text
    assert "`exclude='**/icons/**'` leaves" in text


def test_excludes_hold_for_names_with_wildcards() -> None:
    text = refusal("train/cat/1", "val/cat/2", "o[l]d it's/cat/3")
    assert "`exclude='**/o[[]l]d it'\"'\"'s/**'`" in text


def test_folders_of_parts_in_classes_are_no_classes_within_splits() -> None:
    text = refusal("train/cat/raw/1", "train/dog/2021/summer/1", "val/dog/2021/winter/1")
    assert "use `layout='{split}/{label}/**'`, or" in text


def test_excluded_splits_leave_out_no_other_folder_of_their_name() -> None:
    text = refusal("train/a/more/1", "train/b/2", "val/a/3", "more/a/4", "more/b/5")
    assert "use `layout='{split}/{label}/**'`, or" in text
    assert "`exclude='more/a/*' 'more/b/*'`" in text


@pytest.mark.parametrize(
    ("path", "layout", "others"),
    [
        ("{folder}/{split}/1", "*/{split}/*", "'**/fronts/**' '**/zones/**'"),
        ("{split}/{folder}/1", "{split}/*/*", "'**/fronts/**' '**/zones/**'"),
    ],
)
def test_folders_with_as_many_files_as_images_leave_the_images_in(
    path: str, layout: str, others: str
) -> None:
    """As of CaFFe: the message left out the images as a class of no class."""
    keys = [
        path.format(folder=folder, split=split)
        for folder in ("sar_images", "fronts", "zones")
        for split in ("train", "val")
    ]
    text = refusal(*keys)
    assert f"`layout='{layout}'` `exclude={others}` converts the images alone" in text


def test_masks_with_a_mark_within_names_are_renamed_by_the_command_told(tmp_path: Path) -> None:
    names = {
        "images": ["a_1__7.png", "b_2__7.png"],
        "zones": ["a_1_zones__7.png", "b_2_zones__7.png"],
    }
    (tmp_path / "zones" / "train").mkdir(parents=True)
    for name in names["zones"]:
        (tmp_path / "zones" / "train" / name).touch()
    files = {f"{folder}/train": names[folder] for folder in names}

    def kind_of(path: str) -> FileKind:
        return FileKind.AREAS if path.startswith("zones") else FileKind.PHOTO

    both = files | {folder.replace("train", "test"): names for folder, names in files.items()}
    with pytest.raises(UsageError) as caught:
        check_split_folders(dict.fromkeys(both, 2), "", (), both.__getitem__, kind_of)
    assert "exclude='**/zones/**'` converts the images alone" in str(caught.value)
    assert "exclude='images" not in str(caught.value)
    text = describe_mask_folders(files, files.__getitem__, kind_of)
    command = re.search(r"find DIR.*\\;", text)
    assert command
    script = command[0].replace("DIR", str(tmp_path))
    subprocess.run(["bash", "-c", script], check=True)
    assert sorted(os.listdir(tmp_path / "zones" / "train")) == names["images"]
    files["zones/train"] = names["images"]
    text = describe_mask_folders(files, files.__getitem__, kind_of)
    assert "`pair=mask='../zones/{path}.png'`" in text


@pytest.mark.parametrize("outer", ["Lung Segmentation/", "masks/a/", ""])
def test_a_folder_of_images_and_masks_may_be_named_like_masks(outer: str) -> None:
    files = {
        f"{outer}CXR_png": [f"C_{i}.png" for i in range(8)],
        f"{outer}masks": [f"C_{i}_mask.png" for i in range(8)],
    }

    def kind_of(path: str) -> FileKind:
        return FileKind.AREAS if "/masks/" in f"/{path}" else FileKind.PHOTO

    text = describe_mask_folders(files, files.__getitem__, kind_of)
    assert "/masks/{stem}_mask.png'`" in text


@pytest.mark.parametrize("mark", ["z$(touch pwned)", "z';touch pwned;'", "z*", "a b"])
def test_the_command_that_renames_masks_runs_nothing_else(mark: str, tmp_path: Path) -> None:
    images = [f"{name}_{i}.png" for i, name in enumerate(["cat", "dog", "bird"])]
    masks = [name.replace("_", f"_{mark}_") for name in images]
    (tmp_path / "masks").mkdir()
    for name in masks:
        (tmp_path / "masks" / name).touch()
    files = {"images": images, "masks": masks}

    def kind_of(path: str) -> FileKind:
        return FileKind.AREAS if path.startswith("masks") else FileKind.PHOTO

    command = re.search(r"find DIR.*\\;", describe_mask_folders(files, files.__getitem__, kind_of))
    assert command
    script = command[0].replace("DIR", str(tmp_path))
    subprocess.run(["bash", "-c", script], check=True, cwd=tmp_path)
    assert os.listdir(tmp_path) == ["masks"]
    assert sorted(os.listdir(tmp_path / "masks")) == sorted(images)


def test_classes_named_like_splits_beside_others_are_told() -> None:
    text = describe_ignored_split(folders("train/1", "test/2", "extra/3"))  # as of SVHN
    assert "`layout='{split}/*'`" in text
    assert not describe_ignored_split(folders("test/1", "cat/2", "dog/3"))
    # Masks are told otherwise.
    assert not describe_ignored_split(folders("train/1", "trainannot/1", "test/2", "testannot/2"))
    keys = folders("train_images/1", "test_images/2", "extra_images/3")
    assert "`layout='{split}_images/*'`" in describe_ignored_split(keys)
    assert not describe_last_folders(keys)
    assert "classes are images, photos" in describe_last_folders(folders("images/1", "photos/2"))


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        (["cat/train_1.jpg", "dog/test_2.jpg"], "{label}/{split}_*"),
        (["cat/img_train_1.jpg", "cat/img_test_1.jpg"], "--table"),
        (["cat/train_1.jpg", "cat/2.jpg"], ""),
        (["cat/train_1.jpg", "cat/train_2.jpg"], ""),
    ],
)
def test_splits_in_names_of_images_are_told(
    beam_tfr: Command, tmp_path: Path, names: list[str], layout: str
) -> None:
    source = photos(tmp_path / "in", *names)
    plan = beam_tfr("plan", "--input", source, "--output", tmp_path / "out")
    told = [line for line in plan.out.splitlines() if "names of images seem to name splits" in line]
    assert len(told) == bool(layout)
    assert all(layout in line for line in told)


def test_one_split_that_is_the_only_one_of_the_option_is_not_told() -> None:
    keys = folders("Validation_Images/dog/1", "Validation_Images/cat/2")
    assert not describe_ignored_split(keys, ["val"])
    assert "go to test: " in describe_ignored_split(keys, ["test"])
    assert "go to train, val: " in describe_ignored_split(keys, ["train", "val"])


def test_training_and_validation_images_together_are_a_split_next_to_another() -> None:
    assert "`layout='{split}/*'`" in refusal("trainval/1", "test/2")
    assert "`layout='{split}/{label}/*'`" in refusal("train_val2018/cat/1", "test2018/cat/2")
    check_split_folders(folders("trainval/1", "cat/2"), "")


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("001_cat.jpg", "{number}_{label}.*"),
        ("IMG_3_dog.png", "IMG_{number}_{label}.*"),
        ("n01484850_great_white_shark.JPEG", "n{number}_{label}.*"),
        ("cat_1.jpg", "{label}_{number}.*"),
        ("cat.1.jpg", "{label}.{number}.*"),
        ("train-1.jpg", "{split}-{number}.*"),
        ("val_cat_1.jpg", "{split}_{label}_{number}.*"),
        ("1.jpg", ""),
        ("12cat.jpg", ""),
        ("cat_1_aug2.jpg", ""),
        ("25_0_1_20170116.jpg.chip.jpg", "{label}_*"),
        ("01-90_85-274&482_457&544-498&537-0_0_7_24-51-43.jpg", ""),
        ("001_002.jpg", "{label}_{number}.*"),
        ("image_00001.jpg", ""),
        ("ILSVRC2012_val_00000001.JPEG", ""),
    ],
)
def test_the_layout_for_files_without_folders(name: str, layout: str) -> None:
    assert suggest_layout(name) == layout


def test_folders_that_no_layout_takes_as_splits_are_named() -> None:
    text = refusal("train/cat/1", "Test-Set/cat/1")
    assert "rename Test-Set first" in text
    assert "for example to Test_Set," in text


@pytest.mark.parametrize(
    ("names", "layout", "excluded"),
    [
        (["train/cat.0.jpg", "train/dog.0.jpg", "test1/1.jpg"], "{label}.{number}.*", "test1/*"),
        (["train/cat_0.jpg", "test/dog_1.jpg"], "{label}_{number}.*", ""),
        (["train/1.jpg", "test/2.jpg"], "", ""),
    ],
)
def test_classes_in_names_of_files_in_splits(
    names: Sequence[str], layout: str, excluded: str
) -> None:
    text = refusal(*names, images=names)
    assert "`layout='{split}/*'`" in text
    assert (f"`layout='{{split}}/{layout}'`" in text) == bool(layout)
    assert (f"`exclude='{excluded}'`" in text) == bool(excluded)


@pytest.mark.parametrize(
    ("keys", "renamed", "layout"),
    [
        (["rps/rock/1", "rps-test-set/rock/1"], "rps-train-set", "rps-{split}-set/{label}/*"),
        (
            ["rps/rps/rock/1", "rps-test-set/rps-test-set/rock/1"],
            "rps-train-set",
            "rps-{split}-set/*/{label}/*",
        ),
        (["horses/a/1", "validation-horses/a/1"], "train-horses", "{split}-horses/{label}/*"),
        (["cat/1", "blood_test/1"], "", ""),
        (["station/1", "train_station/1"], "", ""),
    ],
)
def test_a_split_beside_one_that_its_name_does_not_show(
    keys: Sequence[str], renamed: str, layout: str
) -> None:
    text = describe_ignored_split(folders(*keys))
    assert bool(text) == bool(renamed)
    if text:
        assert f"rename the latter to {renamed}" in text
        assert f"`layout='{layout}'`" in text


def test_folders_beside_splits_of_one_prefix_can_be_left_out() -> None:
    text = refusal("box_train/1", "box_test/1", "query/1")
    assert "`layout='box_{split}/*'`" in text
    assert "`exclude='query/*'`" in text


def test_a_split_without_classes_can_be_left_out(beam_tfr: Command, tmp_path: Path) -> None:
    folder = photos(tmp_path / "in", "train/a/1.jpg", "train/b/2.jpg", "test/3.jpg")
    run = beam_tfr("plan", "--input", folder, "--output", tmp_path / "out")
    assert run.code == 2
    assert "--exclude 'test/*'" in run.err
    call = ["convert", "--input", folder, "--output", tmp_path / "out", "--exclude", "test/*"]
    run = beam_tfr(*call, "--layout", "{split}/{label}/**", "--quiet")
    assert (run.code, run.err) == (0, "")


@pytest.mark.parametrize("command", ["plan", "convert"])
def test_folders_that_are_not_left_out_are_told_with_splits(
    beam_tfr: Command, tmp_path: Path, command: str
) -> None:
    folder = photos(tmp_path / "in", "train/a/1.jpg", "val/b/2.jpg", "test/3.jpg")
    call = (command, "--input", folder, "--output", tmp_path / "out", "--exclude")
    for pattern, is_told in (("test", True), ("test/*", False)):
        run = beam_tfr(*call, pattern)
        assert run.code == 2
        assert ("--exclude test leaves out nothing" in run.err) == is_told


def test_two_spellings_of_a_class_come_with_the_command_that_renames(tmp_path: Path) -> None:
    folder = photos(tmp_path / "in", "gr\u00fcn/1.jpg", "gru\u0308n/2.jpg", "x/gru\u0308n/3.jpg")
    given: dict[str, Any] = {"input": folder, "output": tmp_path / "out", "progress": False}
    with pytest.raises(DataError, match="Unicode NFC") as caught:
        beam_tfr.plan(**given)
    (command,) = re.findall("`(python3 -c .*)`", str(caught.value))
    subprocess.run(command, shell=True, check=True, cwd=folder)
    assert beam_tfr.plan(**given).plan.labels == ["gr\u00fcn"]


WORDS = ["great_white_shark", "tiger_shark", "tench", "crane", "sea_lion"]


def photos(folder: Path, *names: str) -> Path:
    for name, photo in zip(names, sorted(SAMPLE.rglob("*.jpg")), strict=False):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photo, folder / name)
    return folder


@pytest.mark.parametrize("command", ["plan", "convert"])
def test_folders_of_splits_need_a_layout(beam_tfr: Command, tmp_path: Path, command: str) -> None:
    names = [
        f"{split}/{label}/{number}.jpg"
        for split in ("train", "val")
        for label in "ab"
        for number in range(3)
    ]
    call = (command, "--input", photos(tmp_path / "in", *names), "--output", tmp_path / "out")
    run = beam_tfr(*call)
    assert (run.code, run.out, (tmp_path / "out").exists()) == (2, "", False)
    assert run.err == (
        f"beam-tfr {command}: --input: folders have the names of splits, train (6), val (6), but "
        f"the default layout "
        "{label}/* ignores them; use --layout '{split}/{label}/*', or --layout '{label}/*' to "
        "ignore them\n"
    )
    run = beam_tfr(*call, "--layout", "{label}/*", "--splits", "x=0.5,y=0.5", "--quiet")
    assert (run.code, run.err) == (0, "")
    found = re.search(r"^matched +(\d+) +(\d+) +12$", run.out, re.MULTILINE)
    assert found
    assert sum(map(int, found.groups())) == 12


def test_from_python_folders_of_splits_need_a_layout_too(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "input": photos(tmp_path / "in", "train/a/1.jpg", "test/a/2.jpg"),
        "progress": False,
    }
    for call in (beam_tfr.plan, beam_tfr.convert):
        with pytest.raises(UsageError, match=r"use `layout='{split}/{label}/\*'`, or"):
            call(output=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("inner", ["puppies", "2021/puppies"])
def test_images_in_a_class_within_a_class_are_reported(
    beam_tfr: Command, tmp_path: Path, inner: str
) -> None:
    names = ("dog/1.jpg", "dog/2.jpg", f"dog/{inner}/1.jpg", "cat/1.jpg")
    call = ("--input", photos(tmp_path / "in", *names), "--output", tmp_path / "out")
    what = "1 image in deeper folders than those of other classes"
    details = (
        f", such as dog/{inner}: class 'puppies', not 'dog'; --layout '{{label}}/**' reads 'dog'"
    )
    assert f"warning:   {what}{details}" in beam_tfr("plan", *call).out
    run = beam_tfr("convert", *call)
    assert f"note:    {what}: their class is the inner folder" in run.out
    assert what + details in run.err


def test_deep_folders_of_one_name_are_told_with_the_depth_of_classes() -> None:
    images = folders("all/a/abbey/1", "all/b/bar/indoor/1", "all/c/church/indoor/1")  # SUN397
    layout = parse_layout("{label}/*")
    text = describe_deep_folders(find_deep_folders(images, layout), layout)
    assert "`layout='*/*/{label}/**'` reads 'bar'" in text
    assert "all/b/bar/indoor and all/c/church/indoor, are one class" in text
    images = folders("all/a/abbey/1", "all/b/bar/indoor/1", "all/b/bar/door/1")
    assert "one class" not in describe_deep_folders(find_deep_folders(images, layout), layout)


@pytest.mark.parametrize(
    ("layout", "nested"),
    [
        ("{label}/*", {"dog/puppies": "dog", "dog/2021/summer": "dog", "dogs/puppies": "dogs"}),
        (
            "{split}/{label}/*",
            {"dog/puppies": "dog", "dog/2021/summer": "dog", "dogs/puppies": "dogs"},
        ),
        ("{label}/*/*", {}),
        ("{label}/**", {}),
    ],
)
def test_which_folders_are_nested(layout: str, nested: dict[str, str]) -> None:
    images = {
        "dog": 1,
        "dog/puppies": 2,
        "dog/2021/summer": 6,
        "cat": 3,
        "train/cat": 4,
        "dogs/puppies": 5,
    }
    deep_folders = find_deep_folders(images, parse_layout(layout))
    assert {folder.path: folder.outer for folder in deep_folders} == nested
    assert all(folder.images == images[folder.path] for folder in deep_folders)


@pytest.mark.parametrize(
    ("layout", "key", "values"),
    [
        ("{label}/**", "dog/x.jpg", {"label": "dog"}),
        ("{label}/**", "dog/2021/summer/y.jpg", {"label": "dog"}),
        ("{label}/**", "x.jpg", None),
        ("{split}/{label}/**", "train/dog/2021/y.jpg", {"split": "train", "label": "dog"}),
        ("{split}/{label}/**", "train/y.jpg", None),
        ("*/{label}/**", "all/dog/2021/y.jpg", {"label": "dog"}),
        ("{split}/**", "train/dog/y.jpg", {"split": "train"}),
        ("{label}_{number}/**", "big_dog_1/old/y.jpg", {"label": "big_dog"}),
    ],
)
def test_a_layout_that_ends_in_stars_reads_the_whole_key(
    layout: str, key: str, values: dict[str, str] | None
) -> None:
    assert parse_layout(layout).parse_key(key) == values
    assert str(parse_layout(layout)) == layout


@pytest.mark.parametrize("layout", ["**/{label}/*", "{label}/**/*", "{label}**"])
def test_stars_are_the_last_part(layout: str) -> None:
    with pytest.raises(UsageError, match="last part"):
        parse_layout(layout)


def test_the_first_folder_is_the_class_of_files_and_of_archives(tmp_path: Path) -> None:
    names = ("dog/1.jpg", "dog/2021/summer/2.jpg", "cat/old/3.jpg")
    folder = photos(tmp_path / "in", *names)
    shutil.make_archive(str(tmp_path / "packed"), "zip", folder)
    digests = set()
    for source in (folder, tmp_path / "packed.zip"):
        result = beam_tfr.convert(
            input=str(source), output=str(tmp_path / "out"), layout="{label}/**", overwrite=True
        )
        assert result.class_names == ("cat", "dog")
        assert result.run["nested"] == 0
        digests.add(result.digest)
    assert len(digests) == 1


def test_the_layout_for_flat_folders_is_made_from_a_name(beam_tfr: Command, tmp_path: Path) -> None:
    source = photos(tmp_path / "in", "cat.0.jpg", "dog.1.jpg")
    call = ("plan", "--input", source, "--output", tmp_path / "out")
    assert "--layout '{label}.{number}.*'" in beam_tfr(*call).err
    assert beam_tfr(*call, "--layout", "{label}.{number}.*").code == 0


@pytest.mark.parametrize("command", ["plan", "convert"])
def test_flat_folders_get_an_example_of_a_layout(
    beam_tfr: Command, tmp_path: Path, command: str
) -> None:
    names = [f"n0{1440764 + i}_{WORDS[i % 5]}.jpg" for i in range(10)]
    call = (command, "--input", photos(tmp_path / "in", *names), "--output", tmp_path / "out")
    run = beam_tfr(*call)
    assert (run.code, run.out) == (2, "")
    assert run.err.endswith(
        "which has 1 part; show where the names hold the class, as in --layout "
        "'n{number}_{label}.*'; or use --layout '*', for no classes, or a --table\n"
    )
    run = beam_tfr(*call, "--layout", "*_{label}.*")
    assert run.code == 0
    assert re.search(
        r"6 of 10 files match the layout in more than one way, such as "
        r"n01440764_great_white_shark.jpg: {label} is "
        r"'shark', not 'great_white_shark'; if that is wrong, use ",
        run.out + run.err,
    )


@pytest.mark.parametrize(
    ("classes", "is_told"),
    [
        (["images", "masks"], True),
        (["Images", "SegmentationClass"], True),
        (["DepthLeft", "GTLeft", "RGBLeft"], True),  # as in SYNTHIA
        (["img", "labels", "depth"], True),
        (["train_images", "train_masks"], True),
        (["JPEGImages", "gt"], True),
        (["cat", "mask"], False),
        (["images", "cat"], False),
        ([], False),
    ],
)
def test_folders_of_images_and_masks_are_told_from_classes(
    classes: list[str], is_told: bool
) -> None:
    text = describe_mask_folders(classes)
    assert bool(text) == is_told
    if is_told:
        assert f"pair=mask='../{classes[1]}/{{stem}}.png'" in text


@pytest.mark.parametrize(
    ("keys", "layout"),
    [
        (["dog/images/1", "cat/images/1"], "{label}/**"),
        (["dog/images/1", "cat/photos/1"], "{label}/**"),
        (["dog/raw/1", "cat/raw/1"], "{label}/**"),
        (["dog/front/1", "dog/back/1", "cat/front/1", "cat/back/1"], "{label}/**"),
        (["train/dog/images/1", "train/cat/images/1"], "*/{label}/**"),
        (["all/dog/2021/images/1", "all/cat/images/1"], "*/{label}/**"),
        (["images/1", "images/2"], "*"),
        (["dog/1", "cat/1"], ""),
        (["2021/dog/1", "2022/cat/1"], ""),
        (["train/dog/1", "train/cat/1"], ""),
        (["dog/images/1", "dog/1"], ""),  # which find_deep_folders tells
        (["data/1", "data/2"], "*"),
        (["dog/1"], "*"),
        (["train/dog/raw/1", "train/cat/raw/1", "test/dog/raw/1"], ""),  # which are refused
        (["seg_train/dog/1", "seg_test/dog/1"], ""),
    ],
)
def test_last_folders_that_hardly_are_classes(keys: Sequence[str], layout: str) -> None:
    text = describe_last_folders(folders(*keys))
    assert (f"`layout='{layout}'`" in text) if layout else not text


@pytest.mark.parametrize(
    ("keys", "is_told"),
    [
        (["00000/00000.png", "00000/00999.png", "01000/01000.png"], True),  # FFHQ
        (["00000/000000001.jpg", "00001/000010000.jpg"], True),  # img2dataset
        (["0/1.png", "1/3.png", "9/5.png"], False),
        (["00000/00000_00000.ppm", "00001/00000_00001.ppm"], False),
        (["0/1.png"], False),
        ([], False),
    ],
)
def test_folders_of_ranges_are_told(keys: Sequence[str], is_told: bool) -> None:
    assert ("`layout='*'`" in describe_ranges(keys)) == is_told


@pytest.mark.parametrize(
    ("folders_of_images", "kind"),
    [
        (["DCIM/100CANON", "DCIM/101CANON"], "as cameras do"),
        (["100APPLE", "card/101_PANA"], "as cameras do"),
        (["2021-05-03", "2021-06-11 Rome"], "after dates"),
        (["2021/05", "2022/12"], "after dates"),
        (["2021/05/03", "20210504"], "after dates"),
        (["100CANON"], ""),
        (["100CANON", "cats"], ""),
        (["2011 Audi", "2012 Audi"], ""),
        (["201105", "201207"], ""),
        (["2021-05", "dog"], ""),
        (["1", "2"], ""),
    ],
)
def test_folders_of_cameras_and_dates_are_told(folders_of_images: list[str], kind: str) -> None:
    text = describe_camera_folders([f"{folder}/1.jpg" for folder in folders_of_images])
    assert bool(text) == bool(kind)
    assert kind in text


def test_images_in_no_folder_have_no_only_class() -> None:
    assert not describe_last_folders({"": 2})


@pytest.mark.parametrize(
    ("keys", "layout"),
    [
        (["test/dog/1", "test/cat/1"], "{split}/{label}/*"),
        (["Val/dog/1", "val/cat/1"], "{split}/{label}/*"),
        (["test/1", "test/2"], "{split}/*"),
        (["train/1", "train/2"], "{split}/*"),  # else train is their class
        (["dog/test/1", "cat/test/1"], "{label}/{split}/*"),
        (["train/dog/1", "train/cat/1"], ""),
        (["test/dog/1", "more/cat/1"], "{split}/{label}/*"),
        (["train/dog/1", "more/cat/1"], ""),
        (["Training_Images/dog/1"], ""),
        (["test/1", "cat/1"], ""),  # classes
        (["dog/1", "cat/1"], ""),
    ],
)
def test_one_split_above_images_is_told(keys: Sequence[str], layout: str) -> None:
    text = describe_ignored_split(folders(*keys))
    assert (f"`layout='{layout}'`" in text) if layout else not text


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        (["train", "trainannot", "val", "valannot"], "mask='{folder}annot/{stem}.png'"),
        (["train", "trainmasks", "Test", "Testmasks"], "mask='{folder}masks/{stem}.png'"),
        (["d/train", "d/traindepth", "d/val", "d/valdepth"], "depth='{folder}depth/{stem}.png'"),
    ],
)
def test_folders_of_masks_beside_splits_are_none(names: Sequence[str], pair: str) -> None:
    with pytest.raises(UsageError, match="names of splits") as error:
        check_split_folders(folders(*(f"{name}/1" for name in names)), "")
    assert f"--pair {pair} --layout '{{split}}/*'" in spell_as_flags(str(error.value))


def test_doubtful_folders_are_told_by_plan_and_convert(beam_tfr: Command, tmp_path: Path) -> None:
    source = photos(tmp_path / "test", "val/dog/images/1.jpg", "val/cat/images/1.jpg")
    call = ("--input", source, "--output", tmp_path / "out")
    plan = beam_tfr("plan", *call).out
    run = beam_tfr("convert", *call)
    for text in (plan, run.err):
        assert "--splits test=1" in text
        assert "--layout '*/{label}/**'" in text
        assert "--layout '{split}/{label}/**'" in text
    assert run.out.count("note:") >= 2
    chosen = ("--layout", "{split}/{label}/**")
    run = beam_tfr("convert", *call[:2], "--output", tmp_path / "out2", *chosen)
    assert "--layout" not in run.err + run.out
    assert "--splits" not in run.err + run.out


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (["images", "masks"], "--pair mask='../masks/{stem}.png'"),
        (
            ["train/images", "train/masks", "test/images"],
            "--pair mask='{folder}/../masks/{stem}.png' --layout '{split}/*/*'",
        ),
        (["a/images", "a/masks"], "--pair mask='{folder}/../masks/{stem}.png' --layout '*'"),
        (["images/train", "masks/train"], "--pair mask='../masks/{path}.png' --layout '{split}/*'"),
        (
            ["a/leftImg8bit/train/bonn", "a/gtFine/train/bonn"],
            "--input DIR/a/leftImg8bit --pair mask='../gtFine/{path}.png' --layout '{split}/*/*'",
        ),
        (["images/cat", "masks/cat"], "--pair mask='../masks/{path}.png' --layout '{label}/*'"),
        (["images/cat/a", "masks/cat/a"], "'../masks/{path}.png' --layout '{label}/*'"),
        (["JPEGImages", "SegmentationClassContext"], "'../SegmentationClassContext/{stem}.png'"),
        (["train", "train_masks"], "--pair mask='{folder}_masks/{stem}.png' --layout '{split}/*'"),
        (["a/x", "a/xannot"], "--pair mask='{folder}annot/{stem}.png' --layout '*'"),
        (["x/images", "x/masks", "y/images", "y/masks"], "--layout '*'"),  # perhaps one each
        (["t/images_png", "t/masks_png"], "--pair mask='{folder}/../masks_png/{stem}.png'"),
        (["PNGImages", "PedMasks"], "--input DIR/PNGImages --pair mask='../PedMasks/{stem}.png'"),
        (["images", "normal"], ""),  # a class
        (["images", "normals"], "--pair normal='../normals/{stem}.png'"),
        (["train/images", "test/masks"], ""),
        (["with_mask", "without_mask"], ""),
        (["photos", "images"], ""),
        (["x/CelebA-HQ-img", "x/CelebAMask-HQ-mask-anno/0"], "a column of type mask"),
        (["images/a", "masks"], "a column of type mask"),
    ],
)
def test_folders_of_masks_without_classes_are_told(given: list[str], cure: str) -> None:
    text = spell_as_flags(describe_mask_folders(given))
    assert cure in text
    assert bool(text) == bool(cure)


KINDS = ("images", "masks")


def two_files(*folders: str) -> dict[str, list[str]]:
    return {folder: ["1.png", "2.png"] for folder in folders}


@pytest.mark.parametrize(
    ("files", "cure"),
    [
        (
            {"a/images/cat": ["1.jpg"], "gts/segmentations/cat": ["1.png"]},
            "--input DIR/a/images --pair mask='../../gts/segmentations/{path}.png' "
            "--layout '{label}/*'",
        ),
        (
            {"a/x/cat": ["1.jpg"], "a/masks/x/cat": ["mask_1.png"]},
            "--input DIR/a --pair mask='masks/{folder}/mask_{stem}.png' --layout '{label}/*'",
        ),
        ({"x": ["1.jpg"], "groundtruth": ["1.png"]}, "'../groundtruth/{stem}.png'"),
        ({"images": ["1.jpg"], "anno/trimap": ["1.png"]}, "'../anno/trimap/{stem}.png'"),
        ({"a/data/x": ["1.jpg"], "a/gt": ["1_m.png"]}, "'../../gt/{stem}_m.png'"),
        ({"train": ["1.jpg"], "train_masks": ["1_m.gif"]}, "'{folder}_masks/{stem}_m.png'"),
        ({"cat": ["1.jpg", "2.jpg", "3.jpg"], "labels": ["1.png"]}, ""),
        ({"": ["1.jpg"], "masks": ["1.png"]}, "mask='{folder}/masks/{stem}.png'"),
        ({"a": ["1.jpg"], "a/masks": ["1.png"]}, "mask='{folder}/masks/{stem}.png'"),
        ({"rgb": ["1.jpg"], "depth": ["1_d.png"]}, "depth='../depth/{stem}_d.png'"),
        ({"a/images": ["a.png"], "a/masks": ["x.png", "y.png"]}, "column of type mask"),
        (
            {"2_Ortho_RGB": ["top_2_0_RGB.tif"], "5_Labels_all": ["top_2_0_label.tif"]},
            "'../5_Labels_all/{stem%_RGB}_label.png'",  # of ISPRS Potsdam
        ),
        ({"top": ["a1.tif"], "gts_for_participants": ["a1.tif"]}, "gts_for_participants/"),
        ({"automatic": ["1.jpg"], "manual": ["1.jpg"]}, ""),
        ({"Jo": ["1.jpg"], "Joann": ["1.jpg"]}, ""),
        ({"benign": ["benign1.png"], "normal": ["normal1.png"]}, ""),
        (
            {f"x/{name}{end}": ["1.tif"] for name in ("test", "train") for end in ("", "_labels")},
            "--exclude '**/*_labels/*.tif' leaves out the old files",  # of Massachusetts Roads
        ),
        (
            {"x/01": ["t0.tif"], "x/02": ["t0.tif"], "x/02_GT/TRA": ["man_track0.tif"]},
            "the folders 02 and 02_GT/TRA look like",  # of the Cell Tracking Challenge
        ),
        ({"x/01": ["t0.tif"], "x/02": ["t1.tif"], "x/01_GT/TRA": ["track1.tif"]}, "of type mask"),
        (
            {
                "Photos": ["ds_train_0.jpg", "ds_train_1.jpg", "ds_val_0.jpg"],
                "labels": ["ds_train_0.png"],
            },
            "'../labels/{stem}.png' --layout '*'",
        ),
        (
            two_files("x/images", "x/masks", "y/images", "y/masks"),
            "--layout '{label}/*/*'",
        ),
        (
            two_files("Train/x/images", "Train/x/masks", "Train/y/images"),
            "--layout '{split}/{label}/*/*'",
        ),
        (
            two_files("Train/x/images", "Train/x/masks", "Val/x/images"),
            "--layout '{split}/*/*/*'",
        ),
        (
            two_files("train/images", "train/masks", "val/P-500/images", "val/P-500/masks"),
            "--layout '{split}/**'",  # of P3M-10k
        ),
        (
            two_files(
                *(
                    f"{folder}/{kind}"
                    for folder in ("car/1_9", "car/2_8", "apple/1_9", "apple/3_7")
                    for kind in ("images", "masks")
                )
            ),  # of CO3D
            "--layout '{label}/*/*/*' converts both together, with the classes apple, car; if the "
            "classes are 1_9, 2_8, 3_7 instead, use --layout '{label}/*/*'",
        ),
        (
            two_files(*(f"car/{name}/{kind}" for name in ("1_9", "2_8") for kind in KINDS)),
            "--layout '{label}/*/*' converts both together, with the classes 1_9, 2_8; if the "
            "class is car instead, use --layout '{label}/*/*/*'",
        ),
        (
            two_files(*(f"data/{name}/{kind}" for name in ("cat", "dog") for kind in KINDS)),
            "--layout '{label}/*/*' converts both together",
        ),
        (
            two_files(
                *(
                    f"{folder}/{kind}"
                    for folder in ("train/car/1_9", "train/car/2_8", "val/apple/3_7")
                    for kind in ("images", "masks")
                )
            ),
            "--layout '{split}/{label}/*/*/*' converts both together, with the classes apple, car",
        ),
    ],
)
def test_masks_are_told_by_the_names_of_files(files: dict[str, list[str]], cure: str) -> None:
    text = spell_as_flags(describe_mask_folders(files, lambda folder: files.get(folder, [])))
    assert cure in text
    assert bool(text) == bool(cure)


@pytest.mark.parametrize(
    ("names", "are_masks"),
    [
        (("with_mask", "mask_weared_incorrect"), False),
        (("depth", "surface"), False),
        (("face", "face_mask"), False),
        (("images", "normals"), True),  # of colors, as photos have
    ],
)
def test_folders_of_photos_are_classes_whatever_their_names(
    names: Sequence[str], *, are_masks: bool
) -> None:
    files = {name: ["1.png", "2.png"] for name in names}
    text = describe_mask_folders(files, files.__getitem__, lambda _: FileKind.PHOTO)
    assert bool(text) == are_masks
    assert describe_mask_folders(files, files.__getitem__, lambda _: FileKind.UNKNOWN)


@pytest.mark.parametrize(
    ("masks", "other", "told"),
    [
        ("labels/masks", "labels/colormaps", "labels/masks look like images and their masks"),
        (
            "labels/panoptic",
            "",
            "labels/panoptic look like images and panoptic masks, whose colors",
        ),
        ("labels/semantic", "labels/panoptic", "labels/semantic look like images and their masks"),
    ],
)
def test_masks_in_color_come_last(masks: str, other: str, told: str) -> None:
    """As in BDD100K and COCO."""

    def kind_of(path: str) -> FileKind:
        return FileKind.COLORED if "colormaps" in path or "panoptic" in path else FileKind.AREAS

    in_folders = [*filter(None, ["images/train", f"{masks}/train", other and f"{other}/train"])]
    text = describe_mask_folders(in_folders, lambda _: ["a.png", "b.png"], kind_of)
    assert told in text
    assert ("pair=" in text) == bool(other)
    assert (f"; {other} also seems to hold masks" in text) == bool(other)


def test_photos_are_told_from_masks_by_their_size(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    areas = np.repeat(noise[:3], 10, axis=0)
    areas[:, :] = areas[:, :1]
    mask = np.zeros((30, 40), np.uint8)
    mask[3:9, 4:20] = 255
    contents = {"photo": noise, "colors": areas, "gray": noise[..., 0], "mask": mask}
    for name, pixels in contents.items():
        PIL.Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    PIL.Image.fromarray(noise).save(tmp_path / "photo.jpg")
    (tmp_path / "cut.png").write_bytes(b"\x89PNG")
    assert {name: find_kind(f"{tmp_path}/", name) for name in [*os.listdir(tmp_path), "none"]} == {
        "photo.png": FileKind.PHOTO,
        "colors.png": FileKind.COLORED,
        "gray.png": FileKind.DETAILED,
        "mask.png": FileKind.AREAS,
        "photo.jpg": FileKind.UNKNOWN,
        "cut.png": FileKind.UNKNOWN,
        "none": FileKind.UNKNOWN,
    }


@pytest.mark.parametrize(
    ("images", "masks", "cure"),
    [
        ("X/1.jpg", "Y/1.png", "pair=mask='../Y/{stem}.png'"),
        (
            "train/input/a.tif",
            "train/output/a_o.png",
            "pair=mask='{folder}/../output/{stem}_o.png'",
        ),
        ("noise/1.png", "areas/1.png", "pair=mask='../areas/{stem}.png'"),
        ("tissue images/1.jpg", "mask binary/1.png", "`input='DIR/tissue images'`"),
        ("X/1.jpg", "Y/2.png", ""),
        ("areas/0/1.png", "areas/1/1.png", ""),  # drawings, such as digits
        ("cat/1.jpg", "noise/1.png", ""),
    ],
)
def test_masks_are_known_by_their_areas_whatever_their_names(
    images: str, masks: str, cure: str
) -> None:
    names = {os.path.dirname(key): [os.path.basename(key)] for key in (images, masks)}

    def kind_of(path: str) -> FileKind:
        if not path.endswith(".png"):
            return FileKind.UNKNOWN
        return FileKind.DETAILED if path.startswith("noise") else FileKind.AREAS

    text = describe_mask_folders(names, names.__getitem__, kind_of)
    assert cure in text
    assert bool(text) == bool(cure)


def test_classes_named_like_splits_in_each_split_are_classes() -> None:
    for name in ("valid", "train"):
        keys = [f"{split}/{label}/1" for split in ("test", "train") for label in (name, "bus")]
        assert "exclude=" not in refusal(*keys)
    assert "exclude='train/train/*'" in refusal("test/cat/1", "train/cat/1", "train/train/1")


@pytest.mark.parametrize(
    ("images", "masks", "are_several"),
    [
        (["1.jpg", "2.jpg"], ["1_0.png", "1_1.png", "2_0.png"], True),
        (["1.jpg"], ["1_mask.png", "1_mask_1.png", "1_mask_2.png"], True),
        (["a_1.jpg", "a_2.jpg"], ["a_1.png", "a_2.png"], False),
        (["a.jpg", "a_1.jpg", "a_2.jpg"], ["a.png", "a_1.png", "a_2.png"], False),
        (["x_0001.png", "x_0002.png"], ["m_0001.png", "m_0002.png"], False),
        (["x.png"], ["x_ids.png", "x_color.png"], False),
        (["x.png"], ["x_seg.png", "x_parts_1.png", "x_parts_2.png"], False),  # as of ADE20K
        (["img_1.jpg", "img_2.jpg"], ["mask_1.png", "mask_2.png"], False),
        (  # as pycococreator has them
            ["1.jpg", "2.jpg"],
            ["1_square_0.png", "1_circle_1.png", "2_circle_0.png", "2_star_1.png"],
            True,
        ),
    ],
)
def test_several_masks_that_numbers_tell_apart(
    images: Sequence[str], masks: Sequence[str], *, are_several: bool
) -> None:
    files = {"images": images, "masks": masks}
    text = describe_mask_folders(files, lambda folder: files[folder])
    assert ("several masks per image" in text) == are_several


def test_several_masks_of_an_image_are_told() -> None:
    """As of Data Science Bowl 2018."""
    files = {
        "0a7/images": ["0a7.png"],
        "0a7/masks": ["77a.png"],
        "77b/images": ["77b.png"],
        "77b/masks": ["0a7.png", "c01.png"],
    }
    text = describe_mask_folders(files, lambda folder: files[folder])
    assert "several masks per image" in text
    assert "`pair=mask='{folder}/../mask/{stem}.png'`" in text
    assert "77a" not in text


@pytest.mark.parametrize(
    ("image", "masks", "path"),
    [
        ("{}.jpg", ["{}.png"], "{stem}.png"),
        ("{}.jpg", ["{}_mask.gif"], "{stem}_mask.gif"),
        ("{}.jpg", ["mask_{}.png"], "mask_{stem}.png"),
        ("{}_sat.jpg", ["{}_mask.png"], "{stem%_sat}_mask.png"),
        ("img_{}.jpg", ["mask_{}.png"], "mask{stem#img}.png"),
        ("img{}.jpg", ["mask{}.png"], "mask{stem#img}.png"),
        ("a_{}_rgb.png", ["a_{}_color.png", "a_{}_ids.png"], "{stem%_rgb}_ids.png"),
        ("{}.jpg", ["x.png"], ""),
        ("1.jpg", [], ""),
    ],
)
def test_paths_of_masks_follow_from_names(image: str, masks: Sequence[str], path: str) -> None:
    numbers = range(9, 12)
    names = [mask.format(number) for number in numbers for mask in masks]
    assert find_mask_name([*map(image.format, numbers)], names) == path


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("labels.csv", "--table"),
        ("annotations.json", "--table"),
        ("1.xml", "--table"),
        ("data_batch_1", "must be unpacked"),
        ("clip.mp4", "ffmpeg -i"),
        ("1.CR2", "must be developed"),
        ("train.rec", "Image.fromarray"),
    ],
)
def test_a_table_as_input_is_told_to_be_one(
    beam_tfr: Command, tmp_path: Path, name: str, cure: str
) -> None:
    path = tmp_path / name
    path.write_text("path,label\na.jpg,cat\n")
    plan = beam_tfr("plan", "--input", path, "--output", tmp_path / "out")
    assert plan.code
    assert cure in plan.err
    assert (f"--table {path}" in plan.err) == (cure == "--table")
    assert "--layout {label}/*" not in plan.err


@pytest.mark.parametrize("text", ["a.jpg 0\nb.jpg 1\n", "0\t0.0\tcat/a.jpg\n1\t1.0\tdog/b.jpg\n"])
def test_a_list_of_images_with_values_is_told_to_be_a_table(
    beam_tfr: Command, tmp_path: Path, text: str
) -> None:
    (tmp_path / "list.txt").write_text(text)
    plan = beam_tfr("plan", "--input_list", tmp_path / "list.txt", "--output", tmp_path / "out")
    assert plan.code
    assert "such as path,class, and read it with --table" in plan.err
    assert "--layout" not in plan.err


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        ("Te-gl_0010.jpg", "{split}-{label}_{number}.*"),
        ("Te_0010.jpg", "{label}_{number}.*"),
        ("obj1__0.png", "{label}__{number}.*"),
        ("a3 (12).png", "{label} ({number}).*"),
    ],
)
def test_layouts_of_names_with_more_than_a_class(names: str, layout: str) -> None:
    assert suggest_layout(names) == layout
    assert parse_layout(layout).parse_key(names)


@pytest.mark.parametrize(
    ("folder", "names", "is_told"),
    [
        ("coil-100", ["obj1__0.png", "obj1__10.png", "obj10__5.png"], True),
        ("x/coil-100", ["obj1__0.png", "obj1__10.png", "obj10__5.png"], True),
        ("train", ["obj1__0.png", "obj1__10.png", "obj10__5.png"], False),
        ("x", ["obj1__0.png", "obj1__10.png", "obj1__5.png"], False),
        ("x", ["obj1__0.png", "obj2__0.png", "obj3__0.png"], False),
        ("x", ["obj1__0.png", "obj1__10.png", "obj2_5.png"], False),
        ("x", ["obj1__0.png", "obj1__10.png", "obj2__0.png", "photo.png"], False),
        ("x", ["video1_1.png", "video1_2.png", "video2_1.png"], False),
        ("x", [], False),
    ],
)
def test_numbered_classes_in_names_are_told(
    folder: str, names: Sequence[str], is_told: bool
) -> None:
    text = describe_numbered_classes([folder], lambda _: names)
    assert bool(text) == is_told
    assert ("`layout='{label}__{number}.*'` reads these" in text) == is_told
    assert not describe_numbered_classes([folder, "y"], lambda _: names)


def test_only_folders_with_splits_in_names() -> None:
    keys = [f"x/{split}-{label}_{n}.jpg" for split in ("Tr", "Te") for label in "ab" for n in "12"]
    assert "layout='{split}-{label}_{number}.*'" in refusal("x/1", images=keys)


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["Te-gl", "Te-me", "Tr-gl", "Tr-me"], "layout='{split}-{label}_{number}.*'"),
        (["test_cat", "train_cat"], "layout='{split}_{label}_{number}.*'"),
        (["bird", "cat."], "'.'"),
        (["obj1_", "obj2_"], "'_'"),
        (["Te-gl", "x-gl"], ""),
        (["te-a", "tr-b"], ""),
        (["train_station", "test_tube"], ""),
    ],
)
def test_classes_whose_names_have_more_than_the_class(classes: list[str], said: str) -> None:
    texts = [*describe_class_names(classes, ["train"], "{label}_{number}.*")]
    assert len(texts) == bool(said)
    assert all(said in text for text in texts)
    if "{split}" in said:
        assert not [*describe_class_names(classes, ["train", "test"], "{label}_{number}.*")]
        (text,) = describe_class_names(classes, ["train"], "")
        assert "column `split`" in text


def test_images_without_a_class_in_their_name_are_named_by_what_becomes_of_them() -> None:
    named = [f"train/{name}_{number}.jpg" for name in ("cat", "dog") for number in range(9)]
    keys = [*named, "test/1.jpg", "test/2.jpg", "train/(new).jpg"]
    with pytest.raises(UsageError, match="classes from file names") as error:
        check_split_folders({"train": len(named) + 1, "test": 2}, "", keys)
    assert "`exclude='test/*'`, which leaves out images without a class, such as test/1.jpg" in str(
        error.value
    )
    assert "rejects images without a class in folders with classes, such as train/(new).jpg" in str(
        error.value
    )
    splits = [f"{split}/CLEVR_{split}_{n}.png" for split in ("train", "val") for n in (1, 2)]
    with pytest.raises(UsageError, match=r"use `layout='\{split\}/\*'`, or"):
        check_split_folders({"train": 2, "val": 2}, "", splits)
    others = [f"val/{number}.jpg" for number in range(3)]
    with pytest.raises(UsageError, match=r"`exclude='val/\*'`.*so there is no split val"):
        check_split_folders({"train": len(named), "val": 3}, "", [*named, *others])


@pytest.mark.parametrize(
    ("keys", "is_told"),
    [
        (["a/1.HEIC", "a/1.JPG", "a/2.jpg"], True),
        (["a/1.webp", "a/1.jpeg"], True),
        (["a/1.heic", "b/1.jpg"], False),
        (["a/1.png", "a/1.jpg"], False),  # which may be a mask
        (["a/1.jpg", "a/1.jpeg"], False),
        ([], False),
    ],
)
def test_photos_in_two_formats_are_told(keys: list[str], is_told: bool) -> None:
    message = describe_twins(keys)
    assert bool(message) == is_told
    assert ("exclude=" in message) == is_told


@pytest.mark.parametrize(
    ("in_folders", "is_told"),
    [
        (["HR", "LR"], True),
        (["train/blur", "train/sharp"], True),
        (["source", "target"], True),  # fill50k
        (["train/1/blur", "train/1/blur_gamma", "train/1/sharp", "test/1/blur"], True),  # GoPro
        (["low/train", "high/train", "low/test", "high/test"], True),
        (["train/A", "train/B", "train/label"], True),  # LEVIR-CD
        (["visible/train", "infrared/train", "visible/test", "infrared/test"], True),  # LLVIP
        (["train/vi", "train/ir", "test/vi", "test/ir"], True),  # MSRS
        (["train/data", "train/gt", "test/data", "test/gt"], True),  # DeRaindrop
        (["image_2", "image_3", "disp_occ_0", "flow_occ", "obj_map"], True),  # KITTI
        (["left", "right"], True),
        (["x/fast/left", "x/fast/right", "x/slow/left", "x/slow/right"], True),  # SceneFlow
        (["clean/a_1", "final/a_1", "clean/b_2", "final/b_2", "invalid/b_2"], True),  # Sintel
        (["clean", "final", "other"], False),
        (["left", "right", "up"], False),
        (["left_hand", "right_hand"], False),
        (["eye_left", "eye_right"], False),
        (["image_2", "image_3", "overflow"], False),
        (["data/cat", "data/dog"], False),
        (["vi", "vii"], False),
        (["cat", "dog"], False),
        (["A", "B", "C"], False),  # classes, such as letters
        (["clean", "noisy", "cat"], False),
        (["blur", "blur_gamma"], False),
        (["HR"], False),
        (["target", "other"], False),
        (["DIV2K_train_HR", "DIV2K_train_LR_bicubic/X2"], True),
        (["HR", "other/X2"], False),
        (["a/" * 9_000 + "low", "a/" * 9_000 + "high"], True),
    ],
)
def test_folders_of_pairs_are_told(in_folders: list[str], is_told: bool) -> None:
    def names_in(folder: str) -> Sequence[str]:
        end = "x2.png" if "X2" in folder else ".png"
        return [f"{number:04}{end}" for number in range(3)]

    images_in = dict.fromkeys(in_folders, 3)
    assert bool(describe_pair_folders(images_in)) == is_told
    assert bool(describe_pair_folders(images_in, names_in)) == is_told
    assert not describe_pair_folders(images_in, lambda folder: [f"{in_folders.index(folder)}.png"])
    assert not describe_pair_folders(images_in | {in_folders[0]: 4})


def test_pairs_in_splits_are_told_with_the_layout() -> None:
    keys = [f"{split}/1/{name}/1.png" for split in ("train", "test") for name in ("blur", "sharp")]
    text = refusal(*keys)
    assert "tf.data.Dataset.zip" in text
    assert 'tar cf "../pairs-$n.tar"' in text


def test_pairs_above_splits_are_told_with_the_layout() -> None:
    """As in LLVIP."""
    folders = [f"{kind}/{split}" for kind in ("visible", "infrared") for split in ("train", "test")]
    keys = [f"{folder}/1.jpg" for folder in folders]
    cure = "(`input=DIR/infrared`, `input=DIR/visible`) with `layout='{split}/*'`"
    assert cure in describe_pair_folders(dict.fromkeys(folders, 1))
    assert cure in refusal(*keys)


@pytest.mark.parametrize(
    ("names", "is_told"),
    [
        (["{}_B02.tif", "{}_B03.tif"], True),  # BigEarthNet
        (["red.tif", "nir.tif"], True),
        (["rgb_1.png", "depth_1.png"], True),
        (["{}_1.jpg", "{}_2.jpg"], False),
        (["1.jpg", "2.jpg"], False),
        (["a.jpg", "b.jpg"], False),
        (["image1.jpg", "image2.jpg"], False),
        (["{}.jpg"], False),
    ],
)
def test_folders_of_samples_are_told(names: Sequence[str], is_told: bool) -> None:
    folders = ["S2_1", "S2_2", "more/S3"]

    def names_in(folder: str) -> Sequence[str]:
        return [name.format(folder.rpartition("/")[2]) for name in names]

    def other_names_in(folder: str) -> Sequence[str]:
        return [*names_in(folder), f"{folder[-1]}_c.jpg"]

    assert bool(describe_sample_folders(folders, names_in)) == is_told
    assert not describe_sample_folders(folders[:2], names_in)
    assert not describe_sample_folders(folders, other_names_in)


@pytest.mark.parametrize(
    ("stems", "is_told"),
    [
        (["aachen_000019", "bonn_000019", "cologne_7", "kiel_1", "ulm_2"], True),
        (["000000000139", "000000000285", "000000000632", "000000000724", "000000001296"], True),
        (["0001", "0002", "0003", "0004", "0005"], False),
        (["image_0001", "image_0002", "image_0003", "image_0004", "image_0005"], False),
        (["00000_00000", "00000_00001", "00001_00000", "00001_00001", "00002_00000"], False),
        (["frame30", "frame60", "frame90", "frame120", "frame300"], False),
        (["056_0001", "056_0002", "056_0003", "056_0004", "056_0007"], False),
        (["a", "b", "c"], False),
    ],
)
def test_class_folders_with_the_same_names_are_told(stems: Sequence[str], is_told: bool) -> None:
    def names_in(folder: str) -> Sequence[str]:
        return [f"{stem}.{'png' if folder == 'x/sketch' else 'jpg'}" for stem in stems]

    def other_names_in(folder: str) -> Sequence[str]:
        return [f"{folder[-1]}{stem}.jpg" for stem in stems]

    text = describe_same_names(["x/photo", "x/sketch", "y/cat"], names_in)
    assert bool(text) == is_told
    assert ("the folders x/photo, x/sketch hold files with the same names" in text) == is_told
    assert not describe_same_names(["x/photo", "x/sketch"], other_names_in)
    assert not describe_same_names(["x/photo", "y/sketch"], names_in)


def test_commands_for_pairs_hold_only_plain_names() -> None:
    folders = [f"{split}/1/{name}" for split in ("train", "test") for name in ("HR", "LR_x2,b")]
    text = describe_pair_folders(dict.fromkeys(folders, 3))
    assert "make a dataset of each" in text
    assert "tar cf" not in text


@pytest.mark.parametrize(
    ("photos", "is_told"),
    [
        (["1400_1", "1400_2", "1401_1"], True),  # as of RESIDE
        (["1400_1_0.9", "1400_2_0.8", "1401_1_0.7"], True),
        (["1500_1", "1500_2", "1501_1"], False),
    ],
)
def test_several_photos_for_each_of_another_folder_are_pairs(
    photos: Sequence[str], is_told: bool
) -> None:
    stems_of = {"clear": ["1400", "1401"], "hazy": photos}

    def names_in(folder: str) -> Sequence[str]:
        return [f"{stem}.png" for stem in stems_of[folder]]

    images_in = {folder: len(stems) for folder, stems in stems_of.items()}
    text = describe_pair_folders(images_in, names_in)
    assert ("copy each photo of the shorter folder" in text) == is_told
    assert bool(text) == is_told
    assert describe_pair_folders({"clear": 1_399, "hazy": 13_990})
    assert not describe_pair_folders({"clear": 1_399, "hazy": 13_991})


@pytest.mark.parametrize(
    ("names", "cure"),
    [
        (["GT_SRGB_010.PNG", "NOISY_SRGB_010.PNG"], "for n in GT NOISY; do"),  # as of SIDD
        (["norain-001.png", "rain-001.png"], "for n in norain rain; do"),  # as of Rain100
        (["1_blur.png", "1_sharp.png"], "move the photos with each word"),
        (["00001_img1.ppm", "00001_img2.ppm"], "move the photos with each word"),  # FlyingChairs
        (["dev-0-0-img0.png", "dev-0-0-img1.png"], "move the photos with each word"),  # NLVR2
        (["cat_img1.png", "cat_img2.png"], ""),
        (["1_img1.png", "1_img2.png", "1_img3.png", "1_img4.png"], ""),
        (["day_1.png", "night_2.png"], ""),
        (["cat_1.png", "dog_1.png"], ""),
        (["low_1.png"], ""),
    ],
)
def test_pairs_in_one_folder_are_told(tmp_path: Path, names: Sequence[str], cure: str) -> None:
    keys = [f"{folder}/{name}" for folder in ("a", "b") for name in names]
    text = describe_pair_names(keys)
    assert bool(text) == bool(cure)
    assert cure in text
    assert "for n in" not in describe_pair_names(keys, in_archives=True)
    if "(cd DIR;" not in text:
        return
    for key in keys:
        (tmp_path / "in" / key).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "in" / key).write_bytes(b"")
    command = re.search(r"\(cd DIR;.*done\)", text)[0]  # type: ignore[index]
    subprocess.run(command.replace("DIR", f"{tmp_path}/in", 1), shell=True, check=True)
    members = []
    for name in names:
        with tarfile.open(tmp_path / f"pairs-{re.split('[-_]', name)[0]}.tar") as archive:
            members.append(sorted(archive.getnames()))
    assert members[0] == members[1]
    assert len(members[0]) == 2


def test_pairs_in_one_folder_are_told_before_a_run(tmp_path: Path) -> None:
    source = photos(tmp_path / "in", "a/GT_1.jpg", "a/NOISY_1.jpg", "b/GT_1.jpg", "b/NOISY_1.jpg")
    options = ConvertOptions(input=(str(source),), output=str(tmp_path / "d"))
    assert any("look like pairs" in text for text in early_warnings(open_source(options)))
    warnings = beam_tfr.plan(input=str(source)).warnings
    assert any("look like pairs" in text for text in warnings)


def test_pairs_with_other_names_must_be_renamed() -> None:
    def names_in(folder: str) -> Sequence[str]:
        return ["1.png"] if folder == "HR" else ["1.jpg"]

    assert "the same names" in describe_pair_folders({"HR": 1, "LR": 1}, names_in)
    assert "without a partner" in describe_pair_folders({"HR": 30, "LR": 29})
    names_of = {"Low": ["low00001.png"], "Normal": ["normal00001.png"]}  # as of LOL-v2
    assert "the same names" in describe_pair_folders({"Low": 1, "Normal": 1}, names_of.__getitem__)


def test_deep_folders_of_masks_are_found_in_little_memory() -> None:
    deep = "a/" * 8_000
    given = [f"{deep}{number}/images" for number in range(10)]
    tracemalloc.start()
    text = describe_mask_folders([*given, f"{deep}0/masks"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "look like images and their masks" in text
    assert peak < 20_000_000


@pytest.mark.parametrize(
    ("originals", "copies", "folders"),
    [
        (["cat/1.jpg", "cat/2.jpg"], ["cat/thumbs/1.jpg", "cat/thumbs/2.jpg"], ["thumbs"]),
        (["cat/1.png", "dog/1.png"], ["Thumbnails/cat/1.jpg", "x/y.jpg"], ["Thumbnails"]),
        (["images/cat/1.jpg"], ["augmented/cat/1.jpg"], ["augmented"]),
        (["1.jpg", "2.jpg"], ["thumbs_64/1.jpg", "aug/2.jpg"], ["aug", "thumbs_64"]),
        (["x/images/1.jpg"], ["x/visualized/1.jpg"], ["visualized"]),  # of LSP
        (["cat/1.jpg"], ["cat/small/1.jpg"], []),
        (["cat/1.jpg", "cat/2.jpg"], ["thumb/7.jpg", "cat/aug/8.jpg", "cat/aug/1.jpg"], []),
        (["cat/1.jpg"], ["august/cat/1.jpg", "thumbs.jpg"], []),
    ],
)
def test_folders_of_copies_are_told(
    originals: Sequence[str], copies: Sequence[str], folders: Sequence[str]
) -> None:
    text = describe_copy_folders([*copies, *originals])
    assert bool(text) == bool(folders)
    if folders:
        patterns = " ".join(f"'**/{name}/**'" for name in folders)
        assert f"--exclude {patterns} leaves out the copies" in spell_as_flags(text)


def test_the_cure_of_copies_leaves_out_copies_alone(tmp_path: Path) -> None:
    for key in ("cat/1.jpg", "dog/2.jpg", "thumbs/cat/1.jpg", "thumbs/dog/2.jpg"):
        (tmp_path / "in" / key).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(next(Path(SAMPLE).rglob("*.jpg")), tmp_path / "in" / key)
    options = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    previewed = str(beam_tfr.plan(**options))
    line = next(line for line in previewed.splitlines() if "copies of others, such as" in line)
    assert "such as thumbs/cat/1.jpg of cat/1.jpg" in line
    assert "`exclude='**/thumbs/**'` leaves out the copies" in line
    kept = str(beam_tfr.plan(**options, exclude=("**/thumbs/**",)))
    assert "copies of others, such as thumbs" not in kept
    assert re.search(r"matched +2 +2\n", kept)


def test_a_version_may_follow_a_split() -> None:
    """As in ISIC 2017."""
    names = ["I-2017_Test_v2_Data", "I-2017_Training_Data", "I-2017_Validation_Data"]
    with pytest.raises(UsageError) as error:
        check_split_folders(dict.fromkeys(names, 3), "")
    text = spell_as_flags(str(error.value))
    assert "use --layout 'I-2017_{split}/*', or --layout '{label}/*' to ignore them" in text
    assert "leaves them out" not in text
