"""Limits how many images an update may drop, in case its input lacks the old images."""

from collections.abc import Iterable
from typing import NamedTuple

from beam_tfr.output.rejects import count_allowed
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.plan import Plan
from beam_tfr.schema.spelling import spell_option

_NEEDS_ALL = "An update needs the whole input, old and new images"


class DropLimit(NamedTuple):
    """How many images an update may drop from a dataset.

    Attributes:
        folder: folder of the dataset.
        images: number of records in the dataset.
        max_removed: largest fraction (float) or number (int) of these that may be dropped.
        limit: the option `limit`; if it leaves out images, any number may be dropped.
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

    def check_total(self, total: int) -> None:
        """Checks an input for which no plan can be made: whether it lacks too many images anyway.

        Args:
            total: number of images in the input.

        Raises:
            DataError: the update would drop more images than allowed.
        """
        least_dropped = self.images - total
        if self._allows(least_dropped, total):
            return
        raise DataError(
            f"nothing is published: the update would remove at least {least_dropped:,} of the "
            f"{self.images:,} records in {self.folder}, because its input has only {total:,}; "
            f"{self._describe_allowed()}. {_NEEDS_ALL}: specify all of it, or, to remove records, "
            "`max_removed=1.0`"
        )

    def describe_excess(self, dropped: int, plan: Plan) -> str:
        """Returns a message if an update would drop too many images; otherwise an empty string.

        Args:
            dropped: number of images that the update would drop from the dataset.
            plan: the plan of the update, or of a conversion of its input.
        """
        if self._allows(dropped, plan.matched):
            return ""
        cause = _NEEDS_ALL
        if dropped == self.images:
            cause = (
                "No image has the same key. Keys are paths below the folder that all images "
                "share, so they change with that folder; for images in an archive, they include "
                "its top folder. Give the input in the same form as before. An update needs the "
                "whole input, old and new images"
            )
        return (
            f"the update would remove {dropped:,} of the {self.images:,} {plan.noun} in "
            f"{self.folder}, because {plan.input_option} lacks them; {self._describe_allowed()}. "
            f"{cause}: specify all of it in {plan.input_option}, or, to remove these {plan.noun}, "
            "`max_removed=1.0`"
        )

    def _allows(self, dropped: int, matched: int) -> bool:
        """Whether an update may drop this number of images, given the number in its input."""
        is_limited = self.limit is not None and matched >= self.limit
        return is_limited or dropped <= count_allowed(self.max_removed, self.images)

    def _describe_allowed(self) -> str:
        allowed = count_allowed(self.max_removed, self.images)
        return f"{spell_option('max_removed', self.max_removed)} allows {allowed:,}"
