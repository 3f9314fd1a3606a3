"""The turn engine: one loop (`loop`) over pure rules (`rules`), and the call of one reply."""
