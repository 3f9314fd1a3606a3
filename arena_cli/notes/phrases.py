"""Define the phrases that mark a sentence as a decision, a requirement, a task or a problem.

English and Chinese. A *marker* comes first in the sentence, with a colon or a dash
(`Decision: ...`, `决定：...`), in brackets, or alone as a heading. An *introduction* ends with a
colon and heads a list (`We agreed on the following:`). A *saying* is a phrase within a sentence
(`we decided to`); `notes.text` decides if the sentence asserts it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Literal, NamedTuple

from arena_cli.notes.model import Kind
from arena_cli.util.text import lazy_pattern

Script = Literal["english", "chinese", "mixed"]
"""The words of a pattern or a sentence."""

_WORD = lazy_pattern(r"[a-z]+(?:'[a-z]+)?")
_TO_WORDS = bytes(byte if 97 <= byte <= 122 or byte == ord("'") else 32 for byte in range(256))
"""A table that replaces all ASCII characters that are in no word by blanks."""
_AT = r"[@＠][^\s,，:：。;；]{1,40}"
_WE = r"(?:we|(?:the (?:whole )?)?(?:team|group|board|meeting)|all of us)"
_DAY = (
    r"(?:the\s+)?(?:end|eod|eow|cob|close|tomorrow|tonight|today|noon|midnight|mon|tue|wed|thu|"
    r"fri|sat|sun|next|this|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|\d)"
)
_DUE = (
    rf"\b(?:(?:by|before|until|till|no later than)\s+(?:the \w+ (?:on|in) )?|(?:due|"
    rf"deadline)(?: is| on|:)?\s+(?:on )?){_DAY}"
)
_DUE_ZH = (
    r"(?:(?:今天|今晚|今日|明天|明晚|明早|后天|[本下这]?(?:周|星期|礼拜)[一二三四五六日天末内]?|"
    r"[本下]?(?:个)?月[底末初]|年[底末]|下班|[\d一二三四五六七八九十两]+\s*(?:号|日|点|天|小时|周|"
    r"个月|月))[^，。,]{0,4}?(?:前|内)|(?:周|星期)[一二三四五六日天][要交])"
)
_NO_PRONOUN = (
    r"(?:(?!(?:i|you|we|it|that|this|they|he|she|there|what|who|which|somebody|someone|"
    r"nobody)\b)[\w'/.%`-]+,?\s+)"
)
_CLAUSE = r"(?:(?:if|when|whenever|after|before|once|for|in|on)\b[^,]{3,80},\s*)?"
_OWN_ZH = (
    r"(?:我们|咱们|团队|大家|项目组|小组|会议?上?|本次会议|讨论后?|评审后?|最终|最后|一致|已经?|"
    r"现在?|刚刚?|今天)"
)

_MARKERS: dict[Kind, str] = {
    "decision": (
        r"(?:final |key )?(?:decisions?(?: made| taken)?|decided|final call|verdict|outcomes?|"
        r"consensus|resolution|approved)|(?:最终|关键|会议)?(?:决定|决策|决议|共识|定稿|拍板)|"
        r"统一口径|[^\s，。,：:]{0,6}确认|(?:我们?|大家)?(?:拍板|决定|定)了"
    ),
    "conclusion": r"conclusions?|root causes?|bottom line|(?:[^\s，。,：:]{0,4})(?:结论|(?:排查|"
    r"测试|调研|分析|压测)结果)|根因|根本原因",
    "requirement": (
        r"(?:[\w-]{1,20} ){0,2}(?:requirements?|constraints?|acceptance criteri(?:a|on))|"
        r"[^\s，。,：:不没无啥哪什]{0,12}\s?(?:需求|要求)|(?:硬性)?约束(?:条件)?|验收(?:标准|"
        r"条件)|sl[ao]s?"
    ),
    "task": (
        rf"to-?dos?|to do|action items?(?: for {_AT})?|action|tasks?|assigned to {_AT}|"
        r"待办(?:事项)?|任务|行动项"
    ),
    "blocker": (
        r"(?:still |currently )?(?:blockers?|blocked)|(?:当前)?(?:阻塞|阻碍)(?:项|点|问题|中)?|卡点"
    ),
    "issue": (
        r"(?:known |open )?(?:problems?|issues?|bugs?|defects?|risks?)|(?:已知|主要|遗留|"
        r"现存)?(?:问题|缺陷|故障|风险)"
    ),
    "next_action": (
        r"next(?: up| steps?| actions?)?|下一步(?:行动|计划)?|后续(?:行动|步骤|动作|计划)|接下来"
    ),
}

_INTRODUCTIONS: dict[Kind, str] = {
    "decision": r"\bdecisions?\b|\b(?:decided|agreed)\b|决定|决议|共识|(?:定了|达成)",
    "task": r"\baction items?\b|\bto-?dos?\b|待办|行动项",
    "requirement": r"\b(?:requirements?|constraints)\b|需求|要求|约束",
    "blocker": r"\bblockers?\b|阻塞",
    "issue": r"\b(?:known|open) (?:issues|problems|bugs)\b|(?:已知|遗留)问题",
    "next_action": r"\bnext (?:steps|actions)\b|下一步|后续",
}
_ANNOUNCEMENT = (
    r"\A\W*(?:ok(?:ay)?|so|well|good|great)?\W*(?:that's |it's |it is )?(?:settled|decided)"
    r"(?: then| now)?\s*[.!]\s*\Z"
)
"""A sentence that says only that the next one is a decision."""
_OPEN = (
    r"\b(?:open|pending|still|yet|to be|not|no|about|questions?|who|how|which|why|what to|former|"
    r"old)\b|待定|未|没|讨论|哪些|拆解|关于"
)

_SAYINGS: list[tuple[Kind, tuple[str, ...], tuple[str, ...]]] = [
    (
        "blocker",
        (
            r"(?:\b(?:is|are|am|remains?|still|currently)|'m|'re|'s)\s+(?:\w+\s+)?(?:blocked|"
            r"stuck)\b",
            r"\bhas been (?:blocked|stuck) (?:since|for|by|on)\b|\A\W*(?:blocked|stuck) (?:on|by|"
            r"at)\b",
            r"(?:\b(?:we|i)|\A\W*(?:so)?)\s*(?:still |really )?(?:cannot|can't|can not|(?:am |"
            r"are )?unable to)\s+(?!(?:wait|help|see|say|find|remember|believe|tell|imagine|"
            r"make)\b)\w+\b.*\b(?:until|without|because|before|unless|as long as|no \w+)\b",
            r"\b(?:cannot|can't|can not|unable to)\s+(?:proceed|continue|move on|go on|start)\b",
            r"(?:\b(?:is|are|am)|'m|'re|'s|\A\W*still|\A\W*)\s*(?:still\s+)?waiting\s+(?:for|"
            r"on)\s+(?!(?:you|your|me|my)\b)",
            r"\bon hold (?:until|because)\b|\b(?:held up by|(?:come|came) to a (?:halt|"
            r"standstill)|at a standstill|dead in the water|pending on|(?:is|are) blocking (?:the|"
            r"our|us|me|my|all)|nothing moves)\b",
            r"(?:\b(?:we|i)|\A\W*) (?:still )?(?:cannot|can't|can not) (?:merge|deploy|test|"
            r"release|ship|build|push|publish|migrate|log in|access)\b|\A\W*(?:cannot|"
            r"can't) \w+(?: \w+)?:",
            r"被[^，。,]{0,20}(?:阻塞|卡住|堵)|(?<!没|不)卡[在住]|卡了(?!一)|(?:目前|现在|还是|"
            r"仍然?)\s*blocked",
            r"(?:无法|没法|不能)(?:继续|进行|推进|开展|往下|测|排查|部署|联调|发布|上线|合并|提交|"
            r"登录|拉取|启动|编译)|(?:[做动测走推合发跑]|进行|提交|部署|开工|登录)不(?:了|下去|"
            r"动)|还在等|暂停[，,]?\s*等|没法开工|(?:拖|堵)住|等[^，。,]{1,16}才能|(?:这块|工作|"
            r"进度|联调|开发)[^，。,]{0,4}停了|(?:没有?|缺|等|"
            r"pending)[^。]{1,40}(?<![忘少免受大错用])不了",
        ),
        (
            r"\bno longer\b|\bany ?more\b|\bnothing(?! moves)\b|\bnobody is\b|\bnot (?:blocked|"
            r"stuck|waiting)\b",
            r"n't (?:blocked|stuck|waiting)|\b(?:re)?solved\b|\b(?:was|were)\b.*\b(?:blocked|"
            r"stuck|waiting)\b",
            r"不再|不会|已解|解决了|已经解|有没有|没有?被|不卡|恢复|搞定|好了|通了|昨天.*卡",
        ),
    ),
    (
        "decision",
        (
            rf"\b{_WE}(?:'ve|'s| have| has)?(?: (?:\w+ly|all|now|just|also|then))?"
            r" (?:decided|agreed|settled|opted|resolved|chosen|chose|picked|voted|approved)\b",
            r"\bwe (?:have |'ve )?(?:ended up (?:choosing|with|going)|gone with)|"
            r"\bwe've gone with\b|\bas (?:we )?(?:decided|agreed) (?:in|on|at|with)\b|"
            r"\bmaking the call\b|\bi(?:'m| am) going with\b|\boption \w+ wins\b",
            r"\bi(?:'ve| have)? (?:decided|chose|settled)\b|\bit(?:'s| was| is|"
            r" has been) (?:now )?(?:decided|agreed|settled)\b",
            r"\A\W*(?:ok(?:ay)?|so|right)?\W*(?:(?:decided|agreed) (?:to|on|that|with \w+:)|"
            r"going with)\b",
            r"\blet(?:'?)s (?:go with|go for|stick (?:with|to)|settle on|adopt|standardi[sz]e on|"
            r"use\b.*\b(?:for|as|instead|everywhere)\b)",
            r"\bwe(?:'re| are)(?: now)? (?:going (?:with|for)|keeping (?!an eye|you|track|in )|"
            r"staying with|dropping|adopting|retiring|deprecating|going to (?:use|drop|keep|"
            r"support|adopt|host|store|deploy|ship|stay|switch|move)\b|postponing|standardi[sz]ing|"
            r"sticking|not (?:going to )?(?:support|use|do|ship|build|offer)\w*|(?:moving|"
            r"switching|migrating)\b.*\bto\b)",
            r"\bwe(?:'ll| will)(?: now| all)? (?:adopt|go with|be using|standardi[sz]e on|"
            r"stick (?:with|to)|drop|skip|retire|deprecate|not (?:support|use|build|offer)|"
            r"keep (?!you|an eye|in |it |looking|\w+ing)|(?:switch|move|migrate) (?:from|to|"
            r"over))\b|\bwe won't (?:support|use|build|offer|ship)\b",
            r"\bwe(?:'ll| will)?(?: now)? (?:use|run|keep|store|deploy|build|go|ship|"
            r"stay)\b.*\b(?:instead of|rather than|in place of|without)\b|\binstead of [^,"
            r"]+ we (?:now |will )?\w+",
            r"\bwe (?:drop|stick (?:to|with)|stay with|go with|retire|freeze|defer|postpone|"
            r"ship without)\b|(?:[:;]|\bso|\A\W*ok(?:ay)?),? (?:that's what )?we (?:use|keep|"
            r"build|take|skip)\b(?! to\b)",
            r"\b(?:from now on|as of (?:now|today|next|mon|tue|wed|thu|fri)\w*)\b.*\b(?:we|all|"
            r"every\w*|each|no)\b",
            r"\bthe (?:final )?(?:decision|call|verdict) (?:is|was)\b",
            r"\A\W*(?:ok(?:ay)?,? |right,? |alright,? |so )?(?!(?:what|how|as|where|who|that|so|"
            r"this|why|because)\b)[\w.+#-]+(?: (?!how\b|"
            r"what\b)[\w.+#-]+){0,2} it is(?:,? then)?\W*\Z",
            rf"{_OWN_ZH}[^，。,]{{0,6}}?决定(?!权|于|性|因素|书|的|了?[吗没]|是谁)",
            r"\A\W*(?:那|好|嗯|ok)?[，, ]*决定了?[，,]?(?:不|先|暂|采用|把|将|用|由|改|推迟|取消|"
            r"放弃)",
            r"(?:确定|选定|敲定|商定|决定|拍板|约定)(?:了|好)?[，,:：]?\s*(?:采用|使用|选用|改用|"
            r"用|为|由|以|不再|先|把)",
            rf"{_OWN_ZH}[^，。,]{{0,8}}?(?:选定|敲定|商定|拍板|选择?了|采用了?(?!吗))|"
            rf"达成(?:了)?(?:一致|共识)",
            r"(?:一致|我们|大家|团队)[^，。,]{0,3}(?:同意|约定|商量好|说好)|一致(?:通过|决定)|"
            r"(?:方案|事情?|选型)[^，。,]{0,4}(?:定了|通过|定为|定下)|"
            r"评审(?:已经?)?通过|最终方案(?:是|为)|(?:结果|结论)是(?:用|改用|采用|先|不)|"
            r"(?<![决假判固鉴认])定(?:的是|在|成|为)(?!怎)",
            r"(?:就|都)(?:先)?(?:这么|这样)(?:定|办|做)|按[^，。,]{1,10}(?:办|执行)|走[^，。,"
            r"]{0,2}方案|我们(?:选|用|走|上)\s?[^，。,]+[，,]\s*不(?:选|用|走|上)|(?:今后|以后|"
            r"往后)(?!再说)[^，。,]{0,16}(?:用|走|都|统一|一律|发|写|由)|(?:，|,|我们)\s*定了|"
            r"就(?:定|用|选|上)\s*[^，。,吗?？]{1,24}(?=[了吧]|\W*\Z)",
            r"\A(?!.*我[把将先已刚在会想])(?:[^，。,]{1,16}?)(?:改用|换成|改为(?!什么)|改成|切到|"
            r"迁到|统一(?:使?用|改|走|由|采用|到))|\A\W*统一(?:使?用|采用)",
            r"(?:我们|咱们|\A\W*)(?:决定|以后|今后|[^，。,]{0,6})?(?:不再(?:支持|使用|维护|提供|"
            r"做|用|兼容)|放弃|砍掉)",
            r"(?<!以)不(?:做|上|支持|搞)\s?[^，。,]{1,20}了|从(?:今天|现在|明天|下周.?|"
            r"下个?[^，。]{1,4}|\d+\s*月[^，。]{0,3})(?:起|开始)",
        ),
        (
            r"\bno decision\b|\b(?:not|never|n't)(?: \w+){0,2} (?:decid|agre|settl|chos|pick)|"
            r"\bundecided\b|\byet to\b",
            r"没有?[^，。]{0,8}决定|还没|还未|尚未|没有?(?:决定|定)|未(?:决定|定|通过)|并未|"
            r"谁决定|决定一下|"
            r"来决定|再决定|(?:没有|未)达成|(?:已有|现有|原有)的?(?:决定|决策)|应该|吧[^。]*[?？]",
        ),
    ),
    (
        "task",
        (
            rf"{_AT}.*{_DUE}|(?:\b(?:can|could|would|will) you )?\bplease\b(?=.*{_AT}).*{_DUE}|"
            rf"{_DUE}.*{_AT}|\A\w+, please\b.*{_DUE}",
            rf"{_AT}\s+(?:will|is going to|is to)\s+(?!(?:be|not|have|get|see|know|need|like|"
            rf"love)\b)[a-z]+",
            rf"{_AT}\s+(?:is (?:responsible for|in charge of|assigned to)|owns|takes)\b",
            rf"\bi(?:'ll| will|'m going to| am going to)\b(?! be\b).*{_DUE}",
            rf"(?:请|麻烦)\s*{_AT}.*?{_DUE_ZH}|{_AT}[\s,，:：]*(?:请|麻烦|能|可以|可否|"
            rf"能否)?[^，。,]{{0,6}}?(?:{_DUE_ZH}|{_DUE})",
            rf"\A\W*(?:麻烦|请)?\s*[小老阿]?[一-鿿]{{1,3}}[，,]?\s*(?:请|"
            rf"麻烦)?{_DUE_ZH}[^。]{{0,3}}[把将给]",
            rf"由\s*{_AT}\s*(?:来|去)?(?:负责|处理|完成|跟进|实现|编写|做)|{_AT}\s*(?:来(?:做|写|"
            rf"弄|跟|处理|负责)|负责)",
            rf"(?:交给|分配给|指派给|分派给)\s*{_AT}",
            rf"我(?:们?来|会|将|来|们会|们将)?\s*(?:在|"
            rf"争取)?{_DUE_ZH}[^。]*(?:[完交发写补修推弄给]|做好|准备好)|我(?:来|"
            rf"负责)[^。]*{_DUE_ZH}",
        ),
        (
            r"[@＠]\S+ (?:the|our|an?|their) (?:\w+ ){1,4}?(?:needs|wants|expects|is|are|has|have|"
            r"will)\b",
            r"\bwill not\b|won't\b|\b(?:thanks|thank|did|didn't|was|were|has|had|sent|finished|"
            r"said)\b",
            r"(?<!能)不(?:会|能|要)(?!忘)|谁|应该|昨天|谢谢|收到了|你发了|已经?[发交完]",
        ),
    ),
    (
        "requirement",
        (
            rf"\A[^\w@＠]*(?:{_AT}\s+)*{_CLAUSE}{_NO_PRONOUN}{{1,10}}(?:must|shall|has to|have to|"
            rf"needs? to|"
            r"(?:is|are) required to|may not|(?:is|are) (?:not allowed|forbidden|prohibited|"
            r"mandatory)|(?:cannot|can't|should not|shouldn't) exceed|should (?:never|always|"
            r"be able to))\b",
            r"\bwe must(?: not| never)? \w+|\bwe (?:need|have) to (?:support|comply|guarantee|"
            r"ensure|encrypt|handle|keep|retain|preserve|stay|be able)\b|\bit is (?:mandatory|"
            r"required|forbidden)\b|\bit (?:must|has to|needs to) (?:not|never|be possible|work|"
            r"support|run|start|stay)\b",
            r"(?:is|are) (?:limited|restricted|capped) to \W*\d|\bno (?:[\w-]+ ){1,5}(?:may|must|"
            r"can|shall)\b",
            r"\A\W*(?:never|always) (?!(?:mind|happy|glad|good|nice|a|an|the|again|been|had|seen|"
            r"heard|thought|have|knew|nice|fun|worth)\b)[a-z]+ \w+",
            r"\A\W*only (?:[\w-]+ ){1,5}(?:may|can|must|should)\b|\b(?:is|are) (?:not acceptable|"
            r"unacceptable)\b|\brequirement that\b|\A\W*(?:please )?make sure (?:that )?(?:every|"
            r"all|no|the|each)\b|\A\W*(?:do not|don't) ever\b",
            r"[一-鿿]\s*(?:must|shall)\s+(?:not |never )?\w+",
            r"(?<![不非])必须(?!说|承认|指出|的[。！!]?$)|务必|(?<!舍)不得(?!不|而知|了|已|人心)|"
            r"(?<![必无毋何胡])须(?!要?知|臾)",
            r"禁止|严禁|不(?:允许|准)|需要?(?:能|支持|符合|满足|兼容|具备|保证|遵守|达到|通过)|"
            r"(?<![不主重必需都])要(?:能|支持|在[^，。,]{1,12}内)|(?:都|均)(?:要|得|需要?)(?!求|"
            r"不)",
            r"不(?:能|可|可以|得|应)?(?:超过|少于|低于|高于)\s*\d|控制在[^，。,]{1,16}(?:以?内|"
            r"之内)|(?:上限|最多|最少|至少)要?(?:为|是|支持|允许|保留|"
            r"轮换)\s*[\d一二三四五六七八九十两]|只有[^，。,]{1,16}才(?:能|可)|应当|(?:任何|"
            r"谁)[^，。,]{0,8}不(?:能|可|得|许)|(?:所有|每个|任何)[^，。,]{1,16}(?:应|一律)|一律|"
            r"硬性(?:规定|要求)",
        ),
        (
            r"\bwe must be \w+ing\b|\bmust (?:be (?:joking|kidding|that|the|a|an|because|due|"
            r"why)\b|have\b|say\b|admit\b)|\bwe have to (?:talk|see|say)\b|\bif (?:possible|"
            r"you like)\b|\bmust-have\b|\b(?:does|do|did) ?n[o']t (?:have|need) to\b",
            r"不是必须|并非必须|不必|必须[^，。]{0,3}赞|[我你他她它](?:必须|得|要)(?:说|走|想|看)|"
            r"多久|多少|什么|什麼|\A\W*[我你]|太[^，。]{1,4}了",
        ),
    ),
    (
        "issue",
        (
            r"\b(?:found|discovered|noticed|hit|ran into|see|seeing|have)\s+(?:a|an|another|"
            r"one)\s+(?:[\w-]+\s+)?(?:bug|problem|issue|regression|defect|vulnerability|"
            r"leak|risk)\b.{8,}",
            r"\bthere(?: is|'s| are) (?:a |an |another )?(?:[\w-]+ )?(?:bugs?|problems?|issues?|"
            r"regression|defect|leak|race|deadlock|race condition) (?:with|in|between)\b",
            r"\bfailing since\b|\b(?:has|have) been (?:failing|red|broken|down|crashing|flaky|"
            r"unavailable|unreachable)\b",
            r"\b(?:is|are|keeps?) (?:still |now )?(?:failing|crashing|broken|leaking|unreachable|"
            r"flaky|timing out|(?:down|red)(?= since| again| for))\b",
            r"\b(?:crashes|freezes|hangs|fails|breaks|times out|leaks|panics|returns? (?:a |"
            r"an )?(?:http )?[45]\d\d)\b(?=.*\b(?:when|if|after|on|with|because|every|whenever|at|"
            r"under)\b)",
            r"\b(?:does not|doesn't|do not|don't) (?:work|build|start|compile|load|respond|open|"
            r"render)\b|(?<!\bi )(?<!\bwe )\b(?:does not|doesn't|do not|don't) \w+ any ?more\b|"
            r"\breturns? (?:no|wrong|empty|stale|duplicate|incorrect) \w+|"
            r"\b(?:something is wrong with|(?:has|have|shows?) (?:the )?wrong|"
            r"ends? (?:up )?in (?:a |an )?(?:timeout|error|crash)|keeps? (?:growing|crashing|"
            r"failing|restarting|hanging))\b",
            r"(?:发现|出现|存在)了?(?:一个|个|一些|严重)?\s?(?:严重)?的?(?:问题|缺陷|漏洞|"
            r"bug)[:：，,].{3,}",
            r"(?:从[^，。,]{1,10}[起开][始]?|自[^，。,]{1,8})[^，。,]{0,4}(?:报错|失败|挂|崩|超时)",
            r"(?:一直|总是?|经常|偶尔|时不时|每次|每天|每晚|会|频繁|老是)[^，。,]{0,8}(?:报错|"
            r"报\s?[45]\d\d|失败|崩|超时|卡死|挂|丢|返回\s?[45]\d\d|闪退|重复)",
            r"内存泄漏|空指针|死锁|竞态|打不开|没反应|闪退|卡死|连不上|崩了|挂了|掉线|不生效|"
            r"编译不过|就超时|有问题(?!随时|请|可以|就|找|的话|再)|一直[涨掉]",
        ),
        (
            r"\b(?:fixed|solved|resolved|(?<!returns )(?<!return )no|(?<!does )(?<!do )not|was|"
            r"were|test(?:s|ing)? that)\b",
            r"已?(?:解决|修复|修好)|没有?发现|未发现|好了|恢复|如果|没有?问题",
        ),
    ),
    (
        "conclusion",
        (
            r"\A\W*in conclusion,|\bturns? out\b|\b(?:root )?cause (?:is|was|turned out)\b|"
            r"\b(?:investigation|analysis|logs?|profiling|traces?|measurements?|tests?|numbers|"
            r"data|results?|experiments?|benchmarks?) (?:shows?|showed|proves?) that\b|"
            r"\bfound out (?:why|that)\b|\A\W*so it was\b|\bthe reason (?:for|why)\b.*\b(?:is|"
            r"was)\b|\b(?:bug|cause|crash|delay|error|failure|leak|outage|problem|regression|"
            r"slowdown|spike)e?s? (?:came|comes?|stem(?:s|med)|results?|resulted) from\b|\b(?:is|"
            r"was|were|are) caused by\b|\A\W*(?:so|hence|therefore),? the (?:reason|bottleneck|"
            r"culprit)\b",
            r"综上|(?:根本?|故障)?(?:原因|根因)(?:是|在于|查到|找到|为)|事实证明|测下来|(?:测试|"
            r"压测|实验|数据|结果)(?:表明|证明|说明|显示(?![了不出]))|(?:这|由此|也)说明|查明|"
            r"定位到|查清楚?了|查出来了?|(?<![有没])发现是",
        ),
        (
            r"\bnot (?:clear|known)\b",
            r"不清楚|没找到|还在查",
        ),
    ),
    (
        "next_action",
        (
            r"\A\W*(?:next|then|after that|afterwards),? (?:i|we)(?:'ll|'m|'re| will| am| are)\b",
            r"\b(?:my|our|the) next step is\b|\A\W*next step is\b",
            r"\A\W*下一步是(?!什么)|\A\W*然后我们?(?:去|再|会|来|要)",
            r"\A\W*(?:接下来|下一步|下面)[，,]?\s*(?:我们?)?(?:先|要|会|将|就|把|去|跑|做|写|准备|"
            r"打算)",
        ),
        (r"怎么|什么|呢",),
    ),
]

_CUES: dict[Kind, str] = {
    "blocker": """
        blocked blocker blockers blocking stuck waiting hold held halt standstill dead pending moves
        cannot can't unable 阻[塞碍] 卡[在住了点] 堵 无法 没法 不能 [做动测走推合发跑行交署工录]不
        在等 暂停 拖住 才能 停了 不了""",
    "decision": """
        decision decisions decided agreed settled opted resolved resolution chosen chose picked
        voted verdict outcome outcomes consensus approved let's lets we'll we're we've won't
        dropping adopting retiring deprecating postponing standardise standardize without retire
        freeze defer postpone instead rather wins
        决[定策议] 定[稿的在成了为] 确[定认] [敲商]定 就定 一致 同意 约定 商量 说好 评审 方案 选型
        拍板 共识 选 [采改]用 果是 论是 就[用选上] 这[么样] 换成 改[为成] [切迁]到 统一 不再 放弃
        砍掉 不[做上搞支] 从[今现明下0123456789] 今后 以后 往后 们[用走上]""",
    "task": """
        todo todos action task tasks assigned 待办 任务 行动 [一二三四五六日天][要交]""",
    "requirement": """
        must shall require required requirement requirements constraint constraints
        criteria criterion forbidden prohibited mandatory limited restricted capped exceed never
        always unacceptable acceptable sla slo ever
        需 须 务必 不得 禁 允许 不准 要[求能支在] [都均][要得] 超过 [少低高]于 控制 上限 最[多少]
        至少 约束 验收 应当 所有 每个 一律 只有 硬性 任何""",
    "issue": """
        bug bugs problem problems issue issues regression defect defects vulnerability leak leaks
        race deadlock risk risks failing red broken down crashing crashes crash flaky unavailable
        unreachable leaking timing freezes hangs fails breaks panics wrong timeout growing
        restarting hanging anymore empty stale duplicate incorrect
        发现 出现 存在 问题 缺陷 故障 风险 报错 失败 崩 挂 丢 超时 返回 闪退 重复 泄漏
        指针 死锁 打不 没反 卡死 连不 竞态 掉线 不生 编译 直[涨掉]""",
    "conclusion": """
        conclusion conclusions cause causes reason bottleneck culprit came comes come
        stems stemmed results resulted caused
        结[论果] 综上 原因 根因 证明 测下 表明 显示 说明 查[明清出] 定位 现是""",
    "next_action": "next then afterwards 下一 后续 接下 下面 然后",
}
_CUE_PAIRS: dict[Kind, tuple[tuple[str, str], ...]] = {
    "decision": (
        ("we", "will are have stick stay go ship use keep build take skip drop"),
        ("按", "办 执"),
    ),
    "task": (
        ("please i i'll i'm", "by before until till later"),
        (
            "@ ＠",
            "by before until till later due deadline will is owns takes 前 内 后 天 周 月 日 点 "
            "负 处 完 跟 实 编 做 写 弄 交 分 指",
        ),
        ("天 晚 早 周 年 月 底 末 号 日 点 时 班 内 期 拜", "前 内"),
        ("to", "do"),
    ),
    "requirement": (
        ("no only may should make", "may can should not able sure"),
        ("need needs", "to"),
        ("to", "has have"),
    ),
    "issue": (
        ("doesn't don't do does", "work build start compile load respond open render not"),
        ("报", "4 5"),
        ("times time return returns end ends", "out http a an in when if after on with no"),
    ),
    "conclusion": (("show shows showed prove proves proved", "that"), ("found turn turns", "out")),
}
_CUE_PHRASES: dict[Kind, tuple[str, ...]] = {
    "blocker": ("can not ",),
    "decision": (
        *("final call", "the call", "going with", " it is", "in place of", "from now on", "as of "),
        "ended up",
    ),
    "requirement": ("not allowed",),
    "task": ("[ ]",),
    "conclusion": ("bottom line", "so it was"),
    "next_action": ("after that",),
}
"""By kind: in every sentence that its phrases match, there is one of these words or phrases.

A cue is an English word, a Chinese character or a pair of them; `卡[在住]` are two pairs. Of a pair
of lists, there is a cue of each.
"""

_SIGNS = ":：】]-–—"
"""One of them is in every marker."""

_EMPTY = (
    r"(?:tbd|tba|none|nothing|n/?a|no|unknown|pending|open|to be (?:decided|determined|discussed)|"
    r"-+|—+|…|\.+|待定|待讨论|待确认|未定|暂无|无|没有|暂未确定|略|no (?:blockers?|issues?|"
    r"decisions?|risks?|problems?)|closed|gone|解决)(?:\b|(?<=\W)|"
    r"(?<=[^\x00-\x7f]))(?:\s+(?:so far|yet|for now|at the moment))?[\s.。!！…]*\Z"
)


def cued_kinds(text: str) -> set[Kind]:
    """Return the kinds of which a phrase may be in a text; most messages have none.

    It is quick: one pass over the words, and one over the pairs of characters of other scripts.
    """
    folded = text.lower().replace("’", "'")
    tokens = _read_words(folded)
    if not folded.isascii():
        tokens.update(folded, map(str.__add__, folded, folded[1:]))
    elif "@" in folded:
        tokens.add("@")
    cues = _read_cues()
    cued = {kind for token in tokens & cues.tokens for kind in cues.kinds[token]}
    for first in tokens & cues.firsts:
        cued.update([kind for kind, seconds in cues.pairs[first] if not seconds.isdisjoint(tokens)])
    cued.update([kind for phrase, kind in cues.phrases if phrase in folded])
    return cued


def _read_words(folded: str) -> set[str]:
    """Return the words of a text in lower case, as `_WORD` finds them, in a third of its time."""
    ascii_text = folded.encode("ascii", "replace")
    words = set(ascii_text.translate(_TO_WORDS).decode().split())
    if b"'" not in ascii_text:
        return words
    return {part for word in words for part in (_WORD.findall(word) if "'" in word else (word,))}


class _Cues(NamedTuple):
    tokens: frozenset[str]
    kinds: Mapping[str, Sequence[Kind]]
    firsts: frozenset[str]
    pairs: Mapping[str, Sequence[tuple[Kind, frozenset[str]]]]
    phrases: Sequence[tuple[str, Kind]]


@cache
def _read_cues() -> _Cues:
    kinds: defaultdict[str, list[Kind]] = defaultdict(list)
    pairs: defaultdict[str, list[tuple[Kind, frozenset[str]]]] = defaultdict(list)
    for kind, words in _CUES.items():
        for cue in _expand(words):
            kinds[cue].append(kind)
        for firsts, seconds in _CUE_PAIRS.get(kind, ()):
            for first in firsts.split():
                pairs[first].append((kind, frozenset(seconds.split())))
    texts = [(text, kind) for kind, texts in _CUE_PHRASES.items() for text in texts]
    return _Cues(frozenset(kinds), kinds, frozenset(pairs), pairs, texts)


def _expand(words: str) -> Iterator[str]:
    """Yield the cues; `[ab]c` are `ac` and `bc`."""
    for word in words.split():
        choices = [match[1] or match[0] for match in re.finditer(r"\[(.+?)\]|.", word)]
        yield from map("".join, product(*choices))


def find_saying(sentence: str, kind: Kind) -> re.Match[str] | None:
    """Return the first phrase of this kind in a sentence in lower case.

    Return None if another phrase rules it out.

    Compiling them takes some milliseconds, so a pattern is only compiled if it may match.
    """
    script: Script = "english" if sentence.isascii() else "mixed"
    if script == "mixed" and not any("a" <= character <= "z" for character in sentence):
        script = "chinese"
    says, unless = _sayings(kind, script)
    match = says.search(sentence)
    return match if match and not unless.search(sentence) else None


@cache
def _sayings(kind: Kind, script: Script) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the pattern of a kind's phrases in a script, and of what rules them out.

    A phrase without Chinese words has English ones; `mixed` text may have both.
    """
    _, *groups = next(entry for entry in _SAYINGS if entry[0] == kind)
    says, unless = (
        "|".join(pattern for pattern in patterns if script in ("mixed", _script(pattern)))
        or r"(?!)"
        for patterns in groups
    )
    # No English phrase begins within a word: this look makes a search a third faster.
    says = rf"(?<![a-z](?=[a-z]))(?:{says})" if script == "english" else says
    return re.compile(says), re.compile(unless)


def _script(pattern: str) -> Script:
    # Compiling [一-鿿] takes 1 ms.
    return "chinese" if any("一" <= character <= "鿿" for character in pattern) else "english"


SAID_KINDS = tuple(kind for kind, _, _ in _SAYINGS)
"""The kinds with phrases, in the order in which they are tried."""


def match_marker(sentence: str, kinds: Collection[Kind] = ()) -> Marked | None:
    """Return the marker that a sentence begins with, such as `Conclusion:`; None without one.

    `kinds` are those of which a phrase may be in the sentence, if they are known.
    """
    if not any(sign in sentence for sign in _SIGNS):
        return None
    marked = tuple(kind for kind in _MARKERS if kind in (kinds or _MARKERS))
    match = _compiled(_marker_pattern(marked)).match(sentence) if marked else None
    if match is None:
        return None
    return Marked(next(kind for kind in marked if match[kind] is not None), match.end())


class Marked(NamedTuple):
    """The kind of a marker, and where the text after it begins."""

    kind: Kind
    start: int


def introduced_kind(sentence: str) -> Kind | None:
    """Return the kind of what follows a sentence that introduces it and says nothing itself."""
    if _compiled(_ANNOUNCEMENT).match(sentence):
        return "decision"
    if not sentence.rstrip().endswith((":", "：")) or _compiled(_OPEN).search(sentence):
        return None
    kinds = _INTRODUCTIONS.items()
    return next((kind for kind, words in kinds if _compiled(words).search(sentence)), None)


def without_marker(sentence: str) -> str:
    """Return a sentence without the word and colon that it begins with, such as `Conclusion:`."""
    marked = match_marker(sentence)
    return sentence[marked.start :] or sentence if marked else sentence


@cache
def _marker_pattern(kinds: Sequence[Kind]) -> str:
    words = "|".join(f"(?P<{kind}>{_MARKERS[kind]})" for kind in kinds)
    lead = (
        rf"[^\w@＠【\[]*(?:(?:ok(?:ay)?|al?right|right|so|hi|hey|fyi|"
        rf"well)(?: \w{{1,12}})?[,，:：]\s*)?"
        rf"(?:{_AT}\s+)*[^\w【\[]*(?:(?:my|our|the|a|one|another|new|first|main) )?"
    )
    brackets = r"(?P<bracket>[【\[]\s*)?"
    closing = (
        r"(?(bracket)\s*[】\]][*_]*\s*[:：]?|[*_\"”]*(?:\s*(?:\([^()\r\n]*\)|（[^（）\r\n]*）|"
    )
    closing += r"(?:of|from|for|after|in) [^:：.,!?\r\n]{1,40}?)|如下|已定|有)?"
    end = r"[*_]*\s*(?:[:：](?!//)|\s[-–—]+(?=\s))[*_\"”]*)"
    return rf"{lead}{brackets}(?:{words}){closing}{end}\s*"


def empty() -> re.Pattern[str]:
    """Return the pattern of a text after a marker that has no content yet."""
    return _compiled(_EMPTY)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
