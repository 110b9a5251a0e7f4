"""Converts images: pure functions from the bytes of a file to an encoded image.

    bytes ──formats──▶ Source ──limits──▶ decode ──▶ Decoded, as stored
        ──geometry──▶ resized ──orientation──▶ upright ──color──▶ sRGB or gray ──encode──▶ Image

Each arrow is a module with plain functions that do not need Beam.

    from beam_tfr.images import convert_image
    image = convert_image(open("photo.jpg", "rb").read(), image_size=(224, 224), resize="crop")
"""

from beam_tfr.images.convert import codec_versions, convert_image
from beam_tfr.images.guard import convert_guarded

__all__ = ["codec_versions", "convert_guarded", "convert_image"]
