"""Collecting accuracies from summaries, predictions and CSV files."""

import json
import math
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from candidly.bench import collect as module
from candidly.bench.collect import COLUMNS, read, read_csv
from candidly.bench.scores import Scores


def summary(path, dataset="lost", method="proden", seeds=(0, 1), values=((0.5, 0.7), (0.8, 0.9)), **changes):
    facts = {"format": 1, "dataset": dataset, "method": method, "seeds": list(seeds), "run": "ignored"}
    facts["metrics"] = {"test_accuracy": [list(value) for value in values], "train_accuracy": [[1.0]] * len(seeds)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts | changes))
    return path


def predictions(path, true, predicted, **columns):
    n = len(true)
    table = {"dataset": ["lost"] * n, "method": ["proden"] * n, "seed": [0] * n, "split": ["test"] * n}
    table |= {"row": list(range(n)), "true": true, "predicted": predicted, "probability": [0.5] * n} | columns
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), path)
    return path


def accuracy(path):
    return read(path).cells["lost", "proden"][0]


def test_a_seeds_accuracy_is_the_mean_over_its_initialisations(tmp_path):
    summary(tmp_path / "a" / "b" / "summary.json")
    scores = read(tmp_path)
    assert dict(scores.cells["lost", "proden"]) == pytest.approx({0: 0.6, 1: 0.85})
    assert scores.split == "test"
    assert dict(read(tmp_path, split="train").cells["lost", "proden"]) == {0: 1.0, 1: 1.0}


@pytest.mark.parametrize(
    ("true", "predicted", "share"),
    [
        ([1, 2, 3, 4], [1, 2, 0, 0], 0.5),
        (["a", "b"], ["a", "a"], 0.5),
        (["1", "2", "3", "x"], pa.array([1, 2, 4, 5]), 0.5),
        (pa.array([1, 2], pa.int8()), pa.array([1, 3], pa.int64()), 0.5),
        (pa.array(["a", "b", "b"]).dictionary_encode(), ["a", "b", "c"], 2 / 3),
        (pa.array([7, 8]).dictionary_encode(), pa.array([7, 9]).dictionary_encode(), 0.5),
        (pa.array(["a", "b"], pa.large_string()), ["a", "a"], 0.5),
        ([1, None, 3, None], [1, 1, 2, None], 0.5),
        (pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), ["a", "b"]), ["a", "a", "a"], 0.5),
        (pa.array([1.0, math.nan, 3.0]), [1, 2, 2], 0.5),
        ([1, 2], [None, 2], 0.5),
        ([1, 2], pa.nulls(2), 0.0),
    ],
)
def test_accuracy_of_predictions(tmp_path, true, predicted, share):
    assert accuracy(predictions(tmp_path / "p.parquet", true, predicted)) == share


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_predictions_are_counted_per_seed_across_batches(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(module, "BATCH_ROWS", rows)
    columns = {"seed": [0, 1, 0, 1, 0, 1], "init": [0, 0, 1, 1, 0, 0], "split": ["test"] * 4 + ["train"] * 2}
    columns["method"] = pa.array(["proden"] * 6).dictionary_encode()
    predictions(tmp_path / "p.parquet", [1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 0], **columns)
    assert dict(read(tmp_path).cells["lost", "proden"]) == {0: 0.5, 1: 1.0}
    assert dict(read(tmp_path, "train").cells["lost", "proden"]) == {0: 0.0, 1: 0.0}


def test_predictions_beside_a_summary_are_skipped(tmp_path):
    summary(tmp_path / "run" / "summary.json", seeds=[0], values=[[0.25]])
    other = predictions(tmp_path / "run" / "p.parquet", [1], [1])
    assert accuracy(tmp_path) == 0.25
    assert accuracy(other) == 1


def test_both_kinds_and_single_files_come_together(tmp_path):
    one = summary(tmp_path / "a" / "summary.json", seeds=[0], values=[[0.5]])
    two = predictions(tmp_path / "b" / "p.parquet", [1], [1], seed=[1])
    assert read([one, two]) == read(tmp_path) == read([tmp_path, str(one), tmp_path / "a"])
    assert dict(read(tmp_path).cells["lost", "proden"]) == {0: 0.5, 1: 1.0}


def test_of_two_files_with_one_seed_the_newer_counts(tmp_path):
    old, new = tmp_path / "a" / "p.parquet", tmp_path / "b" / "p.parquet"
    predictions(new, [1, 2], [1, 2])
    predictions(old, [1, 2], [1, 1])
    os.utime(old, (10**9, 10**9))
    with pytest.warns(
        UserWarning, match=r"newest counts: lost proden from .*b/p\.parquet \(.*\) instead of .*a/p\."
    ) as seen:
        scores = read(tmp_path)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert set(scores.cells["lost", "proden"].values()) == {1.0}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_missing_column_is_named(tmp_path, name):
    path = predictions(tmp_path / "p.parquet", [1], [1])
    pq.write_table(pq.read_table(path).drop_columns(name), path)
    with pytest.raises(ValueError, match=rf"p\.parquet has no columns named '{name}'"):
        read(path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"seed": ["0"]}, "'seed' holds string; write whole numbers"),
        ({"seed": [None]}, "'seed' holds null"),
        ({"dataset": [1]}, "'dataset' holds int64; write strings"),
        ({"method": pa.array([None], pa.string())}, "rows without dataset, method or seed"),
        ({"true": [[1]]}, "'true' holds list"),
    ],
)
def test_columns_of_a_wrong_type_are_named(tmp_path, columns, message):
    with pytest.raises(ValueError, match=message):
        read(predictions(tmp_path / "p.parquet", **{"true": [1], "predicted": [1]} | columns))


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = tmp_path / "p.parquet"
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"p\.parquet cannot be read as Parquet"):
        read(tmp_path)


@pytest.mark.parametrize("true", [[None, None], pa.array([None, None], pa.string()), [math.nan, math.nan]])
def test_files_without_labels_are_warned_about(tmp_path, true):
    summary(tmp_path / "a" / "summary.json")
    predictions(tmp_path / "b" / "p.parquet", true, [1, 2], method=["cc", "cc"])
    with pytest.warns(UserWarning, match=r"no test accuracy .* in .*p\.parquet"):
        assert read(tmp_path).methods == ("proden",)


def test_a_split_that_is_nowhere_is_an_error(tmp_path):
    summary(tmp_path / "summary.json")
    with (
        pytest.warns(UserWarning, match=r"summary\.json"),
        pytest.raises(ValueError, match=re.escape(f"no accuracies of the split 'other' under {tmp_path}")),
    ):
        read(tmp_path, split="other")


def test_finding_nothing_names_the_folders(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'a'}, {tmp_path / 'b'}")):
        read([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ValueError, match="no folder was given"):
        read([])
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        read(tmp_path / "nowhere")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"notes\.txt is neither"):
        read(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    "text", ["", "{", "\x00", "[" * 100_000, '{"format": 2}', '{"format": true}', '{"format": "1"}']
)
def test_what_is_no_summary_is_named(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(ValueError, match=r"summary\.json (is not a JSON file|has format version)"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": 1}, "lacks 'dataset'"),
        ({"method": None}, "lacks 'dataset', 'method'"),
        ({"metrics": []}, "'metrics'"),
        ({"seeds": "01"}, r"has seeds \['0', '1'\]"),
        ({"seeds": [0, 0]}, r"has seeds \[0, 0\]"),
        ({"seeds": [0, True]}, "different whole numbers"),
        ({"seeds": [0]}, "each of the 1 seeds"),
        ({"metrics": {"test_accuracy": 0.5}}, "not a list"),
        ({"metrics": {"test_accuracy": [0.5, 0.5]}}, "of seed 0 is 0.5"),
        ({"metrics": {"test_accuracy": [[], [0.5]]}}, r"of seed 0 is \[\]"),
        ({"metrics": {"test_accuracy": [[0.5], [70.0]]}}, "of seed 1: accuracy is 70.0"),
        ({"metrics": {"test_accuracy": [[0.5], [math.nan]]}}, "accuracy is nan"),
        ({"metrics": {"test_accuracy": [[0.5], [None]]}}, "accuracy is None"),
        ({"metrics": {"test_accuracy": [[0.5], [True]]}}, "accuracy is True"),
    ],
)
def test_malformed_summaries_are_refused(tmp_path, changes, message):
    summary(tmp_path / "summary.json", **changes)
    with pytest.raises(ValueError, match=rf"summary\.json.*{message}"):
        read(tmp_path)


def test_names_are_any_text_made_printable(tmp_path):
    summary(tmp_path / "summary.json", dataset="\x1b[31mrot\n\u202e", method='<b>"\ud800|')
    assert list(read(tmp_path).cells) == [("\\x1b[31mrot\\n\\u202e", '<b>"\\ud800|')]


def test_different_seeds_are_warned_about_once(tmp_path):
    summary(tmp_path / "a" / "summary.json")
    summary(tmp_path / "b" / "summary.json", method="cc", seeds=[1, 2])
    summary(tmp_path / "c" / "summary.json", dataset="other", seeds=[7, 8])
    with pytest.warns(UserWarning, match="different seeds") as record:
        read(tmp_path)
    assert len(record) == 1
    assert "lost: proden (seeds 0, 1); cc (seeds 1, 2)" in str(record[0].message)
    assert "other" not in str(record[0].message)
    assert record[0].filename == __file__


def test_long_warnings_are_shortened(tmp_path):
    for i in range(30):
        summary(tmp_path / f"{i}" / "summary.json", method=f"m{i:02}", seeds=range(20), values=[[0.5]] * 20)
    summary(tmp_path / "one" / "summary.json", method="cc")
    with pytest.warns(UserWarning, match=r"m04 and 25 more \(seeds 0, .*, 9 and 10 more\)"):
        read(tmp_path)


def test_published_accuracies(tmp_path):
    path = tmp_path / "published.csv"
    path.write_text("\ufeffmethod,seed,dataset,test_accuracy,n\ncc,1,lost,0.5,9\ncc,0,lost,0.25,9\n", encoding="utf-8")
    assert read_csv(path) == Scores({("lost", "cc"): {0: 0.25, 1: 0.5}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'method'"),
        ("method,dataset,seed\n", "no column 'test_accuracy'"),
        ("method,dataset,seed,test_accuracy\n", "no lines"),
        ("method,dataset,seed,test_accuracy\ncc,lost\n", "line 2 has too few fields"),
        ("method,dataset,seed,test_accuracy\ncc,lost,x,0.5\n", "line 2 has seed 'x'"),
        ("method,dataset,seed,test_accuracy\ncc,lost,0,high\n", "test_accuracy 'high'"),
        ("method,dataset,seed,test_accuracy\ncc,lost,0,0.5\ncc,lost,1,50\n", "line 3: accuracy is 50.0"),
        ("method,dataset,seed,test_accuracy\ncc,lost,0,nan\n", "accuracy is nan"),
        ("method,dataset,seed,test_accuracy\ncc,lost,0,0.5\ncc,lost,0,0.5\n", "line 3 repeats"),
        ('method,dataset,seed,test_accuracy\n"cc,lost,0,0.5\n', "unexpected end of data; correct it"),
        ("method,dataset,seed,test_accuracy\ncc,lost,0,0.5,x\n", "line 2 has more fields than the header"),
        ("method,dataset,seed,test_accuracy\n,lost,0,0.5\n", "line 2 has no method or no dataset"),
    ],
)
def test_malformed_csv_is_named(tmp_path, text, message):
    path = tmp_path / "published.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"published\.csv.*{message}"):
        read_csv(path)


@pytest.mark.parametrize("text", ["[]", "1", "null", "{}"])
def test_summaries_of_other_programs_are_passed_over(tmp_path, text):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "summary.json").write_text(text)
    summary(tmp_path / "mine" / "summary.json")
    with pytest.warns(UserWarning, match="other"):
        assert read(tmp_path).datasets == ("lost",)


def config(content="c0", protocol="default", **recipe):
    recipe = {"name": "any", "epochs": 200, "max_lr": 0.01} | recipe
    return {"dataset": {"name": "lost", "content": content}, "protocol": protocol, "recipe": recipe}


def test_a_run_with_more_seeds_stands_for_a_smaller_one(tmp_path):
    summary(tmp_path / "a" / "summary.json", seeds=[0, 1], values=[[0.1], [0.2]], config=config())
    summary(
        tmp_path / "b" / "summary.json", seeds=[0, 1, 2], values=[[0.5], [0.6], [0.7]], config=config(name="renamed")
    )
    assert dict(read(tmp_path).cells["lost", "proden"]) == {0: 0.5, 1: 0.6, 2: 0.7}


def test_equal_runs_in_two_folders_are_one(tmp_path):
    for name in "ab":
        summary(tmp_path / name / "summary.json", config=config())
    assert dict(read(tmp_path).cells["lost", "proden"]) == {0: pytest.approx(0.6), 1: pytest.approx(0.85)}


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (config(epochs=40), r"recipe epochs \(200, 40\)"),
        (config(protocol="uai2025"), r"protocol \(default, uai2025\)"),
        (config(content="c1"), r"content of the dataset \(c0, c1\)"),
    ],
)
def test_runs_that_were_not_made_alike(tmp_path, other, difference):
    summary(tmp_path / "a" / "summary.json", seeds=[0, 1], config=config())
    summary(tmp_path / "b" / "summary.json", seeds=[0, 1], values=[[0.1], [0.2]], config=other)
    said = f"the newest counts: lost proden from .*, which differs in {difference}"
    with pytest.warns(UserWarning, match=said):
        assert dict(read(tmp_path).cells["lost", "proden"]) == {0: 0.1, 1: 0.2}
    summary(tmp_path / "b" / "summary.json", seeds=[2, 3], config=other)
    with pytest.warns(UserWarning, match=said):
        assert list(read(tmp_path).cells["lost", "proden"]) == [2, 3], "seeds of different runs are not mixed"
    summary(tmp_path / "b" / "summary.json", method="cc", config=other)
    with pytest.warns(UserWarning, match=f"may mislead: lost: {difference}"):
        assert len(read(tmp_path).cells) == 2


def test_methods_may_have_other_rates_but_not_the_runs_of_one(tmp_path):
    summary(tmp_path / "a" / "summary.json", seeds=[0, 1], config=config())
    summary(tmp_path / "b" / "summary.json", method="lws", config=config(max_lr=0.001))
    assert len(read(tmp_path).cells) == 2
    summary(tmp_path / "b" / "summary.json", seeds=[2, 3], config=config(max_lr=0.001))
    with pytest.warns(UserWarning, match=r"the newest counts: lost proden from .* recipe max_lr \(0.001, 0.01\)"):
        assert list(read(tmp_path).cells["lost", "proden"]) == [2, 3]


@pytest.mark.parametrize("newest", ["a", "b"])
def test_the_newest_run_of_a_cell_counts(tmp_path, newest):
    for name, value, code in (("a", 0.1, "c0"), ("b", 0.2, "c1")):
        finished = "2026-02-02T00:00:00Z" if name == newest else "2026-01-01T00:00:00Z"
        made = config() | {"code": [code, None]}  # a custom method that was changed
        summary(tmp_path / name / "summary.json", values=[[value]] * 2, config=made, finished=finished)
    said = rf"lost proden from .*{newest}/summary.json \(2026-02-02T00:00:00Z\) instead of .*differs in code"
    with pytest.warns(UserWarning, match=said):
        scores = read(tmp_path)
    assert set(scores.cells["lost", "proden"].values()) == {0.1 if newest == "a" else 0.2}


def test_runs_with_the_settings_of_the_newest_count_too(tmp_path):
    times = ("2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z", "2026-03-03T00:00:00Z")
    made = (config(), config(epochs=5), config())
    for i, (finished, settings) in enumerate(zip(times, made, strict=True)):
        path = tmp_path / f"{i}" / "summary.json"
        summary(path, seeds=[i, 9], values=[[0.1 * i], [0.5]], config=settings, finished=finished)
    with pytest.warns(UserWarning, match="newest counts") as seen:
        scores = read(tmp_path)
    assert dict(scores.cells["lost", "proden"]) == {0: 0.0, 2: 0.2, 9: 0.5}
    assert "1/summary.json" in str(seen[0].message)


@pytest.mark.skipif(os.name != "posix", reason="the system has no named pipes")
def test_named_pipes_do_not_block(tmp_path):
    for name in ("summary.json", "p.parquet"):
        folder = tmp_path / name.partition(".")[2]
        folder.mkdir()
        os.mkfifo(folder / name)
        with pytest.raises((OSError, ValueError), match=f"{name} is not a file"):
            read(folder)
    with pytest.raises(OSError, match="is not a file"):
        read_csv(tmp_path / "json" / "summary.json")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cc,toy,0,0.5,more", "line 2 has more fields than the header"),
        (",toy,0,0.5", "line 2 has no method or no dataset; complete or remove it"),
        ('cc,"toy,0,0.5', "is not a CSV file: .*; correct it"),
    ],
)
def test_a_wrong_line_of_published_accuracies_is_refused(line, message, tmp_path):
    path = tmp_path / "published.csv"
    path.write_text(f"method,dataset,seed,test_accuracy\n{line}\n")
    with pytest.raises(ValueError, match=message):
        read_csv(path)


def test_a_run_without_its_summary_is_named(tmp_path):
    summary(tmp_path / "a" / "summary.json")
    predictions(tmp_path / "b" / "predictions.parquet", [1], [1], method=["cc"])
    (tmp_path / "b" / "done").touch()
    with pytest.raises(ValueError, match=r"b is a run without summary\.json; remove this folder"):
        read(tmp_path)
