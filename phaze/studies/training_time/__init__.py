"""What a whole training takes: time, energy, money and carbon, failures included."""
