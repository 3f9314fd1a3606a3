"""Draw a flow: as Mermaid text, or as a page that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence

from arena_cli.flows.loader import Flow, FlowStep
from arena_cli.flows.model import StepSpec
from arena_cli.util.text import shorten_text

_LONGEST = 60

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1c1c; background: #fff; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem;
  border-bottom: 1px solid #bbb; }
td table { margin: .3rem 0; } code, pre { font: 13px/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; border: 1px solid #bbb; padding: .6rem; }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #161616; } }
"""


def describe_work(spec: StepSpec) -> str:
    """Return the work of a step in a few words."""
    value = getattr(spec, spec.kind)
    if spec.http is not None:
        value = f"{spec.http.method} {spec.http.url}"
    elif spec.sql is not None:
        value = spec.sql.database or spec.sql.dsn
    elif spec.container is not None:
        value = " ".join([spec.container.image, *spec.container.words])
    elif spec.shell is not None:
        value = " ".join(spec.shell)
    elif spec.repeat is not None:
        value = f"until {spec.repeat.until}, at most {spec.repeat.max}"
    elif spec.each is not None:
        value = spec.each if isinstance(spec.each, str) else json.dumps(spec.each)
    elif spec.group is not None or spec.choose is not None:
        value = ""
    return shorten_text(" ".join(f"{spec.kind} {value}".split()), _LONGEST)


def draw_mermaid(flow: Flow) -> str:
    """Return a flow as a flowchart of Mermaid."""
    lines = ["flowchart TD", *_draw_list(flow.steps, "", "  ")]
    return "\n".join(lines)


def _draw_list(steps: Sequence[FlowStep], prefix: str, indent: str) -> Iterator[str]:
    for step in steps:
        spec = step.spec
        node = f"{prefix}{spec.id}"
        blocks = [step.flow.steps] if step.flow else list(step.blocks)
        text = _escape(f"{spec.id}: {describe_work(spec)}")
        if spec.when is not None:
            text += f"<br/>{_escape(f'when {spec.when}')}"
        if not blocks:
            yield f'{indent}{node}["{text}"]'
        else:
            yield f'{indent}subgraph {node}["{text}"]'
            for number, block in enumerate(blocks):
                if spec.choose is not None:
                    label = _escape(spec.choose[number].when or "otherwise")
                    yield f'{indent}  subgraph {node}__{number}["{label}"]'
                    yield from _draw_list(block, f"{node}__", f"{indent}    ")
                    yield f"{indent}  end"
                else:
                    yield from _draw_list(block, f"{node}__", f"{indent}  ")
            yield f"{indent}end"
        for need in step.needs:
            yield f"{indent}{prefix}{need} --> {node}"


def _escape(text: str) -> str:
    """Return a text that Mermaid shows as it is, within quotes."""
    shown = " ".join(text.split()).replace("#", "#35;").replace('"', "#quot;")
    return shown.replace("<", "#lt;").replace(">", "#gt;")


def draw_page(flow: Flow) -> str:
    """Return a flow as an HTML page: a table of its steps, and its Mermaid text."""
    title = html.escape(flow.file.flow)
    about = f"<p>{html.escape(flow.file.description)}</p>" if flow.file.description else ""
    rows = [
        f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(spec.type)}</td>"
        f"<td>{html.escape(spec.description)}</td></tr>"
        for name, spec in flow.file.inputs.items()
    ]
    inputs = f"<h2>Inputs</h2><table>{''.join(rows)}</table>" if rows else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{title}</h1>{about}{inputs}\n<h2>Steps</h2>\n{_draw_table(flow.steps)}\n"
        f"<h2>Mermaid</h2>\n<pre>{html.escape(draw_mermaid(flow))}</pre>\n</body></html>\n"
    )


def _draw_table(steps: Sequence[FlowStep]) -> str:
    rows = ["<tr><th>Step</th><th>Work</th><th>Needs</th><th>When</th><th>If it fails</th></tr>"]
    for step in steps:
        spec = step.spec
        cells = [
            f"<code>{html.escape(spec.id)}</code>",
            html.escape(describe_work(spec)),
            html.escape(", ".join(step.needs)),
            html.escape(spec.when or ""),
            html.escape(f"{spec.on_failure}, {spec.most_attempts} attempts"),
        ]
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        blocks = [step.flow.steps] if step.flow else step.blocks
        for number, block in enumerate(blocks):
            label = ""
            if spec.choose is not None:
                label = f"when {spec.choose[number].when}" if spec.choose[number].when else "else"
            inner = f"{html.escape(label)}{_draw_table(block)}"
            rows.append(f'<tr><td></td><td colspan="4">{inner}</td></tr>')
    return f"<table>{''.join(rows)}</table>"
