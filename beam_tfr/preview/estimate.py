"""Estimates a whole conversion from its listing and a sample."""

import dataclasses

from beam_tfr.options import default_threads
from beam_tfr.preview.sampling import ConvertedSample, Listing
from beam_tfr.schema.plan import Plan

# CPU time of the same work with all cores busy, which are often hyperthreads, relative to one
BUSY = 1.15
# CPU seconds for an image besides its conversion: in the engine, and to write its record
OVERHEAD_S = 0.0005
COPY_S = 0.00015  # CPU seconds for an image that an update lists and copies
START_S = 0.6  # seconds on this machine before a conversion converts, and at its end


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The estimated size and time of a conversion.

    Attributes:
        plan: the plan of the conversion.
        listing: the result of listing its input.
        sample: the result of converting a sample of at least one file.
    """

    plan: Plan
    listing: Listing
    sample: ConvertedSample

    @property
    def usable(self) -> int:
        """The number of images that the listing does not reject."""
        return self.plan.matched - self.listing.reasons.total()

    @property
    def num_bytes(self) -> float:
        """The size of the dataset's shards in bytes."""
        return self.sample.num_bytes / self.sample.tried * self.usable

    @property
    def rejects(self) -> dict[str, float]:
        """Reason -> number of rejects; rejects found by the listing are counted exactly."""
        rejects: dict[str, float] = dict(sorted(self.listing.reasons.items()))
        for reason, number in sorted(self.sample.reasons.items()):
            estimated = number * self.usable / self.sample.tried
            rejects[reason] = rejects.get(reason, 0) + estimated
        return rejects

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all cores, in seconds."""
        return self._cpu_seconds_of(self.usable)

    @property
    def seconds(self) -> float:
        """The time on this machine, in seconds."""
        read_s = self.usable * self.sample.read_s
        return START_S + max(self.cpu_seconds, read_s) / default_threads()

    @property
    def update_cpu_seconds(self) -> float:
        """The CPU seconds for an update, which copies images that are already in the dataset."""
        copied = self.listing.num_known
        return START_S + self._cpu_seconds_of(self.plan.matched - copied) + COPY_S * copied

    def _cpu_seconds_of(self, images: int) -> float:
        """Returns the CPU time to convert this number of images, in seconds."""
        per_image_s = self.sample.cpu_s / max(self.sample.written, 1)
        return images * (per_image_s * BUSY + OVERHEAD_S)
