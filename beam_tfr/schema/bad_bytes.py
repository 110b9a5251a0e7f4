"""Says what to do about text that is not UTF-8."""

import codecs

# Converts bytes of CP1252 in text that is otherwise UTF-8.
_TO_UTF8 = (
    'python3 -c \'import codecs, sys; codecs.register_error("old", lambda e: '
    '(e.object[e.start:e.end].decode("cp1252", "replace"), e.end)); '
    'sys.stdout.buffer.write(sys.stdin.buffer.read().decode(errors="old").encode())\' < OLD > NEW'
)


def describe_bad_byte(text: bytes, place: int) -> str:
    """Says what to do about a byte that is not UTF-8, given its place in a string or a line."""
    byte = text[place : place + 1]
    problem = f"byte 0x{byte.hex()} is not valid UTF-8"
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"{problem}; the text is UTF-16: iconv -f UTF-16 -t UTF-8 OLD > NEW converts it"
    letter = byte.decode("cp1252", "replace")
    return (
        f"{problem}; if it is {letter!r} in CP1252, as programs on Windows write it, {_TO_UTF8} "
        "converts such bytes to UTF-8, and leaves UTF-8 unchanged"
    )
