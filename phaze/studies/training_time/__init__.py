"""What a whole training takes: iterations, days, energy, money, carbon, failures, and where the
time goes."""
