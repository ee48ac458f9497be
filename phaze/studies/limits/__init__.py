"""What limits a design: what more of each resource would bring on the same chip."""
