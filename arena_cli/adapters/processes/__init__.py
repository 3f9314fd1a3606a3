"""Programs as processes: found, started, fed, read and ended."""
