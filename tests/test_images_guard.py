"""Guarded processes: equal results, hard limits, real crashes, and nothing left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from beam_tfr import guarded as guarded_processes
from beam_tfr.images import convert_image, guard, limits
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError, RunError
from beam_tfr.schema.items import Image
from tests.conftest import few_at_once, wait_for
from tests.fixtures import all_fixtures, hostile, save, smooth
from tests.fixtures.jpeg import many_scans
from tests.hostile_images import LARGEST, some_options

ROOT = Path(__file__).parents[1]
PHOTO = save(smooth(300, 400), "JPEG", quality=90)
SLOW = many_scans(880, 2000)  # takes about 5 seconds
SLOWISH = many_scans(880, 1000)  # half of that
NO_LIMIT = "from beam_tfr.images import limits; limits.MAX_SCAN_PIXELS = 1 << 50"


def guarded(data: bytes, options: ImageOptions | None = None, name: str = "") -> Image:
    return guard.convert_guarded(data, options or ImageOptions(), name=name)


@pytest.fixture
def any_scans(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """JPEGs may have any number of scans."""
    monkeypatch.setattr(limits, "MAX_SCAN_PIXELS", 1 << 50)
    starting_with(NO_LIMIT, monkeypatch)
    yield
    vars(guard._thread).clear()


def children() -> dict[int, str]:
    """Process ids of the children of this process, zombies included, with their states."""
    found = {}
    for about in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = about.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # gone meanwhile
            continue
        if int(parent) == os.getpid():
            found[int(about.parent.name)] = state
    return found


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def own_process() -> guard._Process:
    process: guard._Process = guard._thread.process
    return process


@pytest.fixture(autouse=True)
def no_processes_are_left() -> Iterator[None]:
    before = children()
    yield
    vars(guard._thread).clear()
    assert children().keys() <= before.keys()


def test_an_image_that_is_opened_twice_asks_for_its_bytes_twice() -> None:
    """A JPEG that ends early is decoded once to find that out, and again to be kept."""
    cut, options = PHOTO[:-100], ImageOptions(damaged="keep")
    assert "damage-kept" in convert_image(cut, options).adjusted
    assert guarded(cut, options) == convert_image(cut, options)
    assert not limits.BUDGET._asked


def test_results_are_equal_to_unguarded_ones() -> None:
    every = {name: one.data for name, one in all_fixtures().items() if 0 < len(one.data) <= LARGEST}
    files = {name: every[name] for name in random.Random(20).sample(sorted(every), 100)}
    dice = random.Random(20)
    found: set[str] = set()
    for name, data in {"photo": PHOTO, **files}.items():
        for options in (ImageOptions(max_pixels=1_000_000), some_options(dice)):
            results = [
                outcome(data, options, f"{name}.jpg", convert)
                for convert in (convert_image, guarded)
            ]
            assert results[0] == results[1], name
            found.add(type(results[0]).__name__)
    assert found == {"Image", "tuple"}


def outcome(
    data: bytes, options: ImageOptions, name: str, convert: Callable[..., Image] = convert_image
) -> Image | tuple[str, str, bool]:
    try:
        return convert(data, options, name=name)
    except RejectError as error:
        return error.reason, error.detail, error.may_pass


def test_odd_names_and_all_options_arrive() -> None:
    options = ImageOptions(
        image_size=(30, 20),
        resize="pad",
        background=(1, 2, 3),
        max_aspect=7.5,
        chroma="444",
        color="keep",
    )
    for name in ("a\udcff/ü.png", "", "x" * 100_000 + ".png"):
        assert outcome(PHOTO, options, name, guarded) == outcome(PHOTO, options, name)


def test_one_process_serves_all_images_of_a_thread() -> None:
    guarded(PHOTO)
    first = own_process().process.pid
    for _ in range(5):
        guarded(PHOTO)
        with pytest.raises(RejectError, match="not-an-image"):
            guarded(b"nothing")
    assert own_process().process.pid == first


@contextlib.contextmanager
def killing(times: int, number: signal.Signals) -> Iterator[None]:
    """Kills guarded processes of this one while they decode, one after the other."""
    killed = {*children()}

    def kill() -> None:
        for _ in range(times):
            wait_for(lambda: children().keys() - killed and limits.BUDGET._asked)
            (process,) = children().keys() - killed
            time.sleep(0.1)
            os.kill(process, number)
            killed.add(process)

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    thread.join()


@pytest.mark.usefixtures("any_scans")
@pytest.mark.parametrize("number", few_at_once([signal.SIGKILL, signal.SIGSEGV], signal.SIGSEGV))
def test_an_image_that_crashes_twice_is_a_reject_and_the_next_one_works(
    number: signal.Signals,
) -> None:
    with killing(2, number), pytest.raises(RejectError) as error:
        guarded(SLOW)
    assert not limits.BUDGET._asked
    assert error.value.reason == "crashed-decoder"
    assert error.value.detail == f"the guarded process died of {number.name}"
    assert guarded(PHOTO) == convert_image(PHOTO)


@pytest.mark.usefixtures("any_scans")
def test_an_image_whose_process_was_killed_once_is_no_reject() -> None:
    """As when memory ran out for a moment."""
    with killing(1, signal.SIGKILL):
        image = guarded(SLOWISH)
    assert image == convert_image(SLOWISH)


def test_a_crash_between_images_costs_no_image() -> None:
    guarded(PHOTO)
    os.kill(own_process().process.pid, signal.SIGKILL)
    wait_for(lambda: own_process().process.poll() is not None)
    assert guarded(PHOTO) == convert_image(PHOTO)


@pytest.mark.slow
def test_threads_have_processes_of_their_own_that_end_with_them() -> None:
    before, seen = children(), set[int]()
    expected = convert_image(PHOTO)
    together = threading.Barrier(4)

    def work(_: int) -> Image:
        together.wait(30)
        image = guarded(PHOTO)
        seen.add(own_process().process.pid)
        return image

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [expected] * 4
        assert len(seen) == 4
        assert children().keys() >= seen
    wait_for(lambda: children().keys() <= before.keys())


def test_rejects_do_not_keep_the_process_of_a_thread_that_ended() -> None:
    before = children()

    def work() -> None:
        with pytest.raises(RejectError):
            guarded(b"nothing")

    gc.disable()
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert children().keys() <= before.keys()
    finally:
        gc.enable()


def test_one_budget_for_all_processes() -> None:
    options = ImageOptions(max_decode_bytes=2_000_000)
    results = list[Any]()
    thread = threading.Thread(target=lambda: results.append(outcome(PHOTO, options, "", guarded)))
    with limits.BUDGET.hold(1_900_000, 2_000_000):
        thread.start()
        wait_for(lambda: len(limits.BUDGET._asked) == 2)
        time.sleep(0.3)
        assert not results
    thread.join(240)
    assert results == [convert_image(PHOTO)]
    assert not limits.BUDGET._asked


PARENT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import sys, threading
from beam_tfr.images import guard
from tests import test_images_guard as test

guard._CHILD = guard._CHILD.replace("guard.serve", f"{test.NO_LIMIT}; guard.serve")
test.guarded(test.PHOTO)
print(guard._thread.process.process.pid, flush=True)
if sys.argv[1] == "busy":
    test.guarded(test.SLOW)
if sys.argv[1] == "idle":
    threading.Event().wait()
"""


def start_parent(what: str) -> tuple[subprocess.Popen[str], int]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, what],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


@pytest.mark.slow
@pytest.mark.parametrize("what", ["busy", "idle"])
def test_it_ends_with_its_parent_and_holds_none_of_its_pipes(what: str) -> None:
    parent, child = start_parent(what)
    with parent:
        time.sleep(0.3)
        assert is_alive(child)
        parent.kill()
        _, errors = parent.communicate(timeout=240)  # until nobody holds its pipes
        wait_for(lambda: not is_alive(child))
        assert errors == ""


@pytest.mark.slow
def test_it_ends_when_its_parent_ends_by_itself() -> None:
    parent, child = start_parent("end")
    with parent:
        _, errors = parent.communicate(timeout=240)
        assert (parent.returncode, errors) == (0, "")
        assert not Path(f"/proc/{child}").exists()


@pytest.mark.slow
def test_ctrl_c_reaches_the_parent_alone() -> None:
    """As from a terminal: to the whole group of processes."""
    parent, child = start_parent("busy")
    with parent:
        time.sleep(0.3)
        os.killpg(parent.pid, signal.SIGINT)
        _, errors = parent.communicate(timeout=240)
        assert errors.count("Traceback") == 1
        assert errors.endswith("KeyboardInterrupt\n")
        assert "guard.py" not in errors.partition("KeyboardInterrupt")[2]
        wait_for(lambda: not is_alive(child))


@pytest.mark.usefixtures("any_scans")
@pytest.mark.slow
def test_ctrl_c_in_a_notebook_ends_the_process_and_the_next_image_gets_its_own_answer() -> None:
    guarded(PHOTO)
    process = own_process().process.pid
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # where tests run in the background it is ignored
    thread = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        guarded(SLOW)
    thread.join()
    assert not Path(f"/proc/{process}").exists()
    assert not limits.BUDGET._asked
    assert guarded(PHOTO) == convert_image(PHOTO)


@pytest.mark.slow
def test_a_process_that_was_forked_off_has_its_own() -> None:
    expected = guarded(PHOTO)
    mine = own_process().process.pid
    forked = os.fork()
    if not forked:
        status = 1
        try:
            right = guarded(PHOTO) == expected and own_process().process.pid != mine
            own_process()._end()
            status = 0 if right else 2
        finally:
            os._exit(status)
    assert os.waitpid(forked, 0)[1] == 0
    assert guarded(PHOTO) == expected
    assert own_process().process.pid == mine


@pytest.mark.slow
def test_it_loads_neither_beam_nor_tensorflow() -> None:
    program = "import sys; from beam_tfr.images import convert, guard; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert "cv2" in loaded
    assert not loaded & {"apache_beam", "tensorflow", "keras", "google.cloud.storage"}


@pytest.mark.slow
def test_the_folder_it_starts_in_is_not_imported_from(tmp_path: Path) -> None:
    for name in ("json", "socket", "cv2"):
        (tmp_path / f"{name}.py").write_text(
            "raise SystemExit('imported from the folder of the user')"
        )
    program = (
        f"import sys; sys.path[0] = {str(ROOT)!r}\n"
        "from beam_tfr.images import convert_guarded\n"
        "from beam_tfr.options import ImageOptions\n"
        "from tests.fixtures import save, smooth\n"
        "print(convert_guarded(save(smooth(), 'PNG'), ImageOptions(), name='').format)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "jpeg\n", "")


def test_a_process_that_does_not_start_is_an_error_of_the_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(guard, "_CHILD", "import nowhere_to_be_found")
    with pytest.raises(RunError, match=r"process did not start: it ended with status 1$"):
        guarded(PHOTO)
    assert "No module named 'nowhere_to_be_found'" in capfd.readouterr().err


def test_a_process_that_hangs_at_its_start_is_an_error_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "_CHILD", "import time; time.sleep(100)")
    monkeypatch.setattr(guarded_processes, "START_S", 0.2)
    with pytest.raises(RunError, match=r"process did not start: it hung for 0.2 s$"):
        guarded(PHOTO)


def test_an_error_of_its_own_is_an_error_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the guard, where it would be no reject either."""
    monkeypatch.setattr(guard, "_CHILD", guard._CHILD.replace("convert.convert_image", "None"))
    with pytest.raises(RunError, match="'NoneType' object is not callable"):
        guarded(PHOTO)


# Hard limits


AVIF = hostile.FILES["avif-64x64-over-16384x16384-which-it-names"].data


def starting_with(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarded processes of this test run some code before they are ready."""
    vars(guard._thread).clear()
    monkeypatch.setattr(
        guard, "_CHILD", guard._CHILD.replace("guard.serve", f"{code}; guard.serve")
    )


def test_what_a_decoder_takes_beyond_its_header_is_bounded() -> None:
    convert_image(save(smooth(), "AVIF"))
    first = own_process().process.pid
    detail = "the decoder takes more than --max_decode_bytes 400000000, whatever the header says"
    assert outcome(AVIF, ImageOptions(), "") == ("too-much-memory", detail, False)
    assert (
        own_process().process.pid != first
    )  # the verdict is that of a new one, whose memory no other image has used
    assert convert_image(AVIF, max_decode_bytes=3_000_000_000).source_width == 64


def test_a_library_that_aborts_without_memory_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Rust does, and C++ where nobody catches `std::bad_alloc`."""
    starting_with(
        "import os; from beam_tfr.images.formats import by_pillow; "
        "message = b'memory allocation of 9 bytes failed\\n'; "
        "by_pillow.to_source = lambda *_, **__: os.write(2, message) and os.abort()",
        monkeypatch,
    )
    assert outcome(save(smooth(), "AVIF"), ImageOptions(), "")[0] == "too-much-memory"


@pytest.mark.slow
def test_what_takes_too_long_on_a_processor_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    starting_with(
        "from beam_tfr.images import hard_limits; hard_limits.MOST_CPU_S = 1; " + NO_LIMIT,
        monkeypatch,
    )
    slow = hostile.tiff_of_scans(9000, 99)  # 2.5 s of a fast processor
    assert outcome(slow, ImageOptions(), "")[0] == "decode-timeout"
    assert convert_image(save(smooth(), "AVIF"))


def test_the_formats_that_are_bounded_by_their_headers_stay_in_this_process() -> None:
    before = children()
    for form in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "PPM"):
        convert_image(save(smooth(), form))
    assert children().keys() == before.keys()
    for form in ("AVIF", "TIFF"):
        convert_image(save(smooth(), form))
    assert len(children()) == len(before) + 1


def test_messages_of_one_image_do_not_reject_the_next() -> None:
    sound = save(smooth(), "TIFF", compression="tiff_lzw")
    expected = convert_image(sound)
    assert outcome(sound[:-200] + bytes(200), ImageOptions(), "")[0] == "damaged-image"
    assert convert_image(sound) == expected


def test_all_plugins_of_pillow_are_imported_before_the_first_image() -> None:
    """Under the limits of an image, one that got no memory would look like one not installed."""
    script = (
        "import beam_tfr.images, PIL.Image\n"
        "assert PIL.Image.OPEN.keys() >= {'AVIF', 'BMP', 'GIF', 'TIFF', 'WEBP'}, PIL.Image.OPEN"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
