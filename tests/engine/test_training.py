"""The engine: interrupts and checkpoints, batches, history, and eager against captured training."""

import dataclasses
import functools
import os
import signal
import threading

import numpy as np
import pytest
import torch
from torch import nn

from candidly.cleaning import Cleaner, Conformal, Random
from candidly.engine import fitting
from candidly.engine import training as engine
from candidly.engine.batches import Batch
from candidly.engine.device import find_device
from candidly.engine.fitting import fit
from candidly.engine.problem import Problem
from candidly.engine.recipe import RECIPES, Recipe, find_recipe
from candidly.engine.training import Training
from candidly.methods import METHODS, Cc, Crosel, Pico, Pop, Proden, Supervised, Valen
from candidly.store import states

N, D, C, EPOCHS, STEPS = 26, 3, 4, 5, 3
RECIPE = Recipe("test", epochs=EPOCHS, batch_size=8, max_lr=0.1)
SHORT = {
    "pop": Pop(start=1, every=2, theta=0.3),
    "valen": Valen(warmup=2, k=2),
    "crosel": Crosel(2, 0.3),
    "pico": Pico(queue=64),
}
CLEANERS = {
    "none": None,
    "published": dataclasses.replace(Conformal.published(), warmup=1),
    "permanent": Conformal(rule="permanent", calibration="holdout", warmup=1, stop=1.0),
    "revocable": Conformal(warmup=1),
    "random": Random(Conformal(warmup=1)),
}


def problem(seed=0, **keywords):
    """Two runs of 20 and 23 rows, neither a multiple of the batch size, three batches each."""
    rng = np.random.default_rng(seed)
    y = np.arange(N) % C
    X = rng.normal(size=(N, D)) + y[:, None]
    S = rng.random((N, C)) < 0.4
    S[np.arange(N), y] = True
    rows = [np.arange(20), np.arange(3, 26)]
    return Problem.of(X, S, **{"rows": rows, "seeds": (3, 4), "y": y, "standardise": True} | keywords)


def method_of(name):
    return SHORT.get(name) or METHODS[name]()


class Small(nn.Module):
    """A user's network with features, which VALEN needs."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(D, 6), nn.ReLU(), nn.BatchNorm1d(6)), nn.Linear(6, C)

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.body(x))


def train(method=None, cleaner=None, recipe=RECIPE, **keywords):
    """Fit with the smallest network that will do."""
    method = Proden() if method is None else method
    net = Small if isinstance(method, Pico | Valen) else "linear"
    data = keywords.pop("data", None) or problem()
    return fit(data, method, cleaner, recipe, **{"net": net, "device": "cpu"} | keywords)


def assert_same(model, other, X=None):
    """Everything two models hold is equal, to the bit."""
    X = problem().X if X is None else X
    assert torch.equal(model.predict(X), other.predict(X))
    assert torch.equal(model.kept, other.kept)
    assert model.history.keys() == other.history.keys()
    for name, values in model.history.items():
        assert np.array_equal(values, other.history[name]), name
    assert not any(np.isnan(values).any() for values in model.history.values())


def assert_same_state(folder, other):
    """All tensors of two checkpoints are equal, to the bit."""
    tensors, theirs = states.read(folder)[0], states.read(other)[0]
    assert tensors.keys() == theirs.keys()
    for name, value in tensors.items():
        assert torch.equal(value, theirs[name]), name


def interrupted(step, *arguments, times=1, **keywords):
    """Train, and press Ctrl-C in the `step`-th step."""
    plain, taken = Training.advance, []

    def advance(self, capture):
        plain(self, capture)
        taken.append(1)
        if len(taken) == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "advance", advance)
        patch.setattr(fitting, "count_groups", lambda *_, **__: 1)  # it takes steps to measure memory
        with pytest.raises(KeyboardInterrupt):
            train(*arguments, **keywords)
    assert len(taken) == step


def standing(folder):
    """Where a checkpoint stands: epochs done, and steps of the next one; with steps done, that one is begun."""
    facts = states.read(folder)[1]
    assert facts["begun"] or not facts["done"]
    return facts["epoch"], facts["done"]


@pytest.mark.parametrize("cleaner", CLEANERS)
@pytest.mark.parametrize("name", METHODS)
def test_resuming_equals_never_having_stopped(name, cleaner, tmp_path):
    """Stopped four times: after the first step, within other epochs and at the end of one."""
    method, cleaner = method_of(name), CLEANERS[cleaner]
    whole = train(method, cleaner, checkpoint=tmp_path / "whole")
    steps = int(states.read(tmp_path / "whole")[0]["engine.clock"]) // EPOCHS
    places = [(0, 1), (2, 0), (2, steps - 1), (4, 1)]
    before = 0
    for epoch, done in places:
        total = epoch * steps + done
        interrupted(total - before, method, cleaner, checkpoint=tmp_path / "parts")
        assert standing(tmp_path / "parts") == (epoch, done)
        before = total
    parts = train(method, cleaner, checkpoint=tmp_path / "parts")
    assert_same(parts, whole)
    assert_same_state(tmp_path / "parts", tmp_path / "whole")
    assert cleaner is None or whole.history["share_changed"].any()


@pytest.mark.parametrize("name", ["proden", "valen", "crosel"])
def test_resuming_with_the_optimiser_of_cuda(name, tmp_path, monkeypatch):
    """The steps inactive in a phase are in its table, the moments in the checkpoint."""
    monkeypatch.setattr(engine, "HostAdam", engine.Adam)
    method, cleaner = method_of(name), CLEANERS["permanent"]
    whole = train(method, cleaner, checkpoint=tmp_path / "whole")
    steps = int(states.read(tmp_path / "whole")[0]["engine.clock"]) // EPOCHS
    interrupted(1, method, cleaner, checkpoint=tmp_path / "parts")
    interrupted(3 * steps, method, cleaner, checkpoint=tmp_path / "parts")
    assert standing(tmp_path / "parts") == (3, 1)
    assert_same(train(method, cleaner, checkpoint=tmp_path / "parts"), whole)
    assert_same_state(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize("cleaner", [name for name in CLEANERS if name != "none"])
def test_an_interrupt_before_an_epochs_first_step(cleaner, tmp_path, monkeypatch):
    """Ctrl-C while the cleaner calibrates: that epoch must not be calibrated twice when it is resumed."""
    cleaner = CLEANERS[cleaner]
    whole = train(Proden(), cleaner, checkpoint=tmp_path / "whole")
    plain = type(cleaner).calibrate

    def calibrate(self, predict, epoch):
        plain(self, predict, epoch)
        if epoch == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(type(cleaner), "calibrate", calibrate)
    with pytest.raises(KeyboardInterrupt):
        train(Proden(), cleaner, checkpoint=tmp_path / "parts")
    monkeypatch.undo()
    facts = states.read(tmp_path / "parts")[1]
    assert (facts["epoch"], facts["done"], facts["begun"]) == (2, 0, True)
    parts = train(Proden(), cleaner, checkpoint=tmp_path / "parts")
    assert_same(parts, whole)
    assert_same_state(tmp_path / "parts", tmp_path / "whole")


def test_resuming_with_an_mlp_and_a_network_of_ones_own(tmp_path):
    """Running statistics and modules kept one per run are part of the checkpoint."""
    for net in ("mlp", Small):
        folder = tmp_path / str(callable(net))
        whole = train(net=net)
        interrupted(7, net=net, checkpoint=folder)
        assert_same(train(net=net, checkpoint=folder), whole)


def test_a_kill_between_checkpoints(tmp_path, monkeypatch):
    """Without a chance to save, training goes on from the last regular checkpoint."""
    whole = train(SHORT["crosel"], CLEANERS["permanent"])
    plain = Training.begin_epoch

    def killed(self):
        plain(self)
        if self.epoch == 4:
            raise MemoryError

    monkeypatch.setattr(Training, "begin_epoch", killed)
    with pytest.raises(MemoryError):
        train(SHORT["crosel"], CLEANERS["permanent"], checkpoint=tmp_path, every=3)
    monkeypatch.undo()
    assert standing(tmp_path) == (3, 0)
    assert_same(train(SHORT["crosel"], CLEANERS["permanent"], checkpoint=tmp_path, every=3), whole)


def test_checkpoints_come_every_so_often(tmp_path, monkeypatch):
    saved, plain = [], Training.save
    monkeypatch.setattr(Training, "save", lambda self, *a: saved.append((self.epoch, self.done)) or plain(self, *a))
    train(checkpoint=tmp_path, every=2)
    assert saved == [(2, 0), (4, 0), (5, 0)]
    train()
    assert len(saved) == 3


@pytest.mark.parametrize("step", [2, 4])
def test_no_checkpoint_is_half_written(step, tmp_path, monkeypatch):
    """A crash while the tensors or the JSON file are replaced leaves the checkpoint before."""
    whole = train()
    plain, calls = os.replace, []

    def replace(*arguments):
        calls.append(arguments)
        if len(calls) == step + 1:  # two files are replaced per checkpoint
            raise OSError("disk full")
        plain(*arguments)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="disk full"):
        train(checkpoint=tmp_path, every=1)
    monkeypatch.undo()
    assert standing(tmp_path) == (step // 2, 0)
    assert not list(tmp_path.glob("*.tmp"))
    assert_same(train(checkpoint=tmp_path, every=1), whole)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


def test_a_damaged_checkpoint_is_not_continued(tmp_path):
    train(checkpoint=tmp_path)
    path = next(tmp_path.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="truncated or was changed"):
        train(checkpoint=tmp_path)


@pytest.mark.parametrize("change", ["missing", "another shape"])
def test_a_checkpoint_with_other_tensors(change, tmp_path):
    """Say, of another version: it is refused whole, and left as it is."""
    train(checkpoint=tmp_path)
    tensors, facts = states.read(tmp_path)
    name = "optimiser.net.mean.0"
    value = tensors.pop(name)
    found = "is missing"
    if change == "another shape":
        tensors[name], found = value[:1], r"has shape \(1, 3, 4\)"
    states.write(tmp_path, tensors, facts)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=rf"{name} {found} instead of having shape \(2, 3, 4\): .*; delete it"):
        train(checkpoint=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_finished_checkpoint_is_the_model(tmp_path, monkeypatch):
    first = train(Pop(), CLEANERS["published"], checkpoint=tmp_path)

    def advance(self, capture):
        raise AssertionError("trained again")

    monkeypatch.setattr(Training, "advance", advance)
    assert_same(train(Pop(), CLEANERS["published"], checkpoint=tmp_path), first)


CHANGES = {
    "method": {"method": Cc()},
    "method ": {"method": SHORT["pop"]},
    "cleaner": {"cleaner": Conformal(warmup=1)},
    "recipe": {"recipe": dataclasses.replace(RECIPE, epochs=6)},
    "net": {"net": "mlp"},
    "problem": {"data": problem(seed=1)},
    "method, recipe": {"method": Cc(), "recipe": dataclasses.replace(RECIPE, max_lr=0.2)},
}


@pytest.mark.parametrize("different", CHANGES)
def test_a_checkpoint_of_another_training(different, tmp_path):
    train(Pop(), checkpoint=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = {"method": Pop(), "checkpoint": tmp_path} | CHANGES[different]
    with pytest.raises(
        ValueError, match=rf"another training \(different: {different.strip()}\); choose another folder"
    ):
        train(**arguments)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def own_net(factor):
    """Return a network that differs from others only in a value that it captured."""

    class Own(Small):
        def forward(self, x):
            return factor * super().forward(x)

    return Own


def own_method(weight):
    @dataclasses.dataclass
    class Own(Proden):
        def step(self, batch, phase):
            return weight * super().step(batch, phase)

    return Own()


class Plain(Proden):
    """A method with an attribute that is not a field."""

    def __init__(self, extra):
        self.extra = extra


def scaled_small(factor=1.0):
    net = Small()
    net.head.weight.data *= factor
    return net


OWN = {
    "net's code": ({"net": own_net(1)}, {"net": own_net(2)}),
    "net's code ": ({"net": functools.partial(scaled_small, 1.0)}, {"net": functools.partial(scaled_small, 2.0)}),
    "net's code  ": ({"net": lambda: own_net(1)()}, {"net": lambda: own_net(2)()}),
    "method's code": ({"method": own_method(1)}, {"method": own_method(2)}),
    "method": ({"method": Plain(1)}, {"method": Plain(2)}),
}


@pytest.mark.parametrize("different", OWN)
def test_a_checkpoint_of_other_custom_code(different, tmp_path):
    first, second = OWN[different]
    whole = train(**first)
    interrupted(7, checkpoint=tmp_path, **first)
    with pytest.raises(
        ValueError, match=rf"another training \(different: {different.strip()}\); choose another folder"
    ):
        train(checkpoint=tmp_path, **second)
    assert_same(train(checkpoint=tmp_path, **first), whole)


def forged(folder, **changes):
    tensors, facts = states.read(folder)
    facts |= {name: value for name, value in changes.items() if name in facts}
    tensors |= {name.replace("_", "."): value for name, value in changes.items() if name not in facts}
    states.write(folder, tensors, facts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"done": 999}, "'done' is 999"),
        ({"done": STEPS}, f"'done' is {STEPS}"),
        ({"done": -1}, r"\['done'\] is -1"),
        ({"done": True}, r"\['done'\] is True"),
        ({"done": 1.0}, r"\['done'\] is 1.0"),
        ({"begun": False}, "'done' is 1"),
        ({"begun": 1}, r"\['begun'\] is 1"),
        ({"epoch": 10**9}, "'epoch' is 1000000000"),
        ({"epoch": "2"}, r"\['epoch'\] is '2'"),
        ({"epoch": 3}, r"clock is \[7\]"),
        ({"epoch": EPOCHS, "done": 0}, "'begun' after the last epoch is True"),
        ({"config": []}, r"\['config'\] is \[\]"),
        ({"threads": 0}, r"\['threads'\] is 0"),
        ({"engine_clock": torch.tensor([10**6])}, r"clock is \[1000000\]"),
        ({"engine_clock": torch.tensor([7, 7])}, r"clock is \[7, 7\]"),
        ({"history_loss": torch.zeros(3, 2, dtype=torch.float64)}, r"the checkpoint's history.loss is \(3, 2\)"),
        ({"history_loss": torch.zeros(2, 2)}, r"the checkpoint's history.loss is \(2, 2\)"),
        ({"history_more": torch.zeros(0, 2, dtype=torch.float64)}, r"the checkpoint's history.more is \(0, 2\)"),
    ],
)
def test_counters_that_no_moment_of_the_training_has(changes, message, tmp_path):
    """With the right checksums: such a checkpoint would train for ever, or with other learning rates."""
    interrupted(2 * STEPS + 1, checkpoint=tmp_path)
    forged(tmp_path, **changes)
    with pytest.raises(ValueError, match=rf"cannot be continued: .*{message}.*; choose another folder or delete it"):
        train(checkpoint=tmp_path)


def test_facts_of_another_version(tmp_path):
    train(checkpoint=tmp_path)
    tensors, facts = states.read(tmp_path)
    del facts["threads"]
    states.write(tmp_path, tensors, facts)
    with pytest.raises(ValueError, match="cannot be continued: 'threads' in the checkpoint is 'missing'"):
        train(checkpoint=tmp_path)


def test_another_number_of_threads_is_said(tmp_path):
    interrupted(7, checkpoint=tmp_path)
    forged(tmp_path, threads=3)
    with pytest.warns(UserWarning, match=r"was trained with 3 threads, and torch now uses 1: .* last bits") as seen:
        train(checkpoint=tmp_path)
    assert len(seen) == 1


class Unnamed(nn.Module):
    """A user's network whose last layer is not called head."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(D, C)

    def forward(self, x):
        return self.fc(x)


@pytest.mark.parametrize("method", [Proden(), Crosel(1, 0.3)])  # one network, and two
def test_a_last_layer_that_is_not_found_is_said_once(method, monkeypatch):
    monkeypatch.setattr(fitting, "count_groups", lambda *_, **__: 2)
    recipe = dataclasses.replace(RECIPE, epochs=2, optimiser="nesterov")
    with pytest.warns(UserWarning, match=r"net=Unnamed has no layer called 'head', .*; name the last layer") as seen:
        fit(problem(), method, None, recipe, net=Unnamed, device="cpu")
    assert len(seen) == 1
    fit(problem(), method, None, dataclasses.replace(recipe, optimiser="adam"), net=Unnamed, device="cpu")
    for net in (Small, "mlp", "linear"):
        fit(problem(), method, None, recipe, net=net, device="cpu")


def test_one_checkpoint_folder_has_one_training(tmp_path, monkeypatch):
    """The second is refused at once, and the first goes on."""
    whole, plain = train(), Training.begin_epoch

    def begin(self):
        plain(self)
        if self.epoch == 1:
            with pytest.raises(OSError, match="another training is using the checkpoint folder"):
                train(checkpoint=tmp_path)

    monkeypatch.setattr(Training, "begin_epoch", begin)
    assert_same(train(checkpoint=tmp_path), whole)
    assert not (tmp_path / "lock").exists()


def test_ctrl_c_without_a_checkpoint(monkeypatch):
    ended = []
    plain = Training.end_epoch
    monkeypatch.setattr(Training, "end_epoch", lambda self: ended.append(self.epoch) or plain(self))
    before = signal.getsignal(signal.SIGINT)
    interrupted(STEPS + 1)
    assert ended == [0]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_is_honoured_between_steps(tmp_path):
    """The step in which it comes is finished; a second one is not waited for."""
    before = signal.getsignal(signal.SIGINT)
    interrupted(2, checkpoint=tmp_path)
    assert int(states.read(tmp_path)[0]["engine.clock"]) == 2
    files = sorted(path.name for path in tmp_path.iterdir())
    interrupted(2, times=2, checkpoint=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    assert signal.getsignal(signal.SIGINT) is before
    assert_same(train(checkpoint=tmp_path), train())


def test_training_in_a_thread():
    """Where signals cannot be handled, they are left alone."""
    found = []
    thread = threading.Thread(target=lambda: found.append(train()))
    thread.start()
    thread.join()
    assert_same(found[0], train())


@pytest.mark.parametrize("with_y", [True, False])
@pytest.mark.parametrize("cleaner", ["none", "published", "permanent"])
def test_history_keys_and_shapes(cleaner, with_y):
    data = problem() if with_y else problem(y=None)
    model = train(cleaner=CLEANERS[cleaner], data=data)
    keys = {"loss", "mean_candidates", "share_changed"}
    keys |= {"accuracy", "true_kept"} if with_y else set()
    keys |= {"alpha", "threshold", "estimated_lost"} if cleaner != "none" else set()
    assert set(model.history) == keys
    for values in model.history.values():
        assert values.shape == (EPOCHS, 2)
        assert values.dtype == np.float64
    assert model.kept.shape == (2, N, C)
    assert model.kept.dtype == torch.bool
    assert model.recipe.name == "test"
    assert model.net == "linear"


def test_history_says_what_happened(monkeypatch):
    """Loss and accuracy against what the steps saw; in an epoch, a run's last visit to a row counts."""
    data, losses, guesses = problem(), [], []
    step, candidates = Proden.step, Batch.candidates

    def recorded_step(self, batch, phase):
        loss = step(self, batch, phase)
        losses.append(loss.detach().double().numpy())
        return loss

    def recorded_candidates(self, p, within=None):
        guesses.append(
            [dict(zip(*run, strict=True)) for run in zip(self.rows.tolist(), p.argmax(-1).tolist(), strict=True)]
        )
        return candidates(self, p, within)

    monkeypatch.setattr(Proden, "step", recorded_step)
    monkeypatch.setattr(Batch, "candidates", recorded_candidates)
    model = train(data=data)
    for epoch in range(EPOCHS):
        steps = slice(epoch * STEPS, (epoch + 1) * STEPS)
        assert model.history["loss"][epoch] == pytest.approx(sum(losses[steps]) / STEPS, rel=1e-6)
        for run, rows in enumerate(data.rows):
            last = {row: guess for batch in guesses[steps] for row, guess in batch[run].items()}
            hits = [last[row] == int(data.y[row]) for row in rows.tolist()]
            assert model.history["accuracy"][epoch, run] == sum(hits) / len(hits)
    for run, rows in enumerate(data.rows):
        assert (model.history["mean_candidates"][:, run] == int(data.S[rows].sum()) / len(rows)).all()
    assert (model.history["share_changed"] == 0).all()
    assert (model.history["true_kept"] == 1).all()
    assert torch.equal(model.kept, data.sets)


def test_what_a_cleaner_keeps_is_recorded():
    class Half(Cleaner):
        """Keeps the first candidate alone."""

        def keep(self, p, S, batch):
            return S & (S.cumsum(-1) == 1)

    data = problem()
    model = train(cleaner=Half(), data=data)
    for run in range(2):
        rows = data.rows[run]
        first = data.S[rows].byte().argmax(1)
        assert torch.equal(model.kept[run, rows].byte().argmax(1), first)
        others = [row for row in range(N) if row not in rows.tolist()]
        assert torch.equal(model.kept[run, others], data.S[others])
        history = {name: values[:, run] for name, values in model.history.items()}
        assert history["mean_candidates"] == pytest.approx(np.ones(EPOCHS))
        assert history["true_kept"] == pytest.approx(np.full(EPOCHS, float((first == data.y[rows]).double().mean())))
        changed = float((data.S[rows].sum(1) > 1).double().mean())
        assert history["share_changed"] == pytest.approx(np.full(EPOCHS, changed))


def test_every_row_is_visited_and_no_batch_is_short(monkeypatch):
    """The last batch is filled up with the run's own first rows of the epoch."""
    data, plain, seen = problem(), Proden.step, []
    monkeypatch.setattr(Proden, "step", lambda self, b, phase: seen.append(b.rows.clone()) or plain(self, b, phase))
    train(data=data)
    assert len(seen) == EPOCHS * STEPS
    for run in range(2):
        orders = []
        for epoch in range(EPOCHS):
            batches = [rows[run].tolist() for rows in seen[epoch * STEPS : (epoch + 1) * STEPS]]
            assert [len(set(batch)) for batch in batches] == [8, 8, 8]
            visited = [row for batch in batches for row in batch]
            n = len(data.rows[run])
            assert sorted(visited[:n]) == data.rows[run].tolist()
            assert visited[n:] == visited[: 24 - n]
            orders.append(tuple(visited))
        assert len(set(orders)) == EPOCHS


def test_batch_size_rule():
    recipe = Recipe()
    assert recipe.batch([4999]) == 16
    assert recipe.batch([5000]) == 256
    assert recipe.batch([4999, 5000]) == 256
    assert recipe.batch([9]) == 9
    assert recipe.batch([6000, 100]) == 100
    assert Recipe(batch_size=64).batch([100, 6000]) == 64
    assert Recipe(batch_size=64).batch([100, 50]) == 50


def test_recipes():
    assert RECIPES["uai2025"] == Recipe("uai2025", 200, None, "adam", "one-cycle", None, 1e-4)
    images = (512, "nesterov", "triangular", 0.2)
    assert RECIPES["fast"] == Recipe("fast", 60, *images, 1e-3, augment="cutout", test_flips=True)
    assert RECIPES["strong"] == Recipe("strong", 110, *images, 5e-4, augment="strong", test_flips=True)
    assert find_recipe("quick") is RECIPES["quick"]
    assert find_recipe(RECIPE) is RECIPE
    with pytest.raises(ValueError, match=r"unknown recipe 'slow'; use one of uai2025, quick, fast, strong or a Recipe"):
        train(recipe="slow")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("optimiser", ["adam", "sgd", "nesterov"])
def test_recipe_and_device_choose_the_optimiser(optimiser, device, monkeypatch):
    """Every step tells its number twice: on the device and on the host."""
    used = []
    adam = engine.HostAdam if device == "cpu" else engine.Adam
    kind = {"adam": adam, "sgd": engine.Sgd, "nesterov": engine.Nesterov}[optimiser]
    decay = None if optimiser == "sgd" else 0.03
    for one in (engine.Adam, engine.HostAdam, engine.Sgd, engine.Nesterov):

        def update(self, grads, clock, index, plain=one.update):
            used.append((type(self), getattr(self, "weight_decay", None), int(clock), index))
            plain(self, grads, clock, index)

        monkeypatch.setattr(one, "update", update)
    recipe = dataclasses.replace(RECIPE, optimiser=optimiser, weight_decay=0.03)
    train(Supervised(), recipe=recipe, device=device, graph="off")
    assert used == [(kind, decay, t, t) for t in range(EPOCHS * STEPS)]


@pytest.mark.parametrize(("named", "rate"), [(None, 0.25), (0.5, 0.5)])
def test_a_method_may_have_a_rate_of_its_own(named, rate):
    @dataclasses.dataclass
    class Fast(Proden):
        max_lr = 0.25

    recipe = dataclasses.replace(RECIPE, max_lr=named)
    model = train(Fast(), recipe=recipe)
    assert model.recipe.max_lr == rate
    alike = train(Proden(), recipe=dataclasses.replace(RECIPE, max_lr=rate))
    assert torch.equal(model.predict(problem().X), alike.predict(problem().X))


@pytest.mark.parametrize("rate", [None, 0, "fast"])
def test_a_bad_rate_of_a_method_is_refused(rate):
    method = Proden()
    method.max_lr = rate
    with pytest.raises(
        ValueError, match=rf"max_lr of the method Proden is {rate!r}; it must be a finite number above 0"
    ):
        train(method)


@pytest.mark.parametrize("name", METHODS)
def test_the_optimisers_of_both_devices_train_alike(name, monkeypatch):
    """VALEN and CroSel have networks that some phases leave alone."""
    data = problem(dtype=torch.float64)
    keywords = {"method": method_of(name), "cleaner": CLEANERS["permanent"], "data": data}
    host = train(**keywords)
    monkeypatch.setattr(engine, "HostAdam", engine.Adam)
    other = train(**keywords)
    assert torch.allclose(host.predict(data.X), other.predict(data.X), rtol=0, atol=1e-9)
    assert torch.equal(host.kept, other.kept)
    for key, values in host.history.items():
        assert np.allclose(values, other.history[key], rtol=0, atol=1e-9), key


def test_device():
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert find_device("cpu") == torch.device("cpu")
    assert find_device(torch.device("cpu")) == torch.device("cpu")
    assert train(device="auto").predict(problem().X).shape == (2, N, C)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_graph_needs_cuda():
    with pytest.raises(ValueError, match="graph"):
        train(graph="on", device="cpu")


def test_progress_bar(capsys):
    train()
    assert capsys.readouterr().err == ""
    train(progress=True)
    shown = capsys.readouterr().err.rpartition("\r")[2]
    assert "100%" in shown
    assert f"epoch {EPOCHS} of {EPOCHS}" in shown
    train(progress=False)
    assert capsys.readouterr().err == ""


def test_nothing_of_the_users_is_changed():
    data, method, cleaner = problem(), Crosel(warmup=1), CLEANERS["random"]
    before = {name: value.clone() for name, value in vars(data).items() if isinstance(value, torch.Tensor)}
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    fields = dict(vars(method)), dict(vars(cleaner)), dict(vars(cleaner.like))
    train(method, cleaner, data=data)
    assert (dict(vars(method)), dict(vars(cleaner)), dict(vars(cleaner.like))) == fields
    for name, value in before.items():
        assert torch.equal(getattr(data, name), value)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002


def test_true_labels_are_hidden():
    """Methods and cleaners see no y, and it changes nothing but the history."""

    class Curious(Cleaner):
        def setup(self, problem):
            assert problem.y is None
            return problem

    model, blind = train(cleaner=Curious()), train(data=problem(y=None))
    assert torch.equal(model.predict(problem().X), blind.predict(problem().X))


def test_a_network_of_ones_own_trains():
    model = train(net=Small, recipe=Recipe("long", epochs=100, batch_size=8))
    assert (model.history["loss"][-1] < 0.6 * model.history["loss"][0]).all()
    assert (model.history["accuracy"][-1] > 0.55).all()
    with pytest.raises(ValueError, match=r"needs \.features\(x\)"):
        train(Valen(), net=lambda: nn.Linear(D, C))


def test_phases_may_depend_on_the_setup():
    """`fit` works on a copy of the method: it is the copy that is set up, and the copy that is asked for its phase."""

    @dataclasses.dataclass
    class Turning(Cc):
        def setup(self, problem, build_net):
            super().setup(problem, build_net)
            self.turn = problem.num_classes // 2

        def phase(self, epoch):
            return epoch < self.turn

        def step(self, batch, phase):
            phases.append(phase)
            return super().step(batch, phase)

    phases = []
    train(Turning())
    assert phases == [True] * (2 * STEPS) + [False] * (3 * STEPS)


def test_sweeps_draw_new_noise_every_epoch():
    noise = []

    class Noisy(Cc):
        def epoch_end(self, epoch, sweep):
            noise.append(sweep.noise())

    train(Noisy())
    assert [one.shape for one in noise] == [(2, N)] * EPOCHS
    drawn = torch.cat(noise)
    assert len(drawn.unique(dim=0)) == 2 * EPOCHS
    assert drawn.min() >= 0
    assert drawn.max() < 1


def test_predict_wants_the_same_features():
    model = train()
    assert model.predict(problem().X[:5]).shape == (2, 5, C)
    assert model.predict(problem().X[:0]).shape == (2, 0, C)
    for X in (torch.zeros(5, D + 1), torch.zeros(5), torch.zeros(5, D, 1)):
        with pytest.raises(ValueError, match=r"but the model was trained on \(3,\)"):
            model.predict(X)


def test_denormals_are_dropped_on_a_cpu():
    """And only in what an optimiser moves; a user's constants stay."""
    tiny = 1e-40

    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(D, C)
            self.register_buffer("constant", torch.tensor([tiny, 1.0]))

        def forward(self, x):
            return self.head(x)

    training = Training(problem(), Proden(), Cleaner(), Recipe(epochs=20, batch_size=8), Constant)
    adam, net = training.optimisers["net"], training.method.net.nets[0]

    def end(epoch):
        with torch.no_grad():
            net.head.weight[0, 0] = adam.means[0].view(-1)[0] = tiny
        training.epoch = epoch
        training.end_epoch()
        return float(net.head.weight.detach()[0, 0]), float(adam.means[0].view(-1)[0])

    assert all(end(3))
    assert end(engine._DROP_EVERY - 1) == (0.0, 0.0)
    assert net.constant[0] > 0
    assert net.head.weight.count_nonzero() == D * C - 1


@pytest.mark.gpu
@pytest.mark.parametrize("cleaner", ["none", "published", "permanent"])
@pytest.mark.parametrize("name", METHODS)
def test_eager_and_captured_training_agree(name, cleaner, monkeypatch):
    captured, plain = [], Training._capture
    monkeypatch.setattr(Training, "_capture", lambda self, phase: captured.append(plain(self, phase)) or captured[-1])
    data = problem(dtype=torch.float64)
    keywords = {"method": method_of(name), "cleaner": CLEANERS[cleaner], "data": data, "device": "cuda"}
    eager = train(graph="off", **keywords)
    assert captured == []
    graph = train(graph="on", **keywords)
    assert captured
    assert None not in captured
    assert torch.allclose(eager.predict(data.X), graph.predict(data.X), rtol=0, atol=1e-9)
    assert torch.equal(eager.kept, graph.kept)
    for key, values in eager.history.items():
        assert np.allclose(values, graph.history[key], rtol=0, atol=1e-9), key


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_eager_and_captured_training_agree_with_fused_kernels(name):
    """The same kernels run in the same order, so nearly all bits agree; matrix products may take other algorithms."""
    data = problem()
    keywords = {"method": method_of(name), "cleaner": CLEANERS["published"], "data": data, "device": "cuda"}
    eager, graph = (train(net="mlp", graph=graph, **keywords) for graph in ("off", "on"))
    assert torch.allclose(eager.predict(data.X), graph.predict(data.X), rtol=0, atol=1e-4)
    plain = train(net="mlp", **{**keywords, "device": "cpu"})
    assert np.allclose(plain.history["loss"][0], graph.history["loss"][0], rtol=1e-4, atol=0)


# Batches of 512 would be one step per epoch, too few for a graph; a rate of 0.2 ends at probabilities of 0 and 1.
STRONG = dataclasses.replace(RECIPES["strong"], epochs=2, batch_size=8, max_lr=0.02)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "recipe"), [("proden", RECIPE), ("crosel", RECIPE), ("plcr", STRONG), ("pico", STRONG)]
)
def test_images_on_cuda(name, recipe):
    """Convolutions in bfloat16: repeatable to the bit when asked for, and the same with and without a graph."""
    generator = np.random.default_rng(0)
    X, S = generator.integers(256, size=(40, 3, 32, 32), dtype=np.uint8), np.ones((40, C), dtype=bool)
    S[np.arange(40), np.arange(40) % C] = False
    data = Problem.of(X, S, seeds=[0, 1], scale=1 / 255)
    keywords = {"method": method_of(name), "recipe": recipe, "data": data, "device": "cuda", "net": "resnet9"}
    first, again, eager = (train(graph=graph, deterministic=True, **keywords) for graph in ("on", "on", "off"))
    assert torch.equal(first.predict(X), again.predict(X))
    assert torch.allclose(first.predict(X), eager.predict(X), rtol=0, atol=1e-2)
    assert first.problem.X.dtype == torch.uint8


@pytest.mark.gpu
def test_resuming_on_cuda(tmp_path):
    whole = train(device="cuda")
    interrupted(8, device="cuda", checkpoint=tmp_path)
    assert_same(train(device="cuda", checkpoint=tmp_path), whole)
    moved = problem().to(torch.device("cuda"))
    assert_same(train(device="cuda", checkpoint=tmp_path, data=moved), whole)  # where the data lie does not matter


@pytest.mark.parametrize("cleaner", CLEANERS)
@pytest.mark.parametrize("name", METHODS)
def test_divergence_is_an_error(name, cleaner):
    recipe = dataclasses.replace(RECIPE, max_lr=1e30)
    message = rf"training diverged: the loss of {name} is (nan|-?inf) in epoch 1, run [01] \(seed [34]\); use a smaller"
    with pytest.raises(ValueError, match=message):
        fit(problem(), method_of(name), CLEANERS[cleaner], recipe, device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_divergence_is_an_error_on_cuda(name):
    """Losses are checked now and then there, but the epoch is named."""
    with pytest.raises(ValueError, match=rf"the loss of {name} is (nan|-?inf) in epoch 1, run [01]"):
        train(method_of(name), recipe=dataclasses.replace(RECIPE, max_lr=1e30), device="cuda")


@pytest.mark.parametrize(("seconds", "looks"), [(-1, EPOCHS + 1), (1000, 1)])
def test_losses_are_checked_now_and_then_and_at_the_end(monkeypatch, seconds, looks):
    seen, check = [], Training.check_losses
    monkeypatch.setattr(fitting, "_CHECK_EVERY", seconds)
    monkeypatch.setattr(Training, "check_losses", lambda training: (seen.append(training.epoch), check(training)))
    fit(problem(), Proden(), recipe=RECIPE, device="cpu")
    assert seen == [*range(1, EPOCHS + 1), EPOCHS][-looks:]


@pytest.mark.gpu
def test_divergence_ends_a_long_training_on_cuda(monkeypatch):
    monkeypatch.setattr(fitting, "_CHECK_EVERY", -1)
    epochs = []

    class Counts(Proden):
        def epoch_end(self, epoch, sweep):
            epochs.append(epoch)

    with pytest.raises(ValueError, match=r"the loss of counts is (nan|-?inf) in epoch 1, run [01]"):
        train(Counts(), recipe=dataclasses.replace(RECIPE, max_lr=1e30), device="cuda")
    assert epochs == [0]


def test_the_run_and_epoch_that_diverged_are_named():
    """One value of one row of the second run alone overflows."""

    class Overflows(Proden):
        def step(self, batch, phase):
            loss = super().step(batch, phase)
            bad = (batch.rows == 25).any(-1) & torch.tensor([False, True])
            return torch.where(bad & (batch.tick >= 0), loss * torch.where(bad, self.huge, 1.0), loss)

        def epoch_end(self, epoch, sweep):
            super().epoch_end(epoch, sweep)
            self.huge.fill_(torch.inf if epoch == 1 else 1.0)

        def setup(self, problem, build_net):
            super().setup(problem, build_net)
            self.huge = torch.ones(1)

    with pytest.raises(ValueError, match=r"is inf in epoch 3, run 1 \(seed 4\)"):
        fit(problem(), Overflows(), recipe=RECIPE, device="cpu")


def test_networks_that_diverge_in_the_last_step_are_an_error():
    class Breaks(Proden):
        def epoch_end(self, epoch, sweep):
            if epoch == EPOCHS - 1:
                next(self.net.parameters()).fill_(torch.nan)

    with pytest.raises(ValueError, match=f"networks of breaks are not finite after epoch {EPOCHS}"):
        fit(problem(), Breaks(), recipe=RECIPE, device="cpu")


def test_probabilities_that_overflow_are_an_error():
    model = fit(problem(standardise=False), Proden(), recipe=RECIPE, net="linear", device="cpu")
    with torch.no_grad():
        model.method.net.head.weight.fill_(1e30)
    rows = torch.zeros_like(problem().X)
    rows[7] = 1e30
    with pytest.raises(ValueError, match=r"probabilities of row 7 in run 0 \(seed 3\) are not finite"):
        model.predict(rows)
