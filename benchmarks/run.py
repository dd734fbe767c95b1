"""`make bench`: every benchmark in a process of its own, one table, and `benchmarks/results.json`.

Each script prints rows with `--json`: what was measured, the figure, the target, and whether it is met. Figures are
ratios within one run wherever a peer or a limit can run beside it; what could not run says why.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
MARKS = {True: "ok ", False: "NOT", None: "-- "}


def scripts(chosen):
    """The benchmark scripts, all or those named."""
    found = sorted(path for path in HERE.glob("*.py") if path.name != Path(__file__).name)
    return [path for path in found if not chosen or path.stem in chosen]


def rows_of(script):
    """Run one script.

    Returns:
        Its rows, or one row that says how it failed.
    """
    done = subprocess.run([sys.executable, str(script), "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return [{"what": script.stem, "measured": f"failed: {last}", "target": "", "met": False}]
    return json.loads(done.stdout)


def main():
    """Run the benchmarks and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help="names of scripts, such as capture; default all")
    chosen = parser.parse_args().only
    results = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "benchmarks": {},
    }
    for script in scripts(chosen):
        print(f"{script.stem} ...", file=sys.stderr, flush=True)
        rows = results["benchmarks"][script.stem] = rows_of(script)
        for row in rows:
            mark = MARKS[row.get("met")]
            print(f"{mark} {row['what']:<58} {row['measured']!s:<60} {row.get('target', '')}", flush=True)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
