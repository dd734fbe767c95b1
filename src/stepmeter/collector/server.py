"""One collector: receivers, processor and their orderly end."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepmeter.collector import interpreter
from stepmeter.collector.config import CollectorConfig, join_address
from stepmeter.collector.decode import UNASSIGNED, RunKey
from stepmeter.collector.health import LOGGER, Health
from stepmeter.collector.otlp import SIGNALS
from stepmeter.collector.receiver_grpc import GrpcReceiver
from stepmeter.collector.receiver_http import HttpReceiver
from stepmeter.errors import StoreVersionError, UsageError
from stepmeter.store.segments import claim_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from stepmeter.collector.duckdb_processor import DuckdbProcessor
    from stepmeter.collector.forward import Forwarder

_SETTLED_S: Final = 3.0
"""When all that a collector imports is there."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Where a collector that has started can be reached.

    Attributes:
        grpc: `host:port` of OTLP over gRPC, or None.
        http: `host:port` of OTLP over HTTP, or None.
        directory: Where runs live.
        run_dir: Directory of the run it was started for, or None.
    """

    grpc: str | None
    http: str | None
    directory: Path
    run_dir: Path | None

    def __str__(self) -> str:
        where = ", ".join(f"{name} {at}" for name, at in (("gRPC", self.grpc), ("HTTP", self.http)) if at)
        return f"{where}; runs in {self.directory}"


class Collector:
    """A collector in this process.

    Its addresses are bound before anything else is loaded: who is told of them may connect, and is served once it has
    started.

    Args:
        config: What it does.
        run: The run that takes telemetry which names none; its directory is made at once. None for `unassigned`.
        on_bound: Called as soon as its addresses are bound.

    Raises:
        StepmeterError: An address is taken or the directory can't be written.
    """

    def __init__(
        self, config: CollectorConfig, run: RunKey | None = None, on_bound: Callable[[Ready], None] | None = None
    ) -> None:
        self.health = Health()
        self._processor: DuckdbProcessor | None = None
        self._forwarder: Forwarder | None = None
        self._grpc: GrpcReceiver | None = None
        self._http: HttpReceiver | None = None
        try:
            config.directory.mkdir(parents=True, exist_ok=True)
            run_dir = claim_run(config.directory, run.run_id, run.run_name) if run else None
            self.ready = self._bind(config, run_dir)
            if on_bound:
                on_bound(self.ready)
            self._open(config, run or RunKey(UNASSIGNED))
        except StoreVersionError as error:
            self.close()
            raise UsageError(str(error)) from error
        except OSError as error:
            self.close()
            problem = error.strerror or str(error)
            raise UsageError(f"can't write to {config.directory}: {problem}; choose another with --dir") from error
        except BaseException:
            self.close()
            raise

    def _bind(self, config: CollectorConfig, run_dir: Path | None) -> Ready:
        if config.grpc:
            self._grpc = GrpcReceiver(config.grpc)
        if config.http:
            self._http = HttpReceiver(config.http)
        return Ready(
            grpc=join_address(config.grpc.host, self._grpc.port) if config.grpc and self._grpc else None,
            http=join_address(config.http.host, self._http.port) if config.http and self._http else None,
            directory=config.directory,
            run_dir=run_dir,
        )

    def _open(self, config: CollectorConfig, run: RunKey) -> None:
        from stepmeter.collector.duckdb_processor import DuckdbProcessor
        from stepmeter.collector.forward import Forwarder

        self._forwarder = Forwarder(config.destinations, self.health)
        on_durable = self._forwarder.offer if config.destinations else None
        rules = (config.alert_rules, config.alert_webhook)
        self._processor = DuckdbProcessor(
            config.directory, run, self.health, config.flush_interval_s, on_durable, rules=rules
        )
        self._signals = [known for known in SIGNALS if known.name in config.signals]

    def start(self) -> None:
        """Begin to receive."""
        assert self._processor is not None  # noqa: S101 - for the type checker: a collector that was made has one
        if self._grpc:
            self._grpc.start(self._signals, self._processor, self.health)
        if self._http:
            self._http.start(self._signals, self._processor, self.health)

    def close(self) -> None:
        """Stop receiving, and write everything that was acknowledged into segments."""
        grpc_stopped = self._grpc.stop() if self._grpc else None
        if self._http:
            self._http.stop()
        if grpc_stopped:
            grpc_stopped.wait()
        if self._processor:
            self._processor.close()
        if self._forwarder:
            self._forwarder.close()


def serve(
    config: CollectorConfig,
    run: RunKey | None = None,
    on_bound: Callable[[Ready], None] | None = None,
    *,
    until_stdin_closes: bool,
) -> None:
    """Receive until SIGTERM, SIGINT or, if wished, the end of standard input; then drain.

    Args:
        config: What the collector does.
        run: The run that takes telemetry which names none.
        on_bound: Called as soon as its addresses are bound.
        until_stdin_closes: Whether the end of standard input ends it.

    Raises:
        StepmeterError: It can't start.
    """
    interpreter.begin()
    end = _End()  # first: who has been told of the addresses may end it at any moment
    collector = Collector(config, run, on_bound)
    collector.start()
    LOGGER.info("receiving on %s", collector.ready)
    if until_stdin_closes:
        threading.Thread(target=end.at_end_of_stdin, name="stepmeter-stdin", daemon=True).start()
    end.within(_SETTLED_S)
    interpreter.settle()
    LOGGER.info("%s: draining", end.wait())
    collector.close()


class _End:
    """The wish that the collector should end, and where it came from."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._reason = ""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._at_signal)

    def within(self, timeout_s: float) -> bool:
        return self._event.wait(timeout_s)

    def wait(self) -> str:
        self._event.wait()
        return self._reason

    def at_end_of_stdin(self) -> None:
        # the descriptor itself: a thread that waits inside sys.stdin holds its lock, and the interpreter can't end
        while os.read(0, 4096):
            pass
        self._wish("end of standard input")

    def _at_signal(self, number: int, _frame: FrameType | None) -> None:
        self._wish(signal.Signals(number).name)

    def _wish(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._event.set()
