"""Measurements, as ratios in one run on one machine; absolute figures are not stable."""
