"""From rows to facts to findings."""
