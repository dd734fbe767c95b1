"""`stepmeter collect`: the collector alone."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from stepmeter.collector.config import CollectorConfig, Endpoint
    from stepmeter.collector.server import Ready

SUMMARY = "receive OTLP and keep it in a store that DuckDB reads"
EXAMPLE = "stepmeter collect --dir runs --grpc 127.0.0.1:4317 --http 127.0.0.1:4318"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument(
        "--config", type=Path, metavar="F", help="configuration in the OpenTelemetry Collector's grammar"
    )
    parser.add_argument(
        "--dir", type=Path, metavar="D", help="where runs live (default $STEPMETER_DIR or ./stepmeter-runs)"
    )
    parser.add_argument("--grpc", metavar="HOST:PORT", help="where OTLP over gRPC is received; port 0 is any free one")
    parser.add_argument("--http", metavar="HOST:PORT", help="where OTLP over HTTP is received; port 0 is any free one")
    parser.add_argument("--run", metavar="ID", help="id of the run that takes telemetry which names none")
    parser.add_argument("--run-name", metavar="NAME", help="name of that run, which names its directory")
    parser.add_argument(
        "--forward",
        action="append",
        default=[],
        metavar="URL",
        help="pass everything on to grpc://host:port, grpcs://, http:// or https:// too; repeatable; "
        "traces=, metrics= or logs= before it passes on that signal only",
    )
    parser.add_argument(
        "--forward-header", action="append", default=[], metavar="K=V", help="header for those; repeatable"
    )
    parser.add_argument(
        "--forward-headers-from",
        metavar="VARIABLE",
        help="take headers for those from an environment variable, k=v,k=v, so that secrets stay out of `ps`",
    )
    parser.add_argument(
        "--json", action="store_true", help="write one line of JSON to stdout when its addresses are bound"
    )
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when standard input does")


def execute(args: argparse.Namespace) -> int:
    """Run the collector until a signal ends it.

    Args:
        args: The arguments.

    Returns:
        0 once everything that was acknowledged is in the store.

    Raises:
        StepmeterError: It can't start.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it has its own words for a port that is taken, and so have we
    from stepmeter.collector.decode import RunKey
    from stepmeter.collector.server import serve
    from stepmeter.errors import UsageError

    if args.run_name and not args.run:
        raise UsageError("--run-name without --run; give the run's id too")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="stepmeter collect: %(message)s")
    run = RunKey(args.run, args.run_name) if args.run else None
    serve(_config(args), run, _announce if args.json else None, until_stdin_closes=args.until_stdin_closes)
    return 0


def _config(args: argparse.Namespace) -> CollectorConfig:
    """The file's configuration, or the built-in one; arguments go before both."""
    from stepmeter.collector.config import default_config, read_config
    from stepmeter.collector.destination import parse_destination, parse_header, parse_headers

    headers = tuple(parse_header(text) for text in args.forward_header)
    if args.forward_headers_from:
        headers += parse_headers(os.environ.get(args.forward_headers_from, ""))
    forwarded = tuple(parse_destination(text, headers) for text in args.forward)
    config = read_config(args.config, os.environ) if args.config else default_config(os.environ)
    return replace(
        config,
        grpc=_moved(config.grpc, args.grpc),
        http=_moved(config.http, args.http),
        directory=args.dir or config.directory,
        destinations=config.destinations + forwarded,
    )


def _moved(endpoint: Endpoint | None, address: str | None) -> Endpoint | None:
    from stepmeter.collector.config import Endpoint, parse_address, require_guarded

    if address is None:
        return endpoint
    host, port = parse_address(address)
    return require_guarded(replace(endpoint, host=host, port=port) if endpoint else Endpoint(host, port))


def _announce(ready: Ready) -> None:
    line = {
        "grpc": ready.grpc,
        "http": ready.http,
        "pid": os.getpid(),
        "dir": str(ready.directory.absolute()),
        "run_dir": str(ready.run_dir.absolute()) if ready.run_dir else None,
    }
    print(json.dumps(line), flush=True)
