"""Why a search answered what it did, alternatives to its answer, and why two runs differ."""
