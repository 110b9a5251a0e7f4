"""Describes a finished dataset: its manifest, its splits, its counts."""
