"""What pages about datasets name."""

import html
import re


def list_evidence(page: str, finding: str) -> list[list[str]]:
    """The keys that a finding names: of each line, those of its records."""
    found = page.partition(finding)[2]
    listed = found.partition('<ul class="keys">')[2].partition("</ul>")[0]
    lines = re.findall(r"<li>(.*?)</li>", listed, re.DOTALL)
    return [
        [html.unescape(key) for key in re.findall("<code>(.*?)</code>", line)] for line in lines
    ]
