"""What people look at: the report page, contact sheets and terminal tables."""
