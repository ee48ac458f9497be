"""Layers to stages: a path through the layers whose edges are stages with options."""
