"""`beam_tfr.torch` with PyTorch itself: what its DataLoader does with the datasets.

PyPI's PyTorch for Linux brings 3 GB of CUDA with it, so these tests are collected only with
BEAM_TFR_TORCH=1.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision  # noqa: F401  # before TensorFlow, which other modules import: after it, Triton would abort
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from beam_tfr import Records
from beam_tfr.schema.errors import DataError
from beam_tfr.torch import ImageDataset
from tests.box_fixtures import some_images, write_boxes
from tests.converted import converted_photos
from tests.reader_fixtures import write_dataset
from tests.torch_fixtures import batches, labels, write_few, write_lists, write_many

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_few(tmp_path_factory.mktemp("few") / "d")


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_give_what_one_process_gives(tmp_path: Path, workers: int) -> None:
    many = write_many(tmp_path / "d")
    dataset = ImageDataset(many, split="train", batch_size=12, shuffle=True, epoch=4, start_step=5)
    expected = list(dataset)
    found = list(DataLoader(dataset, batch_size=None, num_workers=workers))
    assert len(found) == len(expected) == len(dataset) == 104
    for (images, numbers), (expected_images, expected_numbers) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(images, expected_images)
        np.testing.assert_array_equal(numbers, expected_numbers)


@pytest.mark.parametrize("context", [None, "fork", "spawn", "forkserver"])
def test_records_by_number(context: str | None) -> None:
    records = Records(converted_photos("--num_shards 3"), split="train")
    expected = sorted((int(image.sum()), label) for image, label in records)
    workers: dict[str, Any] = (
        {"num_workers": 2, "multiprocessing_context": context} if context else {}
    )
    found = []
    for rank in range(2):
        sampler = DistributedSampler(records, num_replicas=2, rank=rank, shuffle=True, seed=3)
        loader = DataLoader(records, batch_size=4, sampler=sampler, **workers)
        for images, numbers in loader:
            assert (images.dtype, images.shape[1:]) == (torch.uint8, (224, 224, 3))
            found += [
                (int(image.sum()), int(number))
                for image, number in zip(images, numbers, strict=True)
            ]
    assert sorted(found) == expected != found


def test_dicts(tmp_path: Path) -> None:
    listed = write_lists(tmp_path / "d")
    dataset = ImageDataset(listed, split="train", batch_size=8, output="dict")
    for ours, theirs in zip(
        DataLoader(dataset, batch_size=None, num_workers=2), dataset, strict=True
    ):
        assert ours.keys() == theirs.keys()
        for name in ("image", "image/height"):
            assert isinstance(ours[name], torch.Tensor)
            np.testing.assert_array_equal(ours[name], theirs[name])
        for name in ("boxes", "ids", "image/class/label"):
            assert all(isinstance(one, torch.Tensor) for one in ours[name])
            assert [one.tolist() for one in ours[name]] == [one.tolist() for one in theirs[name]]
        for name in ("tags", "image/filename"):
            assert ours[name] == theirs[name]
    (hot, *_) = DataLoader(
        ImageDataset(listed, split="train", batch_size=8, one_hot=True), batch_size=None
    )
    assert (hot[1].dtype, hot[1].shape) == (torch.float32, (8, 20))


def test_dataloader_gives_tensors(folder: Path) -> None:
    dataset = ImageDataset(folder, split="train", batch_size=10, remainder="pad")
    assert isinstance(dataset, IterableDataset)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    assert len(loader) == 4
    for images, numbers, weights in loader:
        assert (images.dtype, numbers.dtype, weights.dtype) == (
            torch.uint8,
            torch.int64,
            torch.float32,
        )
        assert (images.shape, numbers.shape, weights.shape) == ((10, 8, 12, 3), (10,), (10,))


def test_dataloader_makes_batches(folder: Path) -> None:
    dataset = ImageDataset(folder, split="train", shuffle=True)
    for workers in (0, 2):
        found = list(DataLoader(dataset, batch_size=10, num_workers=workers))
        assert {images.shape[1:] for images, _ in found} == {(8, 12, 3)}
        assert sorted(labels(found)) == list(range(37))


def test_set_epoch_reaches_persistent_workers(folder: Path) -> None:
    for context in ("fork", "spawn"):
        dataset = ImageDataset(folder, split="train", batch_size=10, shuffle=True)
        loader = DataLoader(
            dataset,
            batch_size=None,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context=context,
        )
        for epoch in (0, 1, 2):
            dataset.set_epoch(epoch)
            assert batches(loader) == batches(dataset)


def test_damage_is_named_through_workers(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [5]}, compression="none")
    (shard,) = folder.glob("*.tfrecord")
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(
        DataError, match=rf"{shard}: record 4 at byte .*its data does not match the checksum"
    ):
        list(DataLoader(ImageDataset(folder, split="train"), batch_size=None, num_workers=2))


def test_transforms_that_give_tensors(folder: Path) -> None:
    def views(image: np.ndarray) -> dict[str, torch.Tensor]:
        tensor = torch.from_numpy(image).permute(2, 0, 1)
        return {"whole": tensor, "half": tensor[:, :4].float()}

    ((images, _),) = ImageDataset(folder, split="test", batch_size=4, transform=views)
    assert (images["whole"].shape, images["whole"].dtype) == ((4, 3, 8, 12), torch.uint8)
    assert (images["half"].shape, images["half"].dtype) == ((4, 3, 4, 12), torch.float32)


def test_rank_of_torch_distributed(folder: Path, tmp_path: Path) -> None:
    code = """
import sys, torch
from beam_tfr.torch import ImageDataset
rank = int(sys.argv[1])
meeting = f"file://{sys.argv[2]}"
torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
dataset = ImageDataset(sys.argv[3], split="train", batch_size=4, shuffle=True)
print([int(label) for _, numbers in dataset for label in numbers])
torch.distributed.destroy_process_group()
"""
    arguments = [str(tmp_path / "store"), str(folder)]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), *arguments], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    found = [json.loads(run.communicate(timeout=240)[0]) for run in runs]
    expected = [
        labels(
            ImageDataset(folder, split="train", batch_size=4, shuffle=True, rank=rank, world_size=2)
        )
        for rank in range(2)
    ]
    assert found == expected
    assert [len(numbers) for numbers in found] == [18, 18]


def test_boxes(tmp_path: Path) -> None:
    images = some_images()
    folder = write_boxes(tmp_path / "boxes", images)
    corners = {name: [*placed.values()] for name, (_, placed) in images.items()}
    sizes = {size: name for name, (size, _) in images.items()}
    dataset = ImageDataset(folder, split="train", boxes="xyxy", batch_size=8)
    records = Records(folder, split="train", boxes="xyxy")
    numbered = DataLoader(
        records, batch_size=8, collate_fn=lambda pairs: tuple(zip(*pairs, strict=True))
    )
    for loader in (DataLoader(dataset, batch_size=None, num_workers=2), numbered):
        seen = set()
        for pixels, objects in loader:
            for image, found in zip(pixels, objects, strict=True):
                name = sizes[tuple(image.shape[:2])]
                np.testing.assert_allclose(
                    found["boxes"], np.reshape(corners[name], (-1, 4)), atol=1e-4
                )
                seen.add(name)
        assert len(seen) == len(images)


def test_the_example_learns(tmp_path: Path) -> None:
    folder = write_boxes(tmp_path / "boxes", some_images())
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "detect_torch.py"))
    losses = example["train"](str(folder), steps=6)
    assert np.mean(losses[-2:]) < losses[0]
