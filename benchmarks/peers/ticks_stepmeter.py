"""Follows the simulated device as `stepmeter run` does, until its input ends; prints readings and what they cost."""

import json
import sys
import time

from stepmeter.capture.channel import Channel
from stepmeter.samplers.energy import EnergySampling


def main():
    channel, faults = Channel(1_000_000), []
    sampling = EnergySampling(lambda: sys.argv[1], "bench", channel, lambda *fault: faults.append(str(fault)))
    sampling.start()
    time.sleep(2.5)  # calibrated by then
    begun_s, cpu_s, reads = time.monotonic(), sampling.cpu_time_s, sampling.reads
    print("ready", flush=True)
    sys.stdin.read()
    wall_s = time.monotonic() - begun_s
    sampling.stop()
    figures = {"cpu_share": (sampling.cpu_time_s - cpu_s) / wall_s, "reads_per_s": (sampling.reads - reads) / wall_s}
    print(json.dumps({"readings": channel.drain(), "faults": faults, **figures}), flush=True)


if __name__ == "__main__":
    main()
