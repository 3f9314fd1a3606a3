"""Fill the placeholders of a step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from arena_cli.flows import values
from arena_cli.flows.model import StepSpec
from arena_cli.flows.work import StepFailed
from arena_cli.yamlio.schema_errors import explain_first


def fill_step(spec: StepSpec, known: Mapping[str, Any], environ: Mapping[str, str]) -> StepSpec:
    """Return a step with its placeholders filled. Raises StepFailed or ValueMissing."""
    data = spec.model_dump(exclude_unset=True, exclude={"steps", "group", "choose"})
    filled = values.fill(data, known, environ)
    try:
        return StepSpec.model_validate(_as_texts(filled))
    except ValidationError as error:
        raise StepFailed(explain_first(error), "usage") from error


def _as_texts(filled: dict[str, Any]) -> dict[str, Any]:
    """Return a filled step with texts where its keys are texts: a placeholder keeps its type."""

    def text(value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value or ""
        return json.dumps(value, ensure_ascii=False)

    changed = dict(filled)
    for key in ("send", "message", "stdin", "agent", "cwd"):
        if key in changed:
            changed[key] = text(changed[key])
    if changed.get("shell") is not None:
        changed["shell"] = [text(word) for word in changed["shell"]]
    if changed.get("env") is not None:
        changed["env"] = {key: text(value) for key, value in changed["env"].items()}
    for name, keys in (("http", ("url",)), ("container", ("image",)), ("sql", ("database",))):
        inner = changed.get(name)
        if isinstance(inner, dict):
            inner = {key: text(value) if key in keys else value for key, value in inner.items()}
            for key in ("headers", "env"):
                if isinstance(inner.get(key), dict):
                    inner[key] = {head: text(value) for head, value in inner[key].items()}
            if name == "container" and isinstance(inner.get("command"), list):
                inner["command"] = [text(word) for word in inner["command"]]
            changed[name] = inner
    return changed
