"""The commands: parse, call once, print. One file a group."""
