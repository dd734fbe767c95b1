"""What kind of process this is, and whether stepmeter has anything to do in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepmeter.conventions import environment

_HELPER_MARKS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "torch/_inductor/compile_worker",
    "torch._inductor.compile_worker",
)


def is_switched_off(environ: Mapping[str, str]) -> bool:
    """Whether the user wants no telemetry.

    Args:
        environ: The environment.

    Returns:
        True under STEPMETER_DISABLED or OTEL_SDK_DISABLED.
    """
    return environment.is_true(environ, environment.DISABLED) or environment.is_true(environ, "OTEL_SDK_DISABLED")


def is_helper(arguments: Sequence[str]) -> bool:
    """Whether a process only helps another one and will never train.

    Args:
        arguments: The interpreter's own command line, `sys.orig_argv`.

    Returns:
        True for multiprocessing's resource tracker and fork server, for pip and for torch's compile workers.
    """
    if list(arguments[1:3]) == ["-m", "pip"]:
        return True
    return any(mark in argument for argument in arguments[1:] for mark in _HELPER_MARKS)
