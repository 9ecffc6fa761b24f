"""The time of each part of a training step: kernels on CUDA, operators on a CPU."""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import Setting, lost, run_epoch, say
from candidly.cleaning import Cleaner
from candidly.engine.recipe import Recipe
from candidly.engine.training import Training
from candidly.methods import Crosel, Method, Proden, Valen

STEPS, TOP = 15, 12
WARM_UP = 1  # epoch: main steps take as long after one as after ten
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mkldnn_convolution", "convolution_backward", "cudnn_convolution")


def methods() -> dict[str, Method]:
    return {"PRODEN": Proden(), "VALEN": Valen(warmup=WARM_UP), "CroSel": Crosel(warmup=WARM_UP)}


def measure(setting: Setting, results: dict[str, Any]) -> None:
    """Fill in the tables."""
    if (
        setting.cuda
    ):  # the kernels of graphs are seen only if the profiler is ready before they are captured, and stays so
        os.environ |= {"DISABLE_CUPTI_LAZY_REINIT": "1", "TEARDOWN_CUPTI": "0"}
        _profiled(setting, lambda: torch.zeros(1, device=setting.place).add_(1))
    for runs in setting.choose((5, 65), (5,), (2,)):
        problem = lost(setting, runs)
        for name, method in methods().items():
            say(f"profile: {name}, {runs} runs")
            with setting.stream():
                recipe = Recipe(epochs=WARM_UP + 1)
                training = Training(problem.to(setting.place), method, Cleaner(), recipe, "mlp")
                for _ in range(WARM_UP):
                    run_epoch(training, setting.cuda)
                training.begin_epoch()
                for _ in range(6):  # eager steps, the capture, and replays
                    training.advance(setting.cuda)
                results[f"{name}, {runs} runs"] = _steps(setting, training)


def _steps(setting: Setting, training: Training) -> dict[str, Any]:
    def replayed() -> None:
        for _ in range(STEPS):
            training.advance(setting.cuda)

    def eager() -> None:
        for _ in range(STEPS):
            training.step(training.method.phase(training.epoch))

    wall = 1e6 * setting.seconds(replayed) / STEPS
    taken, calls = _profiled(setting, replayed)
    unseen = not taken
    if unseen:
        say("  no kernels were seen in replayed graphs; eager steps are profiled instead")
        taken, calls = _profiled(setting, eager)
    total = sum(taken.values())
    result: dict[str, Any] = {
        "profiled": "eager steps" if unseen or not setting.cuda else "replayed steps",
        "wall_us_per_step": wall,
        "profiled_us_per_step": total / STEPS,
        "calls_per_step": sum(calls.values()) / STEPS,
        "top": [
            {
                "name": name[:100],
                "us_per_step": value / STEPS,
                "calls_per_step": calls[name] / STEPS,
                "share": value / total,
            }
            for name, value in taken.most_common(TOP)
        ],
    }
    if not setting.cuda:
        products = sum(value for name, value in taken.items() if name.removeprefix("aten::") in PRODUCTS)
        result["share_of_matrix_products"] = products / total
    return result


def _profiled(setting: Setting, function: Callable[[], Any]) -> tuple[Counter[str], Counter[str]]:
    """Return µs and number of calls of each kernel, or on a CPU of each operator without those that it calls."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if setting.cuda else [])]
    with profile(activities=activities) as profiler:
        setting.seconds(function)
    taken: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    if setting.cuda:
        for event in profiler.events():
            if event.device_type == DeviceType.CUDA and not getattr(event, "is_user_annotation", False):
                taken[event.name] += event.time_range.elapsed_us()
                calls[event.name] += 1
    else:
        for row in profiler.key_averages():
            taken[row.key] += row.self_cpu_time_total
            calls[row.key] += row.count
    return taken, calls
