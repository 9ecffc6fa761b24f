"""The page in a real browser, from disk: that it works, looks as it should and keeps to itself."""

import shutil
import tempfile

import pytest

from candidly.report import write
from tests.report.made import BIRDS, HOSTILE, birds
from tests.report.webdriver import MISSING, started

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not found; install it to test the page in a browser"),
]

CLASSES = [*BIRDS, *HOSTILE]
COLUMN = "[...document.querySelectorAll('#rows tbody tr')].map(row => row.cells[arguments[0]].textContent.trim())"
HEADS = "[...document.querySelectorAll('#rows thead th')].map(head => [head.textContent.trim(), head.ariaSort])"
PRESS = "document.querySelectorAll('#rows thead button')[arguments[0]].click()"
TYPE = """(([name, value, event]) => {
    const box = document.getElementById(name);
    box.value = value;
    box.dispatchEvent(new Event(event));
})(arguments)"""
SHOWN = "document.getElementById('shown').textContent"
COLOURS = (
    "['body', '.panel', '#rows thead'].map(place => getComputedStyle(document.querySelector(place)).backgroundColor)"
)
COUNTED = """['.counted', '.band.lost', '.range.lost', '.chart .used'].map(place => {
    const style = getComputedStyle(document.querySelector(place));
    return style.fill + style.stroke;
})"""
USED = "[...document.querySelectorAll('.levels tbody tr')].map(row => getComputedStyle(row.cells[1]).fontWeight)"
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
SIZES = """[...document.querySelectorAll('svg')].map(chart => {
    const box = chart.getBoundingClientRect();
    return [chart.id, box.width, box.height, chart.querySelectorAll('rect, polyline, polygon').length];
})"""
TIMED = """(() => {
    const start = performance.now();
    document.querySelectorAll('#rows thead button')[arguments[0]].click();
    document.body.offsetHeight;
    return performance.now() - start;
})()"""
TO_THE_END = """(async () => {
    const box = document.querySelector('.rows');
    for (let i = 0; i < 20; i++) {
        box.scrollTop = box.scrollHeight;
        await new Promise(requestAnimationFrame);
    }
    return document.querySelectorAll('#rows tbody tr').length;
})()"""


@pytest.fixture(scope="module")
def window():
    folder = tempfile.mkdtemp()  # a browser that ends may still be writing there
    with started(folder) as browser:
        yield browser
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def facts():
    return birds(rows=1200, doubtful=1000, classes=CLASSES)


@pytest.fixture(scope="module")
def path(facts, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "page.html"
    write(facts, path)
    return path


@pytest.fixture
def browser(window, path):
    """The page, just opened in a wide window."""
    window.resize(1280)
    window.use_colours("light")
    window.open(path.as_uri())
    yield window
    assert window.log() == []
    assert window.run("window.hacked ?? null") is None


def test_every_chart_has_a_size_and_something_in_it(browser):
    sizes = browser.run(SIZES)
    assert len(sizes) == 15
    assert not [chart for chart in sizes if min(chart[1:]) <= 0]


def test_sorting(browser, facts):
    names = [name for name, _ in browser.run(HEADS)]
    row, column = names.index("Row"), names.index("Confidence")
    original = browser.run(COLUMN, row)
    assert {state for _, state in browser.run(HEADS)} == {"none"}
    assert browser.run(COLUMN, 0) == [str(priority) for priority in range(1, 101)]
    browser.run(PRESS, row)
    by_row = [int(number) for number in browser.run(COLUMN, row)]
    assert by_row == sorted(one["row"] for one in facts.doubtful)[:100]
    browser.run(PRESS, column)
    browser.run(PRESS, column)
    falling = [float(value) for value in browser.run(COLUMN, column)]
    assert falling == sorted((round(one["confidence"], 3) for one in facts.doubtful), reverse=True)[:100]
    assert browser.run(COLUMN, row) != original
    states = dict(browser.run(HEADS))
    assert states.pop("Confidence") == "descending"
    assert set(states.values()) == {"none"}
    browser.run(PRESS, column)
    assert browser.run(COLUMN, row) == original


def test_text_sorts_as_people_sort_it(browser, facts):
    column = [name for name, _ in browser.run(HEADS)].index("Id")
    browser.run(PRESS, column)
    ids = sorted((one["id"] for one in facts.doubtful), key=lambda text: int(text.removeprefix("rec-")))
    assert browser.run(COLUMN, column) == ids[:100]


def test_gaps_come_last(browser):
    score = [name for name, _ in browser.run(HEADS)].index("Outside")
    browser.run(TYPE, "find", "rec-11", "input")
    for _ in range(2):
        browser.run(PRESS, score)
        scores = browser.run(COLUMN, score)
        known = [value for value in scores if value]
        assert 0 < len(known) < len(scores)
        assert scores[len(known) :] == [""] * (len(scores) - len(known))


def test_finding_text(browser, facts):
    wanted = next(one["id"] for one in facts.doubtful if len(one["id"]) == len("rec-1000"))
    browser.run(TYPE, "find", wanted.upper(), "input")
    assert browser.run(COLUMN, 2) == [wanted]
    assert browser.run(SHOWN) == "1 of 1,000 listed rows"
    browser.run(TYPE, "find", "no such thing", "input")
    assert browser.run(SHOWN) == "0 of 1,000 listed rows"
    browser.run(TYPE, "find", "", "input")
    assert browser.run(SHOWN) == "1,000 of 1,000 listed rows"


@pytest.mark.parametrize("index", [3, len(BIRDS)])
def test_choosing_a_class(browser, facts, index):
    rows = [str(one["row"]) for one in facts.doubtful if index in {*one["candidates"], one["outside"], one["true"]}]
    browser.run(TYPE, "class", str(index), "change")
    assert browser.run(COLUMN, 1) == rows[:100]
    assert 0 < len(rows) < 1000
    assert browser.run(SHOWN) == f"{len(rows)} of 1,000 listed rows"


def test_a_thousand_rows_sort_at_once_and_are_all_there(browser):
    assert min(browser.run(TIMED, column) for column in (0, 2, 2)) < 300  # milliseconds, on a busy machine
    assert browser.run(TO_THE_END) == 1000


def test_nothing_leaves_the_machine(browser):
    entries = browser.run("performance.getEntries().map(entry => entry.name)")
    assert not [name for name in entries if name.startswith(("http", "ws", "ftp", "//"))]
    assert browser.run("document.images.length + document.scripts.length + document.styleSheets.length") == 2


def test_a_script_from_elsewhere_would_not_run(path, window):
    """The policy is what stops it, so this is what the other tests' silence is worth."""
    broken = path.with_name("broken.html")
    broken.write_text(path.read_text().replace("</main>", "<script>window.hacked = 4</script></main>"))
    window.open(broken.as_uri())
    assert window.run("window.hacked ?? null") is None
    assert "Content Security Policy" in "".join(window.log())


def test_the_page_never_scrolls_sideways(browser):
    for width in (1280, 768, 390, 320):
        browser.resize(width)
        wide, window = browser.run(WIDTHS)
        assert wide <= window <= width


def test_dark_mode(browser):
    light = browser.run(COLOURS)
    counted = browser.run(COUNTED)
    browser.use_colours("dark")
    assert all(a != b for a, b in zip(counted, browser.run(COUNTED), strict=True))
    dark = browser.run(COLOURS)
    assert all(a != b for a, b in zip(light, dark, strict=True))


def test_the_level_that_was_used_stands_out(browser):
    weights = browser.run(USED)
    assert len(weights) == 5
    assert [i for i, weight in enumerate(weights) if weight == "600"] == [2]


def test_the_keyboard_reaches_everything(browser):
    script = (
        "[...document.querySelectorAll('input, select, button, .scroll, summary, a')].filter(one => one.tabIndex < 0)"
    )
    assert browser.run(f"{script}.length") == 0
