"""A finished run as a timeline in Chrome's trace format, which Perfetto and chrome://tracing open."""

from Reporter.trace.timeline import MOST_EVENTS, Timeline, timeline_of

__all__ = ["MOST_EVENTS", "Timeline", "timeline_of"]
