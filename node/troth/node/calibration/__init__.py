"""Calibration: how far honest runs are apart, how far cheats are, and the thresholds that lie between them."""
