"""Describes a finished dataset: its manifest, splits and counts."""
