"""Parse a command line: options come from a command's signature, their help from its docstring."""

import argparse
import inspect
import math
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

from candidly.messages import did_you_mean, listed_names

Command = Callable[..., int | None]

_WHOLE = re.compile(r"[+-]?[0-9]{1,400}")
_OPTION = re.compile(r"--[A-Za-z][\w-]*(?==|$)")
_METAVARS = {str: "TEXT", int: "INT", float: "FLOAT", Path: "PATH"}


class UsageError(ValueError):
    """A command line that cannot be parsed."""


@dataclass(frozen=True)
class Named:
    """How the help shows a value, and whether it is given by position instead of by name."""

    metavar: str
    positional: bool = False


@dataclass(frozen=True)
class _Argument:
    """One parameter of a command: its name, the type of its value, and its help."""

    name: str
    kind: Any
    choices: tuple[str, ...]
    many: bool
    required: bool
    default: Any
    shown: Named | None
    help: str

    @property
    def positional(self) -> bool:
        """Whether the value is given by position."""
        return self.shown is not None and self.shown.positional

    @property
    def metavar(self) -> str:
        """How the help shows the value."""
        return self.shown.metavar if self.shown is not None else _METAVARS.get(self.kind, "TEXT")

    @property
    def flag(self) -> str:
        """The name as typed."""
        return self.metavar if self.positional else f"--{self.name.replace('_', '-')}"

    @property
    def usage(self) -> str:
        """The argument in the line on usage."""
        value = self.metavar + " ..." * self.many
        text = value if self.positional else f"{self.flag} {value}"
        return text if self.required else f"[{text}]"

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Let a parser accept the argument."""
        metavar = self.metavar
        text = self.help + (" (required)" if self.required else "")
        if self.shown is None and not self.required:
            text = f"{text} (default: {self.default})"
        text = text.replace("%", "%%")
        if self.positional:
            parser.add_argument(self.name, metavar=metavar, nargs="*" if self.many else "?", help=text)
        elif self.kind is bool:
            parser.add_argument(self.flag, dest=self.name, action="store_true", help=self.help)
        else:
            action = "append" if self.many else "store"
            parser.add_argument(self.flag, dest=self.name, metavar=metavar, action=action, help=text)

    def read(self, value: Any) -> Any:
        """Convert what the parser found: texts, truth values, or None."""
        if value is None:
            return self.default
        if self.many:
            return tuple(map(self._convert, value))
        return value if self.kind is bool else self._convert(value)

    def _convert(self, text: str) -> Any:
        if self.choices and text not in self.choices:
            hint = did_you_mean(text, self.choices)
            raise UsageError(f"{self.flag} is {text!r}{hint}; use one of {', '.join(self.choices)}")
        if self.kind is int:
            if not _WHOLE.fullmatch(text):
                raise UsageError(f"{self.flag} is {text!r}; give an integer")
            return int(text)
        if self.kind is float:
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise UsageError(f"{self.flag} is {text!r}; give a number")
            return number
        if self.kind is Path and text == "":
            raise UsageError(f"{self.flag} is empty; name a file or a folder")
        return Path(text) if self.kind is Path else text


class Parser:
    """The arguments of one command.

    Examples
    --------
    >>> from typing import Annotated
    >>> def greet(name: Annotated[str, Named("NAME", positional=True)], *, times: int = 1) -> None:
    ...     '''Greet somebody.
    ...
    ...     Args:
    ...         name: Who to greet.
    ...         times: How often.
    ...     '''
    ...     print(" ".join([f"Hello {name}!"] * times))
    >>> Parser("greet", greet).parse(["Ada", "--times", "2"])()
    Hello Ada! Hello Ada!
    >>> Parser("greet", greet).parse(["Ada", "--tims", "2"])
    Traceback (most recent call last):
        ...
    candidly.cli.parsing.UsageError: greet has no option '--tims' (did you mean '--times'?)
    """

    def __init__(self, name: str, command: Command) -> None:
        self.name, self.command = name, command
        self.arguments = _arguments(command)
        description, _ = _describe(command)
        shown = [argument.usage for argument in self.arguments if argument.required or argument.positional]
        self.inner = _Inner(
            prog=f"candidly {name}",
            usage=" ".join(["%(prog)s", *shown, "[options]"]),
            description=description,
            allow_abbrev=False,
            formatter_class=_Paragraphs,
        )
        for argument in self.arguments:
            argument.add_to(self.inner)

    @property
    def help(self) -> str:
        """The help on the command."""
        return self.inner.format_help().strip()

    @property
    def options(self) -> dict[str, str]:
        """The options as typed, by the names of the command's parameters."""
        return {argument.name: argument.flag for argument in self.arguments}

    def parse(self, arguments: Sequence[str]) -> Callable[[], int | None]:
        """Return the call of the command with these arguments; raise `UsageError` if they are wrong."""
        self._check_options(arguments)
        found, rest = self.inner.parse_known_intermixed_args(arguments)
        if rest:
            raise UsageError(f"{self.name} does not take {listed_names(rest)}")
        missing = [one.flag for one in self.arguments if one.required and getattr(found, one.name) in (None, [])]
        if missing:
            raise UsageError(f"{self.name} needs {' and '.join(missing)}")
        values = {argument.name: argument.read(getattr(found, argument.name)) for argument in self.arguments}
        call: Callable[[], int | None] = lambda: _call(self.command, values)  # noqa: E731
        return call

    def _check_options(self, arguments: Sequence[str]) -> None:
        """Raise for an unknown option, before anything that its misspelt name leaves missing is reported."""
        known = [*(argument.flag for argument in self.arguments if not argument.positional), "--help"]
        for text in before_dashes(arguments):
            option = _OPTION.match(text)
            if option and option[0] not in known:
                raise UsageError(f"{self.name} has no option {option[0]!r}{did_you_mean(option[0], known)}")


class _Inner(argparse.ArgumentParser):
    """A parser that raises its errors."""

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of printing it with the usage."""
        raise UsageError(message.removeprefix("argument "))


class _Paragraphs(argparse.HelpFormatter):
    """Help whose description may have several paragraphs."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = (textwrap.fill(part, width, initial_indent=indent, subsequent_indent=indent) for part in _split(text))
        return "\n\n".join(filled)


def before_dashes(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments before ``--``, which ends the options."""
    return arguments[: list(arguments).index("--")] if "--" in arguments else arguments


def find(commands: Mapping[str, Command], name: str) -> Parser:
    """Return the parser of a command; raise `UsageError` if there is none of this name."""
    if name not in commands:
        what = "option" if name.startswith("-") else "command"
        known = [*commands, "--help", "--version"]
        raise UsageError(f"there is no {what} {name!r}{did_you_mean(name, known)}")
    return Parser(name, commands[name])


def overview(commands: Mapping[str, Command], title: str) -> str:
    """Return the help on all commands."""
    width = max(map(len, commands)) + 4
    lines = ["usage: candidly COMMAND ...", "", title, "", "commands:"]
    for name, command in commands.items():
        text = _split(_describe(command)[0])[0]
        first = f"  {name:{width - 2}}"
        lines += textwrap.wrap(text, 80, initial_indent=first, subsequent_indent=" " * width) or [first.rstrip()]
    options = {"-h, --help": "Show this help.", "--version": "Print the version only."}
    lines += ["", "options:", *(f"  {name:{width}}{text}" for name, text in options.items())]
    return "\n".join([*lines, "", "candidly COMMAND --help explains the options of a command."])


def _call(target: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a command, or make a group of options, with the values of its parameters."""
    hints = typing.get_type_hints(target, include_extras=True)
    given = {
        name: _call(hints[name], values) if is_dataclass(hints[name]) else values[name]
        for name in inspect.signature(target).parameters
    }
    return target(**given)


def _arguments(target: Callable[..., Any]) -> list[_Argument]:
    """Return the arguments of a command or of a group of options; those of groups in it included."""
    hints, (_, helps) = typing.get_type_hints(target, include_extras=True), _describe(target)
    found: list[_Argument] = []
    for name, parameter in inspect.signature(target).parameters.items():
        hint = hints[name]
        if is_dataclass(hint):
            found += _arguments(typing.cast("Callable[..., Any]", hint))
            continue
        shown = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Named)), None)
        kind = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
        if typing.get_origin(kind) in (types.UnionType, typing.Union):
            kind = next(one for one in typing.get_args(kind) if one is not types.NoneType)
        choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
        many = typing.get_origin(kind) is tuple
        kind = typing.get_args(kind)[0] if many else str if choices else kind
        required = parameter.default is inspect.Parameter.empty
        default = None if required else parameter.default
        help = helps.get(name, "")  # python -OO removes docstrings
        found.append(_Argument(name, kind, choices, many, required, default, shown, help))
    return found


def _describe(target: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return a docstring's text without its section of arguments, and the help on each argument.

    Both are empty if Python removed docstrings, as ``PYTHONOPTIMIZE=2`` does.
    """
    text, _, section = inspect.cleandoc(target.__doc__ or "").partition("\nArgs:\n")
    parts = re.split(r"^    (\w+): ", section, flags=re.MULTILINE)
    return text.strip(), {name: " ".join(help.split()) for name, help in zip(parts[1::2], parts[2::2], strict=True)}


def _split(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("\n\n")]
