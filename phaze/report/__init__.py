"""Tables and pictures of a finished run. Imports results only."""
