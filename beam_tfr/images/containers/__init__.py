"""Walkers over the containers of image formats, one module each.

Each yields the parts of an untrusted file in order. It checks every length against the file, never
yields a part twice, and gives up after a fixed number of parts, so its cost grows with the file and
no further. A file that is not made of such parts raises `RejectError` `damaged-image`, after the
parts before the damage.
"""
