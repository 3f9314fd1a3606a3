"""The names of the product that tests use; no other file of tests imports it.

A module that moves is renamed here, once.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from arena_cli import __main__, errors, protocol
from arena_cli.adapters import (
    base,
    claude_code,
    claude_turn,
    http,
    mcp_servers,
    permission_requests,
    pricing,
    runtime,
    tool_calls,
)
from arena_cli.adapters import python as user_function
from arena_cli.adapters.acp import adapter, client, turn
from arena_cli.adapters.acp.adapter import AcpAdapter, AcpSettings
from arena_cli.adapters.acp.turn import RemoteError
from arena_cli.adapters.anthropic.adapter import AnthropicAdapter
from arena_cli.adapters.anthropic.request import AnthropicSettings
from arena_cli.adapters.base import (
    Adapter,
    HandedServer,
    Health,
    SessionConfig,
    Settings,
    Setup,
    adapter_type,
    list_kinds,
    settings_type,
)
from arena_cli.adapters.claude_code import ClaudeCodeAdapter, ClaudeCodeSettings, permission_options
from arena_cli.adapters.claude_turn import ClaudeTurn, TurnTracker, describe_claude_act
from arena_cli.adapters.coding_clis import kinds
from arena_cli.adapters.coding_clis.adapter import ProgramAdapter
from arena_cli.adapters.coding_clis.kinds import PRESETS as kinds_PRESETS
from arena_cli.adapters.coding_clis.kinds import (
    CodexAdapter,
    CursorAdapter,
    GeminiAdapter,
    OpencodeAdapter,
    PiAdapter,
)
from arena_cli.adapters.command import CliAdapter, CliSettings
from arena_cli.adapters.http import HttpRequest
from arena_cli.adapters.openai import presets, request, response
from arena_cli.adapters.openai import tools as openai_tools
from arena_cli.adapters.openai.adapter import OpenAIAdapter
from arena_cli.adapters.openai.presets import PRESETS as presets_PRESETS
from arena_cli.adapters.openai.request import OpenAISettings
from arena_cli.adapters.openai.response import Spoken
from arena_cli.adapters.pricing import Rates, cost_usd
from arena_cli.adapters.process import cleanup, diagnosis, run, spawn
from arena_cli.adapters.process.output import AnswerFormat, NotAnAnswerError, ProgramOutput
from arena_cli.adapters.process.run import KeptProgram
from arena_cli.adapters.process.spawn import Process, Program
from arena_cli.adapters.python import PythonAdapter, PythonSettings
from arena_cli.adapters.reading import Reading
from arena_cli.adapters.runtime import (
    Answer,
    CallNext,
    CallRequest,
    Calls,
    Heard,
    Runtime,
    ToolAnswer,
    ToolRequest,
)
from arena_cli.adapters.scripted import ScriptedAdapter, ScriptedSettings
from arena_cli.chat import Chat, Renderer
from arena_cli.cli import command_line, common, main
from arena_cli.cli.context import context_document, context_lines
from arena_cli.cli.streams import Stdout
from arena_cli.cli.workspace import init
from arena_cli.context import (
    corrections,
    extractive,
    hashing,
    history,
    layers,
    summary,
    summary_checks,
    tokens,
    window,
)
from arena_cli.context import render as context_render
from arena_cli.context.history import NOTHING, History, Memory, Pinned, RecalledNote
from arena_cli.context.summary import (
    SECTIONS,
    PinnedFact,
    Replaced,
    completed,
    now_asked,
    old_part,
    opened,
    parse_summary,
    write_summary,
)
from arena_cli.context.summary_checks import Sources
from arena_cli.context.tokens import estimate
from arena_cli.engine import after_turn, arena_tools, call, loop, rules
from arena_cli.engine.approvals import ApprovalQuestion, PersonAnswer
from arena_cli.engine.inbox import ControlRequest, Inbox, read_allowance
from arena_cli.engine.intent import sort_by_rules as intent_sort_by_rules
from arena_cli.engine.past_work import decide_mode, estimate_complexity
from arena_cli.engine.plan import Room
from arena_cli.engine.plan_texts import read_plan
from arena_cli.engine.supervisor import read_answer as supervisor_read_answer
from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
    AgentUnavailable,
    ArenaError,
    DiskRefused,
    FileFaults,
    SessionBusy,
    UsageError,
)
from arena_cli.flows import values as flow_values
from arena_cli.notes import (
    agent_extraction,
    compliance,
    contradictions,
    db,
    embeddings,
    extraction,
    index,
    ingest,
    lifecycle,
    markdown,
    paraphrases,
    phrases,
    review,
)
from arena_cli.notes import model as notes_model
from arena_cli.notes import statements as claims
from arena_cli.notes import store as notes_store
from arena_cli.notes.extraction import ExtractedDrafts
from arena_cli.notes.index import Index
from arena_cli.notes.lifecycle import TakenNote
from arena_cli.notes.markdown import NoteFault
from arena_cli.notes.model import KINDS, STATUSES, Draft, Kind, Note
from arena_cli.notes.model import Status as model_Status
from arena_cli.notes.review import NoteFinding
from arena_cli.notes.store import Folder, NoSuchNote
from arena_cli.notes.synonyms import fold_synonyms
from arena_cli.protocol import (
    FALSE_WORDS,
    MOST_COST_USD,
    TRUE_WORDS,
    AgentInput,
    AgentOutput,
    AgentReport,
    AgentSession,
    Attachment,
    AuthorType,
    CallNote,
    Emit,
    ExampleTurn,
    Invocation,
    MemberInfo,
    MemberState,
    Message,
    Permission,
    PermissionRequest,
    RefusedAction,
    SessionId,
    Shape,
    ShownMessage,
    StatusEvent,
    StructuredContent,
    Supervision,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStep,
    Usage,
    Volatile,
)
from arena_cli.protocol import Status as protocol_Status
from arena_cli.reports import audit as reports_audit
from arena_cli.reports import ci, columns, event_lines, explain, lines, terminal, timeline
from arena_cli.reports import results as reports_results
from arena_cli.reports.acting_lines import LONGEST_ROW, MOST_LINES
from arena_cli.reports.audit import AuditRecord, write_json
from arena_cli.reports.budgets import budget_rows
from arena_cli.reports.diff import compare as diff_compare
from arena_cli.reports.diff import model as diff_model
from arena_cli.reports.diff import text as diff_text
from arena_cli.reports.diff.model import Compared, ComparedConversation, Difference
from arena_cli.reports.diff.runs import RunRecord
from arena_cli.reports.drift import Causes, describe_drift
from arena_cli.reports.event_lines import Who
from arena_cli.reports.explain import Called, Naming, Others
from arena_cli.reports.html import page_text
from arena_cli.reports.html import render as html_render
from arena_cli.reports.html import results as html_results
from arena_cli.reports.lines import INDENT, Line, Span, Words, line
from arena_cli.reports.terminal import AtWork, Progress, Terminal
from arena_cli.reports.timeline import AGENT_STYLES, Timeline
from arena_cli.reports.usage import Ledger
from arena_cli.scenarios import loader as scenarios_loader
from arena_cli.scenarios import model as scenarios_model
from arena_cli.scenarios import promoted_file, result, select, variables
from arena_cli.scenarios.expect import (
    check_kinds,
    evaluate,
    json_checks,
    python_checks,
    snapshots,
    text_checks,
)
from arena_cli.scenarios.expect import model as expect_model
from arena_cli.scenarios.expect.context import CheckContext, Subject
from arena_cli.scenarios.expect.model import (
    CarriedFile,
    CarriedPart,
    Checks,
    DeviationRow,
    Exactly,
    Expect,
    Noted,
    NoteRow,
    NotesShown,
    PassedOverBy,
    Replied,
    ReplyRow,
    TextCheck,
    Which,
)
from arena_cli.scenarios.expect.snapshots import Snapshots, path_of
from arena_cli.scenarios.expect.text_checks import Verdict
from arena_cli.scenarios.expect.values import Cost, Range
from arena_cli.scenarios.loader import schema
from arena_cli.scenarios.model import Scenario, ScenarioFile
from arena_cli.scenarios.participants import list_contacts
from arena_cli.scenarios.promote import Promoted, Promotion, path_for
from arena_cli.scenarios.recording import drift, file, recorder, steps
from arena_cli.scenarios.recording.file import encode_recording
from arena_cli.scenarios.recording.inner_calls import TapedTools
from arena_cli.scenarios.recording.model import CaseRecord, RecordedTool, hash_files
from arena_cli.scenarios.recording.recorder import Ignoring
from arena_cli.scenarios.recording.steps import StepMessage
from arena_cli.scenarios.recording.store import RecordingStore, Wanted
from arena_cli.scenarios.result import (
    CheckResult,
    Drift,
    Failure,
    RunResult,
    ScenarioResult,
    StepResult,
    causes,
    of_run,
)
from arena_cli.scenarios.runner import Runner
from arena_cli.scenarios.select import Selected
from arena_cli.scenarios.tools import WorkdirCopies
from arena_cli.session import (
    doctor,
    end_of_life,
    notes,
    past,
    preview,
    session,
    shelves,
    trust_store,
)
from arena_cli.session import end_of_life as archive
from arena_cli.session import outgoing as session_outgoing
from arena_cli.session import served as session_served
from arena_cli.session import status as lanes
from arena_cli.session import store as session_store
from arena_cli.session.notes import Keeper
from arena_cli.session.outgoing import Outgoing, Planted, planted
from arena_cli.session.outgoing import outgoing as outgoing_outgoing
from arena_cli.session.preview import Preview
from arena_cli.session.served import ServedAgent
from arena_cli.session.session import Session
from arena_cli.session.status import read_status
from arena_cli.session.store import find
from arena_cli.session.trust_store import Contact
from arena_cli.tools import mcp_server, text_change
from arena_cli.tools.base import ToolFailed, ToolOutput, ToolScope
from arena_cli.tools.command import BoundedOutput, CommandTool
from arena_cli.tools.files import make_file_tool
from arena_cli.tools.folder import WorkFolder, find_name_problem
from arena_cli.tools.functions import FunctionPool
from arena_cli.tools.listing import Glob, IgnoreFile
from arena_cli.transcript import (
    acting_events,
    control_events,
    events,
    exchange_events,
    flow_events,
    log,
    queries,
    reader,
    revisions,
)
from arena_cli.transcript import compare as transcript_compare
from arena_cli.transcript.acting_events import GoalChanged
from arena_cli.transcript.compare import canonicalize, restore
from arena_cli.transcript.conversation import read_conversation
from arena_cli.transcript.events import (
    EVENT_TYPES,
    AgentCall,
    Candidates,
    ChainFinished,
    Compacted,
    Deviation,
    End,
    Event,
    Extracted,
    MessageEvent,
    NoteEvent,
    PassedOver,
    ReplyFinished,
    ReplyStarted,
    ReplyStatus,
    SessionEvent,
    SideEvent,
    StatusReported,
    TurnStarted,
)
from arena_cli.transcript.log import Log, TranscriptLost
from arena_cli.transcript.reader import WORTH_BYTES, cache_path, read_lines, tail
from arena_cli.transcript.state import Counts, Fold
from arena_cli.transcript.task_events import (
    LONGEST_TITLE,
    MOST_TASKS,
    TaskBoard,
    TaskChanged,
    TaskFacts,
    find_circle,
)
from arena_cli.util import files, language, process_signals, tickets, user_pattern
from arena_cli.util import text as util_text
from arena_cli.util.clock import HastyClock, SystemClock
from arena_cli.util.language import choose_language, translate_message
from arena_cli.util.redaction import (
    MOST_HELD,
    REDACTED,
    TAIL_LENGTH,
    WITHHELD,
    GrowingText,
    Redactor,
)
from arena_cli.util.text import (
    LONGEST_NAME,
    LONGEST_NAME_BYTES,
    TOO_DEEP,
    AnsiStripper,
    clean_text,
    clean_value,
    cut_start,
    cut_text,
    decode_output,
    display_width,
    escape_json,
    escape_line,
    escape_template,
    escape_text,
    fill_template,
    iter_texts,
    list_placeholders,
    make_safe_name,
    map_texts,
    shorten_text,
    strip_ansi,
)
from arena_cli.util.user_pattern import PatternTimeout, UserPattern
from arena_cli.workspace import (
    agents,
    mentions,
    models,
    relevance,
    scaffold,
    visible_text,
    workspace,
)
from arena_cli.workspace import control as act_patterns
from arena_cli.workspace.acting import InputSpec
from arena_cli.workspace.agents import AdapterKinds
from arena_cli.workspace.control import Approvals
from arena_cli.workspace.inputs import check_inputs, make_input_schema
from arena_cli.workspace.inputs import fill_text as fill_inputs
from arena_cli.workspace.mentions import Everybody, Mentions, MentionSpot, Opener, Roster, Somebody
from arena_cli.workspace.models import (
    SILENCE,
    AgentProfile,
    ContextSettings,
    Embedding,
    FailureRules,
    FileShape,
    Human,
    Lanes,
    Language,
    Member,
    ModelFacts,
    ResponseSettings,
    Team,
    TeamConfig,
    TeamFile,
    WorkspaceFile,
    WorkspaceMemory,
)
from arena_cli.workspace.relevance import Haystack
from arena_cli.workspace.scaffold import TemplateLanguage, TemplateName
from arena_cli.workspace.schema import (
    build_agent_schema,
    build_team_schema,
    build_workspace_schema,
)
from arena_cli.workspace.teams import TeamChanges
from arena_cli.workspace.workspace import Workspace
from arena_cli.yamlio import loader as yamlio_loader
from arena_cli.yamlio import schema_errors
from arena_cli.yamlio.loader import Fragment, dump_yaml, parse, validate, wrap_data
from arena_cli.yamlio.schema_errors import explain_first


def make_agent_server(agent: ServedAgent, folder: Path) -> Any:
    """Return the server of an agent's tools; only tests that need the SDK of MCP import it."""
    return import_module("arena_cli.cli.mcp_server").make_agent_server(agent, folder)
