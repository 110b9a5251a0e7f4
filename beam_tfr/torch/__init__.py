"""Reads a converted dataset for PyTorch's `DataLoader`, in a reproducible order.

Needs no TensorFlow.

    from torch.utils.data import DataLoader
    from beam_tfr.torch import ImageDataset

    dataset = ImageDataset("/tmp/clothing", split="train", batch_size=64, shuffle=True, seed=7)
    loader = DataLoader(dataset, batch_size=None, num_workers=4, persistent_workers=True)
    for epoch in range(dataset.epoch, 5):
        dataset.set_epoch(epoch)
        for images, labels in loader:  # uint8 [64, 224, 224, 3], int64 [64]
            # NCHW; channels last in memory, which is fast
            images = images.permute(0, 3, 1, 2).float() / 255

The dataset makes the batches, so pass `batch_size=None` to DataLoader: only then are all batches
but the last full, whatever the number of workers. Without PyTorch, the dataset can still be
iterated, and yields the same NumPy arrays.
"""

from beam_tfr.torch.dataset import ImageDataset as ImageDataset
