"""Who gets what: how the examples of an epoch are dealt to streams, hosts and steps. Arithmetic alone.

Stream v of V owns examples [v N / V, (v + 1) N / V) of the epoch. Every step takes batch_size / V of each stream, and
host h of H has streams h, h + H, h + 2 H, …: so all hosts' step t together is the same set for every H.
"""

from __future__ import annotations

import dataclasses

from beam_tfr.schema import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """One host's share of an epoch; checked.

    Attributes:
        total: examples of an epoch, at least one.
        streams, num_hosts, host_index: V, H, h.
        batch_size: of all hosts together; None for single examples.
        remainder: "keep", "drop" or "pad"; None for the default: keep, with several hosts drop.

    Raises:
        UsageError: they do not fit together.
    """

    total: int
    streams: int
    num_hosts: int
    host_index: int
    batch_size: int | None
    remainder: str | None

    def __post_init__(self) -> None:
        if self.streams % self.num_hosts:
            fitting = -(-self.streams // self.num_hosts) * self.num_hosts
            raise UsageError(
                f"num_hosts {self.num_hosts} does not divide streams {self.streams}, so the hosts would not get "
                f"equal shares: give streams={fitting}, on every host (another number of streams is another order)"
            )
        if not self.host_index < self.num_hosts:
            raise UsageError(f"host_index {self.host_index} must be below num_hosts, which is {self.num_hosts}")
        self._check_batch_size()
        if self.remainder is None:
            object.__setattr__(self, "remainder", "keep" if self.num_hosts == 1 else "drop")
        if self.batch_size is None and self.num_hosts == 1 and self.remainder != "keep":
            raise UsageError(
                f'remainder="{self.remainder}" has no effect without batch_size: give one, or leave it out'
            )
        if self.remainder == "keep" and len(numbers := {self._kept(h) for h in range(self.num_hosts)}) > 1:
            what = "examples" if self.batch_size is None else "batches"
            raise UsageError(
                f'remainder="keep": {self.total} examples give the {self.num_hosts} hosts {min(numbers)} to '
                f'{max(numbers)} {what}, and hosts that wait for each other would hang. Give "drop" or "pad"'
            )
        if not self.steps:
            raise UsageError(
                f"batch_size {self.batch_size} leaves no batch of the {self.total} examples: "
                + (f"give at most {most}, or " if (most := self.total // self.streams * self.streams) else "give ")
                + 'remainder="keep" or "pad"'
                if self.batch_size
                else f'{self.total} examples are too few for {self.streams} streams: give fewer, or remainder="pad"'
            )

    def _check_batch_size(self) -> None:
        if self.batch_size is None or self.batch_size % self.streams == 0:
            return
        lower = self.batch_size // self.streams * self.streams
        fitting = f"{lower} or {lower + self.streams}" if lower else f"{self.streams}"
        divisors = [v for v in range(1, self.streams) if self.batch_size % v == 0 and v % self.num_hosts == 0]
        other = f", or give streams={divisors[-1]}, on every host (another order)" if divisors else ""
        raise UsageError(
            f"batch_size {self.batch_size} is not a multiple of streams {self.streams}, each of which gives every "
            f"batch an equal share. The nearest that fits: {fitting}{other}"
        )

    @property
    def local_streams(self) -> int:
        return self.streams // self.num_hosts

    @property
    def host_batch(self) -> int | None:
        """Examples of a batch of this host."""
        return None if self.batch_size is None else self.batch_size // self.num_hosts

    @property
    def rounds_per_step(self) -> int:
        """How many examples of each stream are in a batch."""
        return 1 if self.batch_size is None else self.batch_size // self.streams

    @property
    def rounds(self) -> int:
        """How many examples every stream gives in an epoch, those that fill up included."""
        per_step = self.rounds_per_step * self.streams
        steps = self.total // per_step if self.remainder == "drop" else -(-self.total // per_step)
        return steps * self.rounds_per_step

    @property
    def fills(self) -> bool:
        """Whether some streams end before `rounds`, so that something fills up."""
        return self.rounds * self.streams > self.total

    @property
    def steps(self) -> int:
        """Elements of an epoch on this host."""
        if self.remainder == "keep":
            return self._kept(self.host_index)
        return self.rounds // self.rounds_per_step if self.batch_size else self.rounds * self.local_streams

    def _kept(self, host: int) -> int:
        """Batches (or examples) of a host that leaves nothing out and fills nothing up."""
        examples = sum(self.size(stream) for stream in range(host, self.streams, self.num_hosts))
        return examples if self.batch_size is None else -(-examples // (self.batch_size // self.num_hosts))

    def size(self, stream: int) -> int:
        """Examples of a stream."""
        return (stream + 1) * self.total // self.streams - stream * self.total // self.streams
