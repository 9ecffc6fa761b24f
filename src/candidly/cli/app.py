"""The `candidly` program: `main`, its commands, and how errors and warnings are shown."""

import os
import re
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from candidly import __version__
from candidly.checks.machine import fault
from candidly.cli import embedding, experiments, models, parsing, review, signals, terminal, training, verification
from candidly.cli.parsing import Command, UsageError

_COMMANDS: dict[str, Command] = {
    command.__name__: command
    for command in (
        *(embedding.embed, training.fit, training.clean, training.audit),
        *(verification.verify, verification.certify),
        *(review.review, review.apply),
        *(models.predict, models.evaluate, models.report, models.export),
        *(experiments.demo, experiments.methods, experiments.datasets, experiments.bench, experiments.table),
    )
}
_HELP = {"-h", "--help"}
# Parameters of the library that are called differently on the command line.
_OPTIONS = {"max_epochs": "--epochs", "random_state": "--seed", "m": "--rows"}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program with the arguments `argv`, by default those of the process."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    with warnings.catch_warnings(), terminal.ready(), signals.handled():
        warnings.showwarning = terminal.complain
        status = _run(arguments)
    if status:
        sys.exit(status)


def _run(arguments: Sequence[str]) -> int:
    """Run a command; return the exit status. Errors are printed in one line."""
    typed: dict[str, str] = {}  # options that were given, by the names of parameters
    try:
        status = _command(arguments, typed)
        terminal.flush()
    except UsageError as error:
        status = 2
        about = f"{arguments[0]} " if arguments and arguments[0] in _COMMANDS else ""
        terminal.complain(f"{error}; see `candidly {about}--help`")
    except BrokenPipeError:  # the reader of a pipe, such as head, has closed it
        status = 1
    except KeyboardInterrupt as stopped:
        status = stopped.status if isinstance(stopped, signals.Stopped) else 130
        terminal.complain(str(stopped) or "interrupted; finished work is kept, and no file is incomplete")
    except Exception as error:
        status = 1
        explained = isinstance(error, OSError) and error.errno is None  # by the library
        terminal.complain((None if explained else fault(error)) or _explain(error, typed))
        _show_traceback()
    finally:
        terminal.discard()
    return status


def _command(arguments: Sequence[str], typed: dict[str, str]) -> int:
    """Parse and run a command, and note the options that were typed."""
    if not arguments:
        raise UsageError(f"no command was given; use one of {', '.join(_COMMANDS)}")
    name, *rest = arguments
    if name == "--version" and rest:
        raise UsageError(f"--version takes no arguments, but {rest[0]!r} follows")
    if name == "--version":
        terminal.say(f"candidly {__version__}")
        return 0
    if name in _HELP:
        terminal.say(parsing.overview(_COMMANDS, f"candidly {__version__}: learning from ambiguous labels."))
        sys.exit()
    parser = parsing.find(_COMMANDS, name)
    if not _HELP.isdisjoint(parsing.before_dashes(rest)):
        terminal.say(parser.help)
        sys.exit()
    given = {text.partition("=")[0] for text in rest}
    typed |= {parameter: option for parameter, option in (parser.options | _OPTIONS).items() if option in given}
    return parser.parse(rest)() or 0


def _explain(error: Exception, typed: Mapping[str, str]) -> str:
    """Return an error's message, which names options as they were typed; other errors than the library's are bugs."""
    if not isinstance(error, ImportError | OSError | ValueError):
        about = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return (
            f"this is a bug in candidly ({about}); please open an issue in its repository, with the traceback that "
            "this command prints if the environment variable CANDIDLY_TRACEBACK is 1"
        )
    if isinstance(error, OSError):
        try:
            Path.cwd()
        except OSError:
            return "the current folder no longer exists; change to another one"
        if error.filename is not None and error.strerror:
            return f"{os.fsdecode(error.filename)}: {error.strerror}; check the path"
    text = str(error) or type(error).__name__
    parameter = re.match(r"(\w+)(?= (?:is|has) )", text)
    return text.replace(parameter[0], typed[parameter[0]], 1) if parameter and parameter[0] in typed else text


def _show_traceback() -> None:
    if os.environ.get("CANDIDLY_TRACEBACK"):
        traceback.print_exc()
