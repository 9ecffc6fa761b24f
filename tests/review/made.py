"""Models, tables and logs for tests of the review, and a server in a process."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from urllib.parse import urlencode

from candidly import PartialLabelClassifier
from candidly.cli import app as cli
from candidly.cli.review import _read_material
from candidly.review.decisions import Log, Session
from candidly.review.desk import Desk
from candidly.review.server import listen, make_app, make_server, make_token
from candidly.tables import files
from tests.cli.test_commands import ROLES, make
from tests.cli.test_reuse import TRAINING

ROWS = make(200)
TRUE = ROWS["label"].to_pylist()
TOKEN, PORT = "t" * 43, 4711
GOOD = {"host": f"127.0.0.1:{PORT}"}
SESSION = Session("2026-01-31T12:00:00.000Z", "ann", "0f", "rows.csv", "id", "tags", ("size", "colour"))


def train(folder, *more, table=ROWS, roles=ROLES):
    """Write a table and a model that was trained on it."""
    files.write(table, folder / "rows.csv")
    cli.main(["fit", str(folder / "rows.csv"), *roles, *TRAINING, *more, "--out", str(folder / "model"), "--quiet"])
    return folder


def copy(trained, folder):
    """Copy a table and its model to another folder."""
    return shutil.copytree(trained, folder, dirs_exist_ok=True)


def desk(folder, mode="decide", reviewer="ann", plan=None, log=None, **more):
    """Return a desk for the model in a folder."""
    classifier = PartialLabelClassifier.load(folder / "model")
    plan = None if plan is None else classifier.plan_verification(plan)
    options = {"image": None, "images": None, "annotations": None, "drop": None, "delimiter": None} | more
    material = _read_material(classifier, str(folder / "rows.csv"), **options)
    log = Log(folder / "log.jsonl", create=True) if log is None else log
    return Desk(classifier, material, log, reviewer, mode, plan)


def answer(row, name, seconds=1.5):
    return {"row": row, "answer": name, "seconds": seconds}


def application(**desks):
    return make_app(desks, TOKEN, PORT)


def call(app, method, path, headers=GOOD, body=b"", token=TOKEN, **query):
    """Send a request to an application; return the status, the headers and the body."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    path = f"/{token}/{path}" if token is not None else path
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "http_version": "1.1"}
    scope |= {"query_string": urlencode(query).encode(), "scheme": "http", "root_path": ""}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(app(scope, receive, send))
    body = b"".join(one.get("body", b"") for one in sent[1:])
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}, body


def post(app, path, **values):
    headers = GOOD | {"origin": f"http://{GOOD['host']}", "content-type": "application/json"}
    status, _, body = call(app, "POST", path, headers, json.dumps(values).encode())
    return status, json.loads(body)


def get(app, path, **query):
    status, _, body = call(app, "GET", path, **query)
    return status, json.loads(body)


@contextmanager
def serving_here(**desks):
    """Serve desks in a thread; yield a function that ends the server, and the address of the page."""
    listening, token = listen(), make_token()
    server = make_server(desks, listening, token)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()

    def end():
        server.should_exit = True
        thread.join()
        listening.close()

    try:
        yield end, f"http://127.0.0.1:{listening.getsockname()[1]}/{token}/"
    finally:
        end()


@contextmanager
def serving(folder, *options):
    """Run ``candidly review`` in a process; yield it and the address of the page."""
    command = [sys.executable, "-m", "candidly", "review", "model", "--table", "rows.csv", "--no-browser", "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--log", "log.jsonl", *map(str, options)], cwd=folder, stdout=subprocess.PIPE, env=environment
    )
    with process:
        try:
            yield process, json.loads(process.stdout.readline())["address"]
        finally:
            process.terminate()
