"""A finished run as a timeline in Chrome's trace format, which Perfetto and chrome://tracing
open."""
