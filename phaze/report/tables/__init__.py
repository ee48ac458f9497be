"""Tables of results on the terminal."""
