"""What every package shares: error types, files and caches, records to and from YAML and JSON,
progress. Knows no domain."""
