"""Held-out rows: what is recorded of them, when training stops, and whose networks it ends with; interrupts."""

import dataclasses
import signal
import threading

import numpy as np
import pytest
import torch

from candidly import metrics
from candidly.cleaning import Cleaner, Clsp, Conformal
from candidly.engine import stopping
from candidly.engine.fitting import fit
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.stopping import interruptible
from candidly.engine.training import Training
from candidly.methods import METHODS, Crosel, Pico, Pop, Proden, Valen
from candidly.store import states

N, D, C, EPOCHS = 26, 3, 4, 8
RECIPE = Recipe("test", epochs=EPOCHS, batch_size=8)
HELD_OUT = [np.arange(20, 26), np.array([2, 0])]
SHORT = {
    "pop": Pop(start=1, every=2, theta=0.3),
    "valen": Valen(warmup=2, k=2),
    "crosel": Crosel(2, 0.3),
    "pico": Pico(queue=64),
}


def problem(**keywords):
    rng = np.random.default_rng(0)
    y = np.arange(N) % C
    X = rng.normal(size=(N, D)) + y[:, None]
    S = rng.random((N, C)) < 0.4
    S[np.arange(N), y] = True
    rows = [np.arange(20), np.arange(3, 26)]
    return Problem.of(X, S, **{"rows": rows, "seeds": (3, 4), "standardise": True} | keywords)


def train(method=None, cleaner=None, **keywords):
    data = keywords.pop("data", None) or problem()
    settings = {"recipe": RECIPE, "net": "linear", "device": "cpu", "held_out": HELD_OUT}
    return fit(data, method or Proden(), cleaner, **settings | keywords)


@dataclasses.dataclass
class Scripted(Proden):
    """Covers the wished share of ten held-out rows in each epoch, whatever it learns: classes 1 are no candidates."""

    script: tuple = ()

    def setup(self, problem, build_net):
        super().setup(problem, build_net)
        self.epoch = torch.zeros(1, dtype=torch.int64)

    def epoch_end(self, epoch, sweep):
        self.epoch.fill_(epoch)

    def predict(self, x):
        covered = torch.tensor(self.script)[self.epoch]
        wrong = torch.arange(x.shape[1]) >= covered
        return torch.nn.functional.one_hot(wrong.long().expand(x.shape[:2]), 2).double()


def scripted(*script, seeds=(0,), **keywords):
    """Train as long as the script is; rows 4 to 13 are held out."""
    S = np.ones((14, 2), bool)
    S[4:, 1] = False
    data = Problem.of(np.arange(14.0)[:, None], S, rows=[np.arange(4)] * len(seeds), seeds=seeds)
    recipe = dataclasses.replace(RECIPE, epochs=len(script))
    keywords = {"held_out": [np.arange(4, 14)] * len(seeds), "recipe": recipe} | keywords
    return train(Scripted(tuple(script)), data=data, **keywords)


@pytest.fixture
def after_each_epoch(monkeypatch):
    """Copies of the networks' tensors after every epoch."""
    copies, plain = [], Training.end_epoch

    def end_epoch(self):
        plain(self)
        tensors = self.tensors()
        copies.append({name: value.clone() for name, value in tensors.items() if name.startswith("net.")})

    monkeypatch.setattr(Training, "end_epoch", end_epoch)
    return copies


def assert_networks(model, wanted):
    found = {name: value for name, value in model.parts()[0].items() if name.startswith("net.")}
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        assert torch.equal(value, wanted[name]), name


@pytest.mark.parametrize(
    ("script", "patience", "epochs", "best"),
    [
        ((5, 6, 7, 6, 6, 9), 2, 5, 2),
        ((5, 6, 7, 6, 6, 9), 3, 6, 5),
        ((5, 6, 7, 6, 8, 7, 8, 9), 2, 7, 4),
        ((5, 5, 5), 2, 3, 0),
        ((5, 4, 9), 1, 2, 0),
        ((0, 0, 0, 0), 3, 4, 0),
        ((1, 2, 3, 4), 1, 4, 3),
        ((1, 4, 3, 2), 5, 4, 1),
    ],
)
def test_stops_and_puts_the_best_networks_back(script, patience, epochs, best, after_each_epoch):
    """Also where all epochs are done: the last networks are not the best ones."""
    model = scripted(*script, patience=patience)
    assert model.history["covering_rate"].tolist() == [[n / 10] for n in script[:epochs]]
    assert all(len(values) == epochs for values in model.history.values())
    assert len(after_each_epoch) == epochs
    assert_networks(model, after_each_epoch[best])
    assert best == epochs - 1 or not torch.equal(
        after_each_epoch[best]["net.net.head.weight"], after_each_epoch[-1]["net.net.head.weight"]
    )


def test_rates_are_compared_exactly():
    """0.7 rounded to a float32 is less than 0.7, which would exceed such a record in every epoch."""
    assert len(scripted(7, 7, 7, 7, patience=2).history["loss"]) == 3


def test_without_patience_nothing_is_put_back(after_each_epoch):
    model = scripted(5, 9, 1, 2)
    assert model.history["covering_rate"].tolist() == [[0.5], [0.9], [0.1], [0.2]]
    assert_networks(model, after_each_epoch[-1])


def test_the_mean_over_runs_decides():
    """One run's rate falls and the other's rises by more."""

    @dataclasses.dataclass
    class Two(Scripted):
        def predict(self, x):
            p = super().predict(x)
            return torch.stack([p[0], p[1].flip(-1)])  # covers what the other does not

    S = np.ones((14, 2), bool)
    S[4:, 1] = False
    data = Problem.of(np.arange(14.0)[:, None], S, rows=[np.arange(4)] * 2, seeds=[0, 1])
    held_out = [np.arange(4, 14), np.arange(4, 8)]
    recipe = dataclasses.replace(RECIPE, epochs=4)
    model = train(Two((4, 3, 2, 1)), data=data, held_out=held_out, patience=2, recipe=recipe)
    rates = model.history["covering_rate"]
    assert rates[:, 0].tolist() == [0.4, 0.3, 0.2, 0.1]
    assert rates[:, 1].tolist() == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("cleaner", [None, Conformal(warmup=1), Conformal(calibration="holdout", warmup=1), Clsp(k=3)])
@pytest.mark.parametrize("per_run", [False, True])
def test_the_covering_rate_is_the_metric(cleaner, per_run):
    """Of the model in evaluation mode and of the original candidates, whatever a cleaner withholds or prunes."""
    data = problem()
    if per_run:
        other = data.S.roll(1, 0) | data.S
        data = dataclasses.replace(data, S=torch.stack([data.S, other]))
    model = train(cleaner=cleaner, data=data, net="mlp")
    assert model.history["covering_rate"].shape == (EPOCHS, 2)
    p = model.predict(data.X)
    for run, rows in enumerate(HELD_OUT):
        expected = float(metrics.covering_rate(p[run, rows], data.sets[run, rows]))
        assert model.history["covering_rate"][-1, run] == pytest.approx(expected)


@pytest.mark.parametrize("name", METHODS)
def test_watching_changes_nothing_else(name):
    """Neither a bit of what is learned, nor of the rest of the history."""
    method = SHORT.get(name) or METHODS[name]()
    plain = train(method, Conformal(warmup=1), held_out=None, net="mlp")
    watched = train(method, Conformal(warmup=1), net="mlp")
    patient = train(method, Conformal(warmup=1), net="mlp", patience=EPOCHS)
    X = problem().X
    assert torch.equal(plain.predict(X), watched.predict(X))
    for model in (watched, patient):
        assert torch.equal(plain.kept, model.kept)
        assert model.history.keys() - plain.history.keys() == {"covering_rate"}
        assert all(np.array_equal(values, model.history[key]) for key, values in plain.history.items())


def test_a_real_training_stops(after_each_epoch):
    """Noisy labels: the rate on held-out rows rises, then falls while the loss goes on falling."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 120)
    X = rng.normal(size=(120, 20)) + 0.8 * y[:, None] * (np.arange(20) < 2)
    S = np.eye(2, dtype=bool)[np.where(rng.random(120) < 0.25, 1 - y, y)]
    data = Problem.of(X, S, rows=[np.arange(40)], seeds=[0])
    recipe = Recipe("long", epochs=60, batch_size=8, schedule="constant")
    model = fit(data, Proden(), None, recipe, device="cpu", held_out=[np.arange(40, 120)], patience=5)
    rates = model.history["covering_rate"][:, 0]
    best = int(rates.argmax())
    assert len(rates) == best + 6 < 60
    assert (rates[best + 1 :] <= rates[best]).all()
    assert_networks(model, after_each_epoch[best])


def interrupted(step, **keywords):
    plain, taken = Training.advance, []

    def advance(self, capture):
        plain(self, capture)
        taken.append(1)
        if len(taken) == step:
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "advance", advance)
        with pytest.raises(KeyboardInterrupt):
            train(**keywords)


@pytest.mark.parametrize("name", ["proden", "valen", "crosel"])
@pytest.mark.parametrize("steps", [(1, 3), (4, 7, 1), (9,)])
def test_resuming_equals_never_having_stopped(name, steps, tmp_path):
    """To the bit, with the best networks and the count of epochs since then in the checkpoint."""
    keywords = {"method": SHORT.get(name) or METHODS[name](), "net": "mlp", "patience": 3}
    whole = train(**keywords, checkpoint=tmp_path / "whole")
    for step in steps:
        interrupted(step, **keywords, checkpoint=tmp_path / "parts")
    parts = train(**keywords, checkpoint=tmp_path / "parts")
    X = problem().X
    assert torch.equal(whole.predict(X), parts.predict(X))
    assert all(np.array_equal(values, parts.history[key]) for key, values in whole.history.items())
    saved = [states.read(tmp_path / folder)[0] for folder in ("whole", "parts")]
    assert saved[0].keys() == saved[1].keys()
    assert any(key.startswith("watch.best.net.") for key in saved[0])
    assert all(torch.equal(value, saved[1][key]) for key, value in saved[0].items())


def test_a_stopped_training_stays_stopped(tmp_path, monkeypatch):
    """Its checkpoint is the model, of which no step is left."""
    first = scripted(5, 7, 6, 6, 9, patience=2, checkpoint=tmp_path, every=100)
    assert len(first.history["loss"]) == 4
    monkeypatch.setattr(Training, "advance", None)
    again = scripted(5, 7, 6, 6, 9, patience=2, checkpoint=tmp_path)
    assert_networks(again, {name: value for name, value in first.parts()[0].items() if name.startswith("net.")})
    assert {k: v.tolist() for k, v in first.history.items()} == {k: v.tolist() for k, v in again.history.items()}


@pytest.mark.parametrize(
    ("changes", "different"),
    [
        ({"patience": 4}, "patience"),
        ({"patience": None}, "patience"),
        ({"held_out": [HELD_OUT[0], np.array([1])]}, "held_out"),
        ({"held_out": None, "patience": None}, "held_out, patience"),
    ],
)
def test_a_checkpoint_of_another_watch(changes, different, tmp_path):
    train(patience=3, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=rf"another training \(different: {different}\)"):
        train(**{"patience": 3, "checkpoint": tmp_path} | changes)


def test_checkpoints_hold_no_watch_without_patience(tmp_path):
    train(checkpoint=tmp_path / "watched")
    assert not any(name.startswith("watch.") for name in states.read(tmp_path / "watched")[0])
    train(checkpoint=tmp_path / "plain", held_out=None)
    assert states.read(tmp_path / "plain")[1]["config"].keys() == {
        "method",
        "method's code",
        "cleaner",
        "cleaner's code",
        "recipe",
        "net",
        "net's code",
        "problem",
        "device",
    }


def test_nothing_waits_for_the_record(monkeypatch):
    """Without patience no number is read from the device; a GPU would have to finish first."""
    read = []
    plain = torch.Tensor.__float__
    monkeypatch.setattr(torch.Tensor, "__float__", lambda self: read.append(1) or plain(self))
    train()
    assert not read
    model = train(patience=EPOCHS)
    assert len(read) == 2 * len(model.history["loss"])  # the rate's and, of the host, the best one's


def test_the_bar_ends_where_training_does(capsys):
    scripted(5, 4, 9, patience=1, progress=True)
    shown = capsys.readouterr().err.rpartition("\r")[2]
    assert "epoch 2 of " in shown
    assert "100%" in shown


WRONG = {
    "patience alone": ({"held_out": None, "patience": 3}, "patience is 3 but there are no held-out rows"),
    "no patience": ({"patience": 0}, "patience is 0; it must be an integer of at least 1"),
    "half a patience": ({"patience": 1.5}, r"patience is 1\.5"),
    "truth": ({"patience": True}, "patience is True"),
    "one run": ({"held_out": HELD_OUT[:1]}, "held_out lists 1 runs but there are 2"),
    "no rows": ({"held_out": [HELD_OUT[0], []]}, "run 1 has no held-out rows"),
    "numbers": ({"held_out": [HELD_OUT[0], [0.5]]}, "rows of run 1 have dtype float64"),
    "flags": ({"held_out": [np.arange(N) > 19, HELD_OUT[1]]}, "rows of run 0 have dtype bool"),
    "matrix": ({"held_out": [HELD_OUT[0][None], HELD_OUT[1]]}, r"rows of run 0 have dtype int64 and shape \(1, 6\)"),
    "twice": ({"held_out": [HELD_OUT[0], [1, 0, 1]]}, "rows of run 1 contain a row twice"),
    "beyond": ({"held_out": [[25, 26], HELD_OUT[1]]}, "rows of run 0 go from 25 to 26 but X has rows 0 to 25"),
    "negative": ({"held_out": [HELD_OUT[0], [-1, 2]]}, "rows of run 1 go from -1 to 2"),
    "trained on": ({"held_out": [[19, 20], HELD_OUT[1]]}, "run 0 trains on row 19, which is also held out"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    changes, message = WRONG[case]
    with pytest.raises(ValueError, match=message) as caught:
        train(**changes)
    assert "\n" not in str(caught.value)


def test_a_withheld_row_is_no_held_out_row():
    """The cleaner withholds some of the training rows; they belong to the training all the same."""

    class Withholding(Cleaner):
        def setup(self, problem):
            return dataclasses.replace(problem, rows=tuple(rows[4:] for rows in problem.rows))

    assert train(cleaner=Withholding()).history["covering_rate"].shape == (EPOCHS, 2)
    with pytest.raises(ValueError, match="run 0 trains on row 0"):
        train(cleaner=Withholding(), held_out=[[0], HELD_OUT[1]])


@pytest.mark.gpu
def test_watching_on_cuda(tmp_path):
    keywords = {"device": "cuda", "net": "mlp", "patience": 3}
    eager, graph = (train(graph=graph, **keywords) for graph in ("off", "on"))
    assert np.array_equal(eager.history["covering_rate"], graph.history["covering_rate"])
    interrupted(7, **keywords, checkpoint=tmp_path)
    parts = train(**keywords, checkpoint=tmp_path)
    assert torch.equal(parts.predict(problem().X), graph.predict(problem().X))


@pytest.mark.parametrize("kind", ["a handler that Python did not set", "an interpreter without signals"])
def test_without_a_handler_of_signals_only_the_event_stops(kind, monkeypatch):
    def refuse(number, handler):
        raise ValueError("signal only works in main thread of the main interpreter")

    before = signal.getsignal(signal.SIGINT)
    if kind == "an interpreter without signals":
        monkeypatch.setattr(stopping.signal, "signal", refuse)
    else:
        monkeypatch.setattr(stopping.signal, "getsignal", lambda number: None)
    event = threading.Event()
    with interruptible(event) as stopped:
        assert not stopped()
        event.set()
        assert stopped()
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is before
