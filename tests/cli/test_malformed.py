"""Malformed input: each is refused in one line that names what is wrong, and leaves no file behind."""

import csv
import errno
import hashlib
import io
import json
import os
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest

from candidly.cli import app as cli
from candidly.tables import files
from tests.store.cases import forge_index

NAMES = ("cat", "dog", "emu")
HOSTILE = ("<script>alert(1)</script>", "=cmd()", "\x1b[31mred\x07", "x" * 300)
TINY = ("--epochs", "1", "--members", "1", "--folds", "2", "--device", "cpu")
COLUMNS = {
    "id": [f"r{i:02}" for i in range(30)],
    "weight": [f"{i % 3 + i / 100:.2f}" for i in range(30)],
    "colour": [("red", "blue", "")[i % 3] for i in range(30)],
    "tags": [f"{NAMES[i % 3]}|{NAMES[(i + 1) % 3]}" if i % 2 else NAMES[i % 3] for i in range(30)],
    "truth": [NAMES[i % 3] for i in range(30)],
}
VISIBLE = {code: f"\\x{code:02x}" for code in range(32)}
VOTES = {
    "task": [one for one in COLUMNS["id"] for _ in range(2)],
    "worker": ["ann", "bob"] * 30,
    "label": [NAMES[(i + i % 2) % 3] for i in range(60)],
}
WIDE = {"id": COLUMNS["id"], "ann": COLUMNS["truth"], "bob": ["cat"] * 30}


def text_of(columns, delimiter=","):
    lines = [delimiter.join(columns), *(delimiter.join(row) for row in zip(*columns.values(), strict=True))]
    return "\n".join(lines) + "\n"


def change(columns, **changes):
    """Return a table with other columns, or with other cells in some rows."""
    changed = dict(columns)
    for name, values in changes.items():
        if isinstance(values, dict):
            values = [values.get(i, value) for i, value in enumerate(columns[name])]
        changed[name] = values
    return {name: values for name, values in changed.items() if values is not None}


def put(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    put(folder / "rows.csv", text_of(COLUMNS))
    arguments = ["--candidates", "tags", "--id", "id", "--labels", "truth", "--out", str(folder / "model"), "--quiet"]
    cli.main(["fit", str(folder / "rows.csv"), *arguments, *TINY])
    return folder


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """Work in a folder that has good tables and a good model."""
    put(tmp_path / "rows.csv", text_of(COLUMNS))
    put(tmp_path / "many.csv", text_of({name: values * 4 for name, values in COLUMNS.items()}))
    put(tmp_path / "votes.csv", text_of(VOTES))
    put(tmp_path / "wide.csv", text_of(WIDE))
    shutil.copytree(trained / "model", tmp_path / "model")
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state(folder):
    """Return every file with its content, and every folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def fit(table="rows.csv", *more, out="new"):
    return ["fit", table, "--candidates", "tags", "--out", out, *TINY, *more]


def clean(table="rows.csv", *more, out="new.csv"):
    return ["clean", table, "--candidates", "tags", "--out", out, *TINY, *more]


def audit(table="many.csv", *more):
    return ["audit", table, "--candidates", "tags", *TINY, *more]


def vote(votes="votes.csv", *more, features="rows.csv", drop="tags,truth"):
    named = ["--annotations", votes, "--features", features, "--id", "id", "--drop", drop]
    return ["clean", *named, "--out", "new.csv", *TINY, *more]


def predict(table="rows.csv", *more, model="model", out="new.csv"):
    return ["predict", model, table, "--out", out, *more]


def rows(**changes):
    return lambda place: put(place / "bad.csv", text_of(change(COLUMNS, **changes)))


def votes(table=VOTES, **changes):
    return lambda place: put(place / "bad.csv", text_of(change(table, **changes)))


def raw(content, name="bad.csv"):
    return lambda place: put(place / name, content)


def parquet(cut=None, **changes):
    def make(place):
        sink = io.BytesIO()
        pyarrow.parquet.write_table(pa.table(change(COLUMNS, **changes)), sink)
        put(place / "bad.parquet", sink.getvalue()[:cut])

    return make


def model(*path, to):
    """Change a fact of the model."""

    def change(index):
        for key in path[:-1]:
            index = index[key]
        index[path[-1]] = to

    return lambda place: forge_index(place / "model" / "model.json", change)


def tensors(edit, honest=False):
    """Change the file of tensors, and its hash if the attacker is honest about it."""

    def make(place):
        (path,) = (place / "model").glob("*.safetensors")
        path.write_bytes(edit(path.read_bytes()))
        if honest:
            model("tensors", "sha256", to=hashlib.sha256(path.read_bytes()).hexdigest())(place)

    return make


def claim(data):
    """Let a header of safetensors claim a trillion numbers."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    name = next(name for name in header if name != "__metadata__")
    header[name] |= {"shape": [10**12], "data_offsets": [0, 4 * 10**12]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def remove(pattern):
    return lambda place: os.remove(*place.glob(pattern))


def page(content=b"{}"):
    """Replace the facts of the report, with the right hash."""

    def make(place):
        (path,) = (place / "model").glob("*.report.json")
        path.write_bytes(content)
        model("more", "report.json", "sha256", to=hashlib.sha256(content).hexdigest())(place)

    return make


MANY = {name: values * 700 for name, values in COLUMNS.items()} | {"tags": [f"class {i}" for i in range(21_000)]}
MANY_VOTES = {name: values * 700 for name, values in VOTES.items()}
MANY_VOTES |= {"task": [f"t{i}" for i in range(42_000)], "label": [f"l{i}" for i in range(42_000)]}
STRANGE = {"weight": {3: "heavy"}}
LONG = {"tags": {3: "cat|dog|" + "x" * 5000}}

# What is made beforehand, the command, and what it says.
CASES = {
    # the file
    "no such table": (None, fit("none.csv"), "none.csv does not exist"),
    "a folder": (None, fit("folder.csv"), "the folder folder.csv holds no table"),
    "unknown kind of table": (raw("x", "bad.xlsx"), fit("bad.xlsx"), "bad.xlsx cannot be read: its name must end in"),
    "empty file": (raw(""), fit("bad.csv"), "bad.csv is empty"),
    "header only": (raw("id,weight,tags\n"), fit("bad.csv"), "bad.csv has no rows"),
    "no rows in parquet": (
        parquet(**{name: pa.array([], "string") for name in COLUMNS}),
        fit("bad.parquet"),
        "no rows",
    ),
    "ragged rows": (raw("a,tags\n1,cat\n2,dog,3\n"), fit("bad.csv"), "line 3 has 3 cells, the header 2"),
    "quote not closed": (raw('a,tags\n1,cat\n2,"dog\n3,cat\n'), fit("bad.csv"), "a cell in line 3 is not closed"),
    "latin-1": (raw("a,tags\n1,cat\n2,é\n".encode("latin1")), fit("bad.csv"), "row 1 is not UTF-8 in column 'tags'"),
    "utf-16": (raw("a,tags\n1,cat\n".encode("utf-16")), fit("bad.csv"), "bad.csv is not text in UTF-8"),
    "wrong delimiter": (raw("a;tags\n1;cat\n"), fit("bad.csv"), "if ';' separates its columns, name it with"),
    "two columns of a name": (raw("a,a,tags\n1,2,cat\n"), fit("bad.csv"), "bad.csv has several columns 'a'"),
    "truncated parquet": (parquet(-30), fit("bad.parquet"), "bad.parquet is damaged or not a table"),
    "text as parquet": (raw("a,tags\n", "bad.parquet"), fit("bad.parquet"), "bad.parquet is damaged or not a table"),
    "text as gzip": (raw("a,tags\n", "bad.csv.gz"), fit("bad.csv.gz"), "bad.csv.gz is damaged or not a table"),
    "a delimiter of two": (None, fit("rows.csv", "--delimiter", "::"), "delimiter is '::'"),
    # columns
    "no such column of candidates": (
        None,
        ["fit", "rows.csv", "--candidates", "tag", "--out", "new"],
        "did you mean 'tags'",
    ),
    "no such column of ids": (None, fit("rows.csv", "--id", "name"), "rows.csv has no column 'name'"),
    "no such column of labels": (None, fit("rows.csv", "--labels", "true"), "rows.csv has no column 'true'"),
    "drop of an unknown column": (None, fit("rows.csv", "--drop", "size"), "rows.csv has no column 'size'"),
    "drop of nothing": (
        None,
        fit("rows.csv", "--drop", "truth,,id"),
        "--drop is 'truth,,id', which contains an empty name",
    ),
    "candidates as ids": (None, fit("rows.csv", "--id", "tags"), "candidates and id both name the column 'tags'"),
    "labels as candidates": (None, fit("rows.csv", "--labels", "tags"), "candidates and labels both name"),
    "ids that are dropped": (None, fit("rows.csv", "--id", "id", "--drop", "id"), "id and drop both name"),
    "no feature left": (None, fit("rows.csv", "--drop", "id,weight,colour,truth"), "has no column of features beside"),
    "duplicate ids": (rows(id={7: "r03"}), fit("bad.csv", "--id", "id"), "rows 3 and 7 have the same id 'r03'"),
    "a missing id": (rows(id={7: ""}), fit("bad.csv", "--id", "id"), "row 7 has no id in column 'id'"),
    "ids named like a result": (rows(kept=COLUMNS["id"]), clean("bad.csv", "--id", "kept"), "is named 'kept'"),
    "lists as a feature": (parquet(id=[[1]] * 30), fit("bad.parquet"), "column 'id' has type list<"),
    "an infinite number": (rows(weight={3: "inf"}), fit("bad.csv"), "bad.csv has inf in row 3, column 'weight'"),
    # candidates
    "an empty set": (rows(tags={3: ""}), fit("bad.csv"), "bad.csv: row 3 has no candidates"),
    "an empty list": (parquet(tags=[[]] + [["a", "b"]] * 29), fit("bad.parquet"), "row 0 has no candidates"),
    "a stray separator": (rows(tags={3: "cat||dog"}), fit("bad.csv"), "row 3 has an empty name; remove the stray"),
    "a leading separator": (rows(tags={3: "|cat"}), fit("bad.csv"), "row 3 has an empty name"),
    "a list in a text": (rows(tags={3: "['cat']"}), fit("bad.csv"), "looks like a list in a text"),
    "a missing name": (rows(tags={3: "cat|nan"}), fit("bad.csv"), "row 3 has the missing name 'nan'"),
    "fractions as candidates": (parquet(tags=[0.5] * 30), fit("bad.parquet"), "class names of type double"),
    "dictionaries as candidates": (parquet(tags=[{"cat": 1}] * 30), fit("bad.parquet"), "class names of type struct"),
    "a null character": (
        parquet(tags=["a\0", "b|c"] * 15),
        fit("bad.parquet"),
        r"the name 'a\x00', which ends in a null",
    ),
    "one class": (rows(tags=["cat"] * 30), fit("bad.csv"), "has the one class 'cat'; at least two are needed"),
    "every row its class": (raw(text_of(MANY)), fit("bad.csv"), "21000 classes for 21000 rows; is 'tags' the right"),
    "a class that is not listed": (
        None,
        fit("rows.csv", "--classes", "cat,dog"),
        "name 'emu', which is not in classes",
    ),
    "a class that is listed twice": (None, fit("rows.csv", "--classes", "cat,cat,dog,emu"), "'cat' is listed twice"),
    "no file of classes": (None, fit("rows.csv", "--classes", "@none.txt"), "--classes @none.txt cannot be read"),
    "no separator": (None, fit("rows.csv", "--separator", ""), "separator is ''"),
    "separator in a name": (parquet(tags=[["a|b", "c"], ["c"]] * 15), clean("bad.parquet"), "'a|b' contains '|'"),
    # training
    "one fold": (None, [*clean(), "--folds", "1"], "folds is 1; use at least 2, because held-out rows"),
    "no fold": (None, [*fit(), "--folds", "0"], "folds is 0"),
    "more folds than rows": (None, [*clean(), "--folds", "31"], "folds is 31 but there are 30 rows"),
    "alpha of 0": (None, fit("rows.csv", "--alpha", "0"), "alpha is 0"),
    "alpha of 2": (None, clean("rows.csv", "--alpha", "2"), "alpha is 2"),
    "unknown method": (None, fit("rows.csv", "--method", "prodne"), "unknown method 'prodne'"),
    "unknown cleaner": (None, fit("rows.csv", "--cleaner", "soap"), "unknown cleaner 'soap'"),
    "unknown device": (None, [*fit(), "--device", "abacus"], "device is 'abacus'"),
    "no epochs": (None, [*fit(), "--epochs", "0"], "--epochs is 0"),
    "no members": (None, [*fit(), "--members", "0"], "members is 0"),
    "a negative seed": (
        None,
        fit("rows.csv", "--seed", "-1"),
        "--seed is -1; it must be None, an integer from 0",
    ),
    # outputs
    "the model is a file": (None, fit(out="rows.csv"), "rows.csv is a file; choose another name"),
    "the model's folder holds something": (raw("x", "folder.csv/mine.txt"), fit(out="folder.csv"), "holds 'mine.txt'"),
    "the model lies in a file": (None, fit(out="rows.csv/model"), "rows.csv is not a folder"),
    "the table is a folder": (None, clean(out="folder.csv"), "folder.csv is a folder"),
    "the table's folder is missing": (None, clean(out="none/new.csv"), "the folder none does not exist"),
    "the table lies in a file": (None, clean(out="rows.csv/new.csv"), "the folder rows.csv is not a folder"),
    "unknown kind of result": (None, clean(out="new.xlsx"), "new.xlsx cannot be written: its name must end in"),
    "the table is its own result": (None, clean(out="rows.csv"), "rows.csv is both read and written"),
    "unknown kind of page": (None, fit("rows.csv", "--report", "page.pdf"), "page.pdf cannot be written: its name"),
    "the page's folder is missing": (None, fit("rows.csv", "--report", "none/page.html"), "the folder none does not"),
    "the page lies in the model": (None, fit("rows.csv", "--report", "new/page.html"), "lies in new"),
    "two things on standard output": (None, clean("rows.csv", "--json", out="-"), "--json and --out - both write"),
    # votes
    "nothing to clean": (None, ["clean", "--out", "new.csv"], "nothing to read"),
    "candidates and votes": (None, clean("rows.csv", "--annotations", "votes.csv"), "were both given"),
    "votes without features": (None, ["clean", "--annotations", "votes.csv", "--out", "new.csv"], "needs --features"),
    "options of votes without votes": (None, clean("rows.csv", "--task", "id"), "--task applies to votes"),
    "wide and long": (None, vote("wide.csv", "--annotators", "ann,bob", "--label", "ann"), "annotators is for wide"),
    "wide without tasks": (None, vote("wide.csv", "--annotators", "ann,bob"), "annotators needs the column of task"),
    "no such annotator": (None, vote("wide.csv", "--task", "id", "--annotators", "ann,eve"), "no column 'eve'"),
    "no such column of votes": (None, vote("votes.csv", "--label", "vote"), "no column 'vote'"),
    "no such task": (votes(task={0: "r99"}), vote("bad.csv"), "no row for 1 of 31 tasks of bad.csv, such as 'r99'"),
    "no votes": (votes(label=[""] * 60), vote("bad.csv"), "bad.csv: the table has no votes"),
    "a vote without task": (votes(task={5: ""}), vote("bad.csv"), "row 5 has no task in column 'task'"),
    "a label that is not listed": (None, vote("votes.csv", "--classes", "cat,dog"), "which is not in classes"),
    "every vote its class": (raw(text_of(MANY_VOTES)), vote("bad.csv"), "42000 classes for 42000 rows; does 'label'"),
    "a repeated task": (
        votes(WIDE, id={4: "r01"}),
        vote("bad.csv", "--task", "id", "--annotators", "ann"),
        "repeats task",
    ),
    "min-share of 2": (None, vote("votes.csv", "--min-share", "2"), "min_share is 2.0"),
    "both from standard input": (None, vote("-", features="-"), "standard input holds only one table"),
    # audits
    "nothing to audit": (None, ["audit", "--report", "new.html"], "nothing to read"),
    "candidates and votes to audit": (None, audit("many.csv", "--annotations", "votes.csv"), "were both given"),
    "an audit of too few rows": (None, audit("rows.csv"), "rows.csv has 30 rows; an audit needs at least 100"),
    "an audit of one fold": (None, [*audit(), "--folds", "1"], "folds is 1; use at least 2, because held-out rows"),
    "a level of 0": (None, audit("many.csv", "--alphas", "0.1,0"), "--alphas is '0.1,0'; give levels between 0 and 1"),
    "a level of 1": (None, audit("many.csv", "--alphas", "1"), "--alphas is '1'; give levels between 0 and 1"),
    "no number": (None, audit("many.csv", "--alphas", "nan"), "--alphas is 'nan'; give levels between 0 and 1"),
    "a level that is text": (None, audit("many.csv", "--alphas", "0.1,low"), "--alphas is '0.1,low'; give levels"),
    "no level": (None, audit("many.csv", "--alphas", ""), "--alphas is ''; give levels"),
    "too many levels": (None, audit("many.csv", "--alphas", "0.1," * 120), "--alphas has 121 levels; give fewer than"),
    "an audit with alpha of 2": (None, audit("many.csv", "--alpha", "2"), "alpha is 2"),
    "an audit's page of another kind": (None, audit("many.csv", "--report", "a.pdf"), "a.pdf cannot be written"),
    "an audit's page nowhere": (None, audit("many.csv", "--report", "none/a.html"), "the folder none does not exist"),
    # new rows
    "no model": (None, predict(model="none"), "none/model.json does not exist"),
    "no tensors": (remove("model/*.safetensors"), predict(), ".safetensors does not exist"),
    "a changed model": (
        lambda place: put(
            place / "model" / "model.json", (place / "model" / "model.json").read_text().replace("dog", "cow")
        ),
        predict(),
        "model/model.json is damaged or was changed",
    ),
    "an old model": (model("format", to=0), predict(), "model/model.json has format version 0"),
    "another program's model": (raw("{}", "model/model.json"), predict(), "format version None"),
    "no JSON": (raw("{", "model/model.json"), predict(), "model/model.json is not a JSON file"),
    "brackets without end": (raw("[" * 10**6, "model/model.json"), predict(), "model/model.json is not a JSON file"),
    "tampered tensors": (
        tensors(lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        predict(),
        "truncated or was changed",
    ),
    "truncated tensors": (tensors(lambda data: data[:-99]), predict(), "is truncated or was changed"),
    "tensors that claim too much": (tensors(claim, honest=True), predict(), "is not a safetensors file"),
    "tensors that are none": (tensors(lambda data: b"hello", honest=True), predict(), "is not a safetensors file"),
    "a trillion features": (model("facts", "shape", to=[10**12]), predict(), "model: "),
    "a trillion classes": (model("facts", "classes", to=10**12), predict(), "model: "),
    "a trillion seeds": (model("facts", "seeds", to=10**12), predict(), "model: "),
    "classes that are too few": (model("facts", "classes", to=["cat", "dog"]), predict(), "model: "),
    "no features in the model": (model("facts", "estimator", "features", to={}), predict(), "model: "),
    "a network of nobody": (model("facts", "net", to="../../net.py"), predict(), "model: "),
    "a method of nobody": (model("facts", "method", to={"name": "os.system"}), predict(), "model: "),
    "a damaged report": (page(), ["report", "model", "--out", "new.html"], "report.json of model cannot be read"),
    "no report": (
        remove("model/*.report.json"),
        ["report", "model", "--out", "new.html"],
        "report.json does not exist",
    ),
    "a missing feature": (rows(weight=None), predict("bad.csv"), "bad.csv lacks the columns 'weight'"),
    "an unknown feature": (
        rows(size=["1"] * 30),
        predict("bad.csv"),
        "bad.csv has the columns 'size', which fit did not see",
    ),
    "text where numbers were": (rows(**STRANGE), predict("bad.csv"), "bad.csv has 'heavy' in row 3, column 'weight'"),
    "no such column of new ids": (None, predict("rows.csv", "--id", "name"), "rows.csv has no column 'name'"),
    "sets of alpha 2": (None, predict("rows.csv", "--alpha", "2"), "alpha is 2.0"),
    "sets of alpha 0": (None, predict("rows.csv", "--alpha", "0"), "alpha is 0.0"),
    "predictions into nowhere": (None, predict(out="none/new.csv"), "the folder none does not exist"),
    "predictions over the table": (None, predict(out="rows.csv"), "rows.csv is both read and written"),
    "a long message": (rows(**LONG), fit("bad.csv", "--classes", "cat,dog,emu"), "which is not in classes"),
}


def refusal(capsys, arguments):
    """Run a command that fails; return the one line it says."""
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert err.startswith("candidly: ")
    assert err[:-1].isprintable()
    assert len(err) < 3000
    return err


@pytest.mark.parametrize("case", CASES)
def test_malformed_input_is_refused_in_one_line(case, place, capsys):
    make, arguments, message = CASES[case]
    if make is not None:
        make(place)
    before = state(place)
    assert message in refusal(capsys, arguments)
    assert state(place) == before


def test_there_are_enough_cases():
    assert len(CASES) > 30


COMMANDS = {
    "fit": fit("rows.csv", "--report", "page.html"),
    "clean": clean("rows.csv", "--report", "page.html"),
    "clean in Parquet": clean(out="new.parquet"),
    "audit": audit("many.csv", "--report", "page.html", "--force-cleaning"),
    "predict": predict("rows.csv", "--alpha", "0.5"),
    "report": ["report", "model", "--out", "new.html"],
    "fit again": fit(out="model"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk(command, place, capsys, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    before = state(place)
    assert "cannot be written: No space left on device" in refusal(capsys, COMMANDS[command])
    assert state(place) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_read_only_folder(command, place, capsys, monkeypatch):
    real, low_level = open, os.open

    def read_only(path, mode="r", *more, **options):
        if set(mode) & set("wxa+"):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, mode, *more, **options)

    def low_level_read_only(path, flags, *more, **options):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, "Read-only file system")
        return low_level(path, flags, *more, **options)

    monkeypatch.setattr("builtins.open", read_only)
    monkeypatch.setattr(os, "open", low_level_read_only)
    before = state(place)
    assert "nothing can be written to " in refusal(capsys, COMMANDS[command])
    assert state(place) == before


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux'")
def test_a_folder_that_takes_no_files(place, capsys):
    assert "nothing can be written to /proc" in refusal(capsys, clean(out="/proc/new.csv"))


def test_a_name_with_control_codes_in_a_message(place, capsys):
    put(place / "bad.csv", text_of(change(COLUMNS, tags={3: "\x1b[31mred"})))
    message = refusal(capsys, fit("bad.csv", "--classes", "cat,dog,emu"))
    assert r"\x1b[31mred" in message


def hostile_table():
    """Rows whose classes, ids and columns all have hostile names."""
    sets = [[HOSTILE[i % 4], HOSTILE[(i + 1) % 4]] if i % 2 else [HOSTILE[i % 4]] for i in range(120)]
    return pa.table(
        {
            "=id": [f"{HOSTILE[i % 4]} {i}" for i in range(120)],
            "<b>": [i % 4 + i / 100 for i in range(120)],
            "\x1b[1m": [HOSTILE[i % 3] for i in range(120)],
            "tags": sets,
            "label": [HOSTILE[i % 4] for i in range(120)],
        }
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_hostile_names_do_no_harm(tmp_path, monkeypatch, capsys, suffix):
    monkeypatch.chdir(tmp_path)
    files.write(hostile_table(), f"rows.{suffix}")
    roles = ("--candidates", "tags", "--id", "=id", "--labels", "label")
    cli.main(["fit", f"rows.{suffix}", *roles, "--out", "model", "--report", "fit.html", *TINY])
    cli.main(["clean", f"rows.{suffix}", *roles, "--out", f"cleaned.{suffix}", "--report", "clean.html", *TINY])
    cli.main(["predict", "model", f"rows.{suffix}", "--out", f"predicted.{suffix}", "--alpha", "0.5"])
    cli.main(["report", "model", "--out", "again.html"])
    cli.main(["audit", f"rows.{suffix}", *roles, "--report", "audit.html", *TINY])
    cli.main(["clean", f"rows.{suffix}", *roles, "--out", "-", *TINY])
    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).splitlines())
    for page in ("fit.html", "clean.html", "again.html", "audit.html"):
        text = (tmp_path / page).read_text()
        assert "alert(1)" in text
        assert "<script>alert" not in text
        assert "<b>" not in text
        assert "\x1b" not in text
    # Control codes become visible in text, and are kept elsewhere.
    seen = [name if suffix == "parquet" else name.translate(VISIBLE) for name in HOSTILE]
    predicted = files.read(f"predicted.{suffix}")
    assert set(predicted["predicted"].to_pylist()) <= set(seen)
    cleaned = files.read(f"cleaned.{suffix}")
    sets = [row.split("|") if suffix == "csv" else row for row in cleaned["candidates"].to_pylist()]
    expected = [
        [name if suffix == "parquet" else name.translate(VISIBLE) for name in row]
        for row in hostile_table()["tags"].to_pylist()
    ]
    assert list(map(sorted, sets)) == list(map(sorted, expected))
    if suffix == "csv":
        for name in ("cleaned.csv", "predicted.csv"):
            with open(name, encoding="utf-8", newline="") as stream:
                cells = [cell for row in csv.reader(stream) for cell in row]
            assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for cell in cells)
            assert all(cell.isprintable() for cell in cells)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_was_cleaned_can_be_cleaned_again(tmp_path, monkeypatch, capsys, suffix):
    monkeypatch.chdir(tmp_path)
    table = hostile_table()
    files.write(table, f"rows.{suffix}")
    cli.main(
        [
            "clean",
            f"rows.{suffix}",
            "--candidates",
            "tags",
            "--id",
            "=id",
            "--labels",
            "label",
            "--out",
            f"once.{suffix}",
            *TINY,
        ]
    )
    once = files.read(f"once.{suffix}", texts=["=id"])
    assert once.column_names[0] == "=id"
    joined = once.select(["=id", "kept"]).append_column("size", table["<b>"])
    files.write(joined, f"joined.{suffix}")
    cli.main(
        [
            "clean",
            f"joined.{suffix}",
            "--candidates",
            "kept",
            "--id",
            "=id",
            "--out",
            f"twice.{suffix}",
            "--json",
            *TINY,
        ]
    )
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["classes"] == 4
