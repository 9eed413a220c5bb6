"""Measurements of bytemill beside other tools; `python -m benchmarks` lists the cases."""
