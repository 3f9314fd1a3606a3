"""Events, log, state, reader."""
