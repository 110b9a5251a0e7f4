"""What people see: the terminal, progress, HTML for notebooks."""
