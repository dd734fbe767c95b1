"""pandas is kept out: nothing here needs it, but pyarrow and DuckDB load it where it is installed, for 0.5 s."""

from __future__ import annotations

import sys
import threading
from functools import cache


def do_without_pandas() -> None:
    """Have this process find that there is no pandas; for a program that is ours alone."""
    sys.meta_path.insert(0, _HiddenPandas())


@cache
def settle_pandas() -> None:
    """Have pyarrow find that there is no pandas, once: on its first array it would load it.

    It looks again when a program asks it for a data frame, so that nothing is lost by it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    hidden = _HiddenPandas(threading.get_ident())
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(hidden)


class _HiddenPandas:
    """Hides pandas, from one thread or from all; in a program of others another thread may be loading it."""

    __slots__ = ("_thread",)

    def __init__(self, thread: int | None = None) -> None:
        self._thread = thread

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas" and self._thread in {None, threading.get_ident()}:
            raise ModuleNotFoundError("stepmeter does without pandas", name=name)
