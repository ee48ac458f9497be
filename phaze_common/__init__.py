"""What every room shares: error types, files and caches, records to and from YAML/JSON, progress.
Knows no domain."""
