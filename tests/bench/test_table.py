"""Tables in every style: numbers by hand, notes, escaping, and their place in a page."""

import csv
import io
import math
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candidly.bench.scores import Scores
from candidly.bench.table import BEGIN, END, insert, render

STYLES = ("text", "markdown", "latex", "csv")
HOSTILE = "\\|*_`<script>alert(1)</script>[x](https://e.vil)![y](z) #~~&%$x$ {}^\n\r\t\x1b[31m\u202e=www.e.vil"
HOSTILE_NAMES = [
    HOSTILE,
    "[1em]",
    "*",
    "=1+1",
    "+1",
    "-1",
    "@x",
    "\t=1",
    "",
    "|",
    "\\",
    "| a | b |",
    '"quoted", too',
    "</td><!--",
    "# head",
    "```",
    "\\end{tabular}",
    "%",
    "$\\write18{id}$",
    BEGIN,
]


def seeds(*values):
    return dict(enumerate(values))


def small():
    return Scores(
        {
            ("lost", "proden"): seeds(0.70, 0.72, 0.74),
            ("lost", "cc"): seeds(0.60, 0.64, 0.62),
            ("lost", "conf+proden"): seeds(0.80, 0.82, 0.84),
            ("soccer", "proden"): seeds(0.50, 0.52, 0.54),
            ("soccer", "cc"): seeds(0.52, 0.54, 0.50),
            ("soccer", "conf+proden"): seeds(0.40, 0.42, 0.44),
        }
    )


def published():
    return Scores(
        {
            ("lost", "proden"): seeds(0.70, 0.72, 0.74),
            ("lost", "cc"): seeds(0.70, 0.74, 0.72),  # 10 points above ours on each seed: p = 0
            ("soccer", "conf+proden"): seeds(0.39, 0.41, 0.43),  # 1 point below ours: p = 0
            ("other", "proden"): seeds(0.5),
        }
    )


def hostile(names=HOSTILE_NAMES):
    return Scores({(dataset, method): seeds(0.5, 0.6) for dataset in names for method in (*names, "proden")})


def markdown_cells(line):
    """Split a row at the pipes that no backslash escapes."""
    return [cell.strip() for cell in re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]]


def latex_cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\"))]


def test_text():
    # W/T/L of proden against cc: on lost d = (0.10, 0.08, 0.12), t = 0.10 / (0.02 / √3) = 8.7 > 4.3: a win; on soccer
    # the mean difference is 0: a tie. conf+proden is 0.10 above and below proden on every seed: a win and a loss;
    # against cc, d = (0.20, 0.18, 0.22) and −(0.12, 0.12, 0.06): t = 17.3, a win, and t = −0.10 / (0.035 / √3) = −5, a
    # loss. Ranks: lost 2, 3, 1; soccer 1.5, 1.5, 3.
    lines = render(small(), title="Results").splitlines()
    assert lines[:2] == ["Results", ""]
    assert [re.split(r"\s{2,}", line) for line in (lines[2], *lines[4:7])] == [
        ["method", "lost", "soccer", "W/T/L", "rank"],
        ["proden", "72.00 ± 2.00", "52.00 ± 2.00*", "1/1/0", "1.75"],
        ["cc", "62.00 ± 2.00", "52.00 ± 2.00*", "0/1/1", "2.25"],
        ["conf+proden", "82.00 ± 2.00*", "42.00 ± 2.00", "2/0/2", "2.00"],
    ]
    assert {len(line) for line in lines[3:7]} == {len(lines[3])}  # the last column is as wide as its cells


def test_notes_say_what_the_numbers_are():
    text = " ".join(render(small()).split())
    assert "Test accuracy in percent: mean ± standard deviation over 3 seeds per cell" in text
    assert "a seed's accuracy is the mean over its initialisations" in text
    assert "The best mean of a dataset has a *." in text
    assert "paired t-tests over seeds at 5 %, on each dataset against each other method of proden, cc." in text
    assert "averaged over 2 datasets; 1 is the best" in text
    # Ranks (2 3 1), (1.5 1.5 3) sum up to 3.5, 4.5, 4: 12 / 24 · 48.5 − 24 = 0.25, divided by 1 − 6 / 48 = 0.875, is
    # 0.2857; p = exp(−0.1429) = 0.867.
    assert "Friedman's test: chi-squared 0.29, p = 0.867: no significant difference between the ranks." in text
    # 2.344·√(12 / 12)
    assert (
        "critical distance of average ranks at 5 %: 2.34. Closer together than that: proden, conf+proden, cc." in text
    )
    assert "missing" not in text
    assert "not tested" not in text


def test_notes_say_why_there_is_no_test():
    cells = dict(small().cells)
    del cells["lost", "cc"]
    text = " ".join(render(Scores(cells)).split())
    assert "averaged over 1 dataset (soccer), those without a missing cell" in text
    assert "Friedman's test needs at least 3 methods and 2 datasets, not 3 and 1." in text
    assert "A missing cell is shown as –." in text
    del cells["soccer", "proden"]
    text = " ".join(render(Scores(cells)).split())
    assert "No ranks: there is no dataset on which every method has a cell." in text
    assert re.search(r"proden +72.00 ± 2.00 +– +– +–", render(Scores(cells)))


def test_numbers_of_seeds():
    one = Scores({("lost", "proden"): {0: 0.5}, ("lost", "cc"): {0: 0.25}})
    assert "percent: mean over 1 seed per cell" in render(one)
    assert re.search(r"proden +50\.00\* +– +1\.00", render(one))
    assert "other method of proden, cc. Cells with one seed are not tested." in " ".join(render(one).split())
    uneven = Scores({("lost", "proden"): seeds(0.5, 0.6, 0.7), ("lost", "cc"): {0: 0.25}})
    assert "over 1 to 3 seeds per cell" in render(uneven)
    assert "Train accuracy" in render(Scores(one.cells, split="train"))


def test_means_that_print_alike_are_all_best():
    scores = Scores({("d", "proden"): {0: 0.50001}, ("d", "cc"): {0: 0.50004}, ("d", "pop"): {0: 0.49994}})
    assert render(scores, "markdown").count("**50.00**") == 2
    assert "| 49.99 |" in render(scores, "markdown")


def test_without_base_methods_nothing_is_counted():
    scores = Scores({("d", "conf+proden"): seeds(0.5, 0.6)})
    assert "W/T/L:" not in render(scores)
    assert re.search(r"conf\+proden +55\.00 ± 7\.07\* +– +1\.00", render(scores))


def test_text_stays_within_120_characters():
    methods = ["proden", "conf+proden (no correction)", "cc"]
    datasets = [f"dataset{i:02}" for i in range(12)]
    scores = Scores({(dataset, method): seeds(0.5, 0.6) for dataset in datasets for method in methods})
    lines = render(scores, against=scores).splitlines()
    assert max(map(len, lines)) <= 120
    headers = [line for line in lines if line.startswith("method") and "published" not in line]
    assert len(headers) == 3
    assert re.findall(r"dataset\d\d", " ".join(headers)) == datasets
    assert sum(line.startswith("conf+proden (no") for line in lines) == 3 + 12


def test_wide_letters_stay_aligned():
    scores = Scores({("数据", "方法"): {0: 0.5}, ("数据", "cc"): {0: 0.25}})
    header, rule, first, second = render(scores).splitlines()[:4]
    assert first.startswith("cc      25.00 ")
    assert second.startswith("方法    50.00*")
    assert header.startswith("method   数据 ")
    assert rule.startswith("------  ------  ")


def test_markdown():
    lines = render(small(), "markdown", title="Results & more").splitlines()
    assert lines[0] == "**Results &amp; more**"
    assert lines[2:7] == [
        "| method | lost | soccer | W/T/L | rank |",
        "| :--- | ---: | ---: | ---: | ---: |",
        "| proden | 72.00 ± 2.00 | **52.00 ± 2.00** | 1/1/0 | 1.75 |",
        "| cc | 62.00 ± 2.00 | **52.00 ± 2.00** | 0/1/1 | 2.25 |",
        "| conf+proden | **82.00 ± 2.00** | 42.00 ± 2.00 | 2/0/2 | 2.00 |",
    ]
    assert lines[8].startswith("- Test accuracy in percent")


def test_latex():
    lines = render(small(), "latex", title="100 %").splitlines()
    assert lines[0] == r"\noindent\textbf{100 \%}"
    assert lines[2:11] == [
        r"\noindent\begin{tabular}{lrrrr}",
        r"\toprule",
        r"method & lost & soccer & W/T/L & rank \\",
        r"\midrule",
        r"proden & 72.00 $\pm$ 2.00 & \textbf{52.00 $\pm$ 2.00} & 1/1/0 & 1.75 \\",
        r"cc & 62.00 $\pm$ 2.00 & \textbf{52.00 $\pm$ 2.00} & 0/1/1 & 2.25 \\",
        r"conf+proden & \textbf{82.00 $\pm$ 2.00} & 42.00 $\pm$ 2.00 & 2/0/2 & 2.00 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert r"at 5 \%" in "\n".join(lines)


def test_csv():
    assert render(small(), "csv", title="no title in data").splitlines() == [
        "dataset,method,seeds,mean,std,best,wins,ties,losses,average_rank",
        "lost,proden,3,72,2,0,1,1,0,1.75",
        "lost,cc,3,62,2,0,0,1,1,2.25",
        "lost,conf+proden,3,82,2,1,2,0,2,2",
        "soccer,proden,3,52,2,1,1,1,0,1.75",
        "soccer,cc,3,52,2,1,0,1,1,2.25",
        "soccer,conf+proden,3,42,2,0,2,0,2,2",
    ]


def test_csv_with_published_numbers_and_gaps():
    scores = Scores({("a", "cc"): {0: 2 / 3}, ("b", "pop"): seeds(0.5, 0.5)})
    against = Scores({("a", "cc"): {0: 1.0}, ("b", "pop"): seeds(0.25, 0.25)})
    assert render(scores, "csv", against).splitlines() == [
        "dataset,method,seeds,mean,std,best,wins,ties,losses,average_rank,published,difference,p,p_holm",
        "a,cc,1,66.6667,,1,0,0,0,,100,-33.3333,,",
        "b,pop,2,50,0,1,0,0,0,,25,25,0,0",
    ]
    assert render(scores, "csv", Scores({("c", "cc"): {0: 1.0}})).splitlines()[1] == "a,cc,1,66.6667,,1,0,0,0,,,,,"


def test_beside_published_numbers():
    text = render(small(), against=published())
    lost, soccer = (part.splitlines() for part in text.split(", beside published accuracies")[1:])
    assert [line.split() for line in lost[2:7]] == [
        ["method", "ours", "published", "difference", "p", "p", "(Holm)", "significant"],
        lost[3].split(),
        ["proden", "72.00", "72.00", "0.00", "1.000", "1.000"],
        ["cc", "62.00", "72.00", "−10.00", "<", "0.001", "<", "0.001", "below"],
        ["conf+proden", "82.00", "–", "–", "–", "–"],
    ]
    assert lost[8] == "- Mean difference over 2 compared cells: −5.00; 0 above, 1 below, 1 significant."
    assert soccer[6].split() == ["conf+proden", "42.00", "41.00", "+1.00", "<", "0.001", "<", "0.001", "above"]
    assert soccer[8] == "- Mean difference over 1 compared cell: +1.00; 1 above, 0 below, 1 significant."
    assert "for all 3 tests" in " ".join(text.split())


def test_nothing_published():
    text = render(small(), against=Scores({("other", "cc"): {0: 0.5}}))
    assert text.count("Nothing is published for these cells.") == 2
    assert "Beside published accuracies, all datasets" not in text


def below(text, heading):
    """Return the table and the notes below a heading of plain text."""
    table, notes = text.partition(f"{heading}\n\n")[2].split("\n\n")[:2]
    lines = table.splitlines()
    return [re.split(r"\s{2,}", line) for line in (lines[0], *lines[2:])], " ".join(notes.split())


def test_cleaners_against_none():
    cells = dict(small().cells) | {
        ("lost", "conf+cc"): seeds(0.60, 0.64, 0.62),
        ("soccer", "conf+proden (no correction)"): seeds(0.60, 0.62, 0.64),
        ("soccer", "clsp+pop"): seeds(0.5, 0.5, 0.5),  # there is no pop alone
    }
    table, note = below(render(Scores(cells)), "Cleaners against no cleaner")
    assert table == [
        ["cleaner", "proden", "cc", "all", "mean difference"],
        ["conf", "1/0/1", "0/1/0", "1/1/1", "0.00"],
        ["conf (no correction)", "1/0/0", "–", "1/0/0", "+10.00"],
    ]
    assert note.startswith("- Wins, ties and losses of the method with the cleaner against the method alone")
    assert "Cleaners against" not in render(small().select(methods=["proden", "cc"]))


def test_the_summary_of_published_numbers():
    heading = "Beside published accuracies, all datasets"
    table, note = below(render(small(), against=published()), heading)
    assert table == [
        ["dataset", "cells", "mean difference", "W/T/L", "W/T/L (Holm)"],
        ["lost", "2", "−5.00", "0/1/1", "0/1/1"],
        ["soccer", "1", "+1.00", "1/0/0", "1/0/0"],
        ["all", "3", "−3.00", "1/1/1", "1/1/1"],
    ]
    assert note.endswith("Significantly below the published accuracy after Holm's correction: cc on lost.")
    table, note = below(render(small(), against=published(), without=["cc"]), heading)
    assert table[0][-2:] == ["cells without cc", "mean difference without cc"]
    assert [row[-2:] for row in table[1:]] == [["1", "0.00"], ["1", "+1.00"], ["2", "+0.50"]]
    table, _ = below(render(small(), against=published(), without=["proden", "cc"]), heading)
    assert [row[-2:] for row in table[1:]] == [["0", "–"]] * 3, "conf+proden is proden too"
    one = Scores({("lost", "cc"): {0: 0.5}, ("soccer", "cc"): seeds(0.5, 0.6)})
    table, note = below(render(one, against=Scores({("lost", "cc"): {0: 0.6}})), heading)
    assert table[1:] == [["lost", "1", "−10.00", "–", "–"]], "one seed decides nothing"
    assert note.endswith("no cell.")


def test_holm_decides_the_second_record():
    """A p-value of 0.035 is significant alone, but not among two tests."""
    cells = {("lost", "cc"): seeds(0.50, 0.52, 0.54), ("lost", "pop"): seeds(0.5, 0.6, 0.4)}
    other = {("lost", "cc"): seeds(0.52, 0.56, 0.57), ("lost", "pop"): seeds(0.6, 0.5, 0.4)}
    table, note = below(render(Scores(cells), against=Scores(other)), "Beside published accuracies, all datasets")
    assert table[1][3:] == ["0/1/1", "0/2/0"]
    assert note.endswith("no cell.")


def test_beside_other_runs():
    other = Scores({("lost", "proden"): seeds(0.8, 0.9), ("lost", "pop"): {0: 0.5}, ("soccer", "cc"): {7: 0.5}})
    text = render(small(), beside=("random\nsplit", other))
    table, note = below(text, "lost, beside random\\nsplit")
    assert table == [
        ["method", "here", "random\\nsplit", "difference"],
        ["proden", "72.00 ± 2.00", "85.00 ± 7.07", "−13.00"],
        ["cc", "62.00 ± 2.00", "–", "–"],
        ["conf+proden", "82.00 ± 2.00", "–", "–"],
    ]
    assert note == "- Mean difference over 1 cell: −13.00."
    assert below(text, "soccer, beside random\\nsplit")[0][2] == ["cc", "52.00 ± 2.00", "50.00", "+2.00"]
    assert "No cell is both here and in x." in render(small(), beside=("x", Scores({("a", "b"): {0: 0.5}})))
    assert render(small(), "csv", beside=("x", other)).splitlines()[:3] == [
        "dataset,method,seeds,mean,std,best,wins,ties,losses,average_rank,beside_mean,beside_std",
        "lost,proden,3,72,2,0,1,1,0,1.75,85,7.07107",
        "lost,cc,3,62,2,0,0,1,1,2.25,,",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"without": ["prodne"]}, "without has 'prodne'.*did you mean 'proden'.*; the methods without a cleaner are"),
        ({"without": ["conf+proden"]}, "without has 'conf\\+proden'"),
        ({"without": "cc"}, "without is 'cc'"),
        ({"beside": small()}, "beside is .*; it must be a pair"),
        ({"beside": ("x", None)}, r"beside is \('x', None\); it must be a pair"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        render(small(), against=published(), **options)


def test_every_style_has_the_comparison():
    assert "| cc | 62.00 | 72.00 | −10.00 | &lt; 0.001 | &lt; 0.001 | below |" in render(
        small(), "markdown", published()
    )
    assert r"cc & 62.00 & 72.00 & $-$10.00 & \textless{} 0.001 & \textless{} 0.001 & below \\" in render(
        small(), "latex", published()
    )


def test_unknown_styles_are_named():
    with pytest.raises(ValueError, match="style is 'html'; use one of text, markdown, latex, csv"):
        render(small(), "html")


def test_hostile_names_in_text():
    text = render(hostile(), against=hostile(), title=HOSTILE, beside=(HOSTILE, hostile()))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]", text)


def test_hostile_names_in_markdown():
    text = render(hostile(), "markdown", hostile(), HOSTILE, without=["proden"], beside=(HOSTILE, hostile()))
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) == 2 + 2 * len(HOSTILE_NAMES)
    for table in tables:
        assert len({len(markdown_cells(line)) for line in table.splitlines()}) == 1
    bare = re.sub(r"\\[\\*_`\[\]#]", "", text)  # what backslashes escape
    bare = re.sub(r"^\|(.*)\|$", lambda row: row[1].replace(" | ", " "), bare, flags=re.MULTILINE)
    bare = re.sub(r"\*\*(.*?)\*\*", r"\1", bare)  # our own bold
    assert not re.search(r"[|*_`<>\[\]\\#~$](?!\d+;)", bare.replace("&#", "&"))
    assert not re.search(r"&(?!(#\d+|amp|lt|gt);)", text)
    assert "://" not in text
    assert "www." not in text


def test_hostile_names_in_latex():
    text = render(hostile(), "latex", hostile(), HOSTILE, without=["proden"], beside=(HOSTILE, hostile()))
    bare = re.sub(r"\\[&%$#_{}\\]", "", text)  # escaped characters and line ends
    depth = 0
    for letter in bare:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    assert not re.search(r"[%#_~^<>|]", bare)
    commands = set(re.findall(r"\\([a-zA-Z]+)", bare))
    symbols = {"textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar"}
    layout = {"noindent", "textbf", "begin", "end", "toprule", "midrule", "bottomrule", "item", "pm"}
    assert commands == symbols | layout
    assert bare.replace(r"$\pm$", "").replace("$-$", "").count("$") == 0
    assert text.count(r"\begin{") == text.count(r"\end{")
    for table in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL):
        rows = [line for line in table.splitlines() if line != r"\midrule"]
        assert len({len(latex_cells(row)) for row in rows}) == 1
        assert not any(row.startswith(("[", "*")) for row in rows)


def test_hostile_names_in_csv():
    rows = list(csv.reader(io.StringIO(render(hostile(), "csv"))))
    assert {len(row) for row in rows} == {10}
    assert len(rows) == 1 + len(HOSTILE_NAMES) * (len(HOSTILE_NAMES) + 1)
    for name in (name for row in rows[1:] for name in row[:2] if name not in ("+1", "-1")):  # plain numbers
        assert not name.lstrip().startswith(("=", "+", "-", "@"))
    assert {"'=1+1", "+1", "-1", "'@x", r"\t=1", '"quoted", too'} <= {row[0] for row in rows}


@given(st.text(st.characters(), max_size=20), st.text(st.characters(), max_size=20))
def test_any_name_keeps_the_shape(dataset, method):
    scores = Scores({(dataset, method): seeds(0.5, 0.6)})
    assert len({len(markdown_cells(line)) for line in render(scores, "markdown").split("\n")[:3]}) == 1
    assert len({len(latex_cells(line)) for line in render(scores, "latex").split("\n")[2:5:2]}) == 1
    assert len(list(csv.reader(io.StringIO(render(scores, "csv"))))) == 2
    for style in STYLES:
        render(scores, style, scores).encode()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_insert_keeps_the_rest_byte_for_byte(tmp_path, newline):
    page = tmp_path / "results.md"
    above, below = f"# Ergebnisse\n\r\n  é{newline}", f"below \t{newline}{newline}no newline at the end"
    page.write_bytes(f"{above}{BEGIN}{newline}old{newline}{END}{newline}{below}".encode())
    page.chmod(0o640)
    insert(page, "one\ntwo\n")
    middle = newline.join(["", "one", "two", "", ""])
    expected = f"{above}{BEGIN}{newline}{middle}{END}{newline}{below}".encode()
    assert page.read_bytes() == expected
    insert(page, "one\ntwo")
    assert page.read_bytes() == expected
    assert os.listdir(tmp_path) == ["results.md"]
    assert page.stat().st_mode & 0o777 == 0o640


def test_insert_takes_markers_at_the_end_of_the_page(tmp_path):
    page = tmp_path / "results.md"
    page.write_text(f"{BEGIN}\n{END}")
    insert(str(page), render(small(), "markdown"))
    assert page.read_text() == f"{BEGIN}\n\n{render(small(), 'markdown')}\n{END}"


def test_a_page_has_several_tables_and_text_by_hand(tmp_path):
    page = tmp_path / "results.md"
    begin, end = "<!-- begin candidly table grouped -->", "<!-- end candidly table grouped -->"
    page.write_text(f"{BEGIN}\n{END}\nby hand\n{begin}\n{end}\n| more | by hand |\n")
    for _ in range(2):
        insert(page, "first")
        insert(page, "second", block="grouped")
    first, second = f"{BEGIN}\n\nfirst\n\n{END}\n", f"{begin}\n\nsecond\n\n{end}\n"
    assert page.read_text() == f"{first}by hand\n{second}| more | by hand |\n"
    with pytest.raises(ValueError, match="has 0 lines '<!-- begin candidly table other -->'"):
        insert(page, "x", block="other")
    for wrong in ("", "A b", "x -->"):
        with pytest.raises(ValueError, match=r"block is .*; use a-z, 0-9 and '-'"):
            insert(page, "x", block=wrong)


@pytest.mark.parametrize(
    ("content", "text", "message"),
    [
        ("nothing", "x", "has 0 lines '<!-- begin"),
        (f"{BEGIN}\n", "x", "has 0 lines '<!-- end"),
        (f"{END}\n{BEGIN}\n", "x", "above"),
        (f"{BEGIN}\n{BEGIN}\n{END}\n", "x", "has 2 lines"),
        (f"text {BEGIN}\n{END}\n", "x", "has 0 lines"),
        (f"{BEGIN}\n{END}\n", f"a\n{END}\n", "the text has a line"),
    ],
)
def test_insert_refuses_pages_without_their_markers(tmp_path, content, text, message):
    page = tmp_path / "results.md"
    page.write_text(content)
    with pytest.raises(ValueError, match=message):
        insert(page, text)
    assert page.read_text() == content
    assert os.listdir(tmp_path) == ["results.md"]


def test_a_failed_insert_leaves_the_page(tmp_path, monkeypatch):
    page = tmp_path / "results.md"
    page.write_text(f"{BEGIN}\nold\n{END}\n")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        insert(page, "new")
    assert page.read_text() == f"{BEGIN}\nold\n{END}\n"
    assert os.listdir(tmp_path) == ["results.md"]


def test_tables_of_markers_can_be_inserted(tmp_path):
    page = tmp_path / "results.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    insert(page, render(hostile([BEGIN, END]), "markdown"))
    insert(page, "again")
    assert page.read_text() == f"{BEGIN}\n\nagain\n\n{END}\n"


def test_nan_is_never_printed():
    scores = Scores({("d", "proden"): {0: 0.5}, ("d", "cc"): {1: 0.5}})
    for style in STYLES:
        assert "nan" not in render(scores, style, scores)
    assert math.isnan(scores.spread("d", "cc"))


@pytest.mark.parametrize("style", ["text", "markdown", "latex", "csv"])
def test_other_names_are_shown_everywhere(style):
    cells = {
        ("lost", "proden"): {0: 0.7, 1: 0.75},
        ("lost", "conf+proden"): {0: 0.8, 1: 0.81},
        ("lost", "cc"): {0: 0.5},
    }
    names = {"proden": "First", "conf+proden": "Second", "cc": "Third", "lost": "Where"}
    published = Scores({("lost", "proden"): {0: 0.6, 1: 0.7}})
    text = render(Scores(cells), style, published, names=names)
    assert all(shown in text for shown in names.values())
    assert not any(name in text for name in ("proden", "cc,", "lost"))
    assert [text.index("First"), text.index("Third")] == sorted([text.index("First"), text.index("Third")])
    reverse = Scores(cells).select(methods=["conf+proden", "cc", "proden"])
    text = render(reverse, style, names=names)
    assert text.index("Second") < text.index("Third") < text.index("First")


def test_a_chosen_dataset_without_results_of_the_chosen_methods():
    scores = Scores({("lost", "cc"): {0: 0.5}, ("soccer", "pop"): {0: 0.5}}).select(methods=["pop"])
    assert "soccer" in render(scores)
