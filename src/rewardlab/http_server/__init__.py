"""What every HTTP server here has in common: limits on requests, reasons to refuse one, and where it listens."""
