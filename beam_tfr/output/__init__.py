"""The output folder.

Says who holds it, what is built in it, and how that becomes the dataset.
"""
