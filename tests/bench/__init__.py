"""Benchmarks: ratios against a floor measured in the same run, on the same server. Never a test."""
