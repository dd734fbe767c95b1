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


_LAUNCHERS = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"})


def is_launcher(arguments: Sequence[str]) -> bool:
    """Whether a process only starts the ranks that train.

    Args:
        arguments: The interpreter's own command line, `sys.orig_argv`.

    Returns:
        True for torchrun, `accelerate launch` and deepspeed, called by name or with `-m`.
    """
    words = [word for word in arguments[1:] if word == "-m" or not word.startswith("-")]
    first = words[1] if words[:1] == ["-m"] and len(words) > 1 else next(iter(words), "")
    return first.rsplit("/", 1)[-1] in _LAUNCHERS


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
