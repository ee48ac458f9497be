"""Bridges to other people's tools and file formats: optional, one folder each."""
