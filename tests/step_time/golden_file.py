"""What in the golden schema a reader of summaries would trip over."""


def breaking(old, new):
    """Keys that came or went, and scenarios of both whose nulls moved."""
    keys = set(old["keys"]) ^ set(new["keys"])
    scenarios = [name for name in old["nulls"] if name in new["nulls"] and old["nulls"][name] != new["nulls"][name]]
    return sorted(keys) + scenarios
