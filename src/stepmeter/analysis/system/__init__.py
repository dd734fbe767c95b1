"""Hosts and their GPUs: facts and findings."""
