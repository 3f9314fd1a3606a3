"""Timeline, page, reports for CI, diff, audit."""
