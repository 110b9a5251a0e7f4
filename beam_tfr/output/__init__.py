"""Manages the output folder: which run holds it, and how built files become the dataset."""
