"""Two ranks train what one process with two shards trains: to 1e-6 in float64, and the ranks agree to the bit."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from candidly import PartialLabelClassifier
from candidly.engine.nets import mlp as nets
from candidly.engine.nets.synchronise import synchronise
from candidly.engine.problem import Problem
from candidly.engine.ranks import ALONE, Group, divide
from candidly.methods import Proden
from candidly.store import states
from tests.oracles import rank_cases as cases


def start_ranks(function: Callable[..., None], *arguments: Any, join: bool = True) -> Any:
    """Start two ranks, which are forked from a server that imports everything once."""
    multiprocessing.get_context("forkserver").set_forkserver_preload([cases.__name__])
    start = torch.multiprocessing.start_processes
    return start(function, (2, *arguments), nprocs=2, join=join, start_method="forkserver")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train all cases on two ranks; return the folder of their results."""
    folder = tmp_path_factory.mktemp("ranks")
    start_ranks(cases.main, folder)
    return folder


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fit classifiers on two ranks; return the folder of their results."""
    folder = tmp_path_factory.mktemp("classifiers")
    start_ranks(cases.classifiers, folder)
    return folder


@pytest.fixture(autouse=True)
def _narrow_networks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(nets, "HIDDEN", 24)
    yield
    assert not torch.distributed.is_initialized()


def read(folder: Path, name: str) -> list[dict[str, torch.Tensor]]:
    return [states.read(folder / f"{name}-{rank}")[0] for rank in range(2)]


def assert_equal(found: list[dict[str, torch.Tensor]], whole: dict[str, torch.Tensor]) -> None:
    """Both ranks' results are those of one process: all but the kept candidates, of which each has its own rows."""
    first, second = found
    assert torch.equal(torch.cat([first["kept"], second["kept"]], 1), whole["kept"])
    assert first.keys() == second.keys() == whole.keys()
    for name, value in whole.items():
        if name != "kept":
            assert torch.equal(first[name], second[name]), name
            torch.testing.assert_close(first[name], value, rtol=0, atol=1e-6, equal_nan=True, msg=name)


@pytest.mark.parametrize("name", cases.CASES)
def test_ranks_equal_one_process_with_shards(name: str, ranks: Path) -> None:
    assert_equal(read(ranks, name), cases.result(cases.CASES[name](None)))


def test_the_cases_show_something(ranks: Path) -> None:
    """Cleaners remove candidates, a training stops early, and CroSel selects rows on both shards."""
    for name in cases.SHARED:
        for cleaner in ("conformal", "published", "algorithm1"):
            assert (read(ranks, f"{name} {cleaner}")[0]["history.share_changed"] > 0).any(), (name, cleaner)
    lengths = {len(read(ranks, f"{name} stopping")[0]["history.loss"]) for name in cases.SHARED}
    assert min(lengths) < 6
    assert (read(ranks, "few singles")[0]["history.share_changed"] > 0).any()
    lost = read(ranks, "stopped")[0]["history.estimated_lost"]
    assert (lost <= 0.01).all()
    model = cases.train(cases.make(cases.arrays(), None), cases.make_method("crosel"), None, 4)
    assert model.method.count.shape == (2, 2, 2)
    assert (model.method.count > 0).all()


def test_shards_differ_from_one_shard() -> None:
    whole = cases.arrays()
    one = cases.train(cases.make(whole, None, (272,)), Proden())
    two = cases.train(cases.make(whole, None), Proden())
    assert not torch.equal(one.predict(whole["X"]), two.predict(whole["X"]))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("valen", "VALEN searches nearest neighbours among all rows, and the rows are divided into 2 shards"),
        ("pico", "PiCO compares every row with a queue of others"),
        ("clsp", "CLSP searches nearest neighbours among all rows"),
        ("seeds", "differ in seeds; all ranks must train with the same settings"),
        ("recipe", "differ in recipe"),
        ("devices", "device names 2 devices, but each rank trains on one"),
        ("held_out", "run 0 has no held-out rows"),
    ],
)
def test_what_ranks_cannot_do_is_refused_on_both(name: str, words: str, ranks: Path) -> None:
    for rank in range(2):
        assert words in states.read(ranks / f"refusals-{rank}")[1][name]


def test_an_interrupted_training_continues(ranks: Path) -> None:
    for again, whole in zip(read(ranks, "again"), read(ranks, "whole"), strict=True):
        assert again.keys() == whole.keys()
        assert all(torch.equal(value, whole[name]) for name, value in again.items())
    saved = list((ranks / "ranks").glob("step-*"))
    assert len(saved) == 1  # older ones are removed
    assert sorted(path.name for path in saved[0].iterdir()) == ["shard-1-of-2", "shard-2-of-2"]


def test_one_process_continues_a_checkpoint_of_two_shards(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = cases.make(cases.arrays(), None, standardise=True)
    begun = [int(path.name[5:]) for path in (ranks / "process").glob("step-*")]
    assert begun
    assert begun[0] % 9 > 0  # in the middle of an epoch
    model = cases.interrupted(problem, ranks / "process", 4)
    assert_equal(read(ranks, "whole"), cases.result(model))
    other = cases.make(cases.arrays() | {"X": -cases.arrays()["X"]}, None, standardise=True)
    with pytest.raises(ValueError, match=r"cannot be continued: .*different: problem"):
        cases.interrupted(other, ranks / "process", 4)


@pytest.mark.parametrize("name", cases.CLASSIFIERS)
def test_a_classifier_over_ranks_equals_one_process_with_shards(name: str, classifiers: Path) -> None:
    whole = cases.classify(name, None)
    saved = PartialLabelClassifier.load(classifiers / f"saved {name}")
    assert saved.candidates_.matrix.shape == whole.fit_record_.candidates.matrix.shape
    X, _ = cases.frame(None)
    np.testing.assert_allclose(saved.predict_proba(X), whole.predict_proba(X), atol=1e-6)
    for what in (f"classifier {name}", f"classifier {name} again"):
        wanted, facts = cases.classified(whole)
        (first, own), (second, other) = (states.read(classifiers / f"{what}-{rank}") for rank in range(2))
        assert own == other == facts
        assert facts["classes"] == ["a", "b", "c", "d"]
        for key in ("p", "sets", "limits", "counts"):
            assert torch.equal(first[key], second[key]), key
            torch.testing.assert_close(first[key], wanted[key], rtol=0, atol=1e-6)
        q = torch.cat([first["own.q"], second["own.q"]])
        torch.testing.assert_close(q, wanted["own.q"], rtol=0, atol=1e-6)
        kept = torch.cat([first["own.kept"], second["own.kept"]])
        assert torch.equal(kept, wanted["own.kept"])
        whole.set_params(alpha=0.4).reclean()


def test_all_rows_are_the_sample_unless_there_are_many() -> None:
    sample = {name: len(cases.classify(name, None).fit_record_.candidates) for name in cases.CLASSIFIERS}
    assert sample["folds"] == sum(cases.SHARDS)
    assert sample["sampled"] in (148, 149, 150)


def test_columns_are_encoded_by_the_rows_of_all_shards(classifiers: Path) -> None:
    features = PartialLabelClassifier.load(classifiers / "saved folds").features_
    assert sum("red" in line or "blue" in line or "green" in line for line in features.encoded_names) == 3
    one = PartialLabelClassifier(max_epochs=1, folds=2, device="cpu", random_state=0, force_cleaning=True).fit(
        *cases.frame(None)
    )
    assert one.features_.to_json() == features.to_json()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": "logistic-regression"}, "base is trained in one process"),
        ({"method": "valen"}, "VALEN searches nearest neighbours"),
    ],
)
def test_what_divided_rows_cannot_be_trained_with(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PartialLabelClassifier(device="cpu", **settings).fit(*cases.frame(None), shards=2)


def test_groups_stay_together_within_shards() -> None:
    X, y = cases.frame(None)
    groups = np.arange(len(y)) // 8
    settings: dict[str, Any] = {"max_epochs": 1, "folds": 2, "device": "cpu", "force_cleaning": True}
    classifier = PartialLabelClassifier(cleaner="algorithm1", random_state=0, **settings).fit(
        X, y, groups=groups, shards=[136, 136]
    )
    assert len(classifier.candidates_) == len(y)


def start(folder: Path, epochs: int) -> Any:
    folder.mkdir(exist_ok=True)
    for left in (*folder.glob("lost-*"), *folder.parent.glob(f"{folder.name}-store")):
        left.unlink()
    return start_ranks(cases.endless, folder, epochs, join=False)


def test_a_killed_rank_ends_the_other_with_a_sentence_and_both_continue(tmp_path: Path) -> None:
    epochs = 20
    whole = start(tmp_path / "whole", epochs)
    killed = start(tmp_path / "killed", epochs)
    while not list((tmp_path / "killed").glob("step-*/shard-2-of-2/state.json")):
        assert all(process.is_alive() for process in killed.processes)
        time.sleep(0.05)
    os.kill(killed.processes[1].pid, signal.SIGKILL)
    ended = time.time()
    killed.processes[0].join(30)
    when, _, words = (tmp_path / "killed" / "lost-0").read_text().partition(" ")
    assert float(when) - ended < 10
    assert words.startswith("rank 0 of 2 cannot reach another rank, which has probably ended")
    assert "with a checkpoint they continue" in words
    assert "\n" not in words
    again = start(tmp_path / "killed", epochs)
    while not again.join() or not whole.join():
        pass
    for rank in range(2):
        found = [states.read(tmp_path / name / f"result-{rank}")[0] for name in ("killed", "whole")]
        assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())
        assert len(found[0]["history.loss"]) == epochs


def test_a_batch_is_divided_by_the_rows_of_shards() -> None:
    assert divide(8, torch.tensor([[60, 20], [59, 21]])) == [6, 2]
    assert divide(8, torch.tensor([[100]])) == [8]
    assert divide(4, torch.tensor([[1000, 1, 1]])) == [4, 1, 1]  # every shard takes part
    assert divide(7, torch.tensor([[5, 5, 5]])) == [3, 2, 2]
    with pytest.raises(ValueError, match="run 1 has no training row in shard 0"):
        divide(4, torch.tensor([[3, 3], [0, 6]]))


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([3, 3], "shards has 6 rows in total but X has 5"),
        (6, "shards is 6 but X has 5 rows"),
        (0, "shards is 0"),
        ([5, 0], "one of shards is 0"),
    ],
)
def test_shards_that_cannot_be_made(shards: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem.of([[float(i)] for i in range(5)], [[True, False], *[[False, True]] * 4], shards=shards)


def test_a_process_alone_has_one_shard() -> None:
    problem = Problem.of([[float(i)] for i in range(5)], [[True, False], *[[False, True]] * 4], shards=2)
    assert problem.group is ALONE
    assert [(one.number, one.start, one.stop) for one in problem.parts] == [(0, 0, 3), (1, 3, 5)]
    assert ALONE.exchange({"a": 1}) == [{"a": 1}]
    assert not ALONE.any(False)


@pytest.mark.parametrize(
    ("device", "backend"), [("cpu", "gloo"), pytest.param("cuda", "cpu:gloo,cuda:nccl", marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize("cleaner", cases.CLEANERS)
@pytest.mark.parametrize("name", ["balanced", "crosel"])
def test_a_group_of_one_rank_trains_as_a_process_alone(
    name: str, cleaner: str, device: str, backend: str, tmp_path: Path
) -> None:
    """On CUDA this shows that steps with NCCL's collectives are captured, not that they work between cards."""
    settings: dict[str, Any] = {"device": device, "graph": "on" if device == "cuda" else "auto"}
    method, whole, rows = cases.make_method(name), cases.arrays(), (sum(cases.SHARDS),)
    alone = cases.train(cases.make(whole, None, rows), method, cases.CLEANERS[cleaner], 4, **settings)
    place = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group(backend, init_method=place, rank=0, world_size=1)
    try:
        problem = cases.make(whole, None, rows)
        assert not problem.group.alone
        model = cases.train(problem, method, cases.CLEANERS[cleaner], 4, **settings)  # a warning is an error here
    finally:
        torch.distributed.destroy_process_group()
    wanted, found = cases.result(alone), cases.result(model)
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=1e-6, equal_nan=True, msg=key)


def test_a_custom_network_keeps_its_layers() -> None:
    """Batch normalisation over ranks replaces that of custom networks only while training."""
    net, group = cases.Normalised(), Group(0, 1, alone=False)
    before = repr(net), [type(module) for module in net.modules()], list(net.state_dict())
    synchronise(net, group)
    assert repr(net) == before[0]
    assert [type(module) for module in net.modules()] != before[1]
    synchronise(net, ALONE)
    assert (repr(net), [type(module) for module in net.modules()], list(net.state_dict())) == before
