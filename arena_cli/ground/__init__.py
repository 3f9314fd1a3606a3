"""The base of all layers: the protocol's shapes, errors, text, files, time and redaction."""
