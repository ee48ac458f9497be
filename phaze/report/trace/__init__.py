"""A finished run as a timeline in Chrome's trace format, for Perfetto or chrome://tracing."""
