"""The settings that control a team (docs/control.md); some of them an agent may have of its own."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from arena_cli.workspace import act_patterns
from arena_cli.workspace.file_shape import FileShape

ApprovalPolicy = Literal["ask", "allow", "deny"]

APPROVAL_ACTIONS = ("execute_command", "modify_file", "external_api_call", "deploy")
"""The actions that a person approves unless the settings say otherwise."""

ActPattern = Annotated[str, AfterValidator(act_patterns.check_pattern)]
"""A pattern of a command or path."""

_PATHS = frozenset({"modify_file", "read_file"})
_SEVERAL = re.compile(r"\d+ files: ")
_APPROVAL_SETTINGS = frozenset({"default", "allow", "expires_s"})


class Approvals(FileShape):
    """What people approve: a policy by the name of the action, also for names of one's own.

    `default` is the policy of every other name. `allow` are commands and paths that need no
    approval: in a command, `*` is any text within a word, or by itself any words; in a path, `*` is
    any part of a name and `**` any folders. A request expires after `expires_s` seconds.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ApprovalPolicy] = Field(init=False)

    execute_command: ApprovalPolicy = "ask"
    modify_file: ApprovalPolicy = "ask"
    external_api_call: ApprovalPolicy = "ask"
    deploy: ApprovalPolicy = "ask"
    default: ApprovalPolicy = "deny"
    allow: list[ActPattern] = []
    expires_s: float = Field(default=86_400, gt=0)

    def policy(self, action: str) -> ApprovalPolicy:
        """Return the policy for an action."""
        by_action: dict[str, ApprovalPolicy] = {
            name: policy for name, policy in self if name not in _APPROVAL_SETTINGS
        }
        return by_action.get(action, self.default)

    def decide(self, action: str, detail: str) -> tuple[ApprovalPolicy, str]:
        """Return the policy for an act, and the setting that decides; `deny` beats `allow`.

        `detail` is the whole command or path. A URL matches a pattern as one text.
        """
        policy = self.policy(action)
        if policy == "ask":
            pattern = next((p for p in self.allow if _matches(p, action, detail)), None)
            if pattern is not None:
                return "allow", f"approvals.allow: {pattern}"
        is_named = action in self.model_fields_set or action in (self.__pydantic_extra__ or {})
        name = action if is_named or action in APPROVAL_ACTIONS else "default"
        return policy, f"approvals.{name}: {policy}"


def _matches(pattern: str, action: str, detail: str) -> bool:
    if action in _PATHS:
        is_one = not _SEVERAL.match(detail)
        return is_one and act_patterns.matches_path(pattern, detail)
    if action == "external_api_call":
        return act_patterns.matches_text(pattern, detail)
    return act_patterns.matches_command(pattern, detail)
