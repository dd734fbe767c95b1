"""What can go wrong outside the training process, as one tree.

    StepmeterError            exit code 1
    ├── UsageError            2  the command line or the configuration is wrong
    │   └── ConfigError       2  a configuration file is wrong, with its file and line
    ├── RunNotFoundError      3  no such run
    ├── StoreError            4  the data are there and can't be read
    │   └── StoreVersionError 4  the store was written by a newer stepmeter
    └── CheckFailedError      5  a check ran and failed

Each message says what was found, what was expected and what to do, on one line. In the training process none
of these is ever raised after configuration; `telemetry.guard` holds that line.
"""

from __future__ import annotations

from typing import ClassVar


class StepmeterError(Exception):
    """Base of every error that a command turns into one line and an exit code."""

    exit_code: ClassVar[int] = 1


class UsageError(StepmeterError):
    """The command line or an argument is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file is wrong; the message begins with `file:line:`."""


class RunNotFoundError(StepmeterError):
    """The named run does not exist."""

    exit_code = 3


class StoreError(StepmeterError):
    """A run exists and its data can't be read."""

    exit_code = 4


class StoreVersionError(StoreError):
    """The store was written by a newer stepmeter than this one."""


class CheckFailedError(StepmeterError):
    """A check was made and did not pass."""

    exit_code = 5
