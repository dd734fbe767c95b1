"""Findings: rules over an analyzed window."""
