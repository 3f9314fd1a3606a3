"""Sessions, and what is sent to them."""
