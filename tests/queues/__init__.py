"""Tests of the queue packages: each against a stand-in that speaks the vendor's documented protocol."""
