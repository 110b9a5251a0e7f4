"""The sentence that says of which image a reject is a copy."""

from beam_tfr.schema.items import DUPLICATE, Reject

_COPY_OF = "a copy of "
_OTHER_CLASS = ", which has another class: "


def describe_copy(kept: str, kept_class: str, own_class: str) -> str:
    """A sentence about a copy.

    Args:
        kept: key of the image that is kept.
        kept_class: its class.
        own_class: the class of the copy.
    """
    if kept_class == own_class:
        return f"{_COPY_OF}{kept}"
    return f"{_COPY_OF}{kept}{_OTHER_CLASS}{kept_class} there, {own_class} here"


def list_kept(reject: Reject) -> list[str]:
    """The keys that a reject may name as that of the image that is kept; none if it is no copy.

    The first is the one that is meant, unless that has the words of the sentence in its key.
    """
    if reject.reason != DUPLICATE:
        return []
    return parse_kept(reject.detail)


def parse_kept(detail: str) -> list[str]:
    """The keys that a sentence of `describe_copy` may name as that of the image that is kept."""
    parts = detail.removeprefix(_COPY_OF).split(_OTHER_CLASS)
    return [_OTHER_CLASS.join(parts[:number]) for number in range(1, len(parts) + 1)]
