"""Steps and gaps by the clock, each step measured by Zeus; prints where they really were and what Zeus says."""

import json
import sys
import time

from zeus.monitor import ZeusMonitor


def until(at_ns):
    """Sleep, then spin the last 200 us, so that steps begin and end where the script has them."""
    rest_s = (at_ns - time.monotonic_ns()) / 1e9 - 2e-4
    if rest_s > 0:
        time.sleep(rest_s)
    while time.monotonic_ns() < at_ns:
        pass


def main():
    monitor = ZeusMonitor(gpu_indices=[0])
    print("ready", flush=True)
    planned = json.loads(sys.stdin.readline())
    found = []
    for start_ns, end_ns in planned:
        until(start_ns)
        begun_ns = time.monotonic_ns()
        monitor.begin_window("step", sync_execution=False)
        until(end_ns)
        joules = monitor.end_window("step", sync_execution=False).gpu_energy[0]
        found.append((begun_ns, time.monotonic_ns(), joules))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
