"""Records which command this process runs, if the console script started it."""

program = ""  # such as "beam-tfr plan"; empty in a user's own program
