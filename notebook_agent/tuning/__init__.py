"""Tuning by experiment: labs, sweeps, comparisons, charts."""
