"""Shows people what happens: the terminal, progress, HTML for notebooks."""
