"""MatchImages and ReadImages: from patterns to files, and from files to bytes.

The key of an image is its path below the folder that all patterns share before their first
wildcard, so the same images in another place give the same dataset. `patterns` matches, `listing`
lists, `labels` reads classes and splits from paths, `reading` reads a file and `read_ahead` many.
"""
