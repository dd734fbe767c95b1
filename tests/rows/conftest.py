import pytest

import stepmeter


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch, tmp_path):
    """No collector and no run from outside; runs in a directory of the test; closed at its end."""
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER", "STEPMETER_RUN_ID", "STEPMETER_RUN_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))
    yield
    stepmeter.finish()
