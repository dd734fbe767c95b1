"""Tests of a disk that is really full, and of a wall clock that jumps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from itertools import count

import pytest
from tests.support.otlp import collector_process, post, step_span, traces, wait_until
from tests.support.processes import BIN, TINY, clean_environ

from stepmeter.collector import folder
from stepmeter.collector.decode import RunKey
from stepmeter.collector.duckdb_processor import DuckdbProcessor
from stepmeter.collector.health import Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import TRACES, Encoding
from stepmeter.store.find import find_run
from stepmeter.store.reader import open_run
from stepmeter.store.segments import create_run

RUN = RunKey("run-1", "demo")


@contextmanager
def small_disk(directory, size_mib):
    """A file system in memory that holds so much and no more."""
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", directory], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def fill(disk):
    """Take all the room that is left; gives back the file that takes it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


def readiness(address):
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=10) as answer:
            return json.load(answer)["status"]
    except urllib.error.HTTPError as error:
        with error:
            return json.load(error)["status"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount")
def test_a_disk_that_is_full_costs_nothing_that_was_acknowledged(tmp_path):
    """On a full disk senders get 503 and a training goes on; with room again the same process takes all."""
    acknowledged, steps = set(), count(1)

    def send(running):
        step = next(steps)
        answer = post(running.http, traces(step_span(step, padding="x" * 20_000)).SerializeToString())
        if answer.status == 200:
            acknowledged.add(step)
        return answer

    with small_disk(tmp_path / "disk", 16) as disk, collector_process(disk, "--run", "run-1") as running:
        wait_until((disk / "run-1" / "run.duckdb").exists)
        assert send(running).status == 200
        ballast = fill(disk)
        deadline = time.monotonic() + 60
        while (refused := send(running)).status == 200:
            assert time.monotonic() < deadline
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) >= 1
        training = subprocess.run(
            [BIN / "opentelemetry-instrument", sys.executable, TINY, "--steps", "20"],
            env=clean_environ(
                OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{running.http}", OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf"
            ),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert training.returncode == 0
        assert "step 20 " in training.stdout
        ballast.unlink()
        wait_until(lambda: send(running).status == 200)
        wait_until(lambda: readiness(running.http) == "ok")
        for _ in range(20):
            assert send(running).status == 200
        assert running.stop()[0] == 0
        with open_run(find_run("run-1", disk)) as reader:
            found = reader.snapshot().rows("SELECT step FROM raw.steps WHERE attributes LIKE '%padding%' ORDER BY step")
            reader.snapshot().rows("SELECT count(*) FROM raw.steps")
    assert [step for (step,) in found] == sorted(acknowledged)


def test_a_run_that_a_full_disk_cut_short_is_made_whole(tmp_path):
    """A run's directory that could not be finished is finished by the next request that finds room."""
    with small_disk(tmp_path / "disk", 2) as disk:
        ballast = fill(disk)
        with pytest.raises(OSError, match="No space left"):
            create_run(disk, "run-1", "demo")
        ballast.unlink()
        assert create_run(disk, "run-1", "demo") == disk / "demo"
        assert [path.name for path in disk.iterdir() if path.name.startswith(".new")] == []
        with open_run(disk / "demo") as reader:
            assert reader.snapshot().rows("SELECT count(*) FROM steps") == [(0,)]


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0, -3600.0 * 24 * 365 * 20], ids=["back", "ahead", "to_the_past"])
def test_a_clock_that_jumps_loses_and_doubles_nothing(tmp_path, monkeypatch, jump_s):
    """While the wall clock jumps to and fro, segments are written and folded, and readers see each step once."""
    monkeypatch.setattr(folder, "_INTERVAL_S", 0.05)
    offset_s, real_s, real_ns = [0.0], time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real_s() + offset_s[0])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(offset_s[0] * 1e9))
    processor = DuckdbProcessor(tmp_path, RUN, Health(), flush_interval_s=0.02)
    wait_until((tmp_path / "demo" / "run.duckdb").exists)
    with open_run(tmp_path / "demo") as reader:
        for step in range(1, 61):
            offset_s[0] = jump_s if step // 10 % 2 else 0.0
            body = traces(step_span(step)).SerializeToString()
            processor.accept(Record(TRACES, Encoding.PROTOBUF, body))
            if step % 10 == 0:  # files of this moment are of another day after the next jump
                wait_until(lambda: reader.snapshot().rows("SELECT count(*) FROM raw.steps")[0][0] >= step)  # noqa: B023
                for file in (tmp_path / "demo" / "data").rglob("*.parquet"):
                    os.utime(file, (time.time(), time.time()))
                found = reader.snapshot().rows("SELECT step FROM steps ORDER BY step")
                assert found == [(n,) for n in range(1, step + 1)]
                assert processor.accept(Record(TRACES, Encoding.PROTOBUF, body)).rejected == 0
        processor.close()
        assert reader.snapshot().rows("SELECT count(*), count(DISTINCT step) FROM raw.steps") == [(60, 60)]
    assert processor._health.counts()["requests_deduplicated"] == 6
