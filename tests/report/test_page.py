"""The page: what is in it, that hostile texts do nothing, and that it loads nothing."""

import base64
import builtins
import hashlib
import html
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import pytest

from candidly.report import render, rendering, write
from candidly.report.texts import visible
from tests.report import made
from tests.report.made import HOSTILE, birds

SECTIONS = ["headlines", "cost", "done", "set-sizes", "epochs", "confused", "doubtful", "reliable", "settings"]
CHARTS = {
    "cost-lost",
    "cost-removed",
    "sizes",
    "curve-loss",
    "curve-covering_rate",
    "heat-together",
    "heat-removed",
    "reliability",
}
VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """A parsed page: its elements with their attributes, its texts, and whether every element is closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.open = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append((self.open[-1], data))

    def ids(self):
        return [found["id"] for _, found in self.elements if "id" in found]

    def count(self, tag):
        return sum(one == tag for one, _ in self.elements)

    @property
    def text(self):
        return " ".join(" ".join(words for _, words in self.texts).split())

    def titles(self):
        return {found["title"] for _, found in self.elements if "title" in found}


@pytest.fixture(scope="module")
def text():
    return render(birds(rows=500, doubtful=40))


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_every_section_and_chart_is_there(page):
    assert set(SECTIONS) | CHARTS <= set(page.ids())
    assert [found["id"] for tag, found in page.elements if tag == "section"] == SECTIONS
    assert page.count("svg") == 15


def test_headline_figures(page):
    facts = birds(rows=500, doubtful=40)
    before, after = (sum(i * n for i, n in enumerate(sizes, 1)) for sizes in (facts.before, facts.after))
    assert f"Candidates per row {before / 500:.2f} → {after / 500:.2f}" in page.text
    assert f"Extra candidates removed {100 * (before - after) / (before - 500):.1f} %" in page.text
    assert f"Rows changed {facts.changed}" in page.text
    rows = facts.truth["rows"]
    assert (
        f"True labels lost {100 * facts.truth['true_lost']:.1f} % of {rows} rows with a known true label" in page.text
    )
    other = Page(render(replace(facts, truth=facts.truth | {"outside": 4})))
    assert (
        f"{rows} rows with a known true label; in 4 of them it is not a candidate, so it cannot be lost" in other.text
    )
    assert f"in {rows - 4} rows whose true label is a candidate" in other.text


def test_what_the_level_does_not_promise(page):
    assert "It is met by guesses that networks make about themselves, without a guarantee." in page.text
    assert "candidly verify plan draws them" in page.text
    assert "p-value" not in page.text


def test_what_this_costs(page):
    assert "True labels lost (guess) 1 to 9 % not verified: check 44 rows to certify alpha 0.05" in page.text
    assert "Not verified: check 44 rows to certify alpha 0.05 (candidly verify plan)." in page.text
    heads = "Level α True labels lost (guess) True value Wrong candidates removed (guess) True value Candidates removed"
    assert f"{heads} Rows to check" in page.text
    assert "0.05 used here 1 to 9 % 4.5 % 45 to 65 % 56.0 % 325 44" in page.text
    assert "In 3 of them it is not a candidate, so it cannot be lost." in page.text
    assert "checked" not in page.text.split("Doubtful rows")[0]
    assert page.text.count("used here") == 1
    assert "barn owl and wren 56 one of them is likely in about 0 rows without the other" in page.text
    assert "great tit 7 about 7 rows are too few to learn from" in page.text
    assert "Missing true labels: no evidence of rows whose true label is not a candidate." in page.text
    assert "allowed by the level" in page.text
    assert "true value, where labels are known" in page.text


def test_checked_rows_stand_beside_the_guesses():
    page = Page(render(replace(birds(rows=500, doubtful=10), audit=made.audit(14, 500, False, checked=80))))
    assert "Verified with 80 rows that were checked by hand." in page.text
    assert "True labels lost (checked rows) 4.5 % 90 % interval: 2.5 to 8.0 %" in page.text
    assert "0.05 used here 1 to 9 % 4.5 % (2.5 to 8.0 %) 45 to 65 % 325 44" in page.text
    assert "So it is not a candidate in 1.0% (0.1 to 4.0%) of the 500 rows that they were drawn from." in page.text


def test_noisy_sets_are_pointed_out():
    facts = made.audit(14, 100, True) | {"missing": [0.08, 0.05, 0.12]}
    page = Page(render(replace(birds(rows=100, doubtful=10), audit=facts)))
    assert "in a guessed 5 to 12 % of the rows the true label does not appear to be a candidate" in page.text


def test_a_level_that_was_not_tried_is_not_marked():
    facts = birds(rows=100, doubtful=10)
    page = Page(render(replace(facts, settings=facts.settings | {"alpha": 0.07})))
    assert "used here" not in page.text
    assert "Wrong candidates removed (guess) 45" not in page.text
    assert {"cost-lost", "cost-removed"} <= set(page.ids())


def test_a_cost_that_cannot_be_estimated_says_why():
    why = "<b>too noisy</b>"
    for truth in (True, False):
        page = Page(render(replace(birds(rows=100, doubtful=10), audit=made.audit(14, 100, truth, declined=why))))
        assert page.text.count(f"No guess: {why}.") == 1
        assert not {"cost-lost", "cost-removed"} & set(page.ids())
        assert f"0.05 used here –{' 4.5 %' * truth} –{' 56.0 %' * truth} 65 44" in page.text


def test_many_doubts_are_cut():
    facts = made.audit(14, 100)
    pairs = [{**facts["pairs"][0], "numbers": [i, j]} for i in range(14) for j in range(i)]
    page = Page(render(replace(birds(rows=100, doubtful=10), audit=facts | {"pairs": pairs})))
    assert "81 more" in page.text
    assert page.text.count("one of them is likely") == 91


def test_names_settings_and_words_are_shown(page):
    facts = birds(rows=500, doubtful=40)
    for words in (*facts.classes, *facts.words, *facts.features, *facts.settings, "NVIDIA H200", "0.1.0"):
        assert words in page.text


def test_every_doubtful_row_is_a_row(page):
    rows = [found["data-classes"] for tag, found in page.elements if tag == "tr" and "data-classes" in found]
    expected = [
        {*row["candidates"], *(one for one in (row["outside"], row["true"]) if one is not None)}
        for row in birds(rows=500, doubtful=40).doubtful
    ]
    assert [{*map(int, one.split())} for one in rows] == expected


def test_the_page_is_accessible(page):
    names = page.ids()
    assert len(names) == len(set(names))
    for tag, found in page.elements:
        for key in ("aria-labelledby", "for"):
            assert set(found.get(key, "").split()) <= set(names)
        if tag == "a":
            assert found["href"].removeprefix("#") in names
        if found.get("role") == "region":
            assert found["tabindex"] == "0"
        if tag == "th":
            assert found["scope"] in ("row", "col")
    assert page.elements[0] == ("html", {"lang": "en-GB"})
    assert page.count("h1") == 1
    assert page.count("caption") == page.count("table") == 8
    assert sum("aria-sort" in found for _, found in page.elements) == 9


def test_nothing_is_loaded(page, text):
    loading = {"src", "srcset", "data", "action", "background", "poster", "xlink:href", "style", "formaction"}
    for tag, found in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "image", "use", "video"}
        assert not loading & found.keys()
        assert not [name for name in found if name.startswith("on")]
    assert not re.search(r"https?:|url\(|@import", text)


def test_only_its_own_style_and_script_are_allowed(page, text):
    (policy,) = [found["content"] for _, found in page.elements if found.get("http-equiv")]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_the_same_findings_give_the_same_page(text):
    assert render(birds(rows=500, doubtful=40)) == text


def hostile(name):
    """Return facts with a text in every field that takes one."""
    facts = birds(rows=300, doubtful=20, classes=[name, "owl", "wren"])
    rows = [{**row, "id": name} for row in facts.doubtful]
    texts = {"title": name, "version": name, "device": name, "words": [name], "features": [name], "date": name}
    audit = made.audit(3, 300) | {"words": [name]}
    audit["levels"][0] |= {"declined": name, "lost": None, "removed": None}
    for one in (*audit["classes"], *audit["pairs"]):
        one["why"] = name
    return replace(facts, **texts, settings={name: name, "other": name}, doubtful=rows, audit=audit)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_texts(name):
    text = render(hostile(name))
    page, harmless = Page(text), Page(render(hostile("harmless")))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]
    assert [found.keys() - {"title"} for _, found in page.elements] == [
        found.keys() - {"title"} for _, found in harmless.elements
    ]
    shown = " ".join(visible(name).split())
    assert page.text.count(shown) >= 10 or not shown
    assert {letter for letter in text if not letter.isprintable()} <= {"\n", "\u00a0"}
    text.encode()


def test_long_names_are_cut_and_whole_in_the_title():
    name = "nightingale " * 25
    page = Page(render(hostile(name)))
    assert name in page.titles()
    chips = [words for tag, words in page.texts if tag in ("bdi", "text") and words.startswith("night")]
    assert chips
    assert max(map(len, chips)) <= 25


def test_endless_names_do_not_make_endless_pages():
    classes = [f"{'x' * 10_000}{i}" for i in range(5)]
    assert len(render(birds(rows=200, doubtful=100, classes=classes))) < 1_500_000


def test_the_page_of_many_classes_stays_small():
    """Every doubtful row has other candidates: not all of them can be chosen in a list."""
    classes = [f"class {i}" for i in range(10_000)]
    facts = birds(rows=1000, doubtful=500, classes=classes)
    some = [
        {**row, "candidates": [*range(20 * i, 20 * i + 20)], "removed": [], "scores": [0.05] * 20}
        for i, row in enumerate(facts.doubtful)
    ]
    page = render(replace(facts, doubtful=some))
    assert len(page) < 2_000_000
    assert page.count("<option value=") == 201, "all, and 200 classes"
    assert re.search(r"<option disabled>… and 9,\d\d\d more: use the search</option>", page)
    assert f"{len(some)} of {facts.rows:,} rows to check by hand" in page


def absent(**changes):
    return Page(render(replace(birds(rows=100, doubtful=10, truth=False), **changes)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"audit": None}, "There are too few held-out rows to guess the cost of cleaning."),
        ({"history": {}}, "No training history was recorded."),
        ({"doubtful": []}, "No rows are listed."),
        ({"reliability": []}, "Probabilities were not recorded."),
        ({"shown": [], "together": [], "removed": []}, "There are too few classes to compare."),
        ({"words": [], "features": [], "settings": {}}, "The level is not a guarantee"),
    ],
)
def test_what_is_absent_is_said_to_be(changes, words):
    page = absent(**changes)
    assert words in page.text
    assert [found["id"] for tag, found in page.elements if tag == "section"] == SECTIONS


def test_without_truth_nothing_is_said_of_it(page):
    assert "True labels kept" in page.text
    assert "True labels kept" not in absent().text
    assert "prediction is true" not in absent().text
    assert "rue value" not in absent(audit=made.audit(14, 100, truth=False)).text


def test_a_single_class_and_nothing_to_remove():
    facts = birds(rows=20, doubtful=3, classes=["owl"])
    assert "Extra candidates removed –" in Page(render(facts)).text


def test_one_pair_of_classes():
    assert {"heat-together", "heat-removed"} <= set(Page(render(birds(rows=50, classes=["owl", "wren"]))).ids())


def test_a_thousand_classes_and_rows_are_quick_and_small():
    facts = birds(rows=2000, doubtful=1000, classes=[f"species {i}" for i in range(1000)])
    start = time.perf_counter()
    text = render(facts)
    assert time.perf_counter() - start < 10
    assert len(text) < 12_000_000
    assert "The 30 most confused classes; 970 more are not shown." in Page(text).text
    assert "more</small>" in text


def test_a_loss_that_diverged_is_left_out():
    curve = {"mean": [1.0, float("nan"), float("inf")], "low": [0.5, None, 1e308], "high": [1.5, None, 1e308]}
    assert "nan" not in render(replace(birds(rows=50), history={"loss": curve})).split("<script>")[0].lower()


def test_write_replaces_whole_files(tmp_path, monkeypatch, text):
    path = tmp_path / "page.html"
    write(birds(rows=500, doubtful=40), path)
    assert path.read_bytes() == text.encode()

    def fail(facts):
        raise RuntimeError("no page")

    monkeypatch.setattr(rendering, "render", fail)
    with pytest.raises(RuntimeError, match="no page"):
        write(birds(rows=50), path)
    assert path.read_bytes() == text.encode()
    assert list(tmp_path.iterdir()) == [path]


def test_without_jinja2_one_line_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name == "jinja2":
            raise ModuleNotFoundError("No module named 'jinja2'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'candidly\[report\]'") as caught:
        render(birds(rows=50))
    assert "\n" not in str(caught.value)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_stand_out(scheme):
    """The contrasts that WCAG 2.2 asks for at level AA: 4.5 for texts, 3 for graphics."""
    css = resources.files("candidly.report").joinpath("page/page.css").read_text(encoding="utf-8")
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    pairs = [(ink, ground) for ink in ("ink", "quiet", "link") for ground in ("paper", "panel")]
    pairs += [("good-ink", "good"), ("bad-ink", "bad"), ("bad-ink", "paper"), ("heat-low-ink", "diagonal")]
    pairs += [(f"heat-{'low' if level < 4 else 'high'}-ink", f"heat-{level}") for level in range(6)]
    assert not {pair for pair in pairs if contrast(*(colours[name] for name in pair)) < 4.5}
    graphics = [("before", "paper"), ("after", "paper"), ("second", "paper"), ("after", "panel"), ("second", "panel")]
    assert not {pair for pair in graphics if contrast(*(colours[name] for name in pair)) < 3}


def test_the_contrast_check_sees():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_hints_in_charts_are_escaped():
    text = render(birds(rows=100, classes=["<i>a</i>", "b&c"]))
    assert "<i>" not in text
    assert html.escape("<i>a</i> and b&c") in text
