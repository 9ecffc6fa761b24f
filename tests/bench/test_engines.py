"""Sweeps on executors: threads, processes, and real clusters of Dask and Ray, which these tests start and end."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from candidly import cli
from candidly.bench import Spec, find_executor, read_own, sweep
from candidly.bench.processes import Processes
from candidly.engine.recipe import Recipe

SHORT = Recipe("short", epochs=3, batch_size=16)
ENGINES = [pytest.param(name, marks=pytest.mark.engines) for name in ("dask", "ray")]
DIED = "a worker process died, perhaps for lack of memory"

# Writes a file when it trains; while there is no file "go", it also waits to be killed.
OBSERVED = """
import os, time
from dataclasses import dataclass
from pathlib import Path
from candidly import Proden

@dataclass
class Observed(Proden):
    folder: str = ""
    waits: bool = False
    number: int = 0

    def setup(self, problem, build_net):
        super().setup(problem, build_net)
        Path(self.folder, f"{self.number}-{os.getpid()}-{time.time_ns()}").touch()
        if self.waits and not Path(self.folder, "go").exists():
            time.sleep(120)
"""


@pytest.fixture
def seen(tmp_path):
    folder = tmp_path / "seen"
    folder.mkdir()
    return folder


def observed(table, seen, numbers, waits=()):
    """Return a spec of runs that can be observed."""
    path = seen.parent / "observed.py"
    path.write_text(OBSERVED)
    kind = type(read_own(f"{path}:Observed")["observed"])
    own = {f"run{number}": kind(folder=str(seen), waits=number in waits, number=number) for number in numbers}
    return Spec((str(table),), tuple(own), seeds=(0,), recipe=SHORT, own=own)


def trained(seen):
    """Return the numbers of the runs that began to train, in order."""
    return sorted(int(path.name.partition("-")[0]) for path in seen.glob("*-*"))


def results(out):
    """Return the predictions and metrics of all runs."""
    found = {path.parent.name: path.read_bytes() for path in out.glob("*/predictions.parquet")}
    metrics = {path.parent.name: json.loads(path.read_text())["metrics"] for path in out.glob("*/summary.json")}
    return found, metrics


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(ready, process, seconds=120):
    end = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, "the cluster ended"
        assert time.monotonic() < end, "the cluster did not start"
        time.sleep(0.1)


def answers(port):
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start clusters with two workers by name; return their addresses. All are ended with their process groups."""
    started, addresses, patch = [], {}, pytest.MonkeyPatch()
    patch.setenv("OMP_NUM_THREADS", "1")
    patch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "1")
    # Ray notes its cluster in this folder, where later programs would look for it. Names of sockets must be short.
    notes = tempfile.mkdtemp(prefix="ray-")
    patch.setenv("RAY_TMPDIR", notes)
    patch.setenv("RAY_AUTH_MODE", "token")
    patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # of these clusters only

    def start(*words):
        log = tmp_path_factory.mktemp("cluster") / "log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", *map(str, words)]
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        started.append(process)
        return process

    def find(name):
        if name == "dask" and name not in addresses:
            port = free_port()
            scheduler = ("--host", "127.0.0.1", "--port", port, "--no-dashboard")
            wait_until(lambda: answers(port), start("distributed.cli.dask_scheduler", *scheduler))
            shape = ("--nworkers", 2, "--nthreads", 1, "--no-dashboard")
            start("distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", *shape)
            addresses["dask"] = f"dask://127.0.0.1:{port}"
        elif name != "dask" and "ray" not in addresses:
            port, client = free_port(), free_port()
            shape = ("--head", "--block", "--num-cpus", 2, "--include-dashboard", "false", "--disable-usage-stats")
            ports = ("--port", port, "--ray-client-server-port", client)
            process = start("ray.scripts.scripts", "start", *shape, *ports)
            wait_until(lambda: answers(port) and answers(client), process)
            from ray.util import get_node_ip_address

            patch.setenv("RAY_ADDRESS", f"{get_node_ip_address()}:{port}")
            addresses.update({"ray": "ray", "ray client": f"ray://127.0.0.1:{client}"})
        return addresses[name]

    yield find
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)  # Ray would take half a minute to end in good order
        process.wait()
    patch.undo()
    shutil.rmtree(notes, ignore_errors=True)


def executor_of(name, request):
    """Return an executor with two workers."""
    if name == "threads":
        return ThreadPoolExecutor(2)
    if name == "processes":
        return Processes(2)
    return find_executor(request.getfixturevalue("cluster")(name))


@pytest.mark.parametrize("name", ["threads", "processes", *ENGINES])
def test_results_are_the_same_to_the_bit(name, request, table, tmp_path, capsys):
    spec = Spec((str(table),), ("proden", "conf+cc", "rc"), seeds=(0, 3), recipe=SHORT)
    assert len(sweep(spec, tmp_path / "here", device="cpu").done) == 3
    threads = torch.get_num_threads()
    with executor_of(name, request) as executor:
        outcome = sweep(spec, tmp_path / "there", device="cpu", executor=executor, progress=True)
    assert (len(outcome.done), outcome.failed, outcome.postponed) == (3, {}, {})
    assert results(tmp_path / "there") == results(tmp_path / "here")
    assert torch.get_num_threads() == threads
    for path in (tmp_path / "there").glob("*/summary.json"):
        assert json.loads(path.read_text())["machine"]["threads"] == 1
    printed = capsys.readouterr().out
    assert "[3/3] flowers " in printed
    assert "; 0 s left" in printed


@pytest.mark.parametrize("name", ["processes", *ENGINES])
def test_a_killed_worker_fails_its_run_alone(name, request, table, tmp_path, seen):
    spec = observed(table, seen, range(4), waits={1})
    over = threading.Event()

    def kill_workers():
        """Kill every process that trains the run that waits: Dask tries it once more by itself."""
        killed = set()
        while not over.wait(0.05):
            for path in set(seen.glob("1-*")) - killed:
                killed.add(path)
                os.kill(int(path.name.split("-")[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_workers)
    killer.start()
    try:
        with executor_of(name, request) as executor:
            outcome = sweep(spec, tmp_path / "runs", device="cpu", executor=executor)
            over.set()
            killer.join()
            (seen / "go").touch()
            assert outcome.postponed == {"flowers run1": DIED}
            assert (len(outcome.done), outcome.failed) == (3, {})
            assert not list((tmp_path / "runs").rglob("failed.txt"))
            again = sweep(spec, tmp_path / "runs", device="cpu", executor=executor)
    finally:
        over.set()
        killer.join()
    assert (len(again.done), len(again.skipped), again.postponed) == (1, 3, {})


@pytest.mark.parametrize("name", ["threads", *ENGINES])
def test_two_sweeps_in_one_folder_train_nothing_twice(name, request, table, tmp_path, seen):
    spec = observed(table, seen, range(6))
    with executor_of(name, request) as executor, ThreadPoolExecutor(2) as sweeps:
        calls = [
            sweeps.submit(sweep, spec, tmp_path / "runs", device="cpu", executor=executor, progress=False)
            for _ in range(2)
        ]
        one, two = (call.result() for call in calls)
    assert trained(seen) == list(range(6))
    assert len({*one.done, *two.done}) == len(one.done) + len(two.done) == 6
    assert [one.failed, two.failed, one.postponed, two.postponed] == [{}] * 4


def test_an_array_of_processes_trains_nothing_twice(table, tmp_path, seen):
    """What `sbatch --array=1-4` starts: the same command in one folder, without an engine."""
    path = tmp_path / "observed.py"
    path.write_text(OBSERVED)
    spec = tmp_path / "spec.toml"
    runs = "".join(f'[own.run{n}]\nkind = "observed"\nfolder = "{seen}"\nnumber = {n}\n' for n in range(6))
    names = ", ".join(f'"run{n}"' for n in range(6))
    recipe = '[recipe]\nname = "short"\nepochs = 20\nbatch_size = 16\n'
    spec.write_text(f'datasets = ["{table}"]\nmethods = [{names}]\nseeds = "0"\n{recipe}{runs}')
    command = [sys.executable, "-m", "candidly", "bench", str(spec), "--own", f"{path}:Observed", "--device", "cpu"]
    array = [
        subprocess.Popen([*command, "--out", str(tmp_path / "runs")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    printed = [process.communicate(timeout=120) for process in array]
    assert [process.returncode for process in array] == [0] * 4, printed
    assert trained(seen) == list(range(6))
    assert sum(int(out.decode().partition("runs: ")[2].split()[0]) for out, _ in printed) == 6


@pytest.mark.engines
@pytest.mark.parametrize("name", ["dask", "ray client"])
def test_the_command_trains_on_a_cluster(name, cluster, table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(table.parent)  # where the workers are not
    words = ["bench", "--datasets", table.name, "--methods", "proden,cc", "--seeds", "0", "--epochs", "2"]
    monkeypatch.setattr(sys, "argv", ["candidly", *words])
    out = ["--out", str(tmp_path / "runs"), "--device", "cpu", "--engine", cluster(name)]
    try:
        assert not cli.main([*words, *out])
    except SystemExit:
        said = capsys.readouterr().err
        if "Initialization failure from server" not in said:  # Ray's words: it could not start a process for the client
            pytest.fail(said)
        pytest.skip(said)
    assert "runs: 2 done, 0 done before, 0 failed" in capsys.readouterr().out


class Failing(ThreadPoolExecutor):
    """An executor whose futures raise an error."""

    def __init__(self, error):
        super().__init__(1)
        self.error = error

    def submit(self, call, *args, **options):
        future = Future()
        future.set_exception(self.error)
        return future


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (type("KilledWorker", (Exception,), {})(), DIED),
        (type("NodeDiedError", (Exception,), {})(), DIED),
        (ModuleNotFoundError("No module named 'candidly'"), "a worker could not run it .*No module named 'candidly'"),
    ],
)
def test_errors_of_executors_are_tried_again(error, reason, table, tmp_path):
    spec = Spec((str(table),), ("proden",), seeds=(0,), recipe=SHORT)
    with Failing(error) as executor:
        outcome = sweep(spec, tmp_path, device="cpu", executor=executor)
    assert not outcome.failed
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(outcome.postponed["flowers proden"])
    assert len(sweep(spec, tmp_path, device="cpu").done) == 1


@pytest.mark.parametrize(("given", "jobs", "threads"), [("3", 1, 3), ("", 2, 4), ("", None, 1), ("many", 8, 1)])
def test_threads_come_from_the_environment_or_the_cores(given, jobs, threads, table, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    spec = Spec((str(table),), ("proden",), seeds=(0,), recipe=Recipe("short", epochs=1))
    before = torch.get_num_threads()
    with ThreadPoolExecutor(1) as executor:
        (folder,) = sweep(spec, tmp_path, device="cpu", jobs=jobs, executor=executor).done
    assert json.loads((folder / "summary.json").read_text())["machine"]["threads"] == threads
    assert torch.get_num_threads() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
def test_a_device_that_a_worker_lacks_marks_nothing(table, tmp_path):
    spec = Spec((str(table),), ("proden",), seeds=(0,), recipe=SHORT)
    with ThreadPoolExecutor(1) as executor:
        outcome = sweep(spec, tmp_path, device="cuda", executor=executor)
        assert "there is no CUDA device here" in outcome.postponed["flowers proden"]
        assert not list(tmp_path.rglob("failed.txt"))
        with pytest.raises(ValueError, match="device is 'gpu'"):
            sweep(spec, tmp_path, device="gpu", executor=executor)


def test_an_executor_must_be_one(table, tmp_path):
    with pytest.raises(ValueError, match=r"executor is .*; it must be a concurrent.futures.Executor"):
        sweep(Spec((str(table),), ("proden",)), tmp_path, executor="dask")


@pytest.mark.parametrize("engine", ["", "dusk://a:1", "dask", "dask://a", "dask://:1", "dask://a:b", "ray://", "Ray"])
def test_engines_are_checked(engine):
    with pytest.raises(ValueError, match="engine is "):
        find_executor(engine)


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_nobody_answers(name):
    with pytest.raises(OSError, match=rf"engine {name}://127.0.0.1:\d+ cannot be used .*refused.*start the cluster"):
        find_executor(f"{name}://127.0.0.1:{free_port()}")


@pytest.mark.parametrize(("name", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_packages_that_are_missing_are_named(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def greet():
            with listener.accept()[0] as connection:
                connection.send(b"hello")

        greeter = threading.Thread(target=greet)
        greeter.start()
        address = f"{name}://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ModuleNotFoundError, match=rf"{package}.*pip install 'candidly\[{name}\]'"):
            find_executor(address)
        greeter.join()


def test_another_server_is_not_a_scheduler(monkeypatch):
    monkeypatch.setattr("candidly.bench.engines._PATIENCE", 0.2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(OSError, match=r"cannot be used \(timed out\)"):
            find_executor(f"dask://127.0.0.1:{listener.getsockname()[1]}")


def test_a_folder_that_workers_do_not_see(table, tmp_path, monkeypatch):
    spec = Spec((str(table),), ("proden",), seeds=(0,), recipe=SHORT)
    with ThreadPoolExecutor(1) as executor:
        resolve = Path.is_dir
        monkeypatch.setattr(Path, "is_dir", lambda path: path != tmp_path / "runs" and resolve(path))
        outcome = sweep(spec, tmp_path / "runs", device="cpu", executor=executor)
    assert "name a folder that all machines share with --out" in outcome.postponed["flowers proden"]
