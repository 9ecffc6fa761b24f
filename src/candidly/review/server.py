"""The web server of the review page: this machine only, a secret in the address, and no file but the page's own.

The page is served on 127.0.0.1. Every address begins with a random token, so other users and programs of the machine
cannot guess it. The headers Host and Origin of every request must name this server, so that no page of another site can
reach it through the browser, not even with a host name that resolves to 127.0.0.1. The content security policy allows
the page's own script and style and nothing else. Images are found by row number (`candidly.review.images`).
"""

import hmac
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from candidly.review.desk import Desk, View

HOST = "127.0.0.1"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LARGEST = 1 << 20  # bytes of a request's body


def require_packages() -> None:
    """Raise ModuleNotFoundError unless starlette and uvicorn are installed."""
    try:
        import starlette
        import uvicorn
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the review page needs {error.name}, which is not installed; run `pip install 'candidly[review]'`"
        ) from error
    del starlette, uvicorn


def listen(port: int = 0) -> socket.socket:
    """Return a socket that listens on a port of this machine; 0 chooses a free one."""
    # With the protocol named, asyncio sends small replies at once; otherwise each would wait 40 ms.
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((HOST, port))
        found.listen()
    except OSError as error:
        found.close()
        raise OSError(f"port {port} cannot be used ({error.strerror}); choose another with --port") from error
    return found


def make_token() -> str:
    """Return a new secret for the address of the page."""
    return secrets.token_urlsafe(32)


def serve(desks: Mapping[str, Desk], listening: socket.socket, token: str) -> None:
    """Serve the page until the process is interrupted.

    Parameters
    ----------
    desks : mapping of str to Desk
        By mode. If both modes are given, rows are verified first.
    listening : socket
        What `listen` returned.
    token : str
        The secret in the address.
    """
    make_server(desks, listening, token).run(sockets=[listening])


def make_server(desks: Mapping[str, Desk], listening: socket.socket, token: str) -> Any:
    """Return the server of the page, which does not run yet."""
    import uvicorn

    config = uvicorn.Config(
        make_app(desks, token, listening.getsockname()[1]),
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def make_app(desks: Mapping[str, Desk], token: str, port: int) -> Any:
    """Return the ASGI application, for a server on a port."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    images = next(iter(desks.values())).material.images

    def page(name: str, kind: str) -> Any:
        text = resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")
        return lambda request: Response(text, media_type=kind)

    def image(request: Any) -> Any:
        row = request.path_params["row"]
        if images is None or row >= len(images.names):
            return _refuse(404, "there is no such image")
        try:
            data, kind = images.read(row)
        except ValueError as error:
            return _refuse(415, str(error))
        return Response(data, media_type=kind)

    def answer(work: Callable[[Desk, Mapping[str, Any]], dict[str, Any]]) -> Any:
        """Return the handler of a request to a desk, from a function of the desk and the given values."""

        async def handle(request: Any) -> Any:
            try:
                given = await _read(request) if request.method == "POST" else dict(request.query_params)
                return JSONResponse(await run_in_threadpool(lambda: work(_choose(desks, given.get("mode")), given)))
            except ValueError as error:
                return _refuse(400, str(error))
            except OSError as error:
                return _refuse(507, f"not saved: {error}")

        return handle

    def state(desk: Desk, given: Mapping[str, Any]) -> dict[str, Any]:
        return desk.state() | {"modes": list(desks)}

    asked = {"state": state, "row": _show, "batch": _batch, "similar": _similar, "reviewers": _reviewers}
    asked["certificate"] = _certificate
    told = {"decide": _decide, "undo": _take_back("undo"), "redo": _take_back("redo")}
    routes = [
        Route("/", page("page.html", "text/html")),
        Route("/page.css", page("page.css", "text/css")),
        Route("/page.js", page("page.js", "text/javascript")),
        Route("/icon.svg", page("icon.svg", "image/svg+xml")),
        Route("/image/{row:int}", image),
        *(Route(f"/api/{name}", answer(work)) for name, work in asked.items()),
        *(Route(f"/api/{name}", answer(work), methods=["POST"]) for name, work in told.items()),
    ]
    return Guard(Starlette(routes=routes), token, port)


class Guard:
    """An ASGI application that lets only requests of the review page reach another one, and adds headers to responses.

    Parameters
    ----------
    app : ASGI application
        What is guarded.
    token : str
        The secret that every path begins with. It is removed from the path.
    port : int
        The port of the server, which the headers Host and Origin must name.
    """

    def __init__(self, app: Any, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        reason = self.reason_to_refuse(scope)
        if reason is not None:
            await _refuse(403, reason)(scope, receive, send_with_headers)
            return
        path = scope["path"][len(self.token) + 1 :]
        await self.app({**scope, "path": path, "raw_path": path.encode()}, receive, send_with_headers)

    def reason_to_refuse(self, scope: Any) -> str | None:
        """Return why a request is refused; None if it is not."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return "the request names another host"
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return "the request comes from another page"
        if scope["method"] not in ("GET", "HEAD") and not origins:
            return "the request does not say which page it comes from"
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return "the request comes from another page"
        first = scope["path"][: len(self.token) + 2]
        if not hmac.compare_digest(first.encode(), f"/{self.token}/".encode()):
            return "the address is not the one that `candidly review` printed"
        return None


def _refuse(status: int, reason: str) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse({"error": reason}, status_code=status)


async def _read(request: Any) -> dict[str, Any]:
    """Return the JSON object in the body of a request."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ValueError("the request must be JSON")
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > _LARGEST:
            raise ValueError(f"the request has more than {_LARGEST} bytes")
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("the request is not valid JSON") from None
    if not isinstance(given, dict):
        raise ValueError("the request must be a JSON object")
    return given


def _choose(desks: Mapping[str, Desk], mode: Any) -> Desk:
    """Return the desk of a mode, by default the first. Rows are decided only after they were verified."""
    desk = desks.get(mode) if isinstance(mode, str) else next(iter(desks.values()))
    if desk is None:
        raise ValueError(f"mode is {mode!r}, which this review does not have")
    verify = desks.get("verify")
    if verify is not None and desk is not verify and verify.missing():
        raise ValueError("the planned rows must be verified first, without seeing what the model predicts")
    return desk


def _view(desk: Desk, given: Mapping[str, Any]) -> View:
    return View.of(given, len(desk.names))


def _number(given: Mapping[str, Any], name: str, default: int | None) -> int | None:
    value = given.get(name)
    if value in (None, ""):
        return default
    try:
        return int(str(value)[:20])
    except ValueError:
        raise ValueError(f"{name} is {str(value)[:40]!r}; it must be an integer") from None


def _show(desk: Desk, given: Mapping[str, Any]) -> dict[str, Any]:
    step = _number(given, "step", 0) or 0
    return desk.show(_view(desk, given), row=_number(given, "row", None), step=step, after=bool(given.get("next")))


def _batch(desk: Desk, given: Mapping[str, Any]) -> dict[str, Any]:
    if desk.blind:
        raise ValueError("rows are verified one by one")
    return desk.batch(_view(desk, given), _number(given, "row", None))


def _similar(desk: Desk, given: Mapping[str, Any]) -> dict[str, Any]:
    if desk.blind:
        raise ValueError("similar rows are not shown while rows are verified")
    return desk.similar(_number(given, "row", 0) or 0)


def _reviewers(desk: Desk, given: Mapping[str, Any]) -> dict[str, Any]:
    if desk.blind:
        raise ValueError("the answers of other reviewers are not shown while rows are verified")
    return desk.reviewers()


def _certificate(desk: Desk, given: Mapping[str, Any]) -> dict[str, Any]:
    if desk.plan is None:
        raise ValueError("no rows were drawn to verify")
    return desk.certificate()


def _decide(desk: Desk, given: Mapping[str, Any]) -> dict[str, Any]:
    rows, view = desk.decide(given.get("items")), _view(desk, given)
    return {"saved": rows} | desk.show(view, row=rows[-1], after=True)


def _take_back(action: str) -> Callable[[Desk, Mapping[str, Any]], dict[str, Any]]:
    def work(desk: Desk, given: Mapping[str, Any]) -> dict[str, Any]:
        row, view = desk.take_back(action), _view(desk, given)
        now = _number(given, "row", None) if row is None else row
        return {"saved": [] if row is None else [row]} | desk.show(view, row=now)

    return work
