"""Published training runs against what is predicted of them."""
