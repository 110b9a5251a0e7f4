"""Notes which command this process runs, if the console script has started it."""

program = ""  # such as "beam-tfr plan"; empty in a program of somebody else
