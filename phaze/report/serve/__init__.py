"""The page from a local server, where a click on a point shows its plan and asks what another would
cost."""
