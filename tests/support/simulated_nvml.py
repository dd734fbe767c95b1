"""Builds the simulated NVML and runs Python under it."""

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).parent / "nvml" / "simnvml.c"


@functools.cache
def library_directory() -> str:
    """Compile the library once a test session and return its folder, for LD_LIBRARY_PATH."""
    directory = tempfile.mkdtemp(prefix="simnvml-")
    library = f"{directory}/libnvidia-ml.so.1"
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, str(_SOURCE)], check=True)
    return directory


def python_under_nvml(code: str, gpus: str, **environ: str) -> str:
    """Run `code` in a fresh interpreter that finds these GPUs, and return what it prints."""
    environment = {**os.environ, "LD_LIBRARY_PATH": library_directory(), "SIMNVML_GPUS": gpus, **environ}
    environment = {
        name: value for name, value in environment.items() if name != "CUDA_VISIBLE_DEVICES" or name in environ
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()
