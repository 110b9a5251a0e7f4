"""Decides by name which files may be images."""

import re
from typing import NamedTuple

EXTENSIONS = {  # format -> extensions in lower case; in the order of `images.formats.FORMATS`
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
# A hidden name, or the name of a folder that operating systems make next to images.
JUNK = r"(?:\.[^/]*|__MACOSX|@eaDir)"
IMAGE_NAME = rf"(?!{JUNK}$)[^/]+\.(?i:{'|'.join(FORMAT_OF)})"
# Name endings of archives that must be read from the start, and of parts of archives.
PACKED = re.compile(
    r"(?i)\.(?:tar\.[a-z][a-z0-9]{0,4}|t[gbxz]z2?|tzst|7z|rar|zipx|[zr][0-9]{2}"
    r"|(?:zip|tar|7z|rar|gz|zst|xz)\.(?:[0-9]{3}|[a-z]{2}))\Z"
)
# Name endings of raw camera photos, which must be developed.
RAW = re.compile(r"(?i)\.(?:cr[23w]|nef|nrw|arw|srf|sr2|dng|raf|orf|rw2|pef|srw|3fr|iiq|x3f)\Z")
RAW_CURE = "must be developed, for example with `darktable-cli a.nef a.jpg`"


class OtherFiles(NamedTuple):
    """A kind of files that hold pixels, but cannot be read as images.

    Attributes:
        names: matches the ends of their names.
        noun: what messages call them.
        cure: how to turn them into images, for messages.
    """

    names: re.Pattern[str]
    noun: str
    cure: str


# Name endings include the dot, like kinds: see `kind_of_name`.
_PICTURES = (
    OtherFiles(RAW, "raw camera photos", RAW_CURE),
    OtherFiles(
        re.compile(r"(?i)\.(?:dcm|dicom|ima)\Z"),
        "DICOM files",
        "must be converted, for example with `dcmj2pnm --write-png a.dcm a.png`",
    ),
    OtherFiles(
        re.compile(r"(?i)\.(?:mp4|avi|mov|mkv|webm|mpe?g|m4v|wmv|flv)\Z"),
        "videos",
        "must be divided into frames, for example with `ffmpeg -i a.mp4 a-%06d.jpg`",
    ),
    OtherFiles(
        re.compile(r"(?i)\.(?:nii(?:\.gz)?|mha|mhd|nrrd)\Z"),
        "medical volumes",
        "must be divided into PNG slices, for example with SimpleITK",
    ),
)
_ARRAYS = (
    OtherFiles(
        re.compile(r"(?i)\.npy\Z"),
        "arrays",
        "become tensors with `encoding=array` and a pattern such as `input='DIR/**/*.npy'`; if "
        "they hold pixels, write images: Image.fromarray(numpy.load('a.npy')).save('a.png')",
    ),
    OtherFiles(
        re.compile(r"(?i)\.(?:npz|mat|h5|hdf5|pkl|pickle|pt|pth|lmdb|mdb|rec|bin)\Z"),
        "files with several arrays",
        "may hold images: write each to a file, for example with Pillow's "
        "Image.fromarray(pixels).save('a.png')",
    ),
)
OTHER_FILES = (*_PICTURES, *_ARRAYS)
# Name endings of files that say nothing about the content of the image with the same name: settings
# of programs, places of maps, other forms of the image, checksums and remains.
_SIDE_FILES = re.compile(
    r"(?i)\.(?:xmp|aae|thm|lrv|pp3|dop|cos|nksc|on1|meta|exif|icc|[bjpt]fw|[bjpt]gw|tifw|pgwx|jgwx"
    r"|wld|prj|ovr|rrd|svg|psd|xcf|kra|ai|eps|pdf|tga|ico|dds|zip|tar|gz|md5|dvc|sha1|sha256|sig"
    r"|bak|old|orig|tmp|temp|part|crdownload|lnk|url|ini|db|log)\Z"
)
_EXTENSION = re.compile(r"(?i)[^/]\.[a-z][a-z0-9]{0,9}\Z")
OTHER_NAMES = "other names"  # the kind of files without an extension
IN_ARCHIVE = " in an archive"  # follows the kind of an archive that is inside another
_JUNK_PART = re.compile(rf"(?:^|/)({JUNK})(?:/|$)", re.DOTALL)


def has_image_name(path: str) -> bool:
    """Whether a file has the extension of an image."""
    return path.rpartition(".")[2].lower() in FORMAT_OF


def stem_of_image(path: str) -> str:
    """Returns a path without its extension, if that is the extension of an image."""
    stem, _, extension = path.rpartition(".")
    return stem if extension.lower() in FORMAT_OF else path


def may_describe_image(path: str) -> bool:
    """Whether a file may describe the image with the same name, judging by the file's extension.

    True for any extension except those of images, of archives, and of files that are known not to
    describe images.
    """
    if not _EXTENSION.search(path) or has_image_name(path):
        return False
    if _SIDE_FILES.search(path) or PACKED.search(path):
        return False
    return not any(pictures.names.search(path) for pictures in _PICTURES)


def is_junk(path: str) -> bool:
    """Whether a file is hidden, or in a folder that is hidden or made by an operating system."""
    return _JUNK_PART.search(path) is not None


def kind_of_name(path: str) -> str:
    """Returns the kind of a path from its name: `.DS_Store`, `.txt`, `.tar.gz`, `other names`."""
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
