"""Any table that `fit` accepts can be predicted, evaluated and reported."""

import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from candidly import PartialLabelClassifier
from candidly.cli import app as cli
from candidly.estimator import crossfit, saving
from candidly.report import ReportFacts, render, summarise
from candidly.tables import files

ROWS = 12
TINY = ("--epochs", "1", "--members", "1", "--folds", "2", "--device", "cpu", "--quiet")
ODD = (
    *("a,b", 'quo"te', "semi;colon", "tab\there", "two\nlines", " blank ", "=1+1", "＝1", "'=1", "-1", "+x", "@x"),
    *("\x1b[31m", "\x07", "\u202eltr", "\ufeffbom", "e\u0301", "é", "😀", "NA", "nan", "None", "null", "", "true", "1"),
    *("1.0", "01", "1e3", "kept", "row", "predicted", "confidence", "set", "candidates", "id", "label", "x0", "a|b"),
    *("__index_level_0__", "Unnamed: 0", "<script>", "{{ x }}", "&amp;", "\x00", "a\x00b", "\r", "\u2028"),
    *("x" * 20_000, "ß" * 11_000),
)
names = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
numbers = st.floats(allow_nan=True, allow_infinity=False) | st.floats(-10, 10)


def cells(values):
    return st.lists(st.none() | values, min_size=ROWS, max_size=ROWS)


columns = st.one_of(
    cells(numbers).map(lambda found: pa.array(found, pa.float64())),
    cells(st.integers(-(2**63), 2**63 - 1)).map(lambda found: pa.array(found, pa.int64())),
    cells(st.booleans()).map(lambda found: pa.array(found, pa.bool_())),
    cells(st.sampled_from(ODD)).map(lambda found: pa.array(found, pa.string())),
    cells(st.sampled_from(ODD[:5])).map(lambda found: pa.array(found, pa.string()).dictionary_encode()),
    cells(st.dates()).map(lambda found: pa.array(found, pa.date32())),
    cells(st.datetimes()).map(lambda found: pa.array(found, pa.timestamp("us"))),
    st.just(pa.nulls(ROWS)),
)


@st.composite
def tables(draw):
    """Return a table that begins with columns of candidates and true labels, and the suffix of a file for it."""
    classes = draw(st.lists(names, min_size=2, max_size=5, unique=True))
    sets = draw(st.lists(st.lists(st.sampled_from(classes), min_size=1, max_size=3), min_size=ROWS, max_size=ROWS))
    heads = draw(st.lists(names, min_size=3, max_size=6, unique=True))
    suffix = draw(st.sampled_from([".csv", ".csv.gz", ".tsv", ".parquet", ".arrow"]))
    lists = suffix in (".parquet", ".arrow") and draw(st.booleans())
    tags = pa.array(sets, pa.list_(pa.string())) if lists else pa.array(["|".join(one) for one in sets])
    features = {name: draw(columns) for name in heads[2:]} | {"steady": pa.array(np.arange(ROWS) / 7)}
    truth = pa.array([one[0] for one in sets])
    return pa.table({heads[0]: tags, heads[1]: truth} | features), suffix


def run(*arguments):
    """Run a command; return its status and what it wrote to standard error."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        try:
            status = cli.main(list(arguments))
        except SystemExit as end:
            status = end.code
    return status or 0, error.getvalue()


def check(path, candidates, label, folder, clean=False):
    """Train on a table; if that works, use the model in every other way. Return whether it works."""
    model, page, sets, kept = (
        str(Path(folder, name)) for name in ("model", "page.html", "sets.parquet", "kept.parquet")
    )
    columns = (f"--candidates={candidates}", f"--labels={label}")
    status, error = run("fit", path, *columns, "--out", model, *TINY)
    if status:
        assert status in (1, 2)
        assert error.strip()
        assert "Traceback" not in error
        return False
    for command in (
        ("predict", model, path, "--out", sets, "--quiet"),
        ("evaluate", model, path, f"--labels={label}", "--quiet"),
        ("report", model, "--out", page, "--quiet"),
        *((("clean", path, *columns, "--out", kept, "--report", page, *TINY),) if clean else ()),
    ):
        assert run(*command) == (0, ""), command
    assert pyarrow.parquet.read_metadata(sets).num_rows == files.read(path).num_rows
    assert Path(page).read_bytes().startswith(b"<!DOCTYPE html>")
    return True


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(tables())
def test_tables_that_fit_accepts(case):
    table, suffix = case
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, f"table{suffix}"))
        try:
            files.write(table, path)
            candidates, label, *_ = files.read(path).column_names  # CSV escapes control characters
        except ValueError:
            assume(False)  # what a format cannot hold, such as a column without a name
        check(path, candidates, label, folder)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_long_names_and_many_columns(tmp_path, suffix):
    owl, wren = "owl" * 40_000, "wren" * 30_000
    table = {"c" * 100_000: [owl, f"{owl}|{wren}", wren, "e"] * 30, "l" * 100_000: [owl, wren, wren, "e"] * 30}
    table |= {f"{'x' * 50_000}{i}": ["blue", "red", None] * 40 for i in range(3)}
    table |= {f"{i}": [float(i), None, 2.0, 1.0] * 30 for i in range(1100)}  # each with a note on missing values
    path = str(tmp_path / f"table{suffix}")
    files.write(pa.table(table), path)
    assert check(path, "c" * 100_000, "l" * 100_000, tmp_path, clean=True)
    assert Path(tmp_path, "page.html").stat().st_size < 2**20


def test_names_that_are_not_unicode(tmp_path):
    """Lone surrogates, as in names of files that are not UTF-8."""
    X = np.array([[i, "ab\udcff"[i % 3]] for i in range(12)], dtype=object)
    y = [["\udc80"], ["\udc80", "\x01"], ["\x01"]] * 4
    classifier = PartialLabelClassifier(folds=2, max_epochs=1, random_state=0).fit(X, y)
    facts = summarise(classifier, "\udcfe.csv")
    render(ReportFacts.from_json(json.loads(json.dumps(facts.to_json())))).encode()
    classifier.save(tmp_path / "model")
    loaded = PartialLabelClassifier.load(tmp_path / "model")
    assert loaded.predict(X).tolist() == classifier.predict(X).tolist()


def test_names_too_long_for_the_files_are_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "MOST_JSON", 1000)
    monkeypatch.setattr(crossfit, "train", None)
    with pytest.raises(ValueError, match=r"cannot be saved: names and categories take .* use shorter names"):
        PartialLabelClassifier(folds=2).fit(np.arange(12)[:, None], ["a" * 300, "b"] * 6)


def test_ten_thousand_classes(tmp_path):
    names = [f"class {j}" for j in range(10_000)]
    y = [names[i::100] for i in range(100)]
    X = np.random.default_rng(0).normal(size=(100, 3))
    classifier = PartialLabelClassifier(net="linear", folds=2, max_epochs=1, random_state=0).fit(X, y)
    page = render(ReportFacts.from_json(summarise(classifier).to_json()))
    assert len(page) < 2**20
    classifier.save(tmp_path / "model")
    loaded = PartialLabelClassifier.load(tmp_path / "model")
    assert (loaded.predict_set(X) == classifier.predict_set(X)).all()
