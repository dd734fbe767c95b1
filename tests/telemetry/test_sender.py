import threading
import time
from types import SimpleNamespace

from stepmeter.telemetry.guard import Guard
from stepmeter.telemetry.sender import Sender, close_all

SUCCESS = SimpleNamespace(name="SUCCESS")
FAILURE = SimpleNamespace(name="FAILURE")


class Backend:
    """A destination that takes payloads, refuses them, or is stuck until released."""

    def __init__(self, *results, stuck=False):
        self.taken = []
        self.results = list(results)
        self.released = threading.Event()
        if not stuck:
            self.released.set()

    def export(self, payload):
        self.released.wait(30)
        result = self.results.pop(0) if self.results else SUCCESS
        if result is SUCCESS:
            self.taken.append(payload)
        return result


def soon():
    return time.monotonic() + 10


def test_delivers_in_order():
    """Payloads arrive in the order in which they were put."""
    backend = Backend()
    sender = Sender(backend.export, "span", 100, Guard())
    for number in range(5):
        sender.put(number, 1)

    assert close_all([sender], soon()) == 0
    assert backend.taken == [0, 1, 2, 3, 4]


def test_tries_again():
    """A payload that was refused once is sent again and not lost."""
    backend = Backend(FAILURE)
    guard = Guard()
    sender = Sender(backend.export, "span", 100, guard)
    sender.put("payload", 7)
    while not backend.taken:
        time.sleep(0.01)

    assert close_all([sender], soon()) == 0
    assert guard.losses() == {}


def test_a_stuck_destination_drops_and_counts():
    """When a destination does not keep up, what does not fit is dropped and counted, and nobody waits."""
    backend = Backend(stuck=True)
    guard = Guard()
    sender = Sender(backend.export, "span", 10, guard)
    for _ in range(5):
        sender.put("payload", 5)

    assert guard.losses() == {"span: destination too slow": 15}
    backend.released.set()
    close_all([sender], soon())


def test_one_payload_always_fits():
    """A payload larger than the queue is still sent when nothing else waits."""
    backend = Backend()
    sender = Sender(backend.export, "span", 10, Guard())
    sender.put("large", 500)

    assert close_all([sender], soon()) == 0
    assert backend.taken == ["large"]


def test_closing_counts_what_was_not_delivered():
    """At the deadline, what a dead destination did not take is counted, and closing does not wait longer."""
    backend = Backend(stuck=True)
    guard = Guard()
    senders = [Sender(backend.export, "span", 100, guard), Sender(Backend().export, "metrics", 100, guard)]
    senders[0].put("payload", 3)
    senders[1].put("payload", 1)

    assert close_all(senders, time.monotonic() + 0.1) == 3
    assert guard.losses() == {"span: not delivered at exit": 3}
    backend.released.set()


def test_what_a_stuck_destination_did_not_take_can_be_kept():
    """At the end the payload under way and those behind it are there to be kept elsewhere, oldest first."""
    backend = Backend(stuck=True)
    sender = Sender(backend.export, "row", 100, Guard())
    for number in (1, 2, 3):
        sender.put(number, 1)
    close_all([sender], time.monotonic() + 0.2)

    assert sender.undelivered() == [1, 2, 3]
    backend.released.set()
    sender._thread.join(10)
    assert sender.undelivered() == []


def test_what_is_not_delivered_goes_to_the_keeper():
    """What does not fit, is refused or waits at the end is kept once each, and counts as lost only where that fails."""
    backend, guard, kept = Backend(SimpleNamespace(name="REFUSED"), stuck=True), Guard(), []
    sender = Sender(backend.export, "span", 10, guard, lambda payload, items: kept.append(payload) or payload != "e")
    for payload in "abcd":
        sender.put(payload, 4)
    assert kept == ["c", "d"]
    assert close_all([sender], time.monotonic() + 0.1) == 0
    assert kept == ["c", "d", "a", "b"]
    backend.released.set()
    sender._thread.join(10)
    assert kept == ["c", "d", "a", "b"]

    refusing = Backend(SimpleNamespace(name="REFUSED"), SimpleNamespace(name="REFUSED"))
    sender = Sender(refusing.export, "span", 10, guard, lambda payload, items: kept.append(payload) or payload != "e")
    sender.put("e", 3)
    sender.put("f", 4)
    assert close_all([sender], soon()) == 3
    assert kept[4:] == ["e", "f"]
    assert guard.losses() == {"span: destination refused": 3}
