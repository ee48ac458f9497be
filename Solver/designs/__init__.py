"""Design points: the best chip and plan, and every search among them."""
