import pytest

from stepmeter.telemetry.guard import Guard


def test_swallows_counts_and_says_once(capfd):
    """A fault of ours ends in the guard: counted each time, said the first time, on stderr only."""
    guard = Guard()
    for _ in range(3):
        with guard.over("recording"):
            raise ValueError("broken")

    out, err = capfd.readouterr()
    assert guard.losses() == {"fault: recording": 3}
    assert err == "stepmeter: recording failed and goes on without: ValueError: broken\n"
    assert not out


def test_strict_raises(capfd):
    """Under test the guard raises what it would swallow."""
    with pytest.raises(ValueError, match="broken"), Guard(strict=True).over("recording"):
        raise ValueError("broken")
    capfd.readouterr()


def test_interrupts_pass():
    """Ctrl-C is the user's, not ours to swallow."""
    with pytest.raises(KeyboardInterrupt), Guard().over("recording"):
        raise KeyboardInterrupt


def test_a_closed_stderr_is_no_fault(monkeypatch):
    """Where stderr is closed nothing is said and nothing fails."""
    monkeypatch.setattr("stepmeter.telemetry.guard._STDERR", 9999)

    Guard().say_once("key", "line")
