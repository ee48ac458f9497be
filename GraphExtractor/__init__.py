"""Models to training graphs. Knows torch; knows no hardware.

``storage.load_or_extract(GraphKey(...), folder)`` is the way in; torch is only imported where
something must be traced.
"""
