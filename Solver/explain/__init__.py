"""Why a search answered what it did: limits of the best design, alternatives to it, and why two runs differ."""
