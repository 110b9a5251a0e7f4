"""Describes something that deserves a look: a sentence, its severity, and its evidence."""

import enum
from collections.abc import Sequence
from typing import NamedTuple

MOST_EVIDENCE = 20  # records, or pairs of records, that a finding names


class Severity(enum.Enum):
    """How serious a finding is for training; the values are headings of the page, in order."""

    SCORES = "Makes scores wrong"
    LABELS = "Labels to check"
    DATA = "Missing or damaged"
    TIPS = "Good to know"


class Evidence(NamedTuple):
    """One record that shows a finding, or several that show it together, such as copies.

    Attributes:
        records: numbers of the records.
        note: what is wrong with the records; empty if the text of the finding says it.
    """

    records: tuple[int, ...]
    note: str = ""


class Finding(NamedTuple):
    """Something that deserves a look.

    Attributes:
        severity: how grave the finding is.
        text: a sentence.
        section: id of the part of the page that shows the finding; empty if there is no such part.
        evidence: records that show the finding; at most the first `MOST_EVIDENCE` are named.
        number: total number of pieces of evidence; 0 if `evidence` is complete.
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
        """The number of pieces of evidence that are not named."""
        total = max(self.number, len(self.evidence))
        return total - len(self.list_shown())


def note_records(records: Sequence[int]) -> list[Evidence]:
    """Returns one piece of evidence for each record."""
    return [Evidence((record,)) for record in records]
