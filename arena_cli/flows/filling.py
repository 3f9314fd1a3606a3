"""Fill the placeholders of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from arena_cli.flows import values
from arena_cli.flows.model import StepSpec
from arena_cli.flows.work import StepFailed
from arena_cli.yamlio.schema_errors import explain_first

_TEXTS = ("send", "message", "stdin", "agent", "cwd", "url", "image", "code", "database")


def fill_step(spec: StepSpec, known: Mapping[str, Any], environ: Mapping[str, str]) -> StepSpec:
    """Return a step with its placeholders filled. Raises StepFailed or ValueMissing."""
    data = spec.model_dump(exclude_unset=True, exclude={"steps", "group", "choose"})
    filled = values.fill(data, known, environ)
    try:
        return StepSpec.model_validate(_as_texts(filled))
    except ValidationError as error:
        raise StepFailed(explain_first(error), "usage") from error


def _as_texts(filled: dict[str, Any]) -> dict[str, Any]:
    """Return filled keys of a step, those that are texts as texts: a placeholder keeps its type."""
    changed = dict(filled)
    for key, value in filled.items():
        if key in _TEXTS:
            changed[key] = values.as_text(value)
        elif key in ("shell", "command") and value is not None:
            changed[key] = [values.as_text(word) for word in value]
        elif key in ("env", "headers") and value is not None:
            changed[key] = {name: values.as_text(inner) for name, inner in value.items()}
        elif key in ("http", "container", "sql") and isinstance(value, dict):
            changed[key] = _as_texts(value)
    return changed
