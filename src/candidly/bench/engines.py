"""Engines for sweeps on several machines: executors of Dask and Ray clusters."""

import socket
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from candidly.checks import arguments

_PATIENCE = 10  # seconds until a cluster must answer


def find_executor(engine: str, device: str = "auto") -> Executor:
    """Connect to a cluster and return its executor, for `sweep`.

    Parameters
    ----------
    engine
        ``dask://HOST:PORT`` is the address of a Dask scheduler, ``ray://HOST:PORT`` of a Ray cluster's client server.
        ``ray`` is the Ray cluster of this machine; one is started if there is none.
    device
        The device of the sweep. Ray gives every run a GPU if this is "cuda", or "auto" and the cluster has GPUs. Dask
        does not share out GPUs: start one worker for each.

    Raises
    ------
    ValueError
        If the text is not an engine.
    ModuleNotFoundError
        If the engine's package is not installed.
    OSError
        If no engine answers at the address.

    Notes
    -----
    The end of a ``with`` block disconnects; a cluster that was started here ends. Connect only to clusters that you
    trust: each side runs code that the other one sends.

    Examples
    --------
    >>> find_executor("dusk://head:8786")
    Traceback (most recent call last):
        ...
    ValueError: engine is 'dusk://head:8786'; use dask://HOST:PORT, ray or ray://HOST:PORT
    """
    arguments.text("device", device, "auto, cpu or cuda")
    scheme, _, address = arguments.text("engine", engine, "a text such as dask://HOST:PORT").partition("://")
    host, _, port = address.rpartition(":")
    if engine != "ray" and not (scheme in ("dask", "ray") and host and port.isdecimal()):
        raise ValueError(f"engine is {arguments.shown(engine)}; use dask://HOST:PORT, ray or ray://HOST:PORT")
    try:
        if engine != "ray":  # the engines' packages would try for a long time, Dask for ever if no scheduler is there
            with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE) as connection:
                if scheme == "dask":
                    connection.recv(1)  # a scheduler starts the conversation; for others, the time runs out
        return _Dask(f"tcp://{address}") if scheme == "dask" else _Ray(engine, device)
    except ModuleNotFoundError as error:
        missing = f"engine {engine} needs {error.name}, which is not installed"
        raise ModuleNotFoundError(f"{missing}; run `pip install 'candidly[{scheme}]'`", name=error.name) from error
    except (OSError, OverflowError, RuntimeError, UnicodeError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        advice = "start the cluster, check the address, and use the same versions (and RAY_AUTH_TOKEN) on both sides"
        raise OSError(f"engine {engine} cannot be used ({reason}); {advice}") from error


class _Dask(Executor):
    """The executor of a Dask cluster."""

    def __init__(self, address: str) -> None:
        from distributed import Client

        self._client = Client(address, timeout=_PATIENCE, set_as_default=False)
        self._calls = self._client.get_executor(pure=False)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._calls.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._calls.shutdown(wait=wait and not cancel_futures)
        self._client.close()


class _Ray(Executor):
    """The executor of a Ray cluster: a call has one core, and one GPU where runs train on GPUs."""

    def __init__(self, engine: str, device: str) -> None:
        import ray

        self._ray, self._mine = ray, not ray.is_initialized()
        if self._mine:
            ray.init(None if engine == "ray" else engine, log_to_driver=False, logging_level="ERROR")
        wanted = device.startswith("cuda") or (device == "auto" and ray.cluster_resources().get("GPU", 0) > 0)
        self._options = {"max_retries": 0, "num_cpus": 1, "num_gpus": int(wanted)}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._ray.remote(fn).options(**self._options).remote(*args, **kwargs).future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._mine:
            self._ray.shutdown()
