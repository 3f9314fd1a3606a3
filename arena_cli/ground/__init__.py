"""What every layer stands on: the protocol's shapes, errors, YAML files, text, time and ids."""
