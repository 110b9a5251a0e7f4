"""Defines regular expressions for brackets that say how to handle masks and pairs: `[255,9=1]`.

They are also valid in ECMAScript, for the Flex Template.
"""

OUTSIDE = r"1?[0-9]{1,2}|2[0-4][0-9]|25[0-5]"
SCALE = "scale"
OPTIONAL = "optional"
REPLACED = r"(?:[0-9]{1,5}|#[0-9A-Fa-f]{6})=[0-9]{1,5}"
_PART = rf"(?:{OUTSIDE}|{SCALE}|{OPTIONAL}|{REPLACED})"
HANDLING = rf"\[{_PART}(?:,{_PART})*\]"
HIGHEST = 0xFFFF  # the highest value in gray PNGs
