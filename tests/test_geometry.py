"""Points and boxes of a source are found where its pixels are in the record.

Every resize, orientation and odd size.
"""

from __future__ import annotations

import dataclasses
import io
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage
from PIL import ImageOps

from beam_tfr.images import convert_image
from beam_tfr.images.geometry import compute_layout
from beam_tfr.images.mapping import map_boxes, map_points, source_size
from beam_tfr.options import ImageOptions
from beam_tfr.schema.items import Image
from tests.fixtures import save

Array = np.ndarray[Any, Any]
MODES = ("stretch", "fit", "crop", "pad", "shortest", "none")


def exif(orientation: int) -> PillowImage.Exif:
    made = PillowImage.Exif()
    made[0x0112] = orientation
    return made


def extent(pixels: Array) -> list[float]:
    """The box (xmin, ymin, xmax, ymax) of bright pixels."""
    ys, xs = np.nonzero(pixels > 127)
    return [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]


def centroid(pixels: Array) -> tuple[float, float]:
    """The (x, y) of what is bright, in continuous coordinates."""
    light = pixels.astype(np.float64)
    light[light < 32] = 0  # what the filter and JPEG leave around
    ys, xs = np.mgrid[0 : light.shape[0], 0 : light.shape[1]] + 0.5
    return (xs * light).sum() / light.sum(), (ys * light).sum() / light.sum()


@dataclasses.dataclass
class Case:
    """A source with a marker, and how it is converted."""

    width: int
    height: int
    orientation: int
    options: ImageOptions
    form: str

    @classmethod
    def drawn(cls, draw: random.Random) -> Case:
        mode, side = draw.choice(MODES), draw.choice([1, 2, 7, 32, 65, 100])
        size = (side, side if mode == "shortest" else draw.choice([1, 3, 31, 64, 97]))
        options = ImageOptions(
            image_size=size,
            resize=mode,
            upscale=mode in ("fit", "pad") and draw.random() < 0.5,
            ignore_orientation=draw.random() < 0.3,
            encoding=draw.choice(["png", "png", "keep"]),
            color="keep",
            background=(0, 0, 0),
        )
        return cls(
            draw.choice([1, 2, 9, 33, 64, 121, 199, 501]),
            draw.choice([1, 3, 8, 47, 64, 99, 256, 301]),
            draw.randint(1, 8),
            options,
            draw.choice(["PNG", "PNG", "JPEG"]),
        )

    def marker(self, draw: random.Random) -> tuple[int, int, int, int]:
        """A box in the stored source, wholly inside the part that is used.

        In the record it takes three pixels if it can.
        """
        geometry = compute_layout(self.height, self.width, self.orientation, self.options)[2]
        swapped = geometry.turned and self.orientation >= 5
        window, content = geometry.window, geometry.content
        if swapped:  # crops are in the middle, so no mirroring changes them
            window, content = (
                (window[1], window[0], window[3], window[2]),
                (*content[1::-1], *content[3:1:-1]),
            )
        sides = []
        for axis in (0, 1):
            start, end = window[axis::2]
            scale = (end - start) / (content[axis + 2] - content[axis])
            length = min(end - start, max(3, round(3 * scale)))
            first = draw.randint(start, end - length)
            sides.append((first, first + length))
        return sides[0][0], sides[1][0], sides[0][1], sides[1][1]


def converted(case: Case, box: tuple[int, int, int, int]) -> tuple[Image, Array, Array]:
    """The image, the pixels of its record, and the upright source.

    Pixels are as a decoder that ignores EXIF sees them.
    """
    pixels = np.zeros((case.height, case.width), np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    source = PillowImage.fromarray(pixels)
    data = save(
        source,
        case.form,
        exif=exif(case.orientation),
        **({"quality": 98} if case.form == "JPEG" else {}),
    )
    image = convert_image(data, case.options)
    record = np.asarray(PillowImage.open(io.BytesIO(image.encoded)).convert("L"))
    source.getexif()[0x0112] = case.orientation
    return image, record, np.asarray(ImageOps.exif_transpose(source))


def check(seed: int) -> None:
    draw = random.Random(seed)
    case = Case.drawn(draw)
    box = case.marker(draw)
    image, record, upright = converted(case, box)
    assert record.shape == (image.height, image.width)
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    found = list(centroid(record))
    pixel = map_points([(0, 0), (1, 1)], image.geometry, upright=False)
    scales = abs(pixel[1] - pixel[0])
    within = np.maximum(
        0.5001, 0.1 * scales
    )  # where pixels grow, a tenth of one: the filter shifts edges near a border
    for axis in (0, 1):
        if scales[axis] > 1:  # edges as wide as pixels were, which the border cuts off on one side
            found[axis] = sum(extent(record)[axis::2]) / 2
    (mapped,) = map_points([middle], image.geometry, upright=False)
    assert (abs(mapped - found) <= within).all(), (case, mapped, found)
    upright_box = extent(upright)
    assert source_size(image.geometry) == upright.shape[::-1]
    (mapped,) = map_points([centroid(upright)], image.geometry)
    assert (abs(mapped - found) <= within).all(), (case, mapped, found)

    stored_boxes, visible = map_boxes([box], image.geometry, upright=False)
    upright_boxes, also = map_boxes([upright_box], image.geometry)
    np.testing.assert_allclose(stored_boxes, upright_boxes, atol=1e-9)
    np.testing.assert_allclose([visible, also], 1)
    if (record > 127).any():
        np.testing.assert_allclose(
            stored_boxes[0], extent(record), atol=max(1.01, 0.2 * scales.max())
        )


@pytest.mark.parametrize("seeds", [range(start, start + 100) for start in (0, 100, 200)], ids=str)
def test_a_marker_is_where_its_point_is_mapped(seeds: range) -> None:
    for seed in seeds:
        check(seed)


@pytest.mark.slow
def test_1_000_markers_are_where_their_points_are_mapped() -> None:
    for seed in range(1_000):
        check(seed)


@pytest.mark.parametrize("encoding", ["keep", "jpeg"])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_kept_file_shows_its_stored_pixels(encoding: str, ignored: bool) -> None:
    """A file with an orientation is kept only where that is ignored.

    TensorFlow does not apply EXIF.
    """
    data = save(PillowImage.new("RGB", (60, 40)), "JPEG", exif=exif(6))
    image = convert_image(data, encoding=encoding, resize="none", ignore_orientation=ignored)
    assert (image.encoded == data) == (encoding == "keep" and ignored)
    box = [[0, 0, 10, 5]]  # of the upright image, whose top is the left side of the stored one
    expected = [0, 30, 5, 40] if ignored else [0, 0, 10, 5]
    assert map_boxes(box, image.geometry)[0].tolist() == [expected]


def test_boxes_are_clipped_to_what_is_shown_and_tell_how_much_that_is() -> None:
    options = ImageOptions(image_size=(100, 100), resize="crop")
    crop = compute_layout(100, 200, 1, options)[2]
    boxes = [
        [0, 0, 100, 100],
        [60, 20, 40, 10],
        [-50, 0, 50, 100],
        [50, 90, 70, 110],
        [10, 10, 10, 20],
        [70, 0, 80, 10],
    ]
    clipped, visible = map_boxes(boxes, crop)
    assert clipped.tolist() == [
        [0, 0, 50, 100],
        [0, 10, 10, 20],  # corners in any order
        [0, 0, 0, 100],
        [0, 90, 20, 100],
        [0, 10, 0, 20],
        [20, 0, 30, 10],
    ]
    assert visible.tolist() == [0.5, 0.5, 0, 0.5, 0, 1]
    padded = compute_layout(100, 200, 1, dataclasses.replace(options, resize="pad"))[2]
    assert padded.content == (0, 25, 100, 75)
    clipped, visible = map_boxes(
        [[0, -100, 200, 100]], padded
    )  # the canvas has room for it, the source has not
    assert (clipped.tolist(), visible.tolist()) == ([[0, 25, 100, 75]], [0.5])
    assert map_boxes(np.empty((0, 4)), crop)[0].shape == (0, 4)
    absurd = [[-1e308, -1e308, 1e308, 1e308], [1e308, 0, 1.7e308, 1]]
    assert map_boxes(absurd, compute_layout(1, 1, 1, options)[2])[1].tolist() == [0, 0]


@settings(max_examples=80, deadline=None)
@given(
    st.tuples(st.integers(1, 3000), st.integers(1, 3000)),
    st.integers(1, 8),
    st.sampled_from(MODES),
    st.tuples(st.integers(1, 400), st.integers(1, 400)),
    st.tuples(st.booleans(), st.booleans()),
    st.lists(st.tuples(*[st.floats(-4000, 4000)] * 4), max_size=5),
)
def test_the_window_fills_the_content_and_boxes_stay_in_it(
    source: tuple[int, int],
    orientation: int,
    mode: str,
    size: tuple[int, int],
    flags: tuple[bool, bool],
    boxes: list[tuple[float, ...]],
) -> None:
    size = (size[0], size[0]) if mode == "shortest" else size
    options = ImageOptions(
        image_size=size,
        resize=mode,
        upscale=flags[0] and mode in ("fit", "pad"),
        ignore_orientation=flags[1],
    )
    placed, _, geometry = compute_layout(*source, orientation, options)
    left, top, right, bottom = geometry.content
    assert (right - left, bottom - top) == (placed.width, placed.height)
    assert 0 <= left < right <= placed.canvas[1]
    assert 0 <= top < bottom <= placed.canvas[0]
    mapped, visible = map_boxes([geometry.window], geometry, upright=geometry.turned)
    np.testing.assert_allclose(mapped, [geometry.content], atol=1e-9)
    np.testing.assert_allclose(visible, 1)
    clipped, visible = map_boxes(boxes, geometry)
    assert ((visible >= 0) & (visible <= 1 + 1e-9)).all()
    assert (clipped[:, 0::2] >= left).all()
    assert (clipped[:, 0::2] <= right).all()
    assert (clipped[:, 0] <= clipped[:, 2]).all()
    assert (clipped[:, 1] <= clipped[:, 3]).all()


def test_an_image_that_was_not_converted_maps_nothing() -> None:
    image = Image(b"", "png", 1, 1, 3, "RGB", 1, 1, "png", "", (), ())
    with pytest.raises(ZeroDivisionError):
        map_points([(0, 0)], image.geometry)
