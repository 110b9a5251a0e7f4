"""Lists the files of an input, and reads them: MatchImages and ReadImages.

The key of an image is its path below the folder that all patterns share before their first
wildcard, so the same images in another place give the same dataset. `patterns` matches, `listing`
lists, `labels` reads classes and splits from paths, `reading` reads a file and `read_ahead` many.
"""
