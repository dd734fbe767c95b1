from __future__ import annotations

import threading

from stepmeter.capture.channel import Channel


def test_order_and_reference():
    """What is put comes out once, in order, and is the same object."""
    channel = Channel()
    items = [object(), object()]
    assert all(channel.put(item) for item in items)
    drained = channel.drain()
    assert all(one is other for one, other in zip(drained, items, strict=True))
    assert channel.drain() == []


def test_full_channel():
    """A full channel drops what comes in and counts it."""
    channel = Channel(2)
    assert [channel.put(item) for item in range(4)] == [True, True, False, False]
    assert channel.drain() == [0, 1]
    assert channel.dropped == 2
    assert channel.put(5)


def test_nothing_is_lost_between_threads():
    """What a producer puts while another thread drains is drained or counted, in order."""
    channel = Channel(64)
    drained = []
    producer = threading.Thread(target=lambda: [channel.put(item) for item in range(20_000)])
    producer.start()
    while producer.is_alive():
        drained += channel.drain()
    producer.join()
    drained += channel.drain()
    assert drained == sorted(drained)
    assert len(drained) + channel.dropped == 20_000
