"""traceml-ai in an environment of its own, with the torch of this one."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from environment import python_of

PEER = "traceml-ai==0.5.0"


def traceml_env():
    """Make it once; gives its directory of programs.

    Raises:
        OSError: It can't be made.
        subprocess.SubprocessError: Likewise.
    """
    programs = python_of(PEER).parent
    (site,) = programs.parent.glob("lib/python*/site-packages")
    (site / "torch-from.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")  # not installed a second time
    return programs
