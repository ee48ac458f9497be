"""Hardware to seconds, joules, mm2 and bytes for operators and collectives. Knows no placement."""
