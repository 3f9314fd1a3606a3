"""Sessions, and the messages sent to them."""
