"""What deserves a look: a sentence, how grave it is, and the records that show it."""

import enum
from collections.abc import Sequence
from typing import NamedTuple

MOST_EVIDENCE = 20  # records, or pairs of them, that a finding names


class Severity(enum.Enum):
    """What a finding means for training, the gravest first; values are headings of the page."""

    SCORES = "Makes scores wrong"
    LABELS = "Labels to check"
    DATA = "Missing or damaged"
    TIPS = "Good to know"


class Evidence(NamedTuple):
    """A record that shows a finding, or several that do so together, such as copies.

    Attributes:
        records: their numbers.
        note: what is wrong with them; empty if the finding says it.
    """

    records: tuple[int, ...]
    note: str = ""


class Finding(NamedTuple):
    """Something that deserves a look.

    Attributes:
        severity: how grave it is.
        text: a sentence.
        section: id of the part of the page that shows it; empty if only the finding does.
        evidence: records that show it; at most the first `MOST_EVIDENCE` are named.
        number: of all evidence there is; 0 if it is all given.
    """

    severity: Severity
    text: str
    section: str = ""
    evidence: Sequence[Evidence] = ()
    number: int = 0

    def list_shown(self) -> Sequence[Evidence]:
        """The evidence that is named."""
        return self.evidence[:MOST_EVIDENCE]

    @property
    def num_unnamed(self) -> int:
        """How much evidence is not named."""
        total = max(self.number, len(self.evidence))
        return total - len(self.list_shown())


def note_records(records: Sequence[int]) -> list[Evidence]:
    """Each of some records by itself as evidence."""
    return [Evidence((record,)) for record in records]
