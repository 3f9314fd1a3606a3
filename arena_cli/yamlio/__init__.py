"""YAML files: read into data that remembers its lines, and checked against pydantic shapes.

`loader` is the way in: `load` reads a file into a `document`, `validate` checks it against a shape.
`nodes` composes a text and builds plain data from it. `hints` explains what is no YAML, and what is
YAML but most likely not meant; `schema_errors` explains what does not fit a shape; `lines` edits
the one line that both show. `dump` writes data as YAML.
"""
