"""Plans written out for the programs that launch them: one module or folder per program."""
