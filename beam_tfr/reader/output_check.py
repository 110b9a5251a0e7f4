"""Checks that the arguments of `load` have an effect on its elements."""

from beam_tfr.reader.decode import Decoder
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.spelling import spell_option


def check_output(decoder: Decoder, batch_size: int | None) -> None:
    """Checks that the options have an effect on the output.

    Raises:
        UsageError: an option has no effect, or the output cannot contain what an option requests.
    """
    if not decoder.holds_images:
        _check_without_images(decoder)
    elif decoder.output in ("encoded", "raw_record"):
        _check_undecoded(decoder, f'`output="{decoder.output}"` decodes nothing')
    elif batch_size is not None and decoder.variable:
        _check_sizes(decoder, batch_size)
    elif decoder.sizes:
        raise UsageError(
            "has no effect: it applies to batches of images of different sizes",
            option="sizes",
            value=decoder.sizes,
        )
    if decoder.weighted:
        _check_weights(decoder)


def _check_without_images(decoder: Decoder) -> None:
    encoding = decoder.image.options.encoding
    no_images = f"{decoder.dataset.folder} holds no images ({spell_option('encoding', encoding)})"
    if decoder.output not in ("dict", "raw_record"):
        raise UsageError(
            f'{no_images}: use "dict" or "raw_record"', option="output", value=decoder.output
        )
    _check_undecoded(decoder, no_images)


def _check_undecoded(decoder: Decoder, reason: str) -> None:
    """Checks that no option applies to images only, since no image is decoded."""
    options = {"image_size": decoder.image.image_size, "sizes": decoder.sizes}
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"has no effect: {reason}", option=option, value=value)


def _check_sizes(decoder: Decoder, batch_size: int) -> None:
    """Checks that images of different sizes can be put into one batch."""
    if decoder.sizes is None:
        raise UsageError(
            f"the images of {decoder.dataset.folder} have different sizes "
            f"({spell_option('resize', decoder.image.options.resize)}), but a batch needs images "
            "of equal size. "
            'Pass `image_size=(height, width)` to load, or `sizes="padded"` or "ragged" along with '
            "`batch_size=`; or read single images; or convert with `resize=crop`, pad or stretch",
            option="batch_size",
            value=batch_size,
        )


def _check_weights(decoder: Decoder) -> None:
    """Checks that there are labels to weight."""
    if decoder.output == "dict":
        return
    if not decoder.labelled:
        raise UsageError(
            f'`remainder="pad"` gives labels a weight, but {decoder.dataset.folder} has no labels: '
            'use `output="dict"`'
        )
    if decoder.output in ("image", "raw_record"):
        raise UsageError(
            f'`remainder="pad"` gives labels a weight, but `output="{decoder.output}"` has no '
            'labels: use `output="dict"`'
        )
