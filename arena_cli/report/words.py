"""The fixed words of reports, in English and in Chinese.

In the code they stand in English: `say("turn {turn}", turn=1)`. Whoever adds one adds its Chinese
to `_CHINESE`. Words that stand in files too (`quiet`, `declined`) are never replaced: their Chinese
goes beside them (`say.enum`).
"""

from __future__ import annotations

import os
import string
import sys
from collections.abc import Iterator, Mapping

from arena_cli.report.spans import Span
from arena_cli.team.model import Language

_WINDOWS_CHINESE = 0x04
_WINDOWS_PRIMARY = 0x3FF

_CHINESE = {
    "{who} would be shown {tokens} of {room} tokens (a window of {window}, "
    "{reserved} of it for the answer)": (
        "{who} 现在会看到 {tokens} 个 token，上限 {room}（窗口 {window}，其中 {reserved} 留给回答）"
    ),
    "~{count} tokens": "约 {count} 个 token",
    "always": "总是在内",
    "always, though it alone takes more than there is room for": "总是在内，尽管仅它就超出了空间",
    "nothing is summarised yet": "还没有摘要",
    "of {count} messages, up to {upto}, by {by}": (
        "{count} 条消息的摘要，到 {upto} 为止，由 {by} 写成"
    ),
    "left out: it would take more than half of the room": "未放入：它会占去一半以上的空间",
    "{count} pinned by notes: {beside} beside the newest, {titles} by title only": (
        "笔记钉住 {count} 条：{beside} 条在最新消息之外，{titles} 条只有标题"
    ),
    "{count} of {found} that were found": "找到 {found} 条，放入 {count} 条",
    "none was found": "没有找到",
    "{count} of {of} whole": "{of} 条中的 {count} 条，完整",
    "; {count} older ones find no room": "；更早的 {count} 条放不下",
    "{message} is its source": "来源是 {message}",
    "by title only: there is no room": "只有标题：放不下",
    "the message that it comes from is shown whole": "它的来源消息已完整显示",
    "there is no room": "放不下",
    "there are as many better ones as are shown": "已有足够多更相关的笔记",
    "asked to be concise: all that is not summarised fills the window": (
        "会被要求简短：未摘要的内容快要填满窗口"
    ),
    "role, team and how to read": "角色、团队与阅读方法",
    "summary": "摘要",
    "messages": "消息",
    "of them pinned": "其中钉住的",
    "notes": "笔记",
    "system": "system（系统）",
    "prompt": "prompt（提示）",
    ", ": "、",
    ": ": "：",
    "{count} attempts": "尝试 {count} 次",
    "{count} bytes": "{count} 字节",
    "{count} replies": "{count} 条回复",
    "{count} turns": "{count} 轮",
    "{replies} in {turns}": "{turns}，{replies}",
    "{seconds} s": "{seconds} 秒",
    "{what} ({bytes} bytes set aside)": "{what}（{bytes} 字节放到一边）",
    "{what} ({bytes} bytes set aside, kept in {place})": (
        "{what}（{bytes} 字节放到一边，存于 {place}）"
    ),
    "{who} (mentioned by {by})": "{who}（由 {by} 提到）",
    "{level}: {who} did not heed {note}: {reason}": "{level}：{who} 没有理会 {note}：{reason}",
    "{who}: attempt {count}": "{who}：第 {count} 次尝试",
    "(no scenario)": "（无场景）",
    "(unknown)": "（未知）",
    "{cost} + unknown": "{cost} + 未知",
    "{name} (memory)": "{name}（记忆）",
    "cache read": "读缓存",
    "cache write": "写缓存",
    "calls ": "次数",
    "calls that failed, counted too: {count}": "失败的调用（已计入）：{count}",
    "calls whose cost is not known: {count}": "费用未知的调用：{count}",
    "calls whose tokens nobody counted: {count}": "未统计令牌的调用：{count}",
    "cost": "费用",
    "day": "日期",
    "input": "输入",
    "model": "模型",
    "output": "输出",
    "total": "合计",
    "unknown": "未知",
    "1 reply": "1 条回复",
    "1 turn": "1 轮",
    "and {count} more": "还有 {count} 个",
    "at {path}": "位于 {path}",
    "deferred to the next turn: {who}": "推迟到下一轮：{who}",
    "every agent": "所有成员",
    "may not call {who}: {reason}": "不可叫 {who}：{reason}",
    "may reply: {who}": "可回应：{who}",
    "must reply: {who}": "须回应：{who}",
    "nobody": "无人",
    "nobody is called {names}": "没有人叫 {names}",
    "notes in {message} by {who}: {why}": "{who} 的 {message} 中的笔记：{why}",
    "note {note} {act} by {who}: {title}": "笔记 {note} {act}，{who}：{title}",
    "not asked (it answers only when it is named)": "未被询问（只有被点名才回应）",
    "not asked (selection: none)": "未被询问 (selection: none)",
    "passed over: {who}": "未选中：{who}",
    "planted": "预置",
    "recovered: {what}": "已修复：{what}",
    "relevance {relevance}, {reason}": "relevance（相关度）{relevance}，{reason}",
    "relevance {relevance} < {threshold}": "relevance（相关度）{relevance} < {threshold}",
    "rules": "规则",
    "resumed chain {chain} after event {seq}": "从第 {seq} 个事件之后继续第 {chain} 条链",
    "session {name}": "会话 {name}",
    "summary of {count} messages by {who} rolled back: {why}": (
        "{count} 条消息的摘要（{who}）已撤回：{why}"
    ),
    "summary of {count} messages by {who}: {before} → {after} tokens": (
        "{count} 条消息的摘要（{who}）：{before} → {after} tokens"
    ),
    "team {name}": "团队 {name}",
    "the window of {who} is {share} % full": "{who} 的窗口已用 {share} %",
    "To call one, name it in the message: {name}": "要叫谁，就在消息里点名：{name}",
    "turn {turn}": "第 {turn} 轮",
    "turn {turn} {phase}": "第 {turn} 轮 {phase}",
    "{who} looked for notes: {why}": "{who} 查找笔记：{why}",
    # what is wrong with notes
    "{count} notes": "{count} 条笔记",
    "{place}: nothing found in {count}": "{place}：{count}，没有发现问题",
    "{place}: nothing left to do": "{place}：没有要处理的了",
    "1 note": "1 条笔记",
    "shared notes": "共享笔记",
    "to do it: {command}": "执行：{command}",
    # what came of scenarios, and why
    "(level: warn)": "（level: warn，不算失败）",
    "(the check itself crashed)": "（检查本身出错）",
    "(no verdict of {judge})": "（{judge} 没有给出评判）",
    "{count} hits": "{count} 处命中",
    "{scenario} and {recording} are written; play them: {command}": (
        "已写入 {scenario} 和 {recording}；重放：{command}"
    ),
    "{who} mentions {whom}": "{who} 点名 {whom}",
    "not as the session was: {what}": "与会话不同：{what}",
    "{count} judge errors": "{count} 次评判出错",
    "{count} warnings": "{count} 条警告",
    "{counts} in {seconds} s": "{counts}，用时 {seconds} 秒",
    "{done} of {count}": "{done}/{count}",
    "{who} in turn {turn}: {status}": "{who}，第 {turn} 轮：{status}",
    "1 hit": "1 处命中",
    "1 judge error": "1 次评判出错",
    "1 warning": "1 条警告",
    "actual:   ": "实际：",
    "alias": "别名",
    "asked": "被询问",
    "called in this chain already": "本条链中已被叫过",
    "deferred to the next turn": "推迟到下一轮",
    "everyone": "所有人",
    "expected: ": "期望：",
    "if it should: {expect}": "若本应如此：{expect}",
    "in {messages}": "见 {messages}",
    "it is its author's own": "这是作者自己的名字",
    "it stands in a quoted line": "在引用行里",
    "it stands in an address": "在网址或邮箱地址里",
    "it stands in code": "在代码里",
    "it stands straight after a letter or digit": "紧跟在字母或数字后面",
    "its session is kept: {command}": "会话已保留：{command}",
    "keyword": "关键词",
    "name": "名字",
    "named by {who}": "由 {who} 点名",
    "named in next_mentions": "在 next_mentions 里点名",
    "no candidate": "不在候选之列",
    "no member has this name": "没有成员叫这个名字",
    "no place left": "没有名额了",
    "over all steps": "所有步骤合计",
    "passed over": "未选中",
    "skill": "技能",
    "so it calls: {who}": "因此叫到：{who}",
    "steps that are recorded were not played": "录制中的部分步骤没有执行",
    "step {number}": "第 {number} 步",
    "tags": "标签",
    "the only member": "唯一的成员",
    "timeline of {step}": "时间线 · {step}",
    "who may reply, judged by {messages}": "谁可回应，依据 {messages}",
    "who opened the chain": "发起人",
    "why, in {step}": "为什么 · {step}",
    # how a replay differs from its recording
    "{count} calls": "{count} 次调用",
    "{field} is not what it was": "{field} 变了",
    "{who} has another {field}": "{who} 的 {field} 变了",
    "{who} have another {field}": "{who} 的 {field} 变了",
    "{who} is called, and no record is left for it": "叫了 {who}，但录制里没有它的记录",
    "{who} is not called any more": "不再叫 {who}",
    "{who} is shown another {field}": "{who} 看到的 {field} 变了",
    "{who} are shown another {field}": "{who} 看到的 {field} 变了",
    "a check failed to judge": "有检查未能评判",
    "accepted: it was written into the recording": "已接受：写进了录制",
    "an agent or arena failed": "有成员或 arena 本身出错",
    "another message is sent": "发出的消息变了",
    "and {count} more lines": "还有 {count} 行",
    "and {count} more, which the log tells": "还有 {count} 个，见日志",
    "drift: ": "与录制不同：",
    "in {count} scenarios": "涉及 {count} 个场景",
    "in 1 scenario": "涉及 1 个场景",
    "it drifted: take that over first, with --update": "与录制不同：请先用 --update 接受",
    "it was cut short": "中途断了",
    "look at it; if it is meant: {command}": "先看一看；若是有意的：{command}",
    "not accepted: {why}": "未接受：{why}",
    "nothing": "（无）",
    "nothing was recorded": "没有录下任何东西",
    "the file has a case {case} that was not recorded": "文件里有未录制的一例：{case}",
    "the file has no case {case} any more": "文件里不再有 {case} 这一例",
    "the team has another {field}": "团队的 {field} 变了",
    "there are calls without a recorded answer": "有调用没有录制的回答",
    # how two conversations, or results, differ
    "({count} equal lines)": "（{count} 行相同）",
    "(--json tells where)": "（位置见 --json）",
    "{count} chains": "{count} 条链",
    "1 chain": "1 条链",
    "a judge's call": "一次评判",
    "a message between chains": "链之间的一条消息",
    "also differ: {fields}": "另有不同：{fields}",
    "case {name}": "{name} 这一例",
    "chain {number}, in B {other}": "第 {number} 条链（B 中为第 {other} 条）",
    "it was shown something else, though nothing said before differs": (
        "之前说的都相同，但它看到的不同"
    ),
    "no difference": "没有不同",
    "only in {side}": "只在 {side} 中",
    "recording {name}": "录制 {name}",
    "result {name}": "结果 {name}",
    "settings": "设置",
    "the team changes": "团队有变",
    "they part at the end of {chain}": "在{chain}结束时走向不同",
    "they part in {chain}, turn {turn}": "从{chain}第 {turn} 轮起走向不同",
    # a page of HTML
    "{count} causes of drift": "{count} 处与录制不同的原因",
    "{count} lines": "{count} 行",
    "{count} more characters": "还有 {count} 个字符",
    "{who} in turn {turn}": "{who}，第 {turn} 轮",
    "1 call": "1 次调用",
    "1 cause of drift": "1 处与录制不同的原因",
    "agent": "成员",
    "all": "全部",
    "as the system has them": "跟随系统",
    "before": "原来",
    "before the first chain": "第一条链之前",
    "calls": "叫",
    "chain {number}": "第 {number} 条链",
    "close all": "全部收起",
    "colours": "配色",
    "dark": "深色",
    "end": "结束方式",
    "exit code {code}": "退出码 {code}",
    "expectations": "期望",
    "in {count} places": "涉及 {count} 处",
    "in 1 place": "涉及 1 处",
    "judged by {who}": "由 {who} 评判",
    "judges: {tokens}": "评判：{tokens}",
    "light": "浅色",
    "may reply": "可回应",
    "mentioned by": "提到者",
    "mode": "方式",
    "must reply": "须回应",
    "no answer yet": "尚无回答",
    "not called": "未被叫到",
    "now": "现在",
    "open all": "全部展开",
    "phase": "阶段",
    "recording written: {path}": "已写入录制：{path}",
    "recording: {path}": "录制：{path}",
    "result": "结果",
    "scenario": "场景",
    "search": "搜索",
    "start over": "重置",
    "tag": "标签",
    # what a message would do
    " ({count} older do not fit its window)": "（更早的 {count} 条放不进它的窗口）",
    "{count} of 1 message": "1 条消息中的 {count} 条",
    "{count} of {all} messages": "{all} 条消息中的 {count} 条",
    "{measured}, {reason}": "{measured}，{reason}",
    "~{tokens} tokens in turn 1": "第 1 轮 ~{tokens} tokens",
    ": ~{must} must, ~{may} may": "：须回应的 ~{must}，可回应的 ~{may}",
    "a new session": "新会话",
    "a new session {name}": "新会话 {name}",
    "below its threshold": "低于它的阈值",
    "chain {chain}, which was cut short, would be closed as interrupted": (
        "第 {chain} 条链中途断了，会以 interrupted（被中断）结束"
    ),
    "dry run: nobody is called, nothing is written": "试运行：不叫任何人，不写任何东西",
    "found: {words}": "命中：{words}",
    "it is busy: a send would wait for what another arena is doing there": (
        "它正忙：另一个 arena 正在写它，send 会等到那边结束"
    ),
    "it answers only when it is named (auto_respond: false)": (
        "只有被点名才回应 (auto_respond: false)"
    ),
    "may reply, judged by this message alone:": "可回应（只按这条消息判断）：",
    "may reply, judged by this message alone; what is answered first may change it:": (
        "可回应（只按这条消息判断；先有的回应可能改变结果）："
    ),
    "must reply:": "须回应：",
    "nobody must reply": "没有人须回应",
    "Nobody would be asked. {call}": "不会问任何人。{call}",
    "redacted": "已脱敏",
    "relevance {relevance}": "relevance（相关度）{relevance}",
    "the team's selection is none": "团队的 selection 是 none",
}

_BESIDE = {
    # how a chain ends
    "failed": "失败",
    "chain_limit": "到达轮数上限",
    "awaiting_human": "等人回复",
    "no_reply": "无人回复",
    "quiet": "无人待回应",
    "interrupted": "被中断",
    # how a reply ends
    "declined": "不回应",
    "timeout": "超时",
    "error": "出错",
    "errors": "出错",
    "cancelled": "已取消",
    # what is wrong with a note
    "solved": "已解决",
    "stale": "过期",
    "duplicate": "重复",
    "contradiction": "矛盾",
    # how much it matters that a note was not heeded
    "replan_required": "须重新规划",
    "warning": "警告",
    # what was done to a note
    "added": "新增",
    "seen": "再次出现",
    "edited": "补充",
    "submitted": "提交审批",
    "approved": "批准",
    "rejected": "退回",
    "archived": "归档",
    "superseded": "被取代",
    # what came of a scenario
    "passed": "通过",
    "skipped": "跳过",
    "xfailed": "预期失败",
    "not run": "未运行",
    "drifted": "与录制不同",
    "live": "实时",
    "replayed": "回放",
    "recorded": "已录制",
    "not recorded": "未录制",
    "updated": "已更新录制",
    "not updated": "录制未更新",
    "open": "未结束",
    # what an agent does
    "idle": "空闲",
    "analyzing": "分析中",
    "reading_memory": "读取记忆",
    "calling_tool": "调用工具",
    "generating": "生成中",
    "reviewing": "检查中",
    "waiting": "等待中",
    "done": "完成",
    # what a part of a message is
    "task_list": "任务清单",
    "note": "笔记",
    "code_block": "代码",
    "architecture_diagram": "架构图",
    "diff": "改动",
    "approval_request": "请求批准",
    "image": "图片",
    "file": "文件",
    "code": "代码",
    "json": "数据",
}


class Words:
    """Fixed words in one language."""

    def __init__(self, language: Language = "en") -> None:
        self.language: Language = language
        self._table: Mapping[str, str] = _CHINESE if language == "zh" else {}
        self._beside: Mapping[str, str] = _BESIDE if language == "zh" else {}

    def __call__(self, text: str, /, **values: object) -> str:
        """The text in this language, `{name}` filled in."""
        said = self._table.get(text, text)
        return said.format(**values) if values else said

    def enum(self, word: str) -> str:
        """A word that stands in files: itself, and beside it what it means."""
        meaning = self._beside.get(word)
        return f"{word}（{meaning}）" if meaning else word

    def spans(
        self, text: str, /, style: str = "", **values: str | int | list[Span]
    ) -> Iterator[Span]:
        """The same as pieces of a line; a value may be pieces with styles of their own."""
        for literal, name, _, _ in string.Formatter().parse(self._table.get(text, text)):
            if literal:
                yield Span(literal, style)
            if name is not None:
                value = values[name]
                if isinstance(value, list):
                    yield from value
                else:
                    yield Span(str(value), style)


def language(environ: Mapping[str, str]) -> Language:
    """`ARENA_LANG` (zh, or English), else the locale, else on Windows that of its windows."""
    asked = environ.get("ARENA_LANG")
    if asked:
        return _of(asked)
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environ.get(name):
            return _of(environ[name])
    return _windows() if sys.platform == "win32" else "en"


def here() -> Words:
    """The words in the language that this process was asked to speak."""
    return Words(language(os.environ))


def _of(tag: str) -> Language:
    return "zh" if tag.casefold().startswith("zh") else "en"


def _windows() -> Language:
    import ctypes  # noqa: PLC0415 - there is no other way on Windows, and no need elsewhere

    try:
        tag = ctypes.windll.kernel32.GetUserDefaultUILanguage()  # type: ignore[attr-defined,unused-ignore]  # on Windows only
    except (AttributeError, OSError):
        return "en"
    return "zh" if tag & _WINDOWS_PRIMARY == _WINDOWS_CHINESE else "en"
