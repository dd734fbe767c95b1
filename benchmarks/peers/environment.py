"""A peer at a pinned version in an environment of its own, made once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def python_of(requirement):
    """The Python that has a requirement.

    Raises:
        subprocess.SubprocessError: It can't be installed.
        OSError: Likewise.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stepmeter-bench" / requirement
    if not (home / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, capture_output=True)
        pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        subprocess.run(pip, check=True, capture_output=True, text=True, timeout=300)
        (home / ".ready").touch()
    return home / "bin" / "python"
