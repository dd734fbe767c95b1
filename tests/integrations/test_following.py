"""How trainers come to be followed."""

import subprocess
import sys

import pytest
from tests.support.processes import clean_environ

START = """
import sys
from stepmeter.runtime.entry import pre_instrument
pre_instrument()
from stepmeter import integrations
print(*integrations._hooked)
print(*sys.modules)
"""


def started(**environ):
    done = subprocess.run(
        [sys.executable, "-c", START], env=clean_environ(**environ), capture_output=True, text=True, check=True
    )
    hooked, modules = done.stdout.splitlines()
    return set(hooked.split()), set(modules.split())


def test_following_imports_no_trainer():
    """Trainers are waited for; none, nor torch, is imported before the program does so."""
    hooked, modules = started()

    assert {"transformers.trainer", "accelerate.data_loader"} <= hooked
    assert not {"transformers", "accelerate", "torch"} & modules


@pytest.mark.parametrize("switch", ["STEPMETER_DISABLED", "OTEL_SDK_DISABLED"])
def test_switched_off_nothing_is_followed(switch):
    """Switched off, no trainer is waited for."""
    assert started(**{switch: "true"})[0] == set()
