"""The page from a local server, where a click on a point asks what another plan would cost."""
