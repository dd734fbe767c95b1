"""Who may send: a bearer token, compared without telling how much of it was right."""

from __future__ import annotations

import hmac


def is_allowed(token: str | None, authorization: str | None) -> bool:
    """Whether a sender may send.

    Args:
        token: The token that is asked for; None asks nobody.
        authorization: What the sender showed as `Authorization`, or None.

    Returns:
        True when nothing is asked, or the token is right.
    """
    if token is None:
        return True
    scheme, _, shown = (authorization or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), token.encode())
