"""traceml-ai in an environment of its own, with the torch of this one."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

PEER = "traceml-ai==0.5.0"


def traceml_env():
    """Make it once; gives its directory of programs.

    Raises:
        OSError: It can't be made.
        subprocess.SubprocessError: Likewise.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stepmeter-bench" / PEER
    if not (home / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, capture_output=True)
        pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER]
        subprocess.run(pip, check=True, capture_output=True, text=True, timeout=300)
        (home / ".ready").touch()
    (site,) = home.glob("lib/python*/site-packages")
    (site / "torch-from.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")  # not installed a second time
    return home / "bin"
