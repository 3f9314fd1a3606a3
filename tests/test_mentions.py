"""Mentions: examples of each rule, properties over any text, and work that stays linear."""

from __future__ import annotations

import itertools
import random
import unicodedata
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from product import AgentProfile, Human, Member, Mentions, Roster, mentions, visible_text

MANY = 5 * settings.default.max_examples  # each is quick


def member(agent_id: str, name: str = "", aliases: Iterable[str] = ()) -> Member:
    profile = AgentProfile(
        agent_id=agent_id, name=name, aliases=list(aliases), adapter={"type": "scripted"}
    )
    return Member(profile, name=name or agent_id)


TEAM = [
    member("architect", "架构师"),
    member("dev", "开发", ["全栈开发", "Node.js"]),
    member("chief"),
    member("chief-ops"),
    member("zoe", "Zoe\u0308"),
    member("scientist", "👩‍🔬"),
    member("heart", "❤"),
    member("china", "🇨🇳"),
    member("jane", "Jane  Doe"),
    member("thai", "ทดสอบ"),
    member("kana", "ガイド"),
    member("korean", "개발자"),
]
HUMANS = [Human(id="maya", name="Maya 王")]
ROSTER = Roster(TEAM, HUMANS)
EVERYBODY = tuple(one.id for one in TEAM)


def parse(text: str, author: str = "nobody", opener: str = "maya") -> Mentions:
    return mentions.parse_mentions(text, ROSTER, author=author, opener=opener)


def ids(text: str) -> tuple[str, ...]:
    return parse(text).ids


PARTICLES = (
    *("님", "님께서는", "씨가", "들", "들에게만", "이", "가", "은", "는", "을", "를", "의", "에게"),
    *(
        "에게는",
        "한테",
        "과",
        "와",
        "랑",
        "도",
        "만",
        "까지도",
        "부터",
        "처럼",
        "으로",
        "로서",
        "밖에",
    ),
    *("님이랑", "님하고", "님도요", "입니다", "님이에요", "이라고", "에서", "께", "아", "야"),
)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("@dev 请看 @architect，@dev", ("dev", "architect")),
        ("@DEV @Ｄｅｖ ＠dev", ("dev",)),
        ("@dev请看", ("dev",)),
        ("@dev- hello", ("dev",)),
        ("@dev_ hello", ("dev",)),
        ("@dev.", ("dev",)),
        ("@dev's idea", ("dev",)),
        ("**@dev** __@chief__", ("dev", "chief")),
        ("@dev👍", ("dev",)),
        ("@dev\u200b hello", ("dev",)),
        ("@node.js please", ("dev",)),
        ("@devs", ()),
        ("@dev2", ()),
        ("@dev-x", ()),
        ("@dev_x", ()),
        ("@dev-测试", ()),
        ("@dev\u0301", ()),
        ("@架构师请看", ("architect",)),
        ("@全栈开发请看", ("dev",)),
        ("@ทดสอบครับ", ("thai",)),
        ("@ガイドさん @ｶﾞｲﾄﾞさん", ("kana",)),
        ("@개발자 @개발자들", ("korean",)),
        *((f"@개발자{ending} 확인", ("korean",)) for ending in PARTICLES),
        *((f"@dev{ending} 확인", ("dev",)) for ending in PARTICLES),
        ("@架构师님 @ガイド가", ("architect", "kana")),
        ("@개발자님", ("korean",)),
        ("@개발자ㅋㅋ", ("korean",)),
        ("@개발자협회", ()),
        ("@개발자님사람", ()),
        ("@개발자A @개발자2 @개발자_x", ()),
        ("@ทดสอบช่วยดูหน่อย", ("thai",)),
        ("@ガイドさんから @架构师さんへ @devさん", ("kana", "architect", "dev")),
        ('@[Jane Doe] @"全栈开发" @［ＤＥＶ］ @“Maya 王”', ("jane", "dev", "maya")),
        ("@[jane　doe]님 @[👩‍🔬] ＠[Node.js]x", ("jane", "scientist", "dev")),
        ("@[Doe] @[Jane Doe @dev", ("dev",)),
        ('"@" "dev" "@","dev" "@dev"', ("dev",)),
        ("`@[Jane Doe]` x@[Jane Doe]", ()),
        ("@Jane Doe, hi", ("jane",)),
        ("@jane\u3000doe", ("jane",)),
        ("@Jane\nDoe", ("jane",)),
        ("@Jane `x` Doe", ("jane",)),
        ("@👩‍🔬看", ("scientist",)),
        ("@👩 @👩‍🔬‍👩 @👩‍🔬🏽", ()),
        ("@❤️ hi", ("heart",)),
        ("@❤‍🔥", ()),
        ("@🇨🇳🇺🇸", ("china",)),
        ("@🇨🇳🇺", ("china",)),
        ("@@dev", ("dev",)),
        ("x@dev 7@dev", ()),
        ("请@dev -@chief _@zoe", ("dev", "chief", "zoe")),
        ("@ dev", ()),
    ],
)
def test_a_name_is_found_where_it_ends(text: str, named: tuple[str, ...]) -> None:
    assert ids(text) == named


def test_a_flag_does_not_match_across_two_others() -> None:
    half = Roster([member("half", "🇨")])
    assert mentions.parse_mentions("@🇨🇳", half, author="", opener="").ids == ()
    assert mentions.parse_mentions("@🇨 x", half, author="", opener="").ids == ("half",)


def test_half_width_letters_that_melt_into_one_are_one() -> None:
    roster = Roster([member("a", "가"), member("b", "ᄀ")])
    assert mentions.parse_mentions("@\uffa1\uffc2", roster, author="", opener="").ids == ("a",)
    assert mentions.parse_mentions("@\uffa1 x", roster, author="", opener="").ids == ("b",)


@pytest.mark.parametrize("word", ["all", "everyone", "ALL", "所有人", "全体成员"])
def test_all_is_everybody_in_team_order(word: str) -> None:
    assert ids(f"@{word}") == EVERYBODY
    assert ids(f"@{word}：请看") == EVERYBODY


def test_all_ends_as_a_name_does() -> None:
    assert ids("@所有人请看") == EVERYBODY
    assert ids("@all请看") == EVERYBODY
    assert parse("@allison") == Mentions(unresolved=("allison",))


def test_all_stands_in_its_place_and_tells_who_is_named_by_it_alone() -> None:
    found = parse("@chief @all @maya @dev", author="zoe")
    agents = [one for one in EVERYBODY if one != "zoe"]
    agents.remove("chief")
    assert found.ids == ("chief", *agents, "maya")
    assert found.by_all_only == frozenset(agents) - {"dev"}


def test_the_human_is_who_opened_the_chain_or_named() -> None:
    assert parse("@user", opener="li").ids == ("li",)
    assert parse("@用户，@你 @User", opener="li").ids == ("li",)
    assert parse("@Maya 王 看", opener="li").ids == ("maya",)
    assert parse("@maya", opener="li").ids == ("maya",)


def test_the_words_for_the_human_end_before_a_han_letter() -> None:
    assert parse("@用户请看") == Mentions(unresolved=("用户请看",))
    assert parse("@你好") == Mentions(unresolved=("你好",))
    assert parse("@user请看").ids == ("maya",)


def test_mentioning_oneself_does_nothing() -> None:
    assert parse("@dev @开发 @chief", author="dev") == Mentions(ids=("chief",))
    assert parse("@user @maya", author="maya") == Mentions()


def test_an_unknown_name_in_brackets_is_kept_without_them() -> None:
    text = '@[Jane Smith] @"小李 (QA)" @“Max” @[] @[ x] @[x ] @"," @[a\nb]'
    assert parse(text) == Mentions(unresolved=("Jane Smith", "小李 (QA)", "Max"))
    assert parse("@[" + "x" * 60 + "]").unresolved == ("x" * 32,)
    names = ["@[Jane Doe]", '"dev"', "[Jane Smith]"]
    resolved = mentions.resolve_mentions(names, ROSTER, author="nobody", opener="maya")
    assert resolved == Mentions(ids=("jane", "dev"), unresolved=("Jane Smith",))


def test_a_name_that_nobody_has_is_kept_as_written_once() -> None:
    assert parse("@Bob and @bob, @李雷：@bob").unresolved == ("Bob", "李雷")
    assert parse("@" + "x" * 40).unresolved == ("x" * 32,)
    assert parse("@_@ @- @! @").unresolved == ()
    assert parse("@हिन्दी-x @no_body-").unresolved == ("हिन्दी-x", "no_body-")


@pytest.mark.parametrize(
    "hidden",
    [
        "```\n@dev\n```",
        "```py\n@dev\n\n@dev\n````",
        "   ~~~ `x`\n@dev\n```\n~~~",
        "```\n@dev\n``\n~~~\n    ```\n@dev",
        "- x\n\n  ```\n  @dev\n\n  ```\n",
        "1. x\n   - y\n     ```\n     @dev\n\n     @dev\n     ```",
        "- ```\n  @dev\n  ```",
        "`@dev`",
        "``a ` @dev``",
        "`a\n@dev`",
        "`x\\` `@dev`",
        "https://a.example/@dev",
        "https://a.example/x(@dev)",
        "HTTPS://user@dev/ git+ssh://x/@dev",
        "www.a.example/@dev",
        "a.example/@dev/post",
        "https://例子.测试/@dev",
        "https://a.example/straße/@dev",
        "x.y+z@dev.example",
        "zoë@dev.example zoe\u0308@dev.example",
        "_x_@dev.example",
        "> @dev",
        ">@dev",
        "   > > @dev",
        "- > @dev",
    ],
)
def test_hidden_text_mentions_nobody(hidden: str) -> None:
    assert parse(hidden) == Mentions()
    assert ids(f"@chief\n{hidden}") == ("chief",)


@pytest.mark.parametrize(
    "text",
    [
        "```\n`x`\n```\n@dev",
        "a\n> quoted\n@dev",
        "> ```\n> open\n\n@dev",
        "    ```\n@dev",
        "   - x\n\nend\n\n     ```\n\n@dev",
        "```a`b\n@dev",
        "``@dev`",
        "`a\n\n@dev` b",
        "- a `b\n- @dev c`",
        "# a `b\n@dev c`",
        "a `b\n> c\n@dev d`",
        "\\`@dev\\`",
        "a \\``x` @dev",
        "https://a.example/x，@dev",
        "https://a.example/x @dev",
        "见https://a.example/x，@dev",
        "<https://a.example/x>@dev",
        "[x](https://a.example/x_(y))@dev",
        "(https://a.example)@dev",
        "http:// @dev",
        "support@chief.example：@dev",
        "1 > 0 @dev",
        "＞ @dev",
    ],
)
def test_text_beside_hidden_text_is_seen(text: str) -> None:
    assert ids(text) == ("dev",)


def test_a_url_ends_before_a_comma_and_a_name_in_han() -> None:
    assert ids("见 https://a.example/x,@架构师 请看") == ("architect",)


def test_visible_keeps_length_and_line_ends() -> None:
    text = "a `b`\r\n```\r\nc\r\n```\r\n> d\re"
    assert visible_text.blank_hidden(text) == "a    \r\n   \r\n \r\n   \r\n   \re"
    assert visible_text.find_hidden_spans(text) == [(2, 5), (7, 20), (20, 24)]


def test_resolve_takes_ids_names_and_reserved_words_as_a_whole() -> None:
    names = ["@Dev", "＠架构师", "  jane doe ", "用户", "Bob", "@bob", "dev please", "", "@"]
    found = mentions.resolve_mentions(names, ROSTER, author="zoe", opener="maya")
    assert found == Mentions(
        ids=("dev", "architect", "jane", "maya"), unresolved=("Bob", "dev please")
    )
    everybody = mentions.resolve_mentions(["all"], ROSTER, author="zoe", opener="maya")
    assert everybody.by_all_only == frozenset(EVERYBODY) - {"zoe"}
    assert mentions.resolve_mentions(["zoe"], ROSTER, author="zoe", opener="maya") == Mentions()


def test_an_id_is_never_hidden_by_the_name_of_another() -> None:
    roster = Roster([member("a", "b"), member("b")])
    assert mentions.parse_mentions("@b", roster, author="", opener="").ids == ("b",)


def test_conflicts_of_names_are_errors() -> None:
    errors, warnings = mentions.find_name_conflicts(
        [member("one", "Ｔwo"), member("two"), member("three", "所有人"), member("user")],
        [Human(id="maya", name="ONE")],
    )
    assert [str(error) for error in errors] == [
        '"two" is a name of both one and two',
        '"所有人", a name of three, is reserved',
        '"user", a name of user, is reserved',
        '"ONE" is a name of both one and maya',
    ]
    assert warnings == []


def test_beginnings_and_single_characters_are_warnings() -> None:
    errors, warnings = mentions.find_name_conflicts(
        [member("chief", "Chief", ["chi"]), member("chief-ops"), member("bao", "包")]
    )
    assert errors == []
    assert warnings == [
        '"包", a name of bao, is one character long',
        '"chi", a name of chief, is the beginning of "chief-ops", a name of chief-ops',
        '"chief", a name of chief, is the beginning of "chief-ops", a name of chief-ops',
    ]


def test_only_a_human_may_be_called_what_the_opener_is_called() -> None:
    assert mentions.find_name_conflicts([], [Human(id="user", name="用户")]) == ([], [])
    assert len(mentions.find_name_conflicts([], [Human(id="user", name="all")])[0]) == 1
    assert len(mentions.find_name_conflicts([], [Human(id="maya", name="用户")])[0]) == 1


PIECES = [
    *(
        "@",
        "＠",
        "`",
        "``",
        "```",
        "~~~",
        "\n",
        "\n\n",
        "\r\n",
        " ",
        "    ",
        "\t",
        "> ",
        "- ",
        "1. ",
    ),
    *("https://", "a.example", "/x", "(", ")", "[", "]", ",", "，", ".", "：", "-", "_", "\\", "#"),
    *("all", "所有人", "user", "你", "dev", "DEV", "chief", "-ops", "架构师", "全栈开发", "请看"),
    *("Jane", "Doe", "Zoë", "Zoe", "\u0308", "👩", "\u200d", "🔬", "❤", "\ufe0f", "🇨", "🇳", "🏽"),
    *("ガ", "ｶ", "ﾞ", "イド", "개발자", "ทดสอบ", "ิ", "7", "x", "ﬁ", "İ", "\0", "王"),
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=25).map("".join)


@settings(max_examples=MANY)
@given(TEXTS)
def test_each_id_is_named_once_by_a_known_name_after_an_at(text: str) -> None:
    found = parse(text, author="dev")
    assert len(set(found.ids)) == len(found.ids)
    assert "dev" not in found.ids
    assert found.by_all_only <= set(found.ids)
    shown = visible_text.fold_text(visible_text.blank_hidden(visible_text.compose_text(text)))
    for called in set(found.ids) - found.by_all_only:
        names = [called]
        if called == "maya":
            names += ["user", "用户", "你", "Maya 王"]
        names += [
            name for one in TEAM if one.id == called for name in (one.name, *one.profile.aliases)
        ]
        folded = [" ".join(visible_text.fold_text(name).split()) for name in names]
        assert any(f"@{name}" in shown.replace("＠", "@") for name in folded)


@settings(max_examples=MANY)
@given(TEXTS)
def test_canonical_form_does_not_matter(text: str) -> None:
    composed = parse(unicodedata.normalize("NFC", text))
    assert parse(unicodedata.normalize("NFD", text)) == composed
    assert parse(text) == composed


@settings(max_examples=MANY)
@given(TEXTS)
def test_a_fence_around_a_text_hides_it(text: str) -> None:
    assert parse(f"{'`' * 99}\n{text}\n{'`' * 99}") == Mentions()
    assert ids(f"{'~' * 99}\n{text}\n{'~' * 99}\n@chief") == ("chief",)
    assert parse(f"```\n{text.replace('`', '')}") == Mentions()


@settings(max_examples=MANY)
@given(TEXTS)
def test_a_quoted_text_is_hidden(text: str) -> None:
    assert parse("".join(f"> {line}" for line in _lines(text))) == Mentions()


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").splitlines(keepends=True) or [""]


@settings(max_examples=MANY)
@given(TEXTS)
def test_nothing_is_found_in_hidden_text(text: str) -> None:
    composed = visible_text.compose_text(text)
    spans = visible_text.find_hidden_spans(composed)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    hidden_only = "".join(
        "·" if char in "@＠" and not any(start <= place < end for start, end in spans) else char
        for place, char in enumerate(composed)
    )
    assert parse(hidden_only) == Mentions()


@settings(max_examples=MANY)
@given(TEXTS)
def test_visible_text_is_the_text_but_for_hidden_characters(text: str) -> None:
    shown = visible_text.blank_hidden(text)
    spans = visible_text.find_hidden_spans(text)
    assert len(shown) == len(text)
    for place, (char, seen) in enumerate(zip(text, shown, strict=True)):
        is_hidden = any(start <= place < end for start, end in spans)
        assert seen == (" " if is_hidden and char not in "\r\n" else char)


@settings(max_examples=MANY)
@given(st.text(alphabet="abc 7架构请看。，ë👩", max_size=20), TEXTS)
def test_a_paragraph_without_an_at_before_it_changes_nothing(before: str, text: str) -> None:
    assert parse(f"{before}.\n\n{text}") == parse(f"\n\n{text}")


@settings(max_examples=MANY)
@given(st.lists(st.sampled_from([*EVERYBODY, "maya"]), unique=True))
def test_ids_are_found_in_order_of_mention(order: list[str]) -> None:
    assert ids("，".join(f"@{one}" for one in order)) == tuple(order)


@settings(max_examples=MANY)
@given(TEXTS)
def test_resolve_and_parse_agree(text: str) -> None:
    found = parse(text, author="zoe")
    again = mentions.resolve_mentions(found.ids, ROSTER, author="zoe", opener="maya")
    assert again.ids == found.ids
    unknown = mentions.resolve_mentions(found.unresolved, ROSTER, author="zoe", opener="maya")
    assert all(parse(f"@{name}", author="zoe").ids == () for name in unknown.unresolved)


NAMES = st.text(
    alphabet="aB7-_ßéﬁ架构ガｶﾞ개ก\u0308\u0327👩\u200d🔬🇨\ufe0f. ", min_size=1, max_size=5
)


@settings(max_examples=MANY)
@given(
    st.lists(NAMES, min_size=1, max_size=6), NAMES, st.text(alphabet="aB7-_架ガ\u0308🔬\ufe0f 。")
)
@example(["Zoe", "Zoë"], "Zoe", "\u0308")
@example(["ss", "s"], "ß", "")
def test_the_longest_known_name_wins_as_a_search_of_all_names_finds_it(
    names: list[str], written: str, after: str
) -> None:
    roster = Roster([member(f"id{index}", name) for index, name in enumerate(names)])
    text = visible_text.compose_text(f"@{written}{after}")
    end, target = roster.longest(text, 1)
    known = {" ".join(visible_text.fold_text(name).split()) for name in names} - {""}
    if target is None:
        assert end == 1
    else:
        assert visible_text.fold_text(text[1:end]) in known
    for longer in range(end + 1, len(text) + 1):
        if visible_text.fold_text(text[1:longer]) in known:
            assert _goes_on(text, longer)


def _goes_on(text: str, end: int) -> bool:
    after = text[end : end + 2]
    if not after:
        return False
    if (
        visible_text.joins_previous(after[0])
        or visible_text.classify_char(after[0]) is visible_text.CharKind.EXTEND
    ):
        return True
    flag = "\U0001f1e6" <= after[0] <= "\U0001f1ff"
    joined = after[0] in "-_" and len(after) == 2 and visible_text.is_letter_or_digit(after[1])
    return flag or joined or visible_text.classify_char(after[0]) is visible_text.CharKind.SPACED


@settings(max_examples=MANY)
@given(TEXTS)
def test_folding_piece_by_piece_is_folding_the_whole(text: str) -> None:
    composed = visible_text.compose_text(text)
    pieces: list[str] = []
    for char in composed:
        if pieces and visible_text.joins_previous(char):
            pieces[-1] += char
        else:
            pieces.append(char)
    assert "".join(map(visible_text.fold_text, pieces)) == visible_text.fold_text(composed)


def _runs_of_backticks(size: int) -> str:
    chance = random.Random(1)
    return "".join("`" * chance.randint(1, 300) + "x" for _ in range(size // 150))


HOSTILE: dict[str, Callable[[int], str]] = {
    "ats": lambda n: "@" * n,
    "one run length each": lambda n: "".join("`" * i + " " for i in range(int((2 * n) ** 0.5))),
    "runs of backticks": _runs_of_backticks,
    "escaped backticks": lambda n: "\\`" * (n // 2),
    "backslashes": lambda n: "\\" * n,
    "angles": lambda n: "<" * n,
    "schemes": lambda n: "http://" * (n // 7),
    "closed urls": lambda n: "http://a)" * (n // 9),
    "open urls": lambda n: "http://" + "(" * n,
    "hosts and paths": lambda n: "ab.cd/%" * (n // 7),
    "addresses": lambda n: "a@" * (n // 2),
    "dotted addresses": lambda n: "a@" + "1." * (n // 2),
    "quotes": lambda n: "> @dev\n" * (n // 7),
    "open fence": lambda n: "```\n" + "@dev\n" * (n // 5),
    "fences that do not close": lambda n: "\n".join(
        "`" * i for i in range(int((2 * n) ** 0.5), 2, -1)
    ),
    "dots": lambda n: "http://a" + "." * n,
    "list markers": lambda n: "- " * (n // 2),
    "marks out of order": lambda n: "@dev" + "\u0301\u0323" * (n // 2),
    "half-width marks": lambda n: "ﾞ\u0323" * (n // 2),
    "half names": lambda n: "@chief-op" * (n // 9),
    "regional indicators": lambda n: "@" + "🇨" * n,
    "joiners": lambda n: "@👩\u200d" * (n // 3),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_of_any_size_is_read_as_a_small_one_is(kind: str) -> None:
    # Quadratic work on these sizes would take hours, not the second that it takes.
    small, large = (parse(f"{HOSTILE[kind](size)}\n\n@dev") for size in (2_000, 200_000))
    assert large.ids == small.ids


def test_the_work_for_a_name_does_not_grow_with_the_team(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "@agent-7 请看 @agent-none @工程师12号请看 " * 50
    assert _folds(monkeypatch, text, 200) == _folds(monkeypatch, text, 2_000) > 0


def _folds(monkeypatch: pytest.MonkeyPatch, text: str, members: int) -> int:
    roster = Roster([member(f"agent-{i}", f"工程师{i}号") for i in range(members)])
    calls = 0
    fold = visible_text.fold_text

    def counted(text: str) -> str:
        nonlocal calls
        calls += 1
        return fold(text)

    visible_text.fold_name.cache_clear()
    with monkeypatch.context() as patch:
        for module in (mentions, visible_text):
            patch.setattr(module, "fold_text", counted)
        mentions.parse_mentions(text, roster, author="", opener="")
    return calls
