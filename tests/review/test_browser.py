"""The page in a real browser: the whole loop by keyboard, and what a user sees, hears and can reach."""

import json
import shutil
import tempfile
import time

import pyarrow as pa
import pytest

from candidly import PartialLabelClassifier
from candidly.cli import app as cli
from candidly.review import Log
from candidly.tables import files
from tests.cli.test_commands import ROLES
from tests.cli.test_reuse import TRAINING
from tests.report.webdriver import MISSING, started
from tests.review.made import ROWS, TRUE, copy, desk, serving, serving_here, train
from tests.review.test_images import SVG

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not found; install it to test the page in a browser"),
]

ENTER, ESCAPE, LEFT, RIGHT, DELETE, TAB = "\ue007", "\ue00c", "\ue012", "\ue014", "\ue017", "\ue004"
HOSTILE = '<img src=x onerror="document.title=1">'
TEXT = "document.getElementById(arguments[0]).textContent"
SEEN = """[...document.querySelectorAll(arguments[0])].filter(one => one.checkVisibility())
    .map(one => one.textContent.trim())"""
KEY = """[...document.querySelectorAll('.candidate')]
    .find(one => one.querySelector('bdi').textContent === arguments[0]).ariaKeyShortcuts"""
SELECT = """((box) => {
    box.selectedIndex = arguments[1];
    box.dispatchEvent(new Event("change", { bubbles: true }));
})(document.getElementById(arguments[0]))"""
FOCUSED = """((one) => [one.id || one.className || one.tagName, getComputedStyle(one).outlineStyle])(
    document.activeElement)"""
PICTURES = "[...document.querySelectorAll('#picture img')].map(one => [one.complete, one.naturalWidth])"
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"

# What assistive technology needs: a name for every control, text that can be read against its background (WCAG AA),
# unique ids, labels that exist, an order of headings without gaps, and targets that a finger can hit.
AUDIT = r"""(() => {
    const wrong = [];
    const shown = (one) => one.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    const nameOf = (one) => {
        const by = one.getAttribute("aria-labelledby");
        if (by) return by.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
        const label = one.labels?.[0];
        return one.getAttribute("aria-label") ?? (label ? label.textContent : "") ?? "";
    };
    for (const one of document.querySelectorAll("button, a, summary, select, input, progress, [role]")) {
        if (!shown(one)) continue;
        const speaks = ["BUTTON", "A", "SUMMARY"].includes(one.tagName) || one.role === "option";
        const text = speaks ? one.textContent : "";
        if (["status", "alert"].includes(one.role)) continue;
        if (!(nameOf(one) + text).trim()) wrong.push(`no name: ${one.outerHTML.slice(0, 80)}`);
        const box = one.getBoundingClientRect();
        if (one.tagName === "BUTTON" && (box.width < 24 || box.height < 24)) wrong.push(`small: ${one.id}`);
    }
    for (const one of document.querySelectorAll("[aria-labelledby], [aria-controls], [aria-activedescendant]")) {
        for (const kind of ["aria-labelledby", "aria-controls", "aria-activedescendant"]) {
            for (const id of (one.getAttribute(kind) ?? "").split(" ").filter(Boolean)) {
                if (!document.getElementById(id)) wrong.push(`${kind} of nothing: ${id}`);
            }
        }
    }
    const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
    if (new Set(ids).size < ids.length) wrong.push("an id twice");
    if (!document.documentElement.lang || !document.title) wrong.push("no language or title");
    for (const one of document.querySelectorAll("img")) if (!one.alt) wrong.push("an image without a text");
    if (document.querySelectorAll("main").length !== 1) wrong.push("not one main");
    const parse = (colour) => {
        const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
        return [r, g, b, a];
    };
    const light = ([r, g, b]) => {
        const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        const [x, y, z] = [r, g, b].map((v) => linear(v / 255));
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const behind = (one) => {
        for (let place = one; place; place = place.parentElement) {
            const colour = parse(getComputedStyle(place).backgroundColor);
            if (colour[3] === 1) return colour;
        }
        return [255, 255, 255, 1];
    };
    for (const one of document.querySelectorAll("body *")) {
        const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !shown(one) || one.closest(":disabled")) continue;
        const style = getComputedStyle(one);
        const [a, b] = [light(parse(style.color)), light(behind(one))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const size = parseFloat(style.fontSize);
        const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
        const what = `${one.tagName} ${one.id} ${one.textContent.slice(0, 30)}`;
        if (ratio < least) wrong.push(`contrast ${ratio.toFixed(1)}: ${what}`);
    }
    return wrong;
})()"""


@pytest.fixture(scope="module")
def window():
    folder = tempfile.mkdtemp()  # a browser that ends may still be writing there
    with started(folder) as browser:
        yield browser
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table with hostile text, a long text, images and some rows without a right candidate, and a model of it."""
    folder = tmp_path_factory.mktemp("trained")
    notes = [HOSTILE if i % 2 else "A long note about this row. " * 8 for i in range(200)]
    images = ["a.png" if i % 2 else "b.svg" for i in range(200)]
    tags = [["cat" if TRUE[i] == "dog" else "dog"] if i < 5 else row for i, row in enumerate(ROWS["tags"].to_pylist())]
    table = ROWS.append_column("note", pa.array(notes)).append_column("file", pa.array(images))
    table = table.set_column(table.column_names.index("tags"), "tags", pa.array(tags))
    return train(folder, "--drop", "note,file", table=table)


@pytest.fixture
def place(trained, tmp_path):
    from matplotlib import image

    copy(trained, tmp_path)
    image.imsave(tmp_path / "a.png", [[[0.1, 0.4, 0.7]] * 60] * 40)
    (tmp_path / "b.svg").write_bytes(SVG)
    return tmp_path


class Page:
    """The page in a browser, operated by its keys."""

    def __init__(self, browser, address):
        self.browser = browser
        browser.resize(1280)
        browser.use_colours("light")
        browser.open(address)
        self.until(lambda: self.text("title") or self.text("finished-title"))
        browser.log()

    def text(self, id):
        return self.browser.run(TEXT, id)

    def seen(self, selector):
        return self.browser.run(SEEN, selector)

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.browser.call("POST", "actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def until(self, wanted, seconds=60):
        end = time.monotonic() + seconds
        while not (found := wanted()):
            assert time.monotonic() < end, (self.text("error"), self.text("progress"), self.text("saved"))
            time.sleep(0.02)
        return found

    def decide(self, key):
        """Press a key, and wait until the page says that the answer is saved."""
        self.browser.run("document.getElementById('saved').textContent = ''")
        self.press(key)
        self.until(lambda: self.text("saved").startswith(("saved", "undone", "redone")))

    def choose(self, row_true):
        """Press the key of the true label of the row that is shown."""
        self.decide(self.browser.run(KEY, row_true[int(self.text("title"))]))


def test_the_whole_loop_by_keyboard(window, place, monkeypatch, capsys):
    """Verify 60 rows, see the certificate, decide 20 rows, apply, and train again."""
    monkeypatch.chdir(place)
    with serving(place, "--reviewer", "ann", "--rows", 60) as (process, address):
        page = Page(window, address)
        (plan,) = PartialLabelClassifier.load("model").ledger_
        assert page.text("mode") == "verify"
        assert not page.seen("#filters, #similar, .share, .p, #reviewers, #votes")  # blind
        for row in plan.rows:
            assert int(page.text("title")) == row  # ids are the numbers of the rows here
            page.choose(TRUE)
        assert page.text("progress") == "60 of 60 rows answered"
        assert page.text("finished-title") == "All rows are answered."
        page.press(ENTER)
        page.until(lambda: page.text("finished-title") == "The certificate")
        assert page.text("certificate").startswith("With 90% confidence, at most 10 of 200 rows")
        page.press(ENTER)
        page.until(lambda: page.text("mode") == "decide")
        page.until(lambda: page.seen(".share"))
        assert page.text("progress").startswith("60 of 200 rows answered")
        for number in range(18):
            page.choose(TRUE) if number % 2 else page.decide(ENTER)
        page.decide("n")
        page.press("/", *"heron", ENTER)
        page.until(lambda: page.text("progress").startswith("80 of 200"))
        page.until(lambda: page.text("saved") == "saved")
        assert window.log() == []  # nothing that the policy or the console complains about
        process.send_signal(2)
        assert process.wait(20) == 0
    log = Log("log.jsonl")
    assert len(log.decisions) == 80
    assert {one.mode for one in log.decisions[:60]} == {"verify"}
    assert log.decisions[-1].after == "heron"
    cli.main(["certify", "model", "--decisions", "log.jsonl", "--out", "certified.csv"])
    assert capsys.readouterr().out.startswith("With 90% confidence, at most 10 of 200 rows")
    cli.main(["apply", "log.jsonl", "--table", "rows.csv", "--out", "applied.csv"])
    assert "80 rows decided by ann: 79 with a class, 1 'none of these'" in capsys.readouterr().out
    cli.main(["fit", "applied.csv", *ROLES, *TRAINING, "--drop", "note,file", "--out", "again", "--quiet"])
    again = PartialLabelClassifier.load("again")
    assert "heron" in again.classes_
    sizes = again.fit_record_.candidates.sizes
    assert all(sizes[one.row] == 1 for one in log.decisions if one.after != "none of these")
    assert files.read("applied.csv").num_rows == 200


@pytest.fixture
def page(window, place):
    with serving_here(decide=desk(place, image="file")) as (_, address):
        yield Page(window, address)
        window.open("about:blank")  # which closes the connections


def test_keys_filters_and_what_is_shown(page, window, place):
    first = page.text("title")
    page.press(RIGHT)
    page.until(lambda: page.text("title") != first)
    assert not (place / "log.jsonl").exists()  # arrows decide nothing
    page.press(LEFT)
    page.until(lambda: page.text("title") == first)
    page.decide("1")
    page.decide("c")
    assert page.text("title") not in ("", first)
    page.decide("u")
    page.decide("u")
    assert page.text("title") == first
    assert page.seen("[aria-pressed=true]") == []
    page.decide("r")
    assert page.text("title") == first
    assert len(page.seen("#candidates [aria-pressed=true]")) == 1
    page.decide(DELETE)
    assert [one.after for one in Log(place / "log.jsonl").decisions][-2:] != [None, None]
    # Keys in a burst: each is about the row that it finds.
    before = len(Log(place / "log.jsonl").decisions)
    page.press("1", "1", "n", "1", "c")
    page.until(lambda: len(Log(place / "log.jsonl").decisions) == before + 5)
    rows = [one.row for one in Log(place / "log.jsonl").decisions[-5:]]
    assert len(set(rows)) == 5
    # A batch of a confused pair.
    window.run(SELECT, "pair", 1)
    page.press("b")
    page.until(lambda: page.seen("#cards li"))
    shown = len(page.seen("#cards li"))
    count = len(Log(place / "log.jsonl").decisions)
    page.decide("a")
    decisions = Log(place / "log.jsonl").decisions[count:]
    assert len(decisions) == shown <= 12
    assert len({one.step for one in decisions}) == 1
    page.decide("u")
    assert len(Log(place / "log.jsonl").decisions) == count + 2 * shown
    page.press("b")
    page.until(lambda: page.seen("#answers"))
    # The class that is preferred but is not a candidate has the key 0.
    window.run(SELECT, "pair", 0)
    window.run("document.getElementById('show').value = 'outside'")
    window.run(SELECT, "class", 0)
    page.until(lambda: page.seen("[aria-keyshortcuts='0']"))
    (name,) = page.seen("[aria-keyshortcuts='0'] bdi")
    page.decide("0")
    assert Log(place / "log.jsonl").decisions[-1].after == name
    window.run("document.getElementById('show').value = 'all'")
    window.run(SELECT, "class", 0)
    # Hostile text is text, an image is an image, and an SVG is neither shown nor run.
    assert window.run("document.title").startswith("Review: rows.csv")
    both = set()
    for _ in range(30):
        both |= {"text"} if HOSTILE in page.text("row") else {"long"}
        pictures = window.run(PICTURES)
        both |= (
            {"image"} if [True, 60] in pictures else {"none"} if "cannot be shown" in page.text("picture") else set()
        )
        if both == {"text", "long", "image", "none"}:
            break
        page.press(RIGHT)
        time.sleep(0.1)
    assert both == {"text", "long", "image", "none"}
    assert window.run("document.querySelectorAll('#row img[onerror]').length") == 0


def test_a_server_that_is_gone_is_noticed(window, place):
    with serving_here(decide=desk(place)) as (end, address):
        page = Page(window, address)
        page.decide("1")
        end()
        page.press("1", "1")
        page.until(lambda: "does not answer" in page.text("error"))
        page.until(lambda: page.text("saved") == "")  # it never says that the keys were saved
    assert len(Log(place / "log.jsonl").decisions) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_can_be_used_by_everybody(page, window, scheme, width):
    window.use_colours(scheme)
    window.resize(width, 844)
    page.decide("1")
    page.press(LEFT)
    for keys, selector in (
        (("?",), "#help"),
        ((ESCAPE, "/", "x"), "#search"),
        ((ESCAPE, "b"), "#several"),
        (("b",), "#one"),
    ):
        page.press(*keys)
        page.until(lambda selector=selector: page.seen(selector))
        assert window.run(AUDIT) == []
        scroll, client = window.run(WIDTHS)
        assert scroll <= client
    # Every control can be reached with the tab key, and shows that it has the focus.
    window.run("document.activeElement.blur()")
    reached = set()
    for _ in range(60):
        page.press(TAB)
        found = window.run(FOCUSED)
        assert found[1] != "none" or found[0] == "BODY", found
        reached.add(found[0])
    assert {
        "help-button",
        "show",
        "class",
        "pair",
        "batch-button",
        "candidate",
        "none",
        "unknown",
        "search-button",
    } <= reached
    assert {"back", "forth", "undo", "SUMMARY"} <= reached


def test_the_audit_sees(window, page):
    window.run("document.getElementById('none').replaceChildren()")
    window.run("document.getElementById('progress').style.color = 'rgb(245, 247, 250)'")  # that of the header
    found = window.run(AUDIT)
    assert any(one.startswith("no name") for one in found)
    assert any(one.startswith("contrast 1.0") for one in found)


def test_dark_colours_differ(page, window):
    ask = "getComputedStyle(document.body).backgroundColor"
    window.use_colours("dark")
    dark = window.run(ask)
    window.use_colours("light")
    assert window.run(ask) == "rgb(255, 255, 255)" != dark


def test_another_page_cannot_reach_the_server(page, window, tmp_path):
    """A page of another origin, in the same browser, even if it knows the address."""
    address = window.run("location.href")
    other = tmp_path / "evil.html"
    other.write_text("<title>evil</title>")
    window.open(other.as_uri())
    script = """(async () => {
        const tries = [
            fetch(arguments[0] + "api/state"),
            fetch(arguments[0] + "api/undo", {method: "PUT", body: "{}"}),
            fetch(arguments[0] + "api/undo", {method: "POST", body: "{}"}),
        ];
        return (await Promise.allSettled(tries)).map((one) => one.status);
    })()"""
    assert json.loads(json.dumps(window.run(script, address))) == ["rejected"] * 3
