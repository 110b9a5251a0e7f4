"""Lists and reads the files of an input: MatchImages and ReadImages.

The key of an image is its path below the folder that all patterns share before their first
wildcard, so the same images in another folder give the same dataset. `patterns` compiles patterns,
`listing` lists files, `labels` reads classes and splits from paths, `reading` reads one file, and
`read_ahead` reads many.
"""
