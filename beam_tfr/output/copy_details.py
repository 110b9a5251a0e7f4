"""Writes and parses the sentence that says of which image a reject is a copy."""

from beam_tfr.schema.items import DUPLICATE, Reject

_COPY_OF = "a copy of "
_OTHER_CLASS = ", which has another class: "


def describe_copy(kept: str, kept_class: str, own_class: str) -> str:
    """Writes a sentence about a copy.

    Args:
        kept: key of the image that is kept.
        kept_class: class of the image that is kept.
        own_class: class of the copy.
    """
    if kept_class == own_class:
        return f"{_COPY_OF}{kept}"
    return f"{_COPY_OF}{kept}{_OTHER_CLASS}{kept_class} there, {own_class} here"


def list_kept(reject: Reject) -> list[str]:
    """Returns possible keys of the image of which a reject is a copy; [] if it is not a copy.

    The first key is the right key, unless that key contains words of the sentence itself.
    """
    if reject.reason != DUPLICATE:
        return []
    return parse_kept(reject.detail)


def parse_kept(detail: str) -> list[str]:
    """Lists possible keys of the kept image in a sentence from `describe_copy`."""
    parts = detail.removeprefix(_COPY_OF).split(_OTHER_CLASS)
    return [_OTHER_CLASS.join(parts[:number]) for number in range(1, len(parts) + 1)]
