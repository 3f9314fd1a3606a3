"""Replace words by the common word of their group, so that texts can be compared. Pure.

A blocker and a reply often name the same thing differently: `the schema change` and `I altered the
table`. The groups hold what teams that build and run software talk about, in English and Chinese.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from arena_cli.workspace import visible_text

# The first word of each group is the common one.
_GROUPS = """
    access permission right credential authorisation authorization 权限 授权; api endpoint interface
    接口; backup snapshot 备份; bill invoice 账单 发票; buy purchase procure 采购 购买; certificate
    cert tls ssl 证书; change alter modify edit adapt amend 变更 修改 改动 改了 改掉 改成; client
    customer 客户; cluster 集群; config configuration setting 配置; contract agreement 合同 协议;
    database db table schema column row record 数据库 表结构 数据表; delete remove erase purge wipe
    删除 删掉 删了 清空 清理; deploy release ship publish rollout launch 部署 发布 上线 发版; design
    mockup layout 设计; document docs 文档; export dump extract 导出; image picture photo 镜像 图片;
    import ingest 导入; index 索引; licence license 许可; login signin sign-in log-in 登录 登陆;
    mail email e-mail newsletter mailing 邮件; merge 合并; message sms text 短信 消息; migrate
    migration 迁移; money budget fund 预算 经费; partner supplier vendor 供应商 合作方; payment pay
    charge checkout billing 支付 付款 收款 扣款; phone call telephone 电话; press journalist
    reporter media 媒体 记者; price pricing 价格 定价; production prod 生产环境 生产 线上; run
    execute start 运行 执行; scale enlarge 扩容 扩到 扩展; server machine host hardware 服务器 机器;
    shipment parcel delivery 发货 寄货 寄出 出货 货物; sign signature 签字 签署 签名; staging
    测试环境 预发; test 测试; traffic 流量; user 用户; website site homepage web-page 网站 官网
"""
# Words for things, which say what two notes in two languages are about.
_TRANSLATIONS = """
    account 账号 账户; admin administrator 管理员; alert alarm 告警 报警; android 安卓; attachment
    附件; avatar 头像; backend back-end 后端; beta 测试版; branch 分支; cache 缓存; code 代码;
    comment 评论; data information 数据 信息; device 设备; discount 折扣; download 下载; employee
    staff 员工; encrypt encryption 加密; error 错误 报错; feature 功能; file 文件; frontend
    front-end 前端; guest visitor 访客 游客; language 语言; log 日志; meeting 会议; member 成员;
    metric 指标; mobile 移动端 手机; module 模块; network 网络; office 办公室; order 订单; page
    页面; password 密码; project 项目; queue 队列; refund 退款; report 报表 报告; review 评审 审核;
    salary wage 工资; search 搜索; session 会话; sync 同步; team 团队; token 令牌; trial 试用;
    upload 上传; version 版本
"""
_ALL = f"{_GROUPS};{_TRANSLATIONS}"
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)?")


def read_groups(text: str) -> dict[str, str]:
    """Return the first word of its group for each word; a semicolon separates groups."""
    groups = [group.split() for group in text.split(";")]
    return {word: group[0] for group in groups for word in group}


@lru_cache(maxsize=4096)
def fold_synonyms(text: str) -> str:
    """Return a folded text with the common word of its group for each word that has one."""
    commons, chinese = _commons(_GROUPS)
    folded = _WORD.sub(lambda match: commons.get(match[0], match[0]), visible_text.fold_text(text))
    if folded.isascii():
        return folded
    return chinese.sub(lambda match: f" {commons[match[0]]} ", folded)


def find_common(word: str) -> str:
    """Return the common word of a folded word's group, in either list; empty if it has none."""
    return _commons(_ALL)[0].get(word, "")


def list_chinese() -> list[str]:
    """Return the Chinese words of both lists."""
    return [word for word in read_groups(_ALL) if not word.isascii()]


@cache
def _commons(groups: str) -> tuple[dict[str, str], re.Pattern[str]]:
    """Return the common word of each word and of its forms, and a pattern of the Chinese words."""
    commons: dict[str, str] = {}
    chinese: list[str] = []
    for word, common in read_groups(groups).items():
        commons |= dict.fromkeys(_forms(word) if word.isascii() else (word,), common)
        chinese += [] if word.isascii() else [word]
    longest_first = sorted(chinese, key=len, reverse=True)
    return commons, re.compile("|".join(longest_first))


def _forms(word: str) -> tuple[str, ...]:
    """Return an English word with the endings of plurals and of regular verbs."""
    base = word.removesuffix("e")
    doubled = word + word[-1:]
    endings = (f"{word}s", f"{word}es", f"{base}ed", f"{base}ing", f"{doubled}ed", f"{doubled}ing")
    return (word, *endings, f"{word.removesuffix('y')}ies")
