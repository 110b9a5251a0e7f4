"""Trains a small Faster R-CNN of torchvision for a few steps.

python examples/detect_torch.py DATASET, which is a folder that `beam-tfr convert` wrote, with
boxes.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import tv_tensors
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign
from torchvision.transforms import v2

from beam_tfr.torch import ImageDataset

# The last one leaves out boxes that became empty, with their labels.
augment = v2.Compose(
    [v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.SanitizeBoundingBoxes()]
)


def transform(image, objects):
    """Flips image and boxes together; torchvision's class 0 is the background."""
    pixels = tv_tensors.Image(torch.from_numpy(image).permute(2, 0, 1))
    boxes = tv_tensors.BoundingBoxes(objects["boxes"], format="XYXY", canvas_size=image.shape[:2])
    return augment(pixels, {"boxes": boxes, "labels": torch.from_numpy(objects["classes"]) + 1})


def make_model(num_classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64), (64, 64)):
        layers += [
            nn.Conv2d(before, after, 3, stride=2, padding=1),
            nn.GroupNorm(8, after),
            nn.ReLU(),
        ]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = 64
    return FasterRCNN(
        backbone,
        num_classes + 1,
        rpn_anchor_generator=AnchorGenerator(((32, 64, 128),), ((0.5, 1.0, 2.0),)),
        box_roi_pool=MultiScaleRoIAlign(["0"], 5, 2),
        rpn_post_nms_top_n_train=100,  # few, for a processor
        box_batch_size_per_image=64,
        min_size=160,
        max_size=240,
    )


def train(folder: str, *, steps: int = 40) -> list[float]:
    """Trains, and returns the loss of each step."""
    torch.manual_seed(1)
    dataset = ImageDataset(
        folder, split="train", batch_size=8, shuffle=True, boxes="xyxy", transform=transform
    )
    model = make_model(len(dataset.class_names)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses: list[float] = []
    while len(losses) < steps:
        for images, targets in DataLoader(dataset, batch_size=None):
            loss = sum(model(images, targets).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            print(f"step {len(losses)}: loss {losses[-1]:.3f}")
        dataset.set_epoch(dataset.epoch + 1)
    return losses


if __name__ == "__main__":
    train(sys.argv[1])
