"""The grammar of command lines, and what is said about wrong ones."""

import inspect
import subprocess
import sys

import pytest

from candidly.cli import app as cli
from candidly.cli.parsing import Parser

FIT = ["fit", "rows.csv", "--candidates", "tags", "--out", "model"]


def refusal(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
    return err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command was given; use one of embed, fit, clean"),
        (["predcit"], "there is no command 'predcit' (did you mean 'predict'?); see `candidly --help`"),
        (["--hlep"], "there is no option '--hlep' (did you mean '--help'?)"),
        (["--version", "x"], "--version takes no arguments, but 'x' follows"),
        (["xyz"], "there is no command 'xyz'; see `candidly --help`"),
        (["fit"], "fit needs --out; see `candidly fit --help`"),
        (["table"], "table needs FOLDER"),
        ([*FIT, "--fold", "3"], "fit has no option '--fold' (did you mean '--folds'?)"),
        ([*FIT, "--fold=3"], "fit has no option '--fold' (did you mean '--folds'?)"),
        (["fit", "rows.csv", "--candiates", "tags"], "fit has no option '--candiates' (did you mean '--candidates'?)"),
        ([*FIT, "--min_votes", "3"], "fit has no option '--min_votes'"),
        ([*FIT, "more"], "fit does not take 'more'"),
        ([*FIT, "-x"], "fit does not take '-x'"),
        ([*FIT, "--folds"], "--folds: expected one argument"),
        ([*FIT, "--json=yes"], "--json: ignored explicit argument 'yes'"),
        ([*FIT, "--folds", "x"], "--folds is 'x'; give an integer; see `candidly fit --help`"),
        ([*FIT, "--folds", "2.0"], "--folds is '2.0'; give an integer"),
        ([*FIT, "--folds", "1_0"], "--folds is '1_0'; give an integer"),
        ([*FIT, "--folds", "٣"], "--folds is '٣'; give an integer"),
        ([*FIT, "--folds", "9" * 5000], "; give an integer"),
        ([*FIT, "--seed", "1e3"], "--seed is '1e3'; give an integer"),
        ([*FIT, "--seed", "None"], "--seed is 'None'; give an integer"),
        ([*FIT, "--alpha", "nan"], "--alpha is 'nan'; give a number"),
        ([*FIT, "--alpha", "inf"], "--alpha is 'inf'; give a number"),
        ([*FIT, "--alpha", "x"], "--alpha is 'x'; give a number"),
        (["table", "runs", "--style", "txt"], "--style is 'txt' (did you mean 'text'?); use one of text, markdown"),
        (["fit", "rows.csv", "--candidates", "tags", "--out", ""], "--out is empty; name a file or a folder"),
    ],
)
def test_wrong_usage(capsys, arguments, message):
    assert message in refusal(capsys, arguments)


def test_every_command_suggests_its_options(capsys):
    for name in cli._COMMANDS:
        for flag in (flag for flag in Parser(name, cli._COMMANDS[name]).options.values() if len(flag) > 5):
            if flag.startswith("--"):
                wrong = f"{flag[:-2]}{flag[-1]}{flag[-2]}x"
                assert f"{name} has no option '{wrong}' (did you mean '" in refusal(capsys, [name, wrong, "x"])


def test_every_option_has_help(capsys):
    for name, command in cli._COMMANDS.items():
        assert "Args:" not in Parser(name, command).help
        assert all(argument.help for argument in Parser(name, command).arguments), name
        assert inspect.cleandoc(command.__doc__).splitlines()[0] in " ".join(Parser(name, command).help.split())


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["rows.csv", "--candidates", "t"], ("rows.csv", "t")),
        (["--candidates", "t", "rows.csv"], ("rows.csv", "t")),
        (["--candidates=t", "--", "rows.csv"], ("rows.csv", "t")),
        (["--candidates", "None", "-"], ("-", "None")),
        (["--candidates=--x", "rows.csv"], ("rows.csv", "--x")),
    ],
)
def test_orders_and_forms(arguments, values):
    seen = []

    def command(options: "cli.training.CleaningOptions") -> None:
        """Do nothing."""
        seen.append((options.table, options.candidates))

    Parser("clean", command).parse(arguments)()
    assert seen == [values]


def test_help_does_not_import_what_is_slow():
    code = "import sys\nfrom candidly.cli import app\n"
    code += "try:\n    app.main(['fit', '--help'])\nexcept SystemExit:\n    pass\n"
    code += "print(sorted({'torch', 'numpy', 'pyarrow', 'sklearn', 'joblib'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")
