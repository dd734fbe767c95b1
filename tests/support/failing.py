"""Code of ours made to raise, or watched as it is gone through; a path is (owner, name of its function)."""

from __future__ import annotations


def path_id(path):
    """Name a path in the name of a test."""
    owner, name = path
    return f"{owner.__name__.split('.')[-1]}.{name}"


def fail(monkeypatch, path, times):
    """Have a path raise its own name so many times; gives a list whose item says how often it still will."""
    owner, name = path
    original, left = getattr(owner, name), [times]

    def fails(*args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise ZeroDivisionError(name)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, fails)
    return left


def note(monkeypatch, paths):
    """Note which paths are gone through; gives the set of them, which grows."""
    gone = set()
    for path in paths:
        monkeypatch.setattr(*path, _noted(path, gone))
    return gone


def _noted(path, gone):
    original = getattr(*path)

    def noted(*args, **kwargs):
        gone.add(path)
        return original(*args, **kwargs)

    return noted
