"""Reports to users: the terminal, progress, HTML for notebooks."""
