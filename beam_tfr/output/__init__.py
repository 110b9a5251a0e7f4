"""Manages the output folder: who holds it, what is built in it, how that becomes the dataset."""
