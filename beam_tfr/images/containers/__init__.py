"""Walks through the containers of image formats; each has a module of its own.

Each walker yields the parts of an untrusted file in order. It checks every length against the file,
never yields a part twice, and gives up after a fixed number of parts, so its cost is bounded by the
size of the file. For a file that does not consist of such parts, it raises the `RejectError`
`damaged-image` after yielding the parts before the damage.
"""
