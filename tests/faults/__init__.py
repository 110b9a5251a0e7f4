"""The real command, disturbed at seeded random moments.

It is killed, stopped, starved, given corrupted files, and called again.

    python -m tests.faults --trials 40 --seed 1

`places` says where a dataset is written and how to look at it, `runs` starts commands and disturbs
them, `trials` holds the kinds of faults and the check after each; `mutations`, `finalize`,
`hostile` and `unwritten` try parts alone.
"""
