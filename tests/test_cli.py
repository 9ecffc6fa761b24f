import dataclasses
import re

import pytest

from candidly import cli
from candidly.methods import METHODS
from candidly.recipe import RECIPES


def test_methods_lists_every_method(capsys):
    cli.main(["methods"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(METHODS)
    assert all(len(line.split()) > 2 for line in lines)


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["dmeo"])
    assert stop.value.code != 0
    assert "demo" in capsys.readouterr().err


def test_demo_reports_all_four_combinations(capsys, monkeypatch):
    short = dataclasses.replace(RECIPES["quick"], epochs=13)  # past the warm-ups of cleaner and CroSel
    monkeypatch.setitem(RECIPES, "quick", short)
    cli.main(["demo", "--seeds", "2", "--device", "cpu"])
    out = capsys.readouterr().out
    assert "quick" in out
    rows = re.findall(r"^(\S+) +([\d.]+) ± ([\d.]+) +([\d.]+)% +([\d.]+)% +[\d.]+$", out, re.MULTILINE)
    assert [row[0] for row in rows] == ["PRODEN", "Conf+PRODEN", "CroSel", "Conf+CroSel"]
    accuracy, kept, removed = ({row[0]: float(row[i]) for row in rows} for i in (1, 3, 4))
    assert min(accuracy.values()) > 60  # chance is 10
    assert (kept["PRODEN"], removed["PRODEN"]) == (100, 0)
    assert 70 < kept["Conf+PRODEN"] < 100
    assert removed["Conf+PRODEN"] > 30
