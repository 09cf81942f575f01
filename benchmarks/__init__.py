"""Benchmarks. They report ratios from one run on one machine; absolute figures are not stable."""
