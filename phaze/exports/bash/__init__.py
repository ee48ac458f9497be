"""Launch scripts in bash, read without running them: what the commands that they start are
given."""
