"""The ways a command can end badly, each with its exit code (0 is success, 130 an interrupt)."""

from __future__ import annotations


class MonaError(Exception):
    """One sentence for the user: what was expected, what was found, what to do."""

    exit_code = 2


class InputError(MonaError):
    """A file, folder or option that cannot be used as it is."""


class CheckFailed(MonaError):
    """The command ran, but a check failed."""

    exit_code = 1


class MissingPart(MonaError):
    """An optional package is not installed; the message gives the command that installs it."""

    exit_code = 3
