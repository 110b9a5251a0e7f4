"""Shows messages, progress and results to users, on terminals and in notebooks."""
