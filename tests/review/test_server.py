"""The server: who may speak to it, what it answers, and what it never sends."""

import http.client
import json
import os
import signal
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from candidly.review import Log
from candidly.tables import files
from tests.review.made import (
    GOOD,
    PORT,
    ROWS,
    TOKEN,
    TRUE,
    answer,
    application,
    call,
    copy,
    desk,
    get,
    post,
    serving,
    train,
)
from tests.review.test_images import PNG, SVG

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the system has other links and signals")

ORIGIN = {"origin": f"http://127.0.0.1:{PORT}"}
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of a table with a column of images."""
    folder = tmp_path_factory.mktemp("trained")
    names = ["a.png", "../secret.png", "link.png", "b.svg", None, *["a.png"] * 195]
    return train(folder, "--drop", "file", table=ROWS.append_column("file", pa.array(names)))


@pytest.fixture
def folder(trained, tmp_path):
    folder = tmp_path / "table"
    folder.mkdir()
    copy(trained, folder)
    (folder / "a.png").write_bytes(PNG)
    (folder / "b.svg").write_bytes(SVG)
    (tmp_path / "secret.png").write_bytes(PNG)
    os.symlink(tmp_path / "secret.png", folder / "link.png")
    return folder


@pytest.fixture
def app(folder):
    return application(decide=desk(folder, image="file"))


def test_the_page_and_its_headers(app):
    for path, kind in {"": "text/html", "page.css": "text/css", "page.js": "text/javascript"}.items():
        status, headers, body = call(app, "GET", path)
        assert (status, headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert body
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy.replace("https", "")
    page = call(app, "GET", "")[2].decode()
    assert "<script>" not in page
    assert "style=" not in page
    assert "http" not in page  # nothing from elsewhere


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({"host": "evil.example"}, TOKEN),
        ({"host": "127.0.0.1"}, TOKEN),
        ({"host": f"127.0.0.1:{PORT + 1}"}, TOKEN),
        ({"host": f"evil.example:{PORT}"}, TOKEN),  # a name that resolves to 127.0.0.1
        ({"host": f"127.0.0.1:{PORT}.evil.example"}, TOKEN),
        ({}, TOKEN),
        (GOOD | {"origin": "http://evil.example"}, TOKEN),
        (GOOD | {"origin": "null"}, TOKEN),
        (GOOD | {"origin": f"http://localhost:{PORT}"}, TOKEN),  # another name is another origin
        (GOOD | {"origin": f"https://127.0.0.1:{PORT}"}, TOKEN),
        (GOOD | {"sec-fetch-site": "cross-site"}, TOKEN),
        (GOOD | {"sec-fetch-site": "same-site"}, TOKEN),
        (GOOD, "x" * 43),
        (GOOD, TOKEN[:-1]),
        (GOOD, TOKEN + "t"),
        (GOOD, ""),
        (GOOD, "é" * 43),
    ],
)
@pytest.mark.parametrize("path", ["", "api/state", "image/0"])
def test_strangers_are_refused(app, headers, token, path):
    status, found, body = call(app, "GET", path, headers, token=token)
    assert status == 403
    assert TOKEN not in body.decode()
    assert "default-src 'none'" in found["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/api/state", f"/{TOKEN}", "", "//", f"/{TOKEN.upper()}/", f"/x/{TOKEN}/"])
def test_paths_without_the_token_are_refused(app, path):
    assert call(app, "GET", path, token=None)[0] == 403


def test_a_post_must_say_where_it_comes_from(app, folder):
    body = json.dumps({"items": [answer(1, "cat")]}).encode()
    assert call(app, "POST", "api/decide", GOOD | JSON, body)[0] == 403
    assert call(app, "POST", "api/decide", GOOD | JSON | {"origin": "http://evil.example"}, body)[0] == 403
    assert call(app, "POST", "api/decide", GOOD | ORIGIN | {"content-type": "text/plain"}, body)[0] == 400
    assert not (folder / "log.jsonl").exists()
    assert call(app, "POST", "api/decide", GOOD | ORIGIN | JSON, body)[0] == 200
    assert call(app, "GET", "api/decide")[0] == 405
    assert call(app, "DELETE", "api/decide", GOOD | ORIGIN)[0] == 405


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"[" * 100_000, b'{"items": 3}', b'{"mode": "verify"}', b"x" * (1 << 20) + b"x"]
)
def test_bad_bodies_are_refused(app, body):
    status, _, reply = call(app, "POST", "api/decide", GOOD | ORIGIN | JSON, body)
    assert status == 400
    assert json.loads(reply)["error"]


def test_images_by_row_only(app):
    status, headers, body = call(app, "GET", "image/0")
    assert (status, body, headers["content-type"]) == (200, PNG, "image/png")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    for row in (1, 2, 3, 4):  # ../, a symbolic link, an SVG with a script, no image
        status, headers, body = call(app, "GET", f"image/{row}")
        assert status == 415
        assert b"PNG" not in body[:4]
        assert b"script" not in body
    for path in (
        "image/200",
        "image/-1",
        "image/a.png",
        "image/../rows.csv",
        "image/%2e%2e/rows.csv",
        "rows.csv",
        "a.png",
    ):
        assert call(app, "GET", path)[0] == 404


def test_hostile_names_are_data(folder):
    table = ROWS.append_column("<img src=x onerror=alert(1)>", pa.array(["</script><script>alert(1)</script>"] * 200))
    names = [[f"<b>{name}" for name in row] for row in ROWS["tags"].to_pylist()]
    table = table.set_column(table.column_names.index("tags"), "tags", pa.array(names))
    train(folder, table=table.drop_columns(["label"]), roles=("--candidates", "tags", "--id", "id"))
    status, headers, body = call(application(decide=desk(folder)), "GET", "api/row")
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert "<b>cat" in body.decode() or "<b>dog" in body.decode()


def test_a_decision_by_the_page(app, folder):
    status, found = get(app, "api/row", next=1)
    assert status == 200
    row = found["row"]["row"]
    status, found = post(app, "api/decide", mode="decide", items=[answer(row, "cat", 2)])
    assert (status, found["saved"]) == (200, [row])
    assert Log(folder / "log.jsonl").decisions[-1].after == "cat"
    assert found["row"]["row"] != row
    assert post(app, "api/undo", row=found["row"]["row"])[1]["row"]["row"] == row
    assert post(app, "api/redo")[1]["row"]["answer"] == "cat"
    assert post(app, "api/redo")[1]["saved"] == []
    assert get(app, "api/similar", row=0)[0] == get(app, "api/batch")[0] == get(app, "api/reviewers")[0] == 200
    for query in ({"row": "x"}, {"row": 999}, {"show": "x"}, {"mode": "verify"}, {"class": "<"}, {"pair": "1,x"}):
        assert get(app, "api/row", **query)[0] == 400


def test_a_write_that_fails_is_not_saved(app, monkeypatch):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("candidly.review.decisions.os.fsync", fail)
    status, found = post(app, "api/decide", items=[answer(1, "cat")])
    assert status == 507
    assert "not saved" in found["error"]


def test_verify_comes_first_and_tells_nothing(folder):
    verify = desk(folder, "verify", plan=50)
    decide = desk(folder, plan=50)
    app = application(verify=verify, decide=decide)
    assert get(app, "api/state")[1]["mode"] == "verify"
    for path in ("state", "row", "batch", "similar", "reviewers"):
        status, found = get(app, f"api/{path}", mode="decide")
        assert (status, "verified first" in found["error"]) == (400, True)
    for path in ("batch", "similar", "reviewers"):
        assert get(app, f"api/{path}", mode="verify")[0] == 400
    assert get(app, "api/certificate", mode="verify")[1] == {"missing": 50, "lines": []}
    for row in verify.plan.rows:
        assert post(app, "api/decide", mode="verify", items=[answer(row, TRUE[row])])[0] == 200
    assert get(app, "api/certificate", mode="verify")[1]["lines"][0].startswith("With 90% confidence")
    assert get(app, "api/state", mode="decide")[1]["mode"] == "decide"


class Client:
    """Requests to a server in a process, as a browser sends them."""

    def __init__(self, address):
        self.parts = urlsplit(address)
        self.connection = http.client.HTTPConnection(self.parts.hostname, self.parts.port, timeout=60)

    def send(self, method, path, values=None, **headers):
        own = {"Origin": f"http://{self.parts.netloc}", "Content-Type": "application/json"} if values else {}
        self.connection.request(
            method, f"{self.parts.path}{path}", json.dumps(values) if values else None, own | headers
        )
        reply = self.connection.getresponse()
        return reply.status, reply.read()


def test_a_real_server_refuses_strangers_and_loses_nothing_when_it_is_killed(folder):
    """Kill -9 after some answers and while one is on its way: all that were confirmed are in the log."""
    with serving(folder, "--reviewer", "ann") as (process, address):
        client = Client(address)
        assert client.parts.hostname == "127.0.0.1"
        assert client.send("GET", "")[0] == 200
        assert client.send("GET", "", Host="evil.example")[0] == 403
        assert client.send("GET", "api/state", Origin="http://evil.example")[0] == 403
        other = Client(f"http://{client.parts.netloc}/{'x' * 43}/")
        assert other.send("GET", "api/state")[0] == 403
        assert other.send("POST", "api/decide", {"items": [answer(1, "cat")]})[0] == 403
        for row in range(5):
            assert client.send("POST", "api/decide", {"items": [answer(row, TRUE[row])]})[0] == 200
        headers = {"Origin": f"http://{client.parts.netloc}", "Content-Type": "application/json"}
        body = json.dumps({"items": [answer(100, "cat")]})
        client.connection.request("POST", f"{client.parts.path}api/decide", body, headers)  # nobody waits for the reply
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for one in (client, other):
            one.connection.close()
    log = Log(folder / "log.jsonl")
    rows = [one.row for one in log.decisions]
    assert rows[:5] == list(range(5))
    assert rows[5:] in ([], [100])  # at most the key in flight
    assert desk(folder, log=log).decide([answer(7, "cat")]) == [7]  # and it goes on


def test_the_table_is_not_served(folder):
    assert (folder / "rows.csv").is_file()
    assert files.read(folder / "rows.csv").num_rows == 200
    app = application(decide=desk(folder, image="file"))
    for path in ("rows.csv", "../rows.csv", "page/../rows.csv", "page.html", "model/model.json", "api/../rows.csv"):
        assert call(app, "GET", path)[0] == 404
