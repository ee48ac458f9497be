"""A finished run, or the difference of two, as one self-contained HTML page with figures."""
