"""Images whose names in annotations are not quite those of their files."""

from __future__ import annotations

import pickle
import unicodedata
from pathlib import Path

import pytest

import beam_tfr
from beam_tfr import storage
from beam_tfr.tables import image_names
from beam_tfr.tables.image_names import ImageFinder, ImageName
from tests.fake_gcs import FakeGcs
from tests.voc_files import voc, write_picture

# Name as it is written -> the file that it means, or what stays as it is written.
NAMES = {
    "1.jpg": "1.jpg",
    "1": "1.jpg",
    "1.JPG": "1.jpg",
    "1.tiff": "1.jpg",
    "2.jpg": "2.PNG",
    "2": "2.PNG",
    "sub/3.jpg": "sub/3.jpg",
    "3.jpg": "3.jpg",
    "images/1.jpg": "1.jpg",
    "images/sub/3": "sub/3.jpg",
    "/elsewhere/data/sub/3.jpg": "sub/3.jpg",
    "C:\\data\\sub\\3.jpg": "sub/3.jpg",
    "../up/1.jpg": "1.jpg",
    "frame.0001": "frame.0001.jpg",
    "frame.0002": "frame.0002",
    "1.5": "1.5",
    "gr\u00fcn": "gru\u0308n.jpg",
    "GR\u00dcN.jpg": "gru\u0308n.jpg",
    "table.csv": "table.csv",
    "none": "none",
}
FILES = (
    "1.jpg",
    "2.PNG",
    "sub/3.jpg",
    "frame.0001.jpg",
    "frame.jpg",
    "gru\u0308n.jpg",
    "table.txt",
)


def fill(folder: Path) -> str:
    for name in FILES:
        write = folder / name
        write.parent.mkdir(exist_ok=True)
        write.write_bytes(b"")
    return f"{folder}/"


@pytest.mark.parametrize("name", NAMES)
def test_the_one_image_of_a_name_is_found(tmp_path: Path, name: str) -> None:
    base = fill(tmp_path)
    path = ImageFinder().find(ImageName(name), base)
    found = path.removeprefix(base)
    assert unicodedata.normalize("NFC", found) == unicodedata.normalize("NFC", NAMES[name])


def test_names_are_found_on_gs(fake: FakeGcs) -> None:
    for name in FILES:
        fake.put(f"data/{name}", b"x")
    finder = ImageFinder()
    for name in ("1.jpg", "1", "2.jpg", "images/sub/3", "none"):
        assert finder.find(ImageName(name), "gs://b/data/") == f"gs://b/data/{NAMES[name]}"


def test_a_folder_of_the_table_is_looked_into(tmp_path: Path) -> None:
    base = fill(tmp_path)
    assert ImageFinder().find(ImageName("3.jpg", "sub"), base) == f"{base}sub/3.jpg"
    assert ImageFinder().find(ImageName("1.jpg", "sub"), base) == f"{base}1.jpg"


def test_of_two_images_none_is_chosen(tmp_path: Path) -> None:
    for name in ("1.jpg", "1.png", "2.jpg", "2.JPG"):
        (tmp_path / name).write_bytes(b"")
    for name, others in {
        "1": "1.jpg; 1.png",
        "1.gif": "1.jpg; 1.png",
        "2.Jpg": "2.JPG; 2.jpg",
    }.items():
        with pytest.raises(ValueError, match=others):
            ImageFinder().find(ImageName(name), f"{tmp_path}/")
    assert ImageFinder().find(ImageName("1.JPG"), f"{tmp_path}/") == f"{tmp_path}/1.jpg"


def test_a_closed_folder_has_no_similar_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = fill(tmp_path)
    list_folder = storage.list_folder

    def refuse(folder: str) -> list[str]:
        if folder == "/closed":
            raise PermissionError(13, "Permission denied")
        return list_folder(folder)

    monkeypatch.setattr(storage, "list_folder", refuse)
    assert ImageFinder().find(ImageName("/closed/1"), base) == f"{base}1.jpg"
    assert ImageFinder().find(ImageName("/closed/none"), base) == "/closed/none"


def test_a_folder_is_listed_once_and_only_if_a_name_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = fill(tmp_path)
    listed = list[str]()
    list_folder = storage.list_folder

    def note(folder: str) -> list[str]:
        listed.append(folder)
        return list_folder(folder)

    monkeypatch.setattr(storage, "list_folder", note)
    finder = ImageFinder()
    finder.find(ImageName("1.jpg"), base)
    assert listed == []
    for name in ("1", "2", "none"):
        finder.find(ImageName(name), base)
    assert listed == [str(tmp_path)]
    pickle.loads(pickle.dumps(finder)).find(ImageName("1"), base)
    assert listed == [str(tmp_path)] * 2


def test_the_listings_of_empty_folders_are_not_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_names, "_MOST_NAMES", 25)
    finder = ImageFinder(ignores_case=True)
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        path = f"{tmp_path}/{number}/a.jpg"
        assert finder.find(path, "") == path
        assert len(finder._names) <= 3


def test_images_of_voc_are_found_and_one_line_says_so(tmp_path: Path) -> None:
    names = {"1": "1", "2": None, "3": "/elsewhere/3.jpg", "4": "4"}
    for number, name in names.items():
        write_picture(tmp_path / f"images/{number}.png", int(number))
        path = tmp_path / f"xml/{number}.xml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(voc(name))
    write_picture(tmp_path / "images/4.jpg")
    done = beam_tfr.convert(
        table=tmp_path / "xml/*.xml",
        image_root=tmp_path / "images",
        output=tmp_path / "d",
        resize="none",
        max_rejects=1,
        progress=False,
    )
    assert (done.counts["written"], done.counts["rejected"]) == (3, {"bad-value": 1})
    assert "'4' may be any of 4.jpg; 4.png" in (tmp_path / "d/rejects.jsonl").read_text()
    plan = beam_tfr.plan(table=tmp_path / "xml/*.xml", image_root=tmp_path / "images")
    assert any("1.png for 1" in warning for warning in plan.warnings)


def test_images_of_voc_are_found_on_gs(tmp_path: Path, fake: FakeGcs) -> None:
    write_picture(tmp_path / "1.png")
    picture = (tmp_path / "1.png").read_bytes()
    for number, name in {"1": "1", "2": "images/2.jpg", "3": "3.png"}.items():
        fake.put(f"voc/images/{number}.png", picture)
        fake.put(f"voc/xml/{number}.xml", voc(name).encode())
    fake.put("voc/xml/4.xml", b"")
    done = beam_tfr.convert(
        table="gs://b/voc/xml/*.xml",
        image_root="gs://b/voc/images",
        output=tmp_path / "d",
        resize="none",
        max_rejects=1,
        progress=False,
    )
    assert (done.counts["written"], done.counts["rejected"]) == (3, {"bad-value": 1})


def test_files_that_are_gone_do_not_hide_the_folder_of_the_others(tmp_path: Path) -> None:
    for number in range(6):
        write_picture(tmp_path / f"images/{number}.png")
        name = f"{number}.png" if number > 1 else f"gone{number}.png"
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / f"annotations/x{number}.xml").write_text(voc(name))
    planned = beam_tfr.plan(table=tmp_path / "annotations/*.xml")
    assert any(f"`image_root={tmp_path}/images`" in line for line in planned.warnings)


def test_names_in_tables_may_lack_their_extension(tmp_path: Path) -> None:
    for name in ("images/1.png", "images/2.jpg", "images/3.jpg", "images/3.png", "images/4.png"):
        write_picture(tmp_path / name)
    (tmp_path / "images/4.png").rename(tmp_path / "images/4")
    rows = ["images/1,cat", "images/2,dog", "images/3,cat", "images/4,cat", "5,cat", ""]
    (tmp_path / "t.csv").write_text("\n".join(["id,class", *rows]))
    done = beam_tfr.convert(
        table=tmp_path / "t.csv",
        uri_column="id",
        label_column="class",
        output=tmp_path / "d",
        resize="none",
        max_rejects=2,
        progress=False,
    )
    assert (done.counts["written"], done.counts["rejected"]) == (
        3,
        {"bad-value": 1, "not-found": 1},
    )
    assert "'3' may be any of 3.jpg; 3.png" in (tmp_path / "d/rejects.jsonl").read_text()
