# ruff: noqa: E501  # what is told stands here as it is printed
"""Each way in which people get YAML wrong: what is told of it, where, and the mend."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from product import (
    AgentProfile,
    CliSettings,
    FileFaults,
    ScenarioFile,
    TeamFile,
    WorkspaceFile,
    display_width,
    translate_message,
)
from product import yamlio_loader as loader
from program import Program
from pydantic import BaseModel

SHAPES: dict[str, type[BaseModel]] = {
    "scenario": ScenarioFile,
    "agent": AgentProfile,
    "team": TeamFile,
    "arena": WorkspaceFile,
}

# A text (→ is a tab, ␣ a no-break space, ␇ a bell; steps stand below two lines), and below `---` all that is told:
# one mistake of syntax, or all that does not fit the shape.
TABLE = r"""
=== scenario: @
  - send: @alice hi
---
f.yaml:3: a value that starts with @ must be quoted
  - send: @alice hi
          ^
  write: - send: "@alice hi"
=== scenario: backtick
  - send: `code` here
---
f.yaml:3: a value that starts with ` must be quoted
  - send: `code` here
          ^
  write: - send: "`code` here"
=== agent: star
agent_id: dev
adapter: {type: scripted, replies: [hi]}
name: **Dev**
---
f.yaml:3: a value that starts with * must be quoted
  name: **Dev**
        ^
  write: name: "**Dev**"
=== scenario: exclamation mark
  - send: !important x
---
f.yaml:3: steps[0].send: `!important` is a YAML tag that is not read here
  - send: !important x
          ^
  write: - send: "!important x"
=== scenario: ampersand
  - send: &x y
---
f.yaml:3: `&x` names a value, but nothing uses the name
  - send: &x y
          ^
  write: - send: "&x y"
=== scenario: percent
  - send: %x
---
f.yaml:3: a value that starts with % must be quoted
  - send: %x
          ^
  write: - send: "%x"
=== scenario: pipe
  - send: | hello
---
f.yaml:3: a value that starts with | must be quoted
  - send: | hello
          ^
  write: - send: "| hello"
=== scenario: dash
  - send: - hi
---
f.yaml:3: a value that starts with - must be quoted
  - send: - hi
          ^
  write: - send: "- hi"
=== scenario: question mark
  - send: ? hi
---
f.yaml:3: a value that starts with ? must be quoted
  - send: ? hi
          ^
  write: - send: "? hi"
=== scenario: a template in braces
  - send: {name} hello
---
f.yaml:3: a text that starts with { must be quoted
  - send: {name} hello
          ^
  write: - send: "{name} hello"
=== scenario: nothing but a template
  - send: {name}
---
f.yaml:3: steps[0].send: {} makes a mapping here, and `name` is a key without a value
  - send: {name}
          ^
  write: - send: "{name}"
=== scenario: a tag in brackets
  - send: [urgent] check
---
f.yaml:3: a text that starts with [ must be quoted
  - send: [urgent] check
          ^
  write: - send: "[urgent] check"
=== scenario: nothing but a tag in brackets
  - step: [urgent]
    send: x
---
f.yaml:3: steps[0].step: must be a text, not a list
  - step: [urgent]
          ^
  write: - step: "[urgent]"
=== scenario: @ in a list and in {}
  - {send: @dev, expect: {replied: [@dev, b]}}
---
f.yaml:3: a value that starts with @ must be quoted
  - {send: @dev, expect: {replied: [@dev, b]}}
           ^
  write: - {send: "@dev", expect: {replied: [@dev, b]}}
=== scenario: a key that starts with @
  - send: x
    expect:
      replies:
        @dev: [{contains: a}]
---
f.yaml:6: a key that starts with @ must be quoted
  @dev: [{contains: a}]
  ^
  write: "@dev": [{contains: a}]
=== scenario: * as a key
  - send: x
    expect: {replies: {*: [{contains: a}]}}
---
f.yaml:4: a key that starts with * must be quoted
  expect: {replies: {*: [{contains: a}]}}
                     ^
  write: expect: {replies: {"*": [{contains: a}]}}
=== scenario: a comma inside {}
  - {send: hi, there, you}
---
f.yaml:3: steps[0].send: a comma inside {} ends a text: `there` is read as a key without a value
  - {send: hi, there, you}
               ^
  write: - {send: "hi, there, you"}
=== scenario: a bracket inside {}
  - {send: fix [a] now}
---
f.yaml:3: a text with `[` in it must be quoted inside {} and []
  - {send: fix [a] now}
               ^
  write: - {send: "fix [a] now"}
=== scenario: a variable inside {}
  - {send: in ${vars.region} now, step: x}
---
f.yaml:3: a text with `{` in it must be quoted inside {} and []
  - {send: in ${vars.region} now, step: x}
               ^
  write: - {send: "in ${vars.region} now", step: x}
=== scenario: a regex inside {}
  - send: x
    expect: {replies: {dev: [{regex: x{2}}]}}
---
f.yaml:4: a text with `{` in it must be quoted inside {} and []
  expect: {replies: {dev: [{regex: x{2}}]}}
                                    ^
  write: expect: {replies: {dev: [{regex: "x{2}"}]}}
=== scenario: no space after a colon inside {}
  - {send:hello}
---
f.yaml:3: steps[0].send:hello: `send:hello` has no space after its colon, so it is a key without a value
  - {send:hello}
         ^
  write: - {send: hello}
=== scenario: a { that is not closed
  - send: x
    expect: {turns: 1
  - send: y
---
f.yaml:4: the { that opens here is not closed before line 5
  expect: {turns: 1
          ^
  close it, or quote the text if it is one
=== scenario: a [ that is never closed
  - send: x
    expect: {replied: [a}
---
f.yaml:4: the [ that opens here is not closed before the }
  expect: {replied: [a}
                    ^
  close it, or quote the text if it is one
=== scenario: a } too many
  - send: x
    expect: {turns: 1}}
---
f.yaml:4: this } does not belong here
  expect: {turns: 1}}
                    ^
  write: expect: {turns: 1}
=== scenario: # after a space
  - send: fix issue #3
---
f.yaml:3: steps[0].send: a `#` after a space begins a comment: the rest of this line is lost (a comment has a space after its #)
  - send: fix issue #3
                    ^
  write: - send: "fix issue #3"
=== scenario: # at the beginning
  - send: #3 is broken
---
f.yaml:3: steps[0].send: a `#` after a space begins a comment: the rest of this line is lost (a comment has a space after its #)
  - send: #3 is broken
          ^
  write: - send: "#3 is broken"
=== scenario: # inside {}
  - {send: fix #3, expect: {turns: 1}}
---
f.yaml:3: a `#` after a space begins a comment: the rest of this line is lost
  - {send: fix #3, expect: {turns: 1}}
               ^
  write: - {send: "fix #3", expect: {turns: 1}}
=== scenario: # inside []
  - send: x
    expect: {unresolved: [#a]}
---
f.yaml:4: a `#` after a space begins a comment: the rest of this line is lost
  expect: {unresolved: [#a]}
                        ^
  write: expect: {unresolved: ["#a"]}
=== scenario: # in a text of two lines
  - send: fix #3
      and more
---
f.yaml:3: a `#` after a space begins a comment: the rest of this line is lost
  - send: fix #3
              ^
  quote the whole text, or write it below a `|`
=== agent: # in a name
agent_id: dev
adapter: {type: scripted, replies: [hi]}
name: 开发 #后端
---
f.yaml:3: name: a `#` after a space begins a comment: the rest of this line is lost (a comment has a space after its #)
  name: 开发 #后端
             ^
  write: name: "开发 #后端"
=== agent: # in a list
agent_id: dev
adapter: {type: scripted, replies: [hi]}
skills:
  - C #
  - issue #3
---
f.yaml:5: skills[1]: a `#` after a space begins a comment: the rest of this line is lost (a comment has a space after its #)
  - issue #3
          ^
  write: - "issue #3"
=== scenario: a regex in double quotes
  - send: x
    expect: {replies: {dev: [{regex: "\d+ it's"}]}}
---
f.yaml:4: `\d` has no meaning between double quotes
  expect: {replies: {dev: [{regex: "\d+ it's"}]}}
                                    ^
  write: expect: {replies: {dev: [{regex: '\d+ it''s'}]}}
=== scenario: a word boundary in double quotes
  - send: x
    expect: {replies: {dev: [{regex: "\bfoo\b"}]}}
---
f.yaml:4: steps[0].expect.replies.dev[0].regex: `\b` between double quotes is a control character, not part of a regex
  expect: {replies: {dev: [{regex: "\bfoo\b"}]}}
                                    ^
  write: expect: {replies: {dev: [{regex: '\bfoo\b'}]}}
=== arena: a pattern in double quotes
redact: ["\bkey"]
---
f.yaml:1: redact[0]: `\b` between double quotes is a control character, not part of a regex
  redact: ["\bkey"]
            ^
  write: redact: ['\bkey']
=== agent: a path of Windows
agent_id: dev
adapter: {type: scripted, replies: [hi]}
role_prompt: "C:\Users\x"
---
f.yaml:3: `\U` has no meaning between double quotes
  role_prompt: "C:\Users\x"
                  ^
  write: role_prompt: 'C:\Users\x'
=== scenario: a quote that is never closed
  - send: "hi
    expect: {}
---
f.yaml:3: the " that opens here is never closed
  - send: "hi
          ^
  write: - send: "hi"
=== scenario: a quote that another closes
  - send: "hi
  - send: "ho"
---
f.yaml:3: the " that opens here is not closed before line 4
  - send: "hi
          ^
  write: - send: "hi"
=== scenario: an apostrophe
  - send: 'it's'
---
f.yaml:3: text follows the closing '; quote the whole value
  - send: 'it's'
             ^
  write: - send: "it's"
=== scenario: text after a quote
  - send: "no" he said
---
f.yaml:3: text follows the closing "; quote the whole value
  - send: "no" he said
             ^
  write: - send: '"no" he said'
=== scenario: quotes twice
  - send: ""hi""
---
f.yaml:3: text follows the closing "; quote the whole value
  - send: ""hi""
           ^
  write: - send: "hi"
=== scenario: a tab
→- send: x
→  expect: {turns: 1}
---
f.yaml:3: a tab cannot indent in YAML
  \t- send: x
  ^
  indent with spaces
=== scenario: a key indented less
  - send: a
   expect: {}
---
f.yaml:4: this line is among the list items from line 3
  expect: {}
  ^
  start it with `- `, or indent it with 4 spaces, to belong to line 3
=== scenario: a key indented more
  - send: a
     expect: {}
---
f.yaml:4: this key is indented more than the other keys, from line 3
  expect: {}
  ^
  indent it with 4 spaces
=== arena: a key indented more at the top
team: t
 language: zh
---
f.yaml:2: this key is indented more than the other keys, from line 1
  language: zh
  ^
  remove the spaces before it
=== arena: a key indented less at the top
  team: t
language: zh
---
f.yaml:2: this line does not fit the keys from line 1
  language: zh
  ^
  indent it with 2 spaces
=== scenario: an item indented less
  - send: a
 - send: b
---
f.yaml:4: this item is not indented like the one on line 3
  - send: b
  ^
  indent it with 2 spaces
=== scenario: an item below the wrong level
  - send: a
    - send: b
---
f.yaml:4: this item is not indented like the one on line 3
  - send: b
  ^
  indent it with 2 spaces
=== scenario: an item without its dash
  - send: a
  send: b
---
f.yaml:4: this line is among the list items from line 3
  send: b
  ^
  start it with `- `, or indent it with 4 spaces, to belong to line 3
=== scenario: a list without dashes
  send: a
---
f.yaml:2: steps: must be a list, not a mapping
  steps:
  ^
  write `- ` before each item
=== agent: words without dashes
agent_id: dev
adapter: {type: scripted, replies: [hi]}
skills:
  a
  b
---
f.yaml:3: skills: must be a list, not the text `a b`
  skills:
  ^
  write `- ` before each item
=== scenario: a dash without its space
  -send: a
  -send: b
---
f.yaml:3: `-` needs a space after it to begin a list item
  -send: a
  ^
  write: - send: a
f.yaml:4: `-` needs a space after it to begin a list item
  -send: b
  ^
  write: - send: b
=== scenario: a key left of where it belongs
  - send: a
    expect:
    turns: 1
---
f.yaml:5: steps[0].turns: unknown key
  turns: 1
  ^
  `turns` belongs under `check` or `expect`, indented more
=== agent: a key above where it belongs
agent_id: dev
adapter: {type: scripted, replies: [hi]}
threshold: 0.5
---
f.yaml:3: threshold: unknown key
  threshold: 0.5
  ^
  `threshold` belongs under `response`, indented more
=== scenario: a colon and a space
  - step: note: this
    send: x
---
f.yaml:3: a value with a colon and a space in it must be quoted
  - step: note: this
              ^
  write: - step: "note: this"
=== arena: no space after the colon
team:t
language: zh
---
f.yaml:1: `team:` needs a space after its colon
  team:t
      ^
  write: team: t
=== arena: no space after the only colon
team:t
---
f.yaml:1: the file must be a mapping of keys, not the text `team:t`
  team:t
  ^
  write: team: t
=== scenario: no space before a {
  - send: a
    expect:{turns: 1}
---
f.yaml:4: `expect:` needs a space after its colon
  expect:{turns: 1}
        ^
  write: expect: {turns: 1}
=== scenario: no space in an item
  - send:hello
---
f.yaml:3: steps[0]: must be a mapping of keys, not the text `send:hello`
  - send:hello
    ^
  write: - send: hello
=== scenario: no colon
scenario: x
team dev
steps:
  - send: a
---
f.yaml:2: this line has no colon, so it is not a `key: value`
  team dev
      ^
  write: team: dev
=== scenario: no colon in the first line
scenario x
steps:
  - send: a
---
f.yaml:1: this line has no colon, so it is not a `key: value`
  scenario x
          ^
  write: scenario: x
=== scenario: no colon before a list
scenario: x
steps
  - send: a
---
f.yaml:2: this line has no colon, so it is not a `key: value`
  steps
       ^
  write: steps:
=== scenario: no colon in an item
  - send "hello"
---
f.yaml:3: steps[0]: must be a mapping of keys, not the text `send "hello"`
  - send "hello"
    ^
  write: - send: "hello"
=== agent: a line of prose
agent_id: dev
adapter: {type: scripted, replies: [hi]}
role_prompt: |
  ok
more of it at the wrong place
name: x
---
f.yaml:5: this line has no colon, so it is not a `key: value`
  more of it at the wrong place
  ^
  complete it, or indent it if it continues the text above
=== arena: an equals sign
team = t
language: zh
---
f.yaml:1: `team` needs a colon, not `=`
  team = t
       ^
  write: team: t
=== scenario: a full-width colon
scenario：标题
steps:
  - send：你好
    expect：{turns：1，end: quiet}
---
f.yaml:1: the colon after `scenario` is full-width (：); YAML's is `:` and a space
  scenario：标题
          ^
  write: scenario: 标题
=== scenario: a full-width colon in an item
  - send：你好
---
f.yaml:3: steps[0]: must be a mapping of keys, not the text `send：你好`
  - send：你好
    ^
  write: - send: 你好
=== scenario: full-width brackets
  - send: a
    expect: ｛turns: 1｝
---
f.yaml:4: `｛` is full-width, which YAML reads as text
  expect: ｛turns: 1｝
          ^
  write: expect: {turns: 1}
=== scenario: Chinese quotes
  - send: “你好”
---
f.yaml:3: steps[0].send: “ ” are not YAML quotes; to keep them, put " around them
  - send: “你好”
          ^
  write: - send: "你好"
=== scenario: Chinese quotes around a colon
  - send: “注意: 这里”
---
f.yaml:3: the quotes of YAML are ", not “ ” or ‘ ’
  - send: “注意: 这里”
          ^
  write: - send: "注意: 这里"
=== scenario: a full-width space
　　- send: 你好
---
f.yaml:3: a full-width space (U+3000) is not a space in YAML; write an ordinary one
  　　- send: 你好
  ^
=== scenario: a full-width space after a colon
  - send:　你好
---
f.yaml:3: steps[0]: must be a mapping of keys, not the text `send:　你好`
  - send:　你好
    ^
  write: - send: 你好
=== scenario: Chinese before the place
  - {send: "请看，架构", expect: {turns: "2"}}
---
f.yaml:3: steps[0].expect.turns: must be a whole number or a mapping with `min`, `max`, not the text `2`
  - {send: "请看，架构", expect: {turns: "2"}}
                                         ^
  write: - {send: "请看，架构", expect: {turns: 2}}
=== agent: a number, a flag, a list, in quotes or not
agent_id: dev
adapter: {type: scripted, replies: [hi]}
name: 123
member: no
timeout_s: '30'
retries: 1.5
aliases: Dev, Coder
---
f.yaml:3: name: must be a text, not the number 123
  name: 123
        ^
  write: name: "123"
f.yaml:4: member: must be true or false, not the text `no`
  member: no
          ^
  write: member: false
f.yaml:5: timeout_s: must be a number, not the text `30`
  timeout_s: '30'
             ^
  write: timeout_s: 30
f.yaml:6: retries: must be a whole number, not the number 1.5
  retries: 1.5
           ^
f.yaml:7: aliases: must be a list, not the text `Dev, Coder`
  aliases: Dev, Coder
           ^
  write: aliases: [Dev, Coder]
=== scenario: a count in quotes
  - send: x
    expect: {turns: "2"}
---
f.yaml:4: steps[0].expect.turns: must be a whole number or a mapping with `min`, `max`, not the text `2`
  expect: {turns: "2"}
                  ^
  write: expect: {turns: 2}
=== scenario: a name where a list is asked
  - send: x
    expect: {asked: architect}
---
f.yaml:4: steps[0].expect.asked: must be a list, not the text `architect`
  expect: {asked: architect}
                  ^
  write: expect: {asked: [architect]}
=== team: a mapping where a list is asked
team: t
members:
  agent: a
  role: x
---
f.yaml:2: members: must be a list, not a mapping
  members:
  ^
  write `- ` before each item
=== agent: a list where a mapping is asked
agent_id: dev
adapter: {type: scripted, replies: [hi]}
response:
  - threshold: 0.5
---
f.yaml:3: response: must be a mapping of keys, not a list
  response:
  ^
  remove the `- `
=== team: a list at the top
- team: t
---
f.yaml:1: the file must be a mapping of keys, not a list
  write its keys at the left edge, without `- `
=== agent: nothing where something is asked
agent_id: ~
adapter:
name:
---
f.yaml:1: agent_id: must be a text, not `~`
  agent_id: ~
            ^
  write a value, or leave the key out
f.yaml:2: adapter: must be a mapping of keys; the value is empty
  adapter:
          ^
  write a value, or leave the key out
f.yaml:3: name: must be a text; the value is empty
  name:
       ^
  write a value, or leave the key out
=== arena: a word of a fixed set
durability: flushed
---
f.yaml:1: durability: must be one of fsync, flush, not `flushed`
  durability: flushed
              ^
  did you mean `flush`?
=== scenario: a near miss
scenaro: x
steps:
  - snd: a
---
f.yaml:1: scenaro: unknown key
  scenaro: x
  ^
  did you mean `scenario`?
f.yaml:3: steps[0].snd: unknown key
  - snd: a
    ^
  did you mean `send`?
=== team: a key twice
team: t
members: [a]
team: u
---
f.yaml:3: team: appears twice; first on line 1
  team: u
  ^
  remove one of them
=== team: keys that are missing
description: x
---
f.yaml:1: members: is missing
  add a line `members: ...`
f.yaml:1: team: is missing
  add a line `team: ...`
=== team: a key that is missing in an item
team: t
members:
  - role: x
---
f.yaml:3: members[0].agent: is missing
  - role: x
  add a line `agent: ...`
=== scenario: an empty file

---
f.yaml:1: the file is empty
  it needs `scenario`, `steps`
=== agent: only a comment
# later
---
f.yaml:1: the file is empty
  it needs `agent_id`, `adapter`
=== arena: a control character
team: t
language: ␇zh
---
f.yaml:2: the character U+0007 is not allowed in a YAML file
  language: \x07zh
            ^
  remove it, or escape it between double quotes
=== scenario: one mistake of syntax, and more
scenario: @x
steps:
  - send: note: this
    expect: {replies: {dev: [{regex: "\d"}]}}
  - sned: b
    expect: {asked: a}
---
f.yaml:1: a value that starts with @ must be quoted
  scenario: @x
            ^
  write: scenario: "@x"
=== agent: a secret
agent_id: dev
adapter:
  type: openai
  api_key: @s3cret
  headers:
    X-Trace: hush
---
f.yaml:4: a value that starts with @ must be quoted
  api_key: [hidden]
           ^
  quote it
=== agent: a secret below its key
agent_id: dev
adapter:
  type: openai
  headers:
    X-Trace: `hush`
---
f.yaml:5: a value that starts with ` must be quoted
  [hidden]
  quote it
=== agent: a secret of two parts
agent_id: dev
adapter: {type: openai, api_key: s3c,hush, model: x}
---
f.yaml:2: adapter: a comma inside {} ends a text: `[hidden]` is read as a key without a value
  adapter: {type: openai, api_key: [hidden]
  a comma inside {} must be quoted: quote the whole text
=== agent: a known shape of a secret
agent_id: dev
adapter: {type: scripted, replies: [hi]}
name: a: sk-abcdefghij0123456789klmn
---
f.yaml:3: a value with a colon and a space in it must be quoted
  name: a: [redacted]
         ^
  quote it
=== agent: the name of a secret
agent_id: dev
adapter:
  type: openai
  extra: {api_key: ${env:KEY}}
---
f.yaml:4: a text with `{` in it must be quoted inside {} and []
  extra: {api_key: ${env:KEY}}
                    ^
  write: extra: {api_key: "${env:KEY}"}
=== scenario: a flag where a reason is asked
scenario: x
skip: true
cases:
  - {id: a, skip: false}
steps:
  - send: a
---
f.yaml:2: skip: must be a text, not true
  skip: true
        ^
  write why, as a text
f.yaml:4: cases[0].skip: must be a text, not false
  - {id: a, skip: false}
                  ^
  leave the key out
=== scenario: quotes in quotes
  - send: x
    expect: {replies: {dev: [{contains: "say "hi""}]}}
---
f.yaml:4: text follows the closing "; quote the whole value
  expect: {replies: {dev: [{contains: "say "hi""}]}}
                                           ^
  put the other kind of quotes around it
=== scenario: quotes in quotes, with a comma
  - send: x
    expect: {replies: {dev: [{contains: "say "hi", ok"}]}}
---
f.yaml:4: text follows the closing "; quote the whole value
  expect: {replies: {dev: [{contains: "say "hi", ok"}]}}
                                           ^
  put the other kind of quotes around it
=== scenario: two texts in quotes
  - send: "a" or "b"
---
f.yaml:3: text follows the closing "; quote the whole value
  - send: "a" or "b"
            ^
  write: - send: '"a" or "b"'
=== scenario: a comma at the end
  - send: x
    expect:
      replied: [a],
      turns: 1,
  - {send: y},
  - send: "z",
---
f.yaml:5: this , does not belong here
  replied: [a],
              ^
  write: replied: [a]
=== scenario: a semicolon inside {}
  - send: x
    expect: {replied: [a];}
---
f.yaml:4: this ; does not belong here
  expect: {replied: [a];}
                       ^
  write: expect: {replied: [a]}
=== scenario: a semicolon between keys
  - send: x
    expect: {replied: [a]; turns: 1}
---
f.yaml:4: the { that opens here is not closed before the ;
  expect: {replied: [a]; turns: 1}
          ^
  close it, or quote the text if it is one
=== scenario: a check without its list
  - send: x
    expect: {replies: {a: {contains: x}}}
---
f.yaml:4: steps[0].expect.replies.a: must be a list, not a mapping
  expect: {replies: {a: {contains: x}}}
                        ^
  write: expect: {replies: {a: [{contains: x}]}}
=== scenario: a check without its list, below its name
  - send: x
    expect:
      replies:
        a:
          contains: x
---
f.yaml:6: steps[0].expect.replies.a: must be a list, not a mapping
  a:
  ^
  write `- ` before each item
=== scenario: a check of two lines without its list
  - send: x
    expect:
      replies:
        a:
          contains: x
          ignore_case: true
---
f.yaml:6: steps[0].expect.replies.a: must be a list, not a mapping
  a:
  ^
  write `- ` before each item
=== scenario: a text in the list of checks
  - send: x
    expect: {replies: {a: [hi]}}
---
f.yaml:4: steps[0].expect.replies.a[0]: must be a mapping of keys, not the text `hi`
  expect: {replies: {a: [hi]}}
                         ^
  write: expect: {replies: {a: [{contains: "hi"}]}}
=== scenario: a text in the place of checks
  - send: x
    expect: {replies: {a: hi}}
---
f.yaml:4: steps[0].expect.replies.a: must be a list or a mapping with `last`, `first`, `any`, `all`, not the text `hi`
  expect: {replies: {a: hi}}
                        ^
  write: expect: {replies: {a: [{contains: "hi"}]}}
=== scenario: a text with marks in the place of checks
  - send: x
    expect:
      replies:
        a: hi, you
---
f.yaml:6: steps[0].expect.replies.a: must be a list or a mapping with `last`, `first`, `any`, `all`, not the text `hi, you`
  a: hi, you
     ^
  write: a: [{contains: "hi, you"}]
=== scenario: a text in the place of arena's messages
  - send: x
    expect: {system: hi}
---
f.yaml:4: steps[0].expect.system: must be a list, not the text `hi`
  expect: {system: hi}
                   ^
  write: expect: {system: [{contains: "hi"}]}
=== scenario: a number in the place of a check
  - send: x
    expect: {replies: {a: {last: [3]}}}
---
f.yaml:4: steps[0].expect.replies.a.last[0]: must be a mapping of keys, not the number 3
  expect: {replies: {a: {last: [3]}}}
                                ^
  write: expect: {replies: {a: {last: [{contains: "3"}]}}}
=== scenario: no space after a colon inside [{}]
  - send: x
    expect: {replies: {dev: [{contains:x}]}}
---
f.yaml:4: steps[0].expect.replies.dev[0].contains:x: `contains:x` has no space after its colon, so it is a key without a value
  expect: {replies: {dev: [{contains:x}]}}
                                    ^
  write: expect: {replies: {dev: [{contains: x}]}}
=== scenario: a number with a comma inside {}
  - send: x
    expect: {replies: {dev: [{contains: 1,000}]}}
---
f.yaml:4: steps[0].expect.replies.dev[0].contains: a comma inside {} ends a text: `000` is read as a key without a value
  expect: {replies: {dev: [{contains: 1,000}]}}
                                        ^
  write: expect: {replies: {dev: [{contains: "1,000"}]}}
=== scenario: two commas inside {}
  - {say: a, b c, d?}
---
f.yaml:3: steps[0].say: a comma inside {} ends a text: `b c` is read as a key without a value
  - {say: a, b c, d?}
             ^
  write: - {say: "a, b c, d?"}
=== scenario: a comma, a colon and a comma inside {}
  - {send: a, note so: b, c}
---
f.yaml:3: steps[0].note so: a comma inside {} ends a text: `c` is read as a key without a value
  - {send: a, note so: b, c}
                          ^
  a comma inside {} must be quoted: quote the whole text
=== scenario: a no-break space after a dash
  -␣send: hi
    step: x
  -␣send: ho
---
f.yaml:3: a no-break space (U+00A0) is not a space in YAML; write an ordinary one
  -␣send: hi
   ^
  write: - send: hi
=== scenario: a no-break space before a key
  - ␣send: hi
---
f.yaml:3: a no-break space (U+00A0) is not a space in YAML; write an ordinary one
  - ␣send: hi
    ^
  write: - send: hi
=== scenario: a no-break space after a colon
  - send:␣hi
    expect:␣{turns: 1}
---
f.yaml:4: a no-break space (U+00A0) is not a space in YAML; write an ordinary one
  expect:␣{turns: 1}
         ^
  write: expect: {turns: 1}
=== scenario: a no-break space inside {}
  - send: x
    expect: {replied:␣[a],␣turns: 1}
---
f.yaml:4: a no-break space (U+00A0) is not a space in YAML; write an ordinary one
  expect: {replied:␣[a],␣turns: 1}
                   ^
  write: expect: {replied: [a],␣turns: 1}
=== agent: a line left of its text
agent_id: dev
adapter: {type: scripted, replies: [hi]}
role_prompt: |
  ask
 @bob for it
  more
---
f.yaml:5: a value that starts with @ must be quoted
  @bob for it
  ^
  quote it
=== agent: a line left of its text, at the edge
agent_id: dev
adapter: {type: scripted, replies: [hi]}
role_prompt: |
  ask
@bob for it
---
f.yaml:5: a value that starts with @ must be quoted
  @bob for it
  ^
  write: "@bob for it"
=== scenario: a quote that is closed lines below
  - send: "hi there
      and more
  - send: "ho"
---
f.yaml:3: the " that opens here is not closed before line 5
  - send: "hi there
          ^
  close it
=== scenario: a place for anchors
scenario: x
base: &b {turns: 1}
steps:
  - send: a
    expect: *b
---
f.yaml:2: base: unknown key
  base: &b {turns: 1}
  ^
  known: include, vars, cases, team, agents, humans, config, profiles, scenario, tags, skip, xfail, ignore, strict_context, tools, given, steps, expect
=== team: rules above where they belong
team: t
members: [a]
supervisor: x
retries: 2
---
f.yaml:3: supervisor: unknown key
  supervisor: x
  ^
  `supervisor` belongs under `config`, indented more
f.yaml:4: retries: unknown key
  retries: 2
  ^
  `retries` belongs under `config`, indented more
"""


def rows() -> list[tuple[str, str, str, str]]:
    """Kind, title, text and what is told of each row of the table."""
    found = []
    for row in TABLE.strip().split("=== ")[1:]:
        title, _, rest = row.replace("␣", "\xa0").partition("\n")
        text, _, told = rest.rpartition("\n---\n")
        kind, _, name = title.partition(": ")
        text = text.replace("→", "\t").replace("␇", "\x07") + "\n"
        if kind == "scenario" and text[0] in " \t\u3000":
            text = f"scenario: x\nsteps:\n{text}"
        found.append((kind, name, text, told.strip("\n")))
    return found


def told(text: str, shape: type[BaseModel] = ScenarioFile) -> str:
    """All that is wrong with a file, as it is printed."""
    instance, faults = loader.validate(loader.parse(text, "f.yaml"), shape)
    assert (instance is None) == bool(faults)
    assert len(set(faults)) == len(faults)
    return str(FileFaults(faults)) if faults else ""


@pytest.mark.parametrize(("kind", "title", "text", "wanted"), rows(), ids=lambda part: part[:30])
def test_what_trips_people_is_told_with_its_line_and_its_mend(
    kind: str, title: str, text: str, wanted: str
) -> None:
    assert title
    assert told(text, SHAPES[kind]) == wanted


@pytest.mark.parametrize(("kind", "title", "text", "wanted"), rows(), ids=lambda part: part[:30])
def test_each_problem_and_each_hint_is_explained_in_chinese(
    kind: str, title: str, text: str, wanted: str
) -> None:
    assert title
    assert wanted
    for fault in loader.validate(loader.parse(text, "f.yaml"), SHAPES[kind])[1]:
        for message in filter(None, (fault.what, fault.mend)):
            shown = translate_message(message, "zh")
            assert shown != message
            # English is left only in what comes from the file: in quotes, and in the line to write.
            own = re.sub(r"`[^`]*`|\"[^\"]*\"|应写成：.*|请写 .*", "", shown, flags=re.DOTALL)
            assert not re.search(r"[a-z]{2,},? [a-z]+ [a-z]+", own), shown


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("- a\n- b\n", "the file must be a mapping of keys, not a list"),
        ("12\n", "the file must be a mapping of keys, not the number 12"),
        ("agent_id： a\nname： 架构师\n", "not the text `agent_id： a name： 架构师`"),
    ],
)
@pytest.mark.parametrize("file", ["agents/a.yaml", "agents/teams/t.yaml", "scenarios/s.yaml"])
def test_a_file_that_is_no_mapping_is_one_error(
    tmp_path: Path, file: str, content: str, problem: str
) -> None:
    program = Program(tmp_path).agent("dev", "hi")
    program.file("arena.yaml", "{}\n")
    program.file(file, content)
    shown = program.run("agents", "check").stderr
    assert shown.count(f"{file}:1: ") == 1
    assert problem in " ".join(shown.split())


def test_a_var_of_a_wrong_kind_is_no_mistake_of_its_line(tmp_path: Path) -> None:
    program = Program(tmp_path).agent("dev", "hi")
    program.file(
        "scenarios/s.yaml",
        "scenario: x\nvars: {a: x}\ncases: [{id: c1}, {id: c2, vars: {a: [1, 2]}}]\n"
        'steps:\n  - send: "${vars.a}"\n',
    )
    shown = program.run("run").stderr
    assert "not a list (in case `c2`)" in shown
    assert "write" not in shown
    program.env["ARENA_LANG"] = "zh"
    shown = program.run("run").stderr
    assert "应该是文本或含有 `file` 的键和值，不是列表（用例 `c2`）" in shown


@pytest.mark.parametrize(("kind", "title", "text", "wanted"), rows(), ids=lambda part: part[:30])
def test_a_written_mend_mends(kind: str, title: str, text: str, wanted: str) -> None:
    """Put every line that is to be written in place of its line, until none is to be written."""
    heads = []
    for _ in range(5):
        lines = text.split("\n")
        mends = list(re.finditer(r"f\.yaml:(\d+):.*\n(?:  .*\n)*?  write: (.*)", wanted))
        for found in mends:
            number = int(found[1]) - 1
            indent = re.match(r"[ \u3000]*", lines[number])
            lines[number] = (indent[0] if indent else "").replace("\u3000", "  ") + found[2]
        heads += [found[0].partition("\n")[0] for found in mends]
        text = "\n".join(lines)
        wanted = told(text, SHAPES[kind])
    assert not any(head in wanted for head in heads), title


@pytest.mark.parametrize(
    "line",
    [
        "send: x # why",
        "send: x  # 3 of them",
        "send: x #",
        "send: x ## y",
        "send: x #!y",
        "send: x#3",
        "send: see http://host/x#y",
        "send: 'see #3'",
        'send: "see #3"  #why',
        "from: maya #a colleague",
        "on_fail: stop #here",
        "expect: {turns: 2} #two",
        "expect: {turns: 2} # {a, b}",
        "send: 架构，拆解、评审：好的",
        "send: 他说“好的”，然后走了",
        "send: a, b - c & d * e ! f % g @ h",
        "send: a -b {c} [d]",
        "send: |\n      　　段落：#3 {a, b} “x”\n      - y",
        "send: >-\n      a\n      - b #3",
        "send: a\n      b",
        "send: ''",
        r'send: "C:\nThe answer\nis this"',
        r'send: "Q:\nWhat\nnow"',
        r'send: "Option C:\tParis\nD:\tRome"',
        r'send: "C:\\new\\table"',
        r"send: 'C:\new\table'",
        "send: prix :\xa012 €,\xa0merci",
        "send: \xa0indented",
        "send: |\n      first\n        more: @x\n      - \xa0y",
    ],
)
def test_what_is_no_mistake_is_told_nothing_of(line: str) -> None:
    text = f"scenario: x\nsteps:\n  - step: y\n    {line}\n"
    assert loader.parse(text, "f.yaml").faults == ()


def test_a_long_line_is_cut_around_the_place() -> None:
    text = f"scenario: {'长' * 300} note: this {'x' * 10_000}\n"
    _, line, marker, mend = told(text).split("\n")[:4]
    assert display_width(line) <= 79
    assert line.startswith("  …长长")
    assert line.endswith("xxx…")
    assert display_width(line[: line.index("note")] + "note") == marker.index("^")
    assert mend == "  quote it"


@pytest.mark.parametrize(
    "before", ["x", "中文", "한국어", "e\u0301", "👩\u200d🔬", "👍\U0001f3fd", "ｆｕｌｌ"]
)
def test_the_marker_stands_below_the_place(before: str) -> None:
    columns = {"x": 1, "中文": 4, "한국어": 6, "e\u0301": 1, "ｆｕｌｌ": 8}.get(before, 2)
    marker = told(f"scenario: {before} a: b\n").split("\n")[2]
    assert marker.index("^") == len("  scenario: ") + columns + len(" a")


def test_what_is_shown_of_a_line_cannot_steer_a_terminal() -> None:
    text = told("scenario: [\u202e\ufeff::x]\n")
    assert "\\u202e\\ufeff" in text
    assert text.isprintable() or set(text) <= {"\n", *filter(str.isprintable, text)}


@pytest.mark.parametrize(
    "secret", ["hush hush", "'hush", "@hush", "hush: hush", "12345", "[hush, hush]"]
)
@pytest.mark.parametrize("key", ["api_key", "apiKey", "OPENAI_API_KEY", "access_token", "password"])
def test_secrets_are_not_shown(key: str, secret: str) -> None:
    for text in (
        f"agent_id: dev\n{key}: {secret}\n",
        f"agent_id: dev\nadapter: {{x: @y, {key}: {secret}}}\n",
        f"agent_id: dev\nadapter:\n  {key}:\n    - {secret}\n    - @{secret}\n",
        f"agent_id: dev\nresponse: {{keywords: {{{key}: {secret}}}}}\nname: @x\n",
        f"agent_id: dev\nresponse: {{{key}: {secret}, threshold: x}}\n",
    ):
        assert "hush" not in told(text, AgentProfile)
        assert "12345" not in told(text, AgentProfile)


@pytest.mark.parametrize(
    ("raw", "what", "shown"),
    [
        ("name: 中文名字\n".encode("gbk"), "is not UTF-8; it looks like GBK", "name: 中文名字"),
        ("x: 1\nname: 中文\n".encode("utf-16"), "is not UTF-8; it looks like UTF-16", "x: 1"),
        ("x: 1\n".encode("utf-16-le"), "is not UTF-8; it looks like UTF-16", "x: 1"),
        ("x: 1\n".encode("utf-16-be"), "is not UTF-8; it looks like UTF-16", "x: 1"),
        ("x: 1\n".encode("utf-32"), "is not UTF-8; it looks like UTF-32", "x: 1"),
        (
            "name: Zoé été\n".encode("cp1252"),
            "is not UTF-8; it looks like Windows-1252",
            "name: Zoé été",
        ),
        (b"x: \x81\xff\xff\n", "is not UTF-8", "x: \ufffd\ufffd\ufffd"),
    ],
)
def test_a_file_that_is_not_utf8(tmp_path: Path, raw: bytes, what: str, shown: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(raw)
    (fault,) = loader.load(path, "f.yaml").faults
    assert str(fault) == f"f.yaml:1: {what}\n  {shown}\n  save the file as UTF-8"


def test_a_thousand_mistakes_are_told() -> None:
    text = told("scenario: x\nsteps:\n" + "  - {send: x, form: y}\n" * 1_000)
    assert text.count("form: unknown key") == 1_000


def test_check_tells_all_faults_of_all_files_at_once(tmp_path: Path) -> None:
    arena = Program(tmp_path)
    arena.file("arena.yaml", "langauge: zh\n")
    arena.file(
        "agents/dev.yaml",
        "agent_id: dev\nname: @开发\nadapter: {type: scripted, replies: [好的]}\n",
    )
    arena.file("agents/teams/crew.yaml", "team：crew\nmembers: [dev]\n")
    arena.file(
        "scenarios/one.yaml", "scenario: 一\nsteps:\n  - send: 请看 #3\n    expect: {asked: dev}\n"
    )
    done = arena.run("agents", "check")
    assert done.code == 2
    assert done.stdout == ""
    assert (
        done.stderr
        == """\
arena: agents/dev.yaml:2: a value that starts with @ must be quoted
  name: @开发
        ^
  write: name: "@开发"
agents/teams/crew.yaml:1: the colon after `team` is full-width (：); YAML's is `:` and a space
  team：crew
      ^
  write: team: crew
arena.yaml:1: langauge: unknown key
  langauge: zh
  ^
  did you mean `language`?
scenarios/one.yaml:3: steps[0].send: a `#` after a space begins a comment: the rest of this line is lost (a comment has a space after its #)
  - send: 请看 #3
               ^
  write: - send: "请看 #3"
scenarios/one.yaml:4: steps[0].expect.asked: must be a list, not the text `dev`
  expect: {asked: dev}
                  ^
  write: expect: {asked: [dev]}
"""
    )


def test_run_tells_what_does_not_fit_the_team(tmp_path: Path) -> None:
    arena = Program(tmp_path)
    arena.agent("dev", "hi")
    arena.file(
        "scenarios/one.yaml", "scenario: x\nsteps:\n  - send: hi\n    expect: {replied: [dve]}\n"
    )
    done = arena.run("run")
    assert done.code == 2
    assert done.stderr.startswith("arena: scenarios/one.yaml:4: ")
    assert done.stderr.endswith(
        """
  expect: {replied: [dve]}
                     ^
  did you mean `dev`?
"""
    )


VALID = """\
scenario: small "one"   # a comment
tags: [routing, 架构]
steps:
  - step: 'it''s first'
    send: "@dev hello, 你好: #3 {a}"
    expect:
      replied: [dev]
      outcome: {dev: success, ops: not_called}
      turns: {min: 1, max: 2}
      replies:
        dev: [{contains: [hello, b]}, {regex: '\\d+ "ms"'}]
  # another
  - send: |
      several lines: here
      - and #more
    on_fail: continue
"""
CHARACTERS = "\"'{}[]:#,@\t `"


def test_the_valid_file_is_valid() -> None:
    assert told(VALID) == ""


@settings(deadline=None, max_examples=400)
@given(st.integers(0, len(VALID) - 1), st.sampled_from(["", *CHARACTERS]))
def test_a_damaged_file_loads_or_is_told_of_with_a_line(at: int, put: str) -> None:
    text = VALID[:at] + put + VALID[at + (put == "") :]
    instance, faults = loader.validate(loader.parse(text, "f.yaml"), ScenarioFile)
    assert (instance is None) == bool(faults)
    for fault in faults:
        assert 1 <= fault.line <= text.count("\n") + 1
        assert str(fault).count("\n") <= 3


words = st.text(st.sampled_from("ab中文 ，：“”'\"#@-{}[]:,\\"), min_size=1, max_size=12)


@settings(deadline=None, max_examples=200)
@given(st.lists(words, min_size=1, max_size=4), st.sampled_from(["'", '"']))
def test_quoted_texts_are_never_a_fault(texts: list[str], quote: str) -> None:
    def quoted(text: str) -> str:
        if quote == "'":
            return "'" + text.replace("'", "''") + "'"
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    steps = "".join(f"  - send: {quoted(text)}  # {number}\n" for number, text in enumerate(texts))
    document = loader.parse(f"scenario: x\nsteps:\n{steps}", "f.yaml")
    assert document.faults == ()
    assert [step["send"] for step in document.data["steps"]] == texts


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("claude -p", '[claude, "-p"]'),
        ("sh -c 'a b'", '[sh, "-c", "a b"]'),
        ("it's", '["it\'s"]'),
        (r"C:\bin\x.exe y", r"['C:\bin\x.exe', y]"),
    ],
)
def test_a_command_in_one_text_is_parted_in_its_mend(line: str, wanted: str) -> None:
    text = f"command: {json.dumps(line)}\n"
    _, faults = loader.validate(loader.parse(text, "f.yaml"), CliSettings)
    (mend,) = [fault.mend for fault in faults if fault.field == "command"]
    assert mend == f"write: command: {wanted}"
