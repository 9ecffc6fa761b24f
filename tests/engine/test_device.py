"""What trainings in one process share on CUDA, and what must not depend on it."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from candidly.engine import device
from candidly.engine.fitting import fit
from candidly.engine.nets import kernels
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.methods import Cc, Proden

RECIPE = Recipe(epochs=3, batch_size=8)


def problem(seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(40) % 4
    S = rng.random((40, 4)) < 0.3
    S[np.arange(40), y] = True
    return Problem.of(rng.normal(size=(40, 6)) + y[:, None], S, seeds=[seed])


def network():
    return nn.Sequential(nn.Linear(6, 200), nn.ReLU(), nn.Linear(200, 4))


def in_threads(number, function):
    results = [None] * number

    def run(k):
        results[k] = function(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("place", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_threads_learn_what_one_alone_learns(place):
    def train(k):
        return fit(problem(k % 3), Proden(), None, RECIPE, net=network, device=place, progress=False)

    state = torch.get_rng_state()
    alone = [train(k).predict(problem(k).X) for k in range(3)]
    for k, model in enumerate(in_threads(6, train)):
        assert torch.equal(model.predict(problem(k % 3).X), alone[k % 3])
    assert torch.equal(torch.get_rng_state(), state)


def test_an_event_stops_a_training():
    stop = threading.Event()

    class Stopping(Cc):
        def epoch_end(self, epoch, sweep):
            stop.set()

    with pytest.raises(KeyboardInterrupt):
        fit(problem(), Stopping(), None, RECIPE, device="cpu", stop=stop)
    assert in_threads(1, lambda k: _interrupted(stop)) == [True]


def _interrupted(stop):
    try:
        fit(problem(), Cc(), None, RECIPE, device="cpu", stop=stop)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.gpu
def test_streams_are_used_again_and_never_shared():
    place = device.find_device("cuda")
    with device.training_on(place):
        first = torch.cuda.current_stream().cuda_stream
        for _ in range(40):
            with device.training_on(place):
                second = torch.cuda.current_stream().cuda_stream
                assert second != first
    with device.training_on(place):
        assert torch.cuda.current_stream().cuda_stream in (first, second)


def test_operations_on_a_gpu_wait_for_a_capture_in_another_thread():
    entered = []

    def enter(name):
        with device.no_capture(torch.device(name)):
            entered.append(name)

    waiting, free = (threading.Thread(target=enter, args=(name,)) for name in ("cuda", "cpu"))
    with device.no_capture(torch.device("cuda")):
        for thread in (waiting, free):
            thread.start()
        free.join()
        assert entered == ["cpu"]
    waiting.join()
    assert entered == ["cpu", "cuda"]


@pytest.mark.gpu
def test_convolutions_train_in_several_threads():
    """Each thread lets cuDNN time its convolutions, also when it predicts, while others capture their steps."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(96, 3, 32, 32), dtype=np.uint8)
    S = np.eye(4, dtype=bool)[np.arange(96) % 4] | (rng.random((96, 4)) < 0.3)

    def train(k):
        recipe = Recipe(epochs=4, batch_size=8 + 8 * k)
        model = fit(Problem.of(images, S, seeds=[k]), Proden(), None, recipe, net="resnet9", device="cuda")
        return model.predict(images).isfinite().all()

    for _ in range(3):
        assert in_threads(4, train) == [True] * 4


@pytest.mark.gpu
def test_settings_of_cudnn_are_restored():
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32
    place = device.find_device("cuda")
    with device.training_on(place, deterministic=True):
        assert cudnn.deterministic
        assert not cudnn.benchmark
        with device.training_on(place, deterministic=True):
            pass
        assert cudnn.deterministic
        with pytest.raises(ValueError, match="another value of deterministic"), device.training_on(place):
            pass
    assert (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32) == before


@pytest.mark.gpu
def test_a_capture_that_fails_harms_nothing():
    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            return self.net(x) * float(x.abs().max() > 0)  # reads a value from the device

    with pytest.warns(UserWarning, match="cannot be captured as a CUDA graph"):
        model = fit(problem(), Proden(), None, RECIPE, net=Reading, device="cuda")
    assert model.predict(problem().X).isfinite().all()
    torch.cuda.empty_cache()
    assert fit(problem(), Proden(), None, RECIPE, device="cuda").predict(problem().X).isfinite().all()


@pytest.mark.gpu
def test_a_broken_triton_is_reported_and_left_out(monkeypatch):
    pytest.importorskip("triton")
    from candidly.engine.nets.kernels import dense

    def broken(*args):
        raise RuntimeError("no compiler")

    kernels._try.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(dense, "adam", broken)
        with pytest.warns(UserWarning, match="no compiler"):
            assert not kernels.usable(torch.zeros(1, device="cuda"))
    kernels._try.cache_clear()
    assert kernels.usable(torch.zeros(1, device="cuda"))
