"""Measured machines as hardware: databases of operators and collectives that were timed, and what
is priced from them."""
