"""YAML files: read into data that remembers its lines, checked against shapes, faults explained.

`yamlfile` is the way in: `load` reads a file into a `document`, `validate` checks it against a
shape. On the way there a text is composed into nodes (`yamlnodes`); where that fails, `yamlcauses`
finds the cause and mends the text, so that reading goes on, with `yamlstructure` and `yamlkeys` for
indents and keys, `yamlsuspects` and `yamlslips` for what is YAML and not meant. `shapefaults` says
what does not fit a shape, in the words of `shapeteller`. All but the way without faults is imported
only when there is one.
"""
