"""Limits how many images an update may drop, in case its input lacks the old images."""

from collections.abc import Iterable
from typing import NamedTuple

from beam_tfr.output.rejects import count_allowed
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.plan import Plan


class DropLimit(NamedTuple):
    """How many images an update may drop from a dataset.

    Attributes:
        folder: folder of the dataset.
        images: number of its records.
        max_removed: largest fraction (float) or number (int) of them that may be dropped.
        limit: the option `limit`; if it leaves images out, any number may be dropped.
    """

    folder: str
    images: int
    max_removed: int | float
    limit: int | None = None

    def check(self, plan: Plan, numbers: Iterable[int]) -> Plan:
        """Checks that an update drops no more images than allowed.

        Args:
            plan: the plan of the update.
            numbers: numbers of dropped images, whose sum is checked.

        Returns:
            The plan.

        Raises:
            DataError: the update would drop more images.
        """
        excess = self.describe_excess(sum(numbers), plan)
        if excess:
            raise DataError(f"nothing is published: {excess}")
        return plan

    def describe_excess(self, dropped: int, plan: Plan) -> str:
        """Describes an update that would drop too many images; empty otherwise.

        Args:
            dropped: how many of the dataset's images the update would drop.
            plan: the plan of the update, or of a conversion of its input.
        """
        allowed = count_allowed(self.max_removed, self.images)
        is_limited = self.limit is not None and plan.matched >= self.limit
        if dropped <= allowed or is_limited:
            return ""
        cause = "An update needs the whole input, old and new images"
        if dropped == self.images:
            cause = (
                "No image has the same key. Keys are paths below the folder that all images "
                "share, so they change with that folder; and an update needs the whole input, "
                "old and new images"
            )
        return (
            f"the update would remove {dropped:,} of the {self.images:,} {plan.noun} in "
            f"{self.folder}, because {plan.input_option} lacks them; "
            f"`max_removed={self.max_removed}` allows {allowed:,}. {cause}: specify all of it in "
            f"{plan.input_option}, or, to remove these {plan.noun}, `max_removed=1.0`"
        )
