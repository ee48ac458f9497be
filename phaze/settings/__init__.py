"""One request: typed words, files of settings and their defaults made into one checked record."""
