"""Decides by name which files look like images, and which never are."""

import re

EXTENSIONS = {  # format -> extensions, lower case; in the order of `images.formats.FORMATS`
    "jpeg": ("jpg", "jpeg", "jpe", "jfif", "mpo"),
    "png": ("png", "apng"),
    "gif": ("gif",),
    "webp": ("webp",),
    "bmp": ("bmp", "dib"),
    "tiff": ("tif", "tiff"),
    "ppm": ("ppm", "pgm", "pbm", "pnm"),
    "jpeg2000": ("jp2", "j2k", "jpx", "jpf", "j2c"),
    "avif": ("avif",),
    "heic": ("heic", "heif", "hif"),
    "jxl": ("jxl",),
}
FORMAT_OF = {extension: name for name, extensions in EXTENSIONS.items() for extension in extensions}
# a name that is hidden, or of a folder that systems make beside images
JUNK = r"(?:\.[^/]*|__MACOSX|@eaDir)"
IMAGE_NAME = rf"(?!{JUNK}$)[^/]+\.(?i:{'|'.join(FORMAT_OF)})"
# Ends of names of archives in which no image can be read alone, and of parts of split ones.
PACKED = re.compile(
    r"(?i)\.(?:tar\.[a-z][a-z0-9]{0,4}|t[gbxz]z2?|tzst|7z|rar|zipx|[zr][0-9]{2}"
    r"|(?:zip|tar|7z|rar|gz|zst|xz)\.(?:[0-9]{3}|[a-z]{2}))\Z"
)
# Ends of names of raw photos of cameras, which have to be developed.
RAW = re.compile(r"(?i)\.(?:cr[23w]|nef|nrw|arw|srf|sr2|dng|raf|orf|rw2|pef|srw|3fr|iiq|x3f)\Z")
RAW_CURE = "must be developed, each as by `darktable-cli a.nef a.jpg`"
OTHER_NAMES = "other names"  # the kind of files without an extension
IN_ARCHIVE = " in an archive"  # behind the kind of an archive that is in another
_JUNK_PART = re.compile(rf"(?:^|/)({JUNK})(?:/|$)", re.DOTALL)


def has_image_name(path: str) -> bool:
    """Whether a file has the extension of an image."""
    return path.rpartition(".")[2].lower() in FORMAT_OF


def stem_of_image(path: str) -> str:
    """A path without the extension of an image, if it has one."""
    stem, _, extension = path.rpartition(".")
    return stem if extension.lower() in FORMAT_OF else path


def is_junk(path: str) -> bool:
    """Whether a file is hidden, or below a hidden folder or one that systems make."""
    return _JUNK_PART.search(path) is not None


def kind_of_name(path: str) -> str:
    """The kind of a path by its name.

    `.DS_Store`, `__MACOSX`, `.txt`, `.tar.gz`, or `other names`.
    """
    junk = _JUNK_PART.search(path)
    if junk:
        return "._*" if junk[1].startswith("._") else junk[1]
    packed = PACKED.search(path)
    if packed:
        return packed[0]
    stem, _, extension = path.rpartition("/")[2].rpartition(".")
    if stem and re.fullmatch("[A-Za-z][A-Za-z0-9]{0,9}", extension):
        return f".{extension}"
    return OTHER_NAMES
