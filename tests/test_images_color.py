"""Colors: profiles against the arithmetic of their specifications, CMYK, transparency, gray."""

from __future__ import annotations

import io
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from beam_tfr.images import blocks, color, convert_image
from beam_tfr.options.image import WHITE
from beam_tfr.schema.items import Image
from tests.cpu_limit import bounded_cpu
from tests.fixtures import HEIGHT, WIDTH, Fixture, mean_error, save, smooth
from tests.fixtures import icc as made
from tests.fixtures.color import ALPHA, FILES, GRAY, IN_P3, INKS, PICTURE
from tests.fixtures.icc import BROKEN, D50, D65_XY, PROFILES, SRGB_PROFILES, Floats

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
D65 = made.xyz_of_white(D65_XY)
TO_XYZ = made.to_xyz(made.SRGB)
LATTICE = (
    np.stack(
        np.meshgrid(*[np.unique([*range(0, 256, 16), 1, 2, 3, 5, 255])] * 3, indexing="ij"), -1
    )
    .reshape(1, -1, 3)
    .astype(np.uint8)
)


def pixels_of(image: Image) -> Array:
    with PillowImage.open(io.BytesIO(image.encoded)) as opened:
        return np.asarray(opened.convert("RGB"))


def ciede2000(one: Floats, other: Floats) -> Floats:
    """CIE 142-2001 between Lab [n, 3].

    As in Sharma, Wu, Dalal: The CIEDE2000 Color-Difference Formula (2005).
    """
    (l1, a1, b1), (l2, a2, b2) = one.T, other.T
    chroma = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * np.sqrt(chroma**7 / (chroma**7 + 25**7))
    a1, a2 = a1 * stretch, a2 * stretch
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1)) % 360, np.degrees(np.arctan2(b2, a2)) % 360
    turn = np.where(c1 * c2 == 0, 0, (h2 - h1 + 180) % 360 - 180)
    hue = np.where(c1 * c2 == 0, h1 + h2, h1 + turn / 2) % 360
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2

    def cos(degrees: Floats) -> Floats:
        return np.cos(np.radians(degrees))

    t = (
        1
        - 0.17 * cos(hue - 30)
        + 0.24 * cos(2 * hue)
        + 0.32 * cos(3 * hue + 6)
        - 0.20 * cos(4 * hue - 63)
    )
    rotation = (
        -2
        * np.sqrt(chroma**7 / (chroma**7 + 25**7))
        * np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    )
    dl = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    dc = (c2 - c1) / (1 + 0.045 * chroma)
    dh = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma * t)
    return np.sqrt(dl**2 + dc**2 + dh**2 + rotation * dc * dh)


def lab_of_srgb(pixels: Array) -> Floats:
    return made.lab_of(made.srgb_light(pixels.reshape(-1, 3) / 255) @ TO_XYZ.T, D65)


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.49, -0.001), (50, -2.49, 0.0009), 7.1792),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((6.7747, -0.2908, -2.4247), (5.8714, -0.0985, -2.2286), 0.6377),
    ],
)
def test_the_measure_of_these_tests_is_right_on_published_pairs(
    one: tuple[float, ...], other: tuple[float, ...], difference: float
) -> None:
    assert ciede2000(np.array([one]), np.array([other]))[0] == pytest.approx(difference, abs=5e-5)


# Profiles

MATRICES: dict[str, tuple[Any, Any, tuple[float, float]]] = {
    "Display P3": (made.DISPLAY_P3, made.srgb_light, D65_XY),
    "Display P3, version 4": (made.DISPLAY_P3, made.srgb_light, D65_XY),
    "Adobe RGB": (made.ADOBE_RGB, made.adobe_light, D65_XY),
    "ProPhoto": (made.PROPHOTO, made.prophoto_light, made.D50_XY),
    "Rec. 2020": (made.REC_2020, made.rec2020_light, D65_XY),
    "scanner with a table": (made.ADOBE_RGB, made.adobe_light, D65_XY),
}


@pytest.mark.parametrize("name", MATRICES)
def test_profiles_of_rgb_come_within_a_ciede2000_of_1(name: str) -> None:
    primaries, light, white = MATRICES[name]
    got, notes = color.to_srgb(LATTICE, PROFILES[name], convert=True)
    to_linear = (
        np.linalg.inv(TO_XYZ)
        @ made.adaptation(made.xyz_of_white(white), D65)
        @ made.to_xyz(primaries, white)
    )
    linear = light(LATTICE[0] / 255) @ to_linear.T
    inside = ((linear > -1e-9) & (linear < 1 + 1e-9)).all(-1)
    differences = ciede2000(lab_of_srgb(got)[inside], made.lab_of(linear[inside] @ TO_XYZ.T, D65))
    assert notes == ("profile-converted",)
    assert inside.sum() > 1000
    assert differences.max() < 1
    assert differences.mean() < 0.2


@pytest.mark.parametrize("name", ["Display P3", "Adobe RGB", "Rec. 2020", "ProPhoto"])
def test_colors_that_srgb_does_not_have_are_clipped(name: str) -> None:
    ends = np.array([[[0, 255, 0], [0, 0, 0], [255, 255, 255]]], np.uint8)
    assert color.to_srgb(ends, PROFILES[name], convert=True)[0].tolist() == [
        [[0, 255, 0], [0, 0, 0], [255, 255, 255]]
    ]


@pytest.mark.parametrize("name", ["CMYK of 8 bit", "CMYK of 16 bit", "CMYK, version 4"])
def test_profiles_of_inks_come_within_a_ciede2000_of_2(name: str) -> None:
    inks = RNG.integers(0, 256, (1, 6000, 4), dtype=np.uint8)
    inks[0, :2000, 3] = 0
    inks[0, 2000:3000] //= 8
    got, notes = color.to_srgb(inks, PROFILES[name], convert=True)
    lab = made.ink_lab(inks[0] / 255)
    y = (lab[:, 0] + 16) / 116
    roots = np.stack([y + lab[:, 1] / 500, y, y - lab[:, 2] / 200], -1)
    xyz = D50 * np.where(roots > 6 / 29, roots**3, (roots - 4 / 29) * 3 * (6 / 29) ** 2)
    if (
        "version 4" not in name
    ):  # black point compensation (ISO 18619): L* 10, the deepest black, becomes black
        black = ((10 + 16) / 116) ** 3
        xyz = (xyz - D50 * black) / (1 - black)
    linear = xyz @ np.linalg.inv(made.adaptation(D65, D50) @ TO_XYZ).T
    inside = ((linear > 0) & (linear < 1)).all(-1)
    differences = ciede2000(lab_of_srgb(got)[inside], made.lab_of(linear[inside] @ TO_XYZ.T, D65))
    assert notes == ("cmyk-converted", "profile-converted")
    assert inside.sum() > 4500
    assert differences.max() < 2
    assert differences.mean() < 0.5


def test_paper_is_white_and_the_deepest_black_is_black() -> None:
    ends = np.array([[[0, 0, 0, 0], [0, 0, 0, 255]]], np.uint8)
    got, _ = color.to_srgb(ends, PROFILES["CMYK of 16 bit"], convert=True)
    assert got.tolist() == [[[255, 255, 255], [0, 0, 0]]]


@pytest.mark.parametrize(
    ("name", "light"),
    [("gray gamma 2.2", lambda v: v ** (563 / 256)), ("gray dot gain", made.dot_gain_light)],
)
def test_profiles_of_gray_are_exact(name: str, light: Any) -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    got, notes = color.to_srgb(ramp, PROFILES[name], convert=True)
    wanted = 255 * made.srgb_stored(light(np.arange(256) / 255))
    assert notes == ("profile-converted",)
    assert got.shape == (16, 16, 1)
    assert np.abs(got.ravel() - wanted).max() < 0.501


def test_a_profile_of_rgb_is_applied_to_gray() -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    got, notes = color.to_srgb(ramp, PROFILES["Adobe RGB"], convert=True)
    as_rgb, _ = color.to_srgb(np.repeat(ramp, 3, axis=2), PROFILES["Adobe RGB"], convert=True)
    assert notes == ("profile-converted",)
    assert got.shape == (16, 16, 1)
    assert np.abs(got.astype(int) - as_rgb).max() <= 1
    same, notes = color.to_srgb(
        ramp, PROFILES["Display P3"], convert=True
    )  # its grays are those of sRGB
    assert notes == ()
    assert same is ramp


def test_grays_that_a_profile_colors_become_rgb() -> None:
    red, green, blue = made.ADOBE_RGB
    tinted = made.matrix_profile((green, red, blue), made.srgb_light)
    lopsided = made.profile(
        {
            **{
                letter + b"XYZ": b"XYZ " + bytes(4) + made.fixed(*column)
                for letter, column in zip((b"r", b"g", b"b"), np.diag(D50), strict=True)
            },
            b"rTRC": made.gamma_curve(1.5),
            b"gTRC": made.gamma_curve(2.2),
            b"bTRC": made.gamma_curve(3.0),
        }
    )
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    assert color.to_srgb(ramp, tinted, convert=True)[0].shape == (16, 16, 1)
    got, notes = color.to_srgb(ramp, lopsided, convert=True)
    assert notes == ("profile-converted",)
    assert (got == color.to_srgb(np.repeat(ramp, 3, axis=2), lopsided, convert=True)[0]).all()
    assert int(np.ptp(got, axis=2).max()) > 20


@pytest.mark.parametrize("name", SRGB_PROFILES)
def test_srgb_in_any_version_changes_nothing(name: str) -> None:
    assert color.is_srgb(SRGB_PROFILES[name])
    for pixels in (LATTICE, LATTICE[..., :1]):
        same, notes = color.to_srgb(pixels, SRGB_PROFILES[name], convert=True)
        assert same is pixels
        assert notes == ()


def test_what_is_srgb() -> None:
    assert color.is_srgb(b"")
    assert color.is_srgb(made.gray_profile(made.srgb_light))
    assert [name for name, data in {**PROFILES, **BROKEN}.items() if color.is_srgb(data)] == []
    plain_gamma = made.matrix_profile(
        made.SRGB, made.gamma_curve(2.2)
    )  # differs by 6 levels where it is dark
    assert not color.is_srgb(plain_gamma)


@pytest.mark.parametrize(
    ("channels", "names"),
    [
        (1, ["CMYK of 16 bit", *BROKEN]),
        (3, ["gray gamma 2.2", "CMYK of 16 bit", *BROKEN]),
        (4, ["gray gamma 2.2", "Display P3", *SRGB_PROFILES, *BROKEN]),
    ],
)
def test_what_is_broken_or_does_not_fit_is_ignored(channels: int, names: list[str]) -> None:
    pixels = RNG.integers(0, 256, (5, 6, channels), dtype=np.uint8)
    plain, inks = color.to_srgb(pixels, b"", convert=True)
    for name in names:
        profile = {**PROFILES, **SRGB_PROFILES, **BROKEN}[name]
        got, notes = color.to_srgb(pixels, profile, convert=True)
        assert notes == (*inks, "profile-ignored"), name
        assert (got == plain).all(), name


@pytest.mark.parametrize("name", [*PROFILES, *BROKEN])
def test_without_convert_numbers_are_those_of_srgb(name: str) -> None:
    profile = {**PROFILES, **BROKEN}[name]
    for channels, wanted in ((1, ()), (3, ()), (4, ("cmyk-converted",))):
        pixels = RNG.integers(0, 256, (5, 6, channels), dtype=np.uint8)
        got, notes = color.to_srgb(pixels, profile, convert=False)
        assert notes == wanted
        assert (got == color.to_srgb(pixels, b"", convert=True)[0]).all()


def test_profiles_that_are_too_large_are_not_looked_at() -> None:
    padding = bytes(color.MAX_PROFILE_BYTES - len(PROFILES["Adobe RGB"]))
    largest = PROFILES["Adobe RGB"] + padding
    assert color.to_srgb(LATTICE, largest, convert=True)[1] == ("profile-converted",)
    assert color.to_srgb(LATTICE, largest + b"\0", convert=True)[1] == ("profile-ignored",)


def test_profiles_made_to_take_time_or_memory_take_none() -> None:
    # In a process of its own: peak memory only grows.
    code = """if True:
        import resource
        from beam_tfr.images import color
        from tests.cpu_limit import bounded_cpu
        from tests.fixtures.icc import BROKEN, PROFILES, elements_profile
        hostile = [elements_profile(300_000), BROKEN["a boastful mAB"], BROKEN["a boastful mft2"]]
        color.is_srgb(PROFILES["Display P3"])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with bounded_cpu():
            assert not any(color.is_srgb(profile) for profile in hostile)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    assert int(done.stdout) < 50_000  # kB


def test_a_table_of_floats_beside_another_does_not_hide_it() -> None:
    inks = RNG.integers(0, 256, (8, 8, 4), dtype=np.uint8)
    table = made.table_of("mft2", made.ink_lab(np.eye(16, 4)), 2, 4)
    about: dict[str, Any] = {"space": b"CMYK", "kind": b"prtr", "pcs": b"Lab ", "version": 4}
    elements = made.elements_profile(5_000)
    floats = elements[elements.index(b"mpet") :]
    with_floats = made.profile({b"D2B0": floats, b"D2B1": floats, b"A2B0": table}, **about)
    with bounded_cpu():
        got, notes = color.to_srgb(inks, with_floats, convert=True)
    assert notes == ("cmyk-converted", "profile-converted")
    assert (
        got == color.to_srgb(inks, made.profile({b"A2B0": table}, **about), convert=True)[0]
    ).all()


FUZZED = [
    *(PROFILES[name] for name in ("Display P3, version 4", "Adobe RGB", "gray gamma 2.2")),
    SRGB_PROFILES["of LittleCMS"],
    made.cmyk_profile("mft1", grid=2),
    made.cmyk_profile("mAB ", grid=2),
]


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(FUZZED), st.data())
def test_damaged_profiles_are_used_or_ignored(profile: bytes, data: st.DataObject) -> None:
    damaged = bytearray(profile[: data.draw(st.integers(0, len(profile))) or None])
    changes = st.tuples(
        st.integers(0, len(damaged) - 1),
        st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255),
    )
    for place, value in data.draw(st.lists(changes, max_size=6)):
        damaged[place] = value
    for channels in (1, 3, 4):
        pixels = np.full((3, 2, channels), 100, np.uint8)
        got, notes = color.to_srgb(pixels, bytes(damaged), convert=True)
        assert got.dtype == np.uint8
        assert got.shape in ((3, 2, 1), (3, 2, 3))
        assert {*notes} <= {"cmyk-converted", "profile-converted", "profile-ignored"}


def test_each_profile_is_looked_at_once_whatever_the_threads() -> None:
    profile = made.matrix_profile(made.REC_2020, made.adobe_light, name="of this test alone")
    with ThreadPoolExecutor(8) as pool:
        effects = list(pool.map(lambda _: color._find_effect(bytes(bytearray(profile))), range(64)))
    assert effects[0] is not None
    assert all(effect is effects[0] for effect in effects)


def test_effects_that_are_kept_are_bounded_and_the_latest() -> None:
    profiles = [made.gray_profile(made.gamma_curve(1 + i / 100)) for i in range(100)]
    effects = [color._find_effect(profile) for profile in profiles]
    assert len(color._effects) == color._CACHED
    assert color._find_effect(profiles[-1]) is effects[-1]
    assert color._find_effect(profiles[-color._CACHED]) is effects[-color._CACHED]
    assert color._find_effect(profiles[0]) is not effects[0]


@pytest.mark.parametrize("name", ["Display P3", "scanner with a table", "CMYK of 16 bit"])
def test_pixels_are_the_same_whatever_the_threads(name: str) -> None:
    channels = 4 if name.startswith("CMYK") else 3
    images = [
        np.random.default_rng(i).integers(0, 256, (60, 90, channels), dtype=np.uint8)
        for i in range(24)
    ]
    images[::4] = [image // 255 * 255 for image in images[::4]]  # few colors, many repeated
    alone = [color.to_srgb(image, PROFILES[name], convert=True)[0] for image in images]
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(
                lambda image: color.to_srgb(image, PROFILES[name], convert=True)[0], images * 3
            )
        )
    for one, other in zip(alone * 3, together, strict=True):
        assert (one == other).all()


def test_pixels_do_not_depend_on_where_a_strip_ends() -> None:
    pixels = RNG.integers(0, 256, (300, 500, 3), dtype=np.uint8)
    assert pixels[..., 0].size > 2 * color._STRIP
    whole, _ = color.to_srgb(pixels, PROFILES["Display P3"], convert=True)
    rows = [color.to_srgb(row[None], PROFILES["Display P3"], convert=True)[0][0] for row in pixels]
    assert (whole == np.stack(rows)).all()
    mirrored, _ = color.to_srgb(pixels[::-1, ::-1], PROFILES["Display P3"], convert=True)
    assert (mirrored == whole[::-1, ::-1]).all()


# CMYK


def test_inks_without_a_profile_lie_over_each_other() -> None:
    ink, black = np.mgrid[0:256, 0:256]
    pixels = np.stack([ink, ink * 0, 255 - ink, black], -1).astype(np.uint8)
    got, notes = color.to_srgb(pixels, b"", convert=True)
    red, green, blue = (
        (255 - first.astype(int)) * (255 - black) / 255 for first in (ink, ink * 0, 255 - ink)
    )
    assert notes == ("cmyk-converted",)
    assert (got == np.rint(np.stack([red, green, blue], -1))).all()


# Transparency


def over(pixels: Array, alpha: Array, background: tuple[int, ...]) -> Array:
    opaque = alpha[..., None].astype(int)
    return np.rint((pixels * opaque + np.array(background) * (255 - opaque)) / 255).astype(np.uint8)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 30), st.integers(1, 30)),
    st.sampled_from([1, 3]),
    st.tuples(*[st.integers(0, 255)] * 3) | st.integers(0, 255).map(lambda level: (level,) * 3),
    st.integers(0, 2**32 - 1),
)
def test_transparency_is_exact(
    size: tuple[int, int], channels: int, background: tuple[int, int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pixels, alpha = (
        rng.integers(0, 256, (*size, channels), dtype=np.uint8),
        rng.integers(0, 256, size, dtype=np.uint8),
    )
    given_pixels, given_alpha = pixels.copy(), alpha.copy()
    got = color.composite(pixels, alpha, background)
    stays = channels == 1 and len(set(background)) == 1
    assert got.shape == (*size, 1 if stays else 3)
    assert (got == over(pixels, alpha, background[:1] if stays else background)).all()
    assert (pixels == given_pixels).all()
    assert (alpha == given_alpha).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_transparency_is_exact_for_every_alpha_and_level(channels: int) -> None:
    alpha, level = (part.astype(np.uint8) for part in np.mgrid[0:256, 0:256])
    pixels = np.repeat(level[..., None], channels, axis=2)
    for part in (0, 1, 127, 128, 254, 255):
        got = color.composite(pixels, alpha, (part, part, part))
        assert (got == over(pixels, alpha, (part,))).all()


def test_transparency_is_that_of_pillow() -> None:
    pixels, alpha = (
        RNG.integers(0, 256, (300, 501, 3), dtype=np.uint8),
        RNG.integers(0, 256, (300, 501), dtype=np.uint8),
    )
    below = PillowImage.new("RGBA", (501, 300), (10, 200, 30, 255))
    rgba = PillowImage.fromarray(np.dstack([pixels, alpha]))
    wanted = np.asarray(PillowImage.alpha_composite(below, rgba).convert("RGB"))
    assert np.abs(color.composite(pixels, alpha, (10, 200, 30)).astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("shape", [(1500, 1400), (1, 2_100_000), (2_100_000, 1)])
def test_large_images_need_no_copies_but_their_result(shape: tuple[int, int]) -> None:
    pixels, alpha = np.full((*shape, 3), 90, np.uint8), np.full(shape, 40, np.uint8)
    steps = {
        "composite": (lambda: color.composite(pixels, alpha, (255, 0, 0)), 3),
        "profile": (lambda: color.to_srgb(pixels, PROFILES["Display P3"], convert=True), 3),
        "gray": (lambda: color.to_channels(pixels, "gray"), 1),
    }
    for name, (step, result) in steps.items():
        step()
        tracemalloc.start()
        step()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < result * alpha.size + 4_000_000, name


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 30), st.integers(1, 30)),
    st.sampled_from(
        [
            (1, ""),
            (1, "Display P3"),
            (3, ""),
            (3, "Display P3"),
            (3, "Adobe RGB"),
            (4, "CMYK of 8 bit"),
        ]
    ),
    st.sampled_from([(255, 255, 255), (10, 200, 30)]),
    st.integers(1, 200),
    st.integers(0, 2**32 - 1),
)
def test_images_laid_over_a_color_block_by_block_are_those_laid_over_it_at_once(
    size: tuple[int, int],
    kind: tuple[int, str],
    background: tuple[int, int, int],
    block: int,
    seed: int,
) -> None:
    (channels, name), rng = kind, np.random.default_rng(seed)
    pixels, alpha = (
        rng.integers(0, 256, (*size, channels), dtype=np.uint8),
        rng.integers(0, 256, size, dtype=np.uint8),
    )
    profile = PROFILES[name] if name else b""
    colors, notes = color.to_srgb(pixels, profile, convert=True)
    expected = color.composite(colors, alpha, background)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", block)
        got, told = color.composite_to_srgb(pixels, alpha, profile, background, convert=True)
    assert (got == expected).all()
    assert (got.shape, told) == (expected.shape, notes)


@pytest.mark.parametrize("profile", [b"", PROFILES["Display P3"]])
def test_a_large_image_laid_over_a_color_needs_no_copy(profile: bytes) -> None:
    pixels, alpha = np.full((3000, 1400, 3), 90, np.uint8), np.full((3000, 1400), 40, np.uint8)
    color.composite_to_srgb(pixels[:9], alpha[:9], profile, WHITE, convert=True)
    tracemalloc.start()
    result, _ = color.composite_to_srgb(pixels, alpha, profile, WHITE, convert=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result is pixels
    assert peak < 10_000_000  # a block of a megapixel, as colors and over white


# Channels


def test_gray_is_luma() -> None:
    pixels = np.concatenate([LATTICE, RNG.integers(0, 256, (1, 70_000, 3), dtype=np.uint8)], axis=1)
    got = color.to_channels(pixels, "gray")
    weighted = pixels.astype(int) @ np.array([[19595], [38470], [7471]])
    assert got.shape == (*pixels.shape[:2], 1)
    assert (got == (weighted + 32768) // 65536).all()
    assert np.abs(got[..., 0] - pixels @ np.array([0.299, 0.587, 0.114])).max() < 0.51


def test_channels_are_what_was_asked_for() -> None:
    gray, rgb = (
        RNG.integers(0, 256, (4, 7, 1), dtype=np.uint8),
        RNG.integers(0, 256, (4, 7, 3), dtype=np.uint8),
    )
    assert (color.to_channels(gray, "rgb") == np.repeat(gray, 3, axis=2)).all()
    assert color.to_channels(rgb, "rgb") is rgb
    assert color.to_channels(gray, "gray") is gray
    assert color.to_channels(gray, "keep") is gray
    assert color.to_channels(rgb, "keep") is rgb


def test_backgrounds_in_the_channels_of_an_image() -> None:
    assert color.convert_background((255, 0, 10), 3) == (255, 0, 10)
    assert color.convert_background((255, 0, 0), 1) == (76,)
    assert color.convert_background((255, 255, 255), 1) == (255,)
    assert [color.convert_background((level,) * 3, 1) for level in range(256)] == [
        (level,) for level in range(256)
    ]


# Files


@pytest.mark.parametrize("name", FILES)
def test_files_are_adjusted_as_they_should_be(name: str) -> None:
    file = FILES[name]
    image = convert_image(
        file.data, image_size=(HEIGHT, WIDTH), encoding="png", name=f"x.{file.extension}"
    )
    assert image.adjusted == file.adjusted


def converted(file: Fixture, **changes: Any) -> Array:
    return pixels_of(
        convert_image(file.data, image_size=(HEIGHT, WIDTH), encoding="png", **changes)
    )


SAME_COLORS = [
    "JPEG in Display P3",
    "JPEG in Display P3, version 4",
    "PNG in Display P3",
    "WebP in Display P3",
    "JPEG in Adobe RGB",
    "TIFF in Adobe RGB",
    "TIFF in Adobe RGB by a table",
]


@pytest.mark.parametrize("name", SAME_COLORS)
def test_photos_in_other_spaces_come_out_as_in_srgb(name: str) -> None:
    got = converted(FILES[name])
    ignored = converted(FILES[name], icc="ignore")
    form = "PNG" if name[:4] in ("PNG ", "TIFF") else name[:4].upper()
    plain = converted(Fixture(save(smooth(), form, quality=95)))  # loses what its encoding loses
    codec = ciede2000(lab_of_srgb(plain), lab_of_srgb(PICTURE)).mean()
    assert ciede2000(lab_of_srgb(got), lab_of_srgb(PICTURE)).mean() < codec + 0.5
    assert ciede2000(lab_of_srgb(ignored), lab_of_srgb(PICTURE)).mean() > codec + 1.5


@pytest.mark.parametrize("name", ["PNG in Display P3", "TIFF in Adobe RGB"])
def test_photos_without_loss_are_exact_to_a_ciede2000_of_2(name: str) -> None:
    # Stored with 8 bit in the other space, so rounded twice.
    assert ciede2000(lab_of_srgb(converted(FILES[name])), lab_of_srgb(PICTURE)).max() < 2


def test_transparent_photos_are_converted_before_they_are_laid_over_a_color() -> None:
    alpha = np.asarray(ALPHA)
    got = converted(FILES["PNG with transparency in Display P3"], background=(200, 30, 90))
    picture, _ = color.to_srgb(np.asarray(IN_P3), PROFILES["Display P3"], convert=True)
    assert (got == over(picture, alpha, (200, 30, 90))).all()
    assert (got[alpha == 0] == (200, 30, 90)).all()


def test_transparent_gray_stays_gray_over_white_and_not_over_a_color() -> None:
    file = FILES["gray PNG with transparency"]
    gray = np.asarray(GRAY)[..., None]
    image = convert_image(file.data, image_size=(HEIGHT, WIDTH), encoding="png", color="keep")
    assert image.channels == 1
    assert (pixels_of(image)[..., :1] == over(gray, np.asarray(ALPHA), (255,))).all()
    image = convert_image(
        file.data, image_size=(HEIGHT, WIDTH), encoding="png", color="keep", background=(255, 0, 0)
    )
    assert image.channels == 3
    assert (pixels_of(image) == over(gray, np.asarray(ALPHA), (255, 0, 0))).all()


def test_cmyk_files_come_out_as_their_inks_say() -> None:
    inks = np.asarray(INKS)
    plain, _ = color.to_srgb(inks, b"", convert=True)
    assert (converted(FILES["CMYK TIFF"]) == plain).all()
    printed, _ = color.to_srgb(inks, PROFILES["CMYK, version 4"], convert=True)
    assert (converted(FILES["CMYK TIFF with a profile, version 4"]) == printed).all()
    for name, wanted in (
        ("CMYK JPEG", plain),
        ("CMYK JPEG with a profile of RGB", plain),
        (
            "CMYK JPEG with a profile",
            color.to_srgb(inks, PROFILES["CMYK of 16 bit"], convert=True)[0],
        ),
    ):
        assert mean_error(converted(FILES[name]), wanted) < 2.5, name
