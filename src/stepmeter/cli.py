"""The command line: an argument parser over `commands`; an error becomes one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import stepmeter
from stepmeter.errors import StepmeterError, UsageError
from stepmeter.store.pandas import do_without_pandas

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (
    *("run", "collect", "summary", "watch", "compare", "energy", "sample", "diagnoses", "sql", "ingest"),
    *("alerts", "trace"),
    *("seal", "relink", "runs", "prune", "doctor", "schema"),
)
"""The subcommands, in the order of the help; each is a module of `stepmeter.commands` with `SUMMARY`, `EXAMPLE`,
`configure(parser)` and `execute(args) -> exit code`."""


def program() -> NoReturn:
    """Run the process's command and end the process."""
    do_without_pandas()
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The arguments without the program's name; those of the process when None.

    Returns:
        The exit code: 0 for success, else that of the error.
    """
    try:
        words = sys.argv[1:] if argv is None else list(argv)
        arguments = _parser(words).parse_args(words)
        code: int = arguments.execute(arguments)
        sys.stdout.flush()
    except StepmeterError as error:
        print(f"stepmeter: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _drop_output()
        return 0
    except OSError as error:  # a full disk, no permission: nothing that a traceback would explain
        _drop_output()
        print(f"stepmeter: {error}", file=sys.stderr)
        return StepmeterError.exit_code
    except KeyboardInterrupt:
        return 130
    return code


def _drop_output() -> None:
    """Nobody takes the rest; without this Python would try once more at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are ours: one line that says what to do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of one command where it is named first, so that no command waits for the imports of the others."""
    if words[:1] and not words[0].startswith("-") and words[0] not in COMMANDS:
        raise UsageError(_unknown(words[0]))
    parser = _Parser(prog="stepmeter", description=stepmeter.__doc__)
    parser.add_argument("--version", action="version", version=f"stepmeter {stepmeter.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in words[:1] if words[:1] and words[0] in COMMANDS else COMMANDS:
        module = importlib.import_module(f"stepmeter.commands.{name}")
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.SUMMARY,
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(command)
        command.set_defaults(execute=module.execute)
    return parser


def _unknown(word: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, COMMANDS, n=2)
    if close:
        meant = f"did you mean {' or '.join(close)}?"
    elif word.endswith(".py"):
        meant = f"to run a program: `stepmeter run {word}`"
    else:
        meant = "`stepmeter --help` lists the commands"
    return f'no command "{word}"; {meant}'


if __name__ == "__main__":
    program()
