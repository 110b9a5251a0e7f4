"""Describes what deserves a look: a sentence, its severity, and the records that show it."""

import enum
from collections.abc import Sequence
from typing import NamedTuple

MOST_EVIDENCE = 20  # records, or pairs of them, that a finding names


class Severity(enum.Enum):
    """What a finding means for training, the gravest first; the values are headings of the page."""

    SCORES = "Makes scores wrong"
    LABELS = "Labels to check"
    DATA = "Missing or damaged"
    TIPS = "Good to know"


class Evidence(NamedTuple):
    """One record, or several together such as copies, that show a finding.

    Attributes:
        records: their numbers.
        note: what is wrong with them; empty if the finding says it.
    """

    records: tuple[int, ...]
    note: str = ""


class Finding(NamedTuple):
    """Something that deserves a look.

    Attributes:
        severity: its severity.
        text: a sentence.
        section: id of the part of the page that shows it; empty if no other part does.
        evidence: records that show it; at most the first `MOST_EVIDENCE` are named.
        number: number of all evidence; 0 if all of it is given.
    """

    severity: Severity
    text: str
    section: str = ""
    evidence: Sequence[Evidence] = ()
    number: int = 0

    def list_shown(self) -> Sequence[Evidence]:
        """Returns the evidence to name."""
        return self.evidence[:MOST_EVIDENCE]

    @property
    def num_unnamed(self) -> int:
        """The amount of evidence that is not named."""
        total = max(self.number, len(self.evidence))
        return total - len(self.list_shown())


def note_records(records: Sequence[int]) -> list[Evidence]:
    """Returns each of some records as evidence by itself."""
    return [Evidence((record,)) for record in records]
