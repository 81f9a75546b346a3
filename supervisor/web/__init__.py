"""Probes and metrics over HTTP, imported in their own process only."""
