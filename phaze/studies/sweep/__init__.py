"""A study for every combination of listed values, computed once each and gathered in a table."""
