import json

import pytest
from tests.support.processes import stepmeter

from stepmeter.commands.doctor import examine


def findings(environ):
    return {finding.what: finding for finding in examine(environ)}


def test_a_healthy_installation_passes(tmp_path):
    """On a machine with nothing wrong every check is ok or a note, and a round trip works."""
    done = stepmeter("doctor", "--json", cwd=tmp_path)

    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0
    assert "ok" == found["round trip"]["state"] == found["stepmeter"]["state"] == found["torch"]["state"]
    assert list(tmp_path.iterdir()) == []


def test_a_dead_endpoint_is_bad_only_when_it_was_asked_for(tmp_path):
    """An endpoint that was configured and does not answer fails the check; the default one is a note."""
    done = stepmeter("doctor", cwd=tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")

    assert done.returncode == 5
    assert "!!  OTLP endpoint: http://127.0.0.1:9 does not answer" in done.stdout
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("endpoint", ["nonsense", "http://:99999", "http://127.0.0.1:notaport"])
def test_a_malformed_endpoint_is_a_finding(endpoint):
    """An endpoint that is no address is reported, not raised."""
    assert findings({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})["OTLP endpoint"].state == "bad"


def test_switches_and_directories_are_seen(tmp_path):
    """A switch that turns all off is a note, and a directory that can't be made is bad."""
    (tmp_path / "file").touch()
    found = findings({"STEPMETER_DISABLED": "1", "STEPMETER_DIR": str(tmp_path / "file" / "runs")})

    assert (found["switch"].state, found["directory of runs"].state) == ("note", "bad")
