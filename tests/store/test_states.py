"""States on disk: round trips, crashes between any two steps, damaged and tampered files."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from candidly import store
from candidly.store import states
from candidly.store.lock import locked
from tests.store.cases import OLD, assert_holds, forge_index, listing

NEW = ({"q": torch.tensor([3.0, 4.0])}, {"epoch": 2})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def tensor_file(folder):
    return next(folder.glob("*.safetensors"))


def edit_index(folder, **changes):
    forge_index(folder / "state.json", lambda index: index.update(changes))


def kinds(folder):
    """Names without the hashes of contents."""
    return sorted(re.sub("-[0-9a-f]{16}", "-#", path.name) for path in folder.iterdir())


def test_round_trip(tmp_path):
    grid = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    tensors = {
        "bool": torch.tensor([[True, False], [False, False]]),
        "int64": torch.tensor([-(2**62), 2**62]),
        "uint8": torch.tensor([0, 255], dtype=torch.uint8),
        "float64": torch.tensor([1e-300, float("inf"), float("-inf")], dtype=torch.float64),
        "bfloat16": torch.tensor([1.5, -3.0], dtype=torch.bfloat16),
        "half": torch.tensor([1.5], dtype=torch.float16),
        "scalar": torch.tensor(7),
        "empty": torch.zeros(0, 3),
        "transposed": grid.T,
        "strided": grid[:, ::2],
        "row of grid": grid[1],
        "grid": grid,
        "grid again": grid,
        "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3),
        "channels last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    facts = {"text": "α|β", "list": [1, 2.5, None, True], "nested": {"a": {"b": []}}, "tiny": 5e-324, "big": 2**80}
    states.write(tmp_path / "new" / "folder", tensors, facts)
    assert_holds(tmp_path / "new" / "folder", (tensors, facts))
    read, _ = states.read(tmp_path / "new" / "folder", device=torch.device("cpu"))
    read["row of grid"].fill_(0)
    assert torch.equal(read["grid"], grid)


def test_nothing_to_store(tmp_path):
    states.write(tmp_path, {}, {})
    assert_holds(tmp_path, ({}, {}))


def test_replaces_and_removes_the_old_pair_only(tmp_path):
    other = tmp_path / "state-best-0123456789abcdef.safetensors"
    other.write_bytes(b"not ours")
    stale = tmp_path / "state-0123456789abcdef.tmp"
    stale.write_bytes(b"left by a killed writer")
    states.write(tmp_path, *OLD)
    states.write(tmp_path, *OLD, stem="best")
    states.write(tmp_path, *NEW)
    states.write(tmp_path, *NEW)
    assert_holds(tmp_path, NEW)
    assert_holds(tmp_path, OLD, stem="best")
    digits = hashlib.sha256(next(tmp_path.glob("state-????????????????.safetensors")).read_bytes()).hexdigest()[:16]
    old = hashlib.sha256(next(tmp_path.glob("best-*")).read_bytes()).hexdigest()[:16]
    expected = ["best.json", f"best-{old}.safetensors", "state.json", f"state-{digits}.safetensors", other.name]
    assert names(tmp_path) == sorted(expected)


class Crash(Exception):
    pass


def crash_at(monkeypatch, name, call):
    """Let the given call of a function in os raise instead."""
    real, calls = getattr(os, name), [0]

    def stand_in(*arguments, **keywords):
        calls[0] += 1
        if calls[0] == call:
            raise Crash
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, name, stand_in)


# The JSON file is replaced by the second os.replace; the fsyncs are: tensors, folder, JSON, folder.
@pytest.mark.parametrize(
    ("name", "call", "survivor"),
    [("replace", 1, OLD), ("replace", 2, OLD), *(("fsync", call, OLD) for call in (1, 2, 3)), ("fsync", 4, NEW)],
)
def test_crash_leaves_a_whole_pair(tmp_path, monkeypatch, name, call, survivor):
    states.write(tmp_path, *OLD)
    with monkeypatch.context() as patch:
        crash_at(patch, name, call)
        with pytest.raises(Crash):
            states.write(tmp_path, *NEW)
    assert_holds(tmp_path, survivor)
    assert not list(tmp_path.glob("*.tmp"))
    states.write(tmp_path, *NEW)
    assert_holds(tmp_path, NEW)
    assert len(names(tmp_path)) == 2


KILLED = """
import os, sys
from pathlib import Path
import torch
from candidly import store
from candidly.store import files, states

real, calls = os.{name}, [0]

def stand_in(*arguments):
    calls[0] += 1
    if calls[0] == {call}:
        os._exit(9)
    return real(*arguments)

os.{name} = stand_in
states.write(Path(sys.argv[1]), {{"q": torch.tensor([3.0, 4.0])}}, {{"epoch": 2}})
"""


def test_killed_process_leaves_a_whole_pair(tmp_path):
    states.write(tmp_path, *OLD)
    source = os.path.dirname(os.path.dirname(os.path.dirname(store.__file__)))
    code = KILLED.format(name="replace", call=2)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": source})
    assert done.returncode == 9
    assert len(list(tmp_path.glob("*.tmp"))) == 1
    assert_holds(tmp_path, OLD)
    states.write(tmp_path, *NEW)
    assert_holds(tmp_path, NEW)
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"a": float("nan")}, "JSON"),
        ({"a": [float("inf")]}, "JSON"),
        ({"a": torch.tensor(1)}, "Tensor"),
        ({"a": {1, 2}}, "set"),
        ({"a": b"x"}, "bytes"),
        ({"a": [{1: 2}]}, r"facts\['a'\]\[0\] has the key 1; JSON keys are strings"),
    ],
)
def test_facts_are_checked_before_anything_is_written(tmp_path, facts, message):
    states.write(tmp_path, *OLD)
    before = names(tmp_path)
    with pytest.raises(ValueError, match=message):
        states.write(tmp_path, NEW[0], facts)
    assert names(tmp_path) == before
    assert_holds(tmp_path, OLD)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"a": [1, 2]}, "'a' is list; pass dense tensors"),
        ({"a": torch.eye(2).to_sparse()}, "dense"),
        ({"__metadata__": torch.ones(1)}, "reserves"),
    ],
)
def test_unusable_tensors(tmp_path, tensors, message):
    with pytest.raises(ValueError, match=message):
        states.write(tmp_path, tensors, {})
    assert names(tmp_path) == []


def test_no_temporary_file_after_an_error(tmp_path, monkeypatch):
    def fail(handle):
        assert sorted(path.suffix for path in tmp_path.iterdir()) == [".lock", ".tmp"]
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        states.write(tmp_path, *OLD)
    assert names(tmp_path) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_read_only_folder(tmp_path):
    states.write(tmp_path, *OLD)
    before = names(tmp_path)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match=r"state\.lock"):
            states.write(tmp_path, *NEW)
        assert names(tmp_path) == before
        assert_holds(tmp_path, OLD)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("stem", ["", "a/b", "..", ".hidden", "a\\b", "a b"])
def test_stem_is_a_plain_name(tmp_path, stem):
    with pytest.raises(ValueError, match="stem is"):
        states.write(tmp_path, *OLD, stem=stem)
    with pytest.raises(ValueError, match="stem is"):
        states.read(tmp_path, stem=stem)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"state\.json does not exist; check the folder"):
        states.read(tmp_path)
    states.write(tmp_path, *OLD)
    tensor_file(tmp_path).unlink()
    with pytest.raises(FileNotFoundError, match=r"state-[0-9a-f]{16}\.safetensors does not exist; restore"):
        states.read(tmp_path)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_damaged_tensors(tmp_path, damage):
    states.write(tmp_path, *OLD)
    path = tensor_file(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"\.safetensors .* is truncated or was changed.*restore"):
        states.read(tmp_path)


def test_matching_hash_of_something_else(tmp_path):
    states.write(tmp_path, *OLD)
    tensor_file(tmp_path).write_bytes(b"hello")
    name = tensor_file(tmp_path).name
    edit_index(tmp_path, tensors={"name": name, "sha256": hashlib.sha256(b"hello").hexdigest()})
    with pytest.raises(ValueError, match="is not a safetensors file"):
        states.read(tmp_path)


def named(name, sha256="0" * 64):
    return {"tensors": {"name": name, "sha256": sha256}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3}, "format version 3, but this candidly reads 2"),
        ({"format": None}, "format version None"),
        ({"format": True}, "format version True"),
        ({"format": 2.0}, "format version 2.0"),
        ({"format": 1}, "damaged or was changed.*'tensors'"),
        ({"format": 1, "tensors": "state.safetensors"}, "damaged or was changed.*'sha256'"),
        (named("state-0123456789abcdef.safetensors", 3), r"content\['tensors'\]\['sha256'\] is 3"),
        ({"tensors": {}}, r"'name' in content\['tensors'\] is 'missing'|'sha256' in content"),
        ({"facts": None}, r"content\['facts'\] is None"),
        ({"another": 1}, "a key of content is 'another'"),
        ({"more": {"notes.txt": {"name": "../notes.txt", "sha256": ""}}}, r"a file next to it is '\.\./notes"),
        *(
            (named(name), "the name of a file next to it is")
            for name in ("../state-0123456789abcdef.safetensors", "sub/state.safetensors", "sub\\state.safetensors")
        ),
        (named("/etc/passwd"), "the name of a file next to it is '/etc/passwd'"),
        (named(".."), r"the name of a file next to it is '\.\.'"),
    ],
)
def test_forged_index(tmp_path, changes, message):
    states.write(tmp_path, *OLD)
    edit_index(tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        states.read(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_wrong_sha256_in_the_index(tmp_path):
    states.write(tmp_path, *OLD)
    edit_index(tmp_path, **named(tensor_file(tmp_path).name))
    with pytest.raises(ValueError, match="truncated or was changed"):
        states.read(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"epoch": 1', '"epoch": 3'),
        ('"epoch": 1', '"epoch": NaN'),
        ('"epoch": 1', '"epoch": 1.0'),
        ('"checksum"', '"cecksum"'),
    ],
)
def test_a_changed_index_is_noticed(old, new, tmp_path):
    states.write(tmp_path, *OLD)
    path = tmp_path / "state.json"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=r"state\.json is damaged or was changed .*restore it from a copy"):
        states.read(tmp_path)


def test_an_index_with_another_layout_is_the_same(tmp_path):
    states.write(tmp_path, *OLD)
    path = tmp_path / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert_holds(tmp_path, OLD)


@pytest.mark.parametrize("content", [b"", b'{"format": 1', b"\xff\xfe", b"[1]", b"3"])
def test_unreadable_index(tmp_path, content):
    states.write(tmp_path, *OLD)
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"state\.json (is not a JSON file|has format version None)"):
        states.read(tmp_path)


def test_a_folder_written_as_a_whole(tmp_path):
    folder = tmp_path / "deep" / "mine"
    states.write_folder(folder, *OLD, more={"findings.json": b"{}", "notes.txt": b"old"})
    assert kinds(folder) == ["model-#.findings.json", "model-#.notes.txt", "model-#.safetensors", "model.json"]
    assert_holds(folder, OLD, stem="model")
    assert states.read_more(folder, "notes.txt") == b"old"
    assert names(tmp_path / "deep") == ["mine"]
    states.write_folder(folder, *NEW, more={"findings.json": b"[]"})
    assert kinds(folder) == ["model-#.findings.json", "model-#.safetensors", "model.json"]
    assert states.read_more(folder, "findings.json") == b"[]"
    with pytest.raises(KeyError, match=r"notes\.txt"):
        states.read_more(folder, "notes.txt")
    assert_holds(folder, NEW, stem="model")
    assert names(tmp_path / "deep") == ["mine"]
    (tmp_path / "empty").mkdir(mode=0o750)
    states.write_folder(str(tmp_path / "empty"), *OLD, stem="state")
    assert kinds(tmp_path / "empty") == ["state-#.safetensors", "state.json"]
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o750
    assert_holds(tmp_path / "empty", OLD)


def test_a_damaged_additional_file(tmp_path):
    states.write_folder(tmp_path, *OLD, more={"notes.txt": b"old"})
    next(tmp_path.glob("*.notes.txt")).write_bytes(b"odd")
    with pytest.raises(ValueError, match=r"notes\.txt \(3 bytes\) is truncated or was changed"):
        states.read_more(tmp_path, "notes.txt")


def test_one_state_has_one_writer(tmp_path):
    """Another one waits until the lock is released."""
    states.write(tmp_path, *OLD)
    thread = threading.Thread(target=lambda: states.write(tmp_path, *NEW))
    with locked(tmp_path / "state.lock", wait=False):
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert_holds(tmp_path, OLD)
    thread.join(10)
    assert_holds(tmp_path, NEW)
    assert len(names(tmp_path)) == 2


def test_what_a_killed_writer_left_is_removed_without_writing(tmp_path):
    states.tidy(tmp_path / "none")
    assert names(tmp_path) == []
    states.write_folder(tmp_path, *OLD, stem="state", more={"notes.txt": b"old"})
    before = listing(tmp_path)
    leftovers = ("state.lock", "state-0123456789abcdef.tmp", "state-0123456789abcdef.safetensors")
    for name in leftovers:
        (tmp_path / name).write_bytes(b"left")
    (tmp_path / "other.txt").write_bytes(b"kept")
    states.tidy(tmp_path)
    assert listing(tmp_path) == before | {"other.txt": b"kept"}


def test_a_folder_is_checked_before_the_work(tmp_path):
    assert not states.check_folder(tmp_path / "new")
    assert not states.check_folder(tmp_path)
    states.write_folder(tmp_path, *OLD)
    (tmp_path / "model.lock").touch()
    assert states.check_folder(tmp_path)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"holds 'thesis\.tex', which is not part of a saved model"):
        states.check_folder(tmp_path)


def write_0_1(folder, pair, more):
    """Save as version 0.1 did."""
    folder.mkdir(exist_ok=True)
    data = save(pair[0])
    index = {"format": 1, "tensors": "model.safetensors", "sha256": hashlib.sha256(data).hexdigest()}
    index |= {"more": sorted(more), "facts": pair[1]}
    (folder / "model.json").write_text(json.dumps(index, indent=1))
    for name, content in {**more, "model.safetensors": data}.items():
        (folder / name).write_bytes(content)


def test_a_folder_of_version_0_1_is_read_and_replaced(tmp_path):
    folder = tmp_path / "mine"
    write_0_1(folder, OLD, {"findings.json": b"{}"})
    for leftover in (".mine-0123456789abcdef.old", ".mine-0123456789abcdef.tmp"):
        shutil.copytree(folder, tmp_path / leftover)
    others = [".mine-0123456789abcdef.new", ".other-0123456789abcdef.old"]
    for other in others:
        (tmp_path / other).mkdir()
    assert_holds(folder, OLD, stem="model")
    assert states.read_more(folder, "findings.json") == b"{}"
    states.write_folder(folder, *NEW, more={"report.json": b"[]"})
    assert_holds(folder, NEW, stem="model")
    assert kinds(folder) == ["model-#.report.json", "model-#.safetensors", "model.json"]
    assert names(tmp_path) == [*others, "mine"]


def test_a_killed_replacement_of_version_0_1_is_finished(tmp_path, monkeypatch):
    """Its files are known to be old even after the new index is in place."""
    write_0_1(tmp_path / "mine", OLD, {"findings.json": b"{}"})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # so that nothing is removed, nor the lock
        states.write_folder(tmp_path / "mine", *NEW)
    assert {"findings.json", "model.lock", "model.safetensors"} < set(names(tmp_path / "mine"))
    assert_holds(tmp_path / "mine", NEW, stem="model")
    states.write_folder(tmp_path / "mine", *OLD)
    assert kinds(tmp_path / "mine") == ["model-#.safetensors", "model.json"]
    states.write_folder(tmp_path / "mine", *OLD)
    assert "replaces" not in json.loads((tmp_path / "mine" / "model.json").read_text())


def test_a_reader_survives_a_replacement(tmp_path, monkeypatch):
    """The tensors vanish after the index was read: the index is read again."""
    states.write(tmp_path, *OLD)
    read, calls = states.read_limited, []

    def replaced(path, most):
        content = read(path, most)
        if path.suffix == ".json":
            calls.append(path)
        if path.suffix == ".json" and len(calls) < 3:
            states.write(tmp_path, *(NEW if len(calls) == 1 else OLD))
        return content

    monkeypatch.setattr(states, "read_limited", replaced)
    assert_holds(tmp_path, OLD)
    assert len(calls) == 3


def test_a_linked_folder_stays_a_link(tmp_path):
    states.write_folder(tmp_path / "real", *OLD)
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    states.write_folder(tmp_path / "link", *NEW)
    assert (tmp_path / "link").is_symlink()
    assert_holds(tmp_path / "real", NEW, stem="model")


@pytest.mark.parametrize("foreign", ["thesis.tex", "model.json.bak", "model-best.safetensors", "notes.txt", ".hidden"])
@pytest.mark.parametrize("ours", [True, False])
def test_what_others_wrote_is_not_replaced(foreign, ours, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    if ours:
        states.write_folder(folder, *OLD)
    (folder / foreign).write_bytes(b"precious")
    before = listing(tmp_path)
    with pytest.raises(
        ValueError,
        match=rf"mine holds '{foreign}', which is not part of a saved model; choose a new or an empty folder",
    ):
        states.write_folder(folder, *NEW)
    assert listing(tmp_path) == before


def test_a_folder_within_or_a_file_instead(tmp_path):
    states.write_folder(tmp_path / "mine", *OLD)
    (tmp_path / "mine" / "model-0123456789abcdef.safetensors").mkdir()
    before = listing(tmp_path)
    with pytest.raises(ValueError, match="which is not part of a saved model"):
        states.write_folder(tmp_path / "mine", *NEW)
    with pytest.raises(ValueError, match="is a file; choose another name"):
        states.write_folder(tmp_path / "mine" / "model.json", *NEW)
    with pytest.raises(OSError, match="Not a directory"):
        states.write_folder(tmp_path / "mine" / "model.json" / "below", *NEW)
    assert listing(tmp_path) == before


def test_a_damaged_folder_can_be_replaced(tmp_path):
    for content in (b"", b'{"more": 3}', b'{"more": [["notes.txt"]]}', b"[" * 10**5):
        states.write_folder(tmp_path / "mine", *OLD)
        (tmp_path / "mine" / "model.json").write_bytes(content)
        states.write_folder(tmp_path / "mine", *NEW)
        assert_holds(tmp_path / "mine", NEW, stem="model")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "safetensors", "model.json", 3])
def test_further_files_have_plain_names(name, tmp_path):
    with pytest.raises(ValueError, match=r"a name in more is|more contains '(safetensors|model.json)'"):
        states.write_folder(tmp_path / "mine", *OLD, more={name: b""})
    assert names(tmp_path) == []


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    ("name", "call"),
    [("mkdir", 1), *(("replace", call) for call in (1, 2, 3)), *(("fsync", call) for call in range(1, 6))],
)
def test_an_error_leaves_the_old_folder_or_none(name, call, there, tmp_path, monkeypatch):
    """And no other trace; the sixth fsync comes when the new index is in place."""
    folder = tmp_path / "new" / "mine"
    if there:
        states.write_folder(folder, *OLD, more={"notes.txt": b"old"})
        if name == "mkdir":
            return  # none is made
    before = listing(tmp_path)
    with monkeypatch.context() as patch:
        crash_at(patch, name, call)
        with pytest.raises(Crash):
            states.write_folder(folder, *NEW, more={"notes.txt": b"new"})
    assert listing(tmp_path) == before
    states.write_folder(folder, *NEW)
    assert_holds(folder, NEW, stem="model")


def test_an_error_after_the_new_index_is_in_place(tmp_path, monkeypatch):
    states.write_folder(tmp_path / "mine", *OLD)
    with monkeypatch.context() as patch:
        crash_at(patch, "fsync", 4)
        with pytest.raises(Crash):
            states.write_folder(tmp_path / "mine", *NEW)
    assert_holds(tmp_path / "mine", NEW, stem="model")
    states.write_folder(tmp_path / "mine", *NEW)
    assert kinds(tmp_path / "mine") == ["model-#.safetensors", "model.json"]


def test_nothing_is_written_of_what_cannot_be(tmp_path):
    for tensors, facts in ((OLD[0], {"a": {1}}), ({"a": 3}, {}), (OLD[0], {"a": float("nan")})):
        with pytest.raises(ValueError, match=r"JSON|dense"):
            states.write_folder(tmp_path / "new" / "mine", tensors, facts)
    assert names(tmp_path) == []


def forge(folder, header, body=b"", length=None):
    """Put a safetensors file with this header in place of the right one, with its sha256."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = (len(text) if length is None else length).to_bytes(8, "little") + text + body
    tensor_file(folder).write_bytes(data)
    edit_index(folder, **named(tensor_file(folder).name, hashlib.sha256(data).hexdigest()))


@pytest.mark.parametrize(
    ("header", "body", "length"),
    [
        ({"q": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}, b"abcd", None),
        ({"q": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"abcd", None),
        ({"q": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"abcd", None),
        ({"q": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}}, b"", None),
        ({"q": {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}, b"", None),
        ({"q": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}}, b"abcd", None),
        ({"q": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"abcd", None),
        ({}, b"", 10**12),
        ({}, b"", 2**64 - 1),
        (b"[" * 10**5, b"", None),
    ],
)
def test_forged_tensors(header, body, length, tmp_path):
    """With the right sha256: one line, and no memory for what the header claims."""
    states.write(tmp_path, *OLD)
    forge(tmp_path, header, body, length)
    with pytest.raises(ValueError, match="is not a safetensors file that torch can read") as caught:
        states.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_facts_nested_without_end(tmp_path):
    facts = {}
    facts["again"] = facts
    deep = []
    for _ in range(10**5):
        deep = [deep]
    for wrong in (facts, {"deep": deep}):
        with pytest.raises(ValueError, match="facts cannot be written as JSON"):
            states.write(tmp_path, {}, wrong)
    assert names(tmp_path) == []
