"""The settings that control a team (docs/control.md); some of them an agent may have of its own."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from arena_cli.workspace.file_shape import FileShape

ApprovalPolicy = Literal["ask", "allow", "deny"]

APPROVAL_ACTIONS = ("execute_command", "modify_file", "external_api_call", "deploy")
"""The actions that a person approves unless the settings say otherwise."""

_APPROVAL_SETTINGS = frozenset({"default", "allow", "expires_s"})


class Approvals(FileShape):
    """What people approve: a policy by the name of the action, also for names of one's own.

    `default` is the policy of every other name; `allow` are commands and paths that need no
    approval, with `*` for any text within a word. A request expires after `expires_s` seconds.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ApprovalPolicy] = Field(init=False)

    execute_command: ApprovalPolicy = "ask"
    modify_file: ApprovalPolicy = "ask"
    external_api_call: ApprovalPolicy = "ask"
    deploy: ApprovalPolicy = "ask"
    default: ApprovalPolicy = "deny"
    allow: list[str] = []
    expires_s: float = Field(default=86_400, gt=0)

    def policy(self, action: str) -> ApprovalPolicy:
        """Return the policy for an action."""
        by_action: dict[str, ApprovalPolicy] = {
            name: policy for name, policy in self if name not in _APPROVAL_SETTINGS
        }
        return by_action.get(action, self.default)
