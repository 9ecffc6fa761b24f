"""Settings of the whole suite: one thread, so that bits repeat, the same examples in every run, and markers."""

import os
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")

SLOW = (  # together half of the suite's time; `-m "not slow"` leaves them out
    "tests/bench/test_datasets.py::test_a_long_tail_alone_keeps_the_default_sets",
    "tests/bench/test_datasets.py::test_default_sets",
    "tests/bench/test_engines.py::test_a_killed_worker_fails_its_run_alone",
    "tests/bench/test_engines.py::test_an_array_of_processes_trains_nothing_twice",
    "tests/bench/test_kill.py::test_killed_sweeps_end_with_the_same_predictions",
    "tests/bench/test_sweeps.py::test_a_file_that_changes_meanwhile_is_noticed_by_workers",
    "tests/bench/test_sweeps.py::test_failures_in_workers_are_kept",
    "tests/cleaning/test_audit.py::test_intervals_hold_the_truth",
    "tests/cli/test_app.py::test_a_process_that_is_told_to_end_leaves_no_temporary_file",
    "tests/cli/test_app.py::test_demo_reports_all_four_combinations",
    "tests/cli/test_ranks.py::test_torchrun_trains_one_model_on_all_rows",
    "tests/cli/test_streams.py::test_a_killed_run_goes_on_and_ends_like_an_undisturbed_one",
    "tests/cli/test_streams.py::test_memory_does_not_grow_with_the_rows",
    "tests/encoders/test_hub.py::test_all_minilm",
    "tests/engine/nets/kernels/test_dense.py::test_adam_equals_its_plain_form",
    "tests/engine/nets/kernels/test_images.py::test_fused_network_equals_the_plain_one",
    "tests/engine/nets/test_resnet.py::test_half_in_float64_is_exact",
    "tests/estimator/test_classifier.py::test_rows_are_scored_by_networks_that_did_not_train_on_them",
    "tests/review/test_browser.py::test_the_whole_loop_by_keyboard",
    "tests/review/test_server.py::test_a_real_server_refuses_strangers_and_loses_nothing_when_it_is_killed",
    "tests/oracles/test_ranks.py::test_a_killed_rank_ends_the_other_with_a_sentence_and_both_continue",
    "tests/robustness/test_concurrency.py::test_two_writers_and_two_readers",
    "tests/robustness/test_crash_points.py::test_nothing_is_lost_or_left",
    "tests/test_docs.py::test_commands_run",
    "tests/test_docs.py::test_snippets_run",
    "tests/test_examples.py::test_captions",
    "tests/test_examples.py::test_crowd_votes",
)


def pytest_collection_modifyitems(items):
    """Mark slow tests and those that need published files, and skip what needs a GPU or clusters."""
    for item in items:
        if item.nodeid.partition("[")[0] in SLOW:
            item.add_marker(pytest.mark.slow)
        if "real_files" in item.fixturenames:
            item.add_marker(pytest.mark.data)
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        if item.get_closest_marker("engines") and not os.environ.get("CANDIDLY_ENGINES"):
            item.add_marker(pytest.mark.skip(reason="starts Dask and Ray; run it with `make engines`"))


@pytest.fixture(scope="module")
def narrow_networks():
    """Let the networks of a module's tests have narrow layers, where the width does not matter: they train faster."""
    from candidly.engine.nets import mlp

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(mlp, "HIDDEN", 64)
        yield


@pytest.fixture
def real_files(monkeypatch):
    """Let `load` find published files: in `$CANDIDLY_DATA`, or else in a folder `shared/data` beside the repository."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    if not os.environ.get("CANDIDLY_DATA") and beside.is_dir():
        monkeypatch.setenv("CANDIDLY_DATA", str(beside))

    def load_real(name):
        from candidly.data import LicenceNotice, load

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LicenceNotice)
                return load(name)
        except FileNotFoundError:
            pytest.skip(f"{name} is not there; name its folder in CANDIDLY_DATA to run this test")

    return load_real
