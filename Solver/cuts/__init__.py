"""The best cut of a model's layers into pipeline stages, for one plan on one configuration of
hardware: exact, with a bound."""
