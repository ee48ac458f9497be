"""The command line: what was typed, one call per mode, tables or JSON, exit statuses. Only
``phaze.py`` imports it."""
