"""Why a search answered what it did: its answer in words, alternatives to it, and why two runs
differ."""
