"""Compares what two servers say of their commands: COMMAND, COMMAND LIST, COUNT and DOCS.

Usage: command_table.py TIERCE'S-PORT REDIS'S-PORT. The reference is redis-server 7.0, which Debian has; what is
otherwise on purpose, or because 7.2 is, is listed here with its reason. An entry that no longer holds has to go."""

import sys

import redis

# Commands of Redis that are not here yet.
MISSING = {
    "restore-asking",
}

# Commands that 7.0 lacks.
ADDED = {
    "client|no-touch": "7.2",
    "client|setinfo": "7.2",
    "cluster|myshardid": "7.2",
    "waitaof": "7.2",
    "hexpire": "7.4", "hexpireat": "7.4", "hexpiretime": "7.4", "hpersist": "7.4", "hpexpire": "7.4",
    "hpexpireat": "7.4", "hpexpiretime": "7.4", "hpttl": "7.4", "httl": "7.4",
    **{name: "8.0" for name in ("hgetdel", "hgetex", "hsetex")},
    **{name: "8.12" for name in (
        "saddex", "sexpire", "spexpire", "sexpireat", "spexpireat", "sttl", "spttl", "sexpiretime",
        "spexpiretime", "spersist")},
    **{name: "8.10" for name in (
        "blmovem", "himport", "himport|discard", "himport|discardall", "himport|prepare", "himport|set", "lmovem",
        "sdiffcard", "sunioncard")},
    "delex": "8.4", "digest": "8.4", "msetex": "8.4",
    "delifeq": "Valkey 9.0",
    "increx": "8.8",
    "backup": "our own",
    "xidmprecord": "8.8",
    "xackdel": "8.2", "xdelex": "8.2", "xnack": "8.8",
    **{name: "8.6" for name in (
        "xcfgset", "hotkeys", "hotkeys|get", "hotkeys|help", "hotkeys|reset", "hotkeys|start", "hotkeys|stop")},
    "client|capa": "Valkey 8.0",
    **{name: "Valkey 8.1" for name in (
        "commandlog", "commandlog|get", "commandlog|help", "commandlog|len", "commandlog|reset")},
    "client|durability": "our own",
    "client|maint_notifications": "our own: as in Redis Software",
    **{name: "our own: commands that never block" for name in (
        "client|acceptnb", "nbcancel", "nbkeys", "nblist", "nblmove", "nblmpop", "nblpop", "nbrpop", "nbxread",
        "nbzpopmax", "nbzpopmin")},
    "exit": "our own: what people type who want to leave",
    **{name: "our own: scripts by name" for name in (
        "evalname", "script|names", "script|register", "script|unregister")},
}

SCRIPTS_MAY = "7.2: scripts may call it, and then it does not wait"

# What differs of commands that both have: (command, fact), and why.
DIFFERENT = {
    **{(name, "flags"): SCRIPTS_MAY for name in (
        "blmove", "blpop", "brpop", "brpoplpush", "bzpopmax", "bzpopmin", "wait")},
    ("ping", "flags"): "our own: it is answered while data are being loaded",
    **{(name, "tips"): "7.2: for all nodes" for name in ("acl|deluser", "acl|save", "acl|setuser")},
    ("wait", "categories"): "7.2: it blocks",
    **{(f"function|{name}", "categories"): "our own: others run that code, so it is in @dangerous"
       for name in ("load", "delete", "flush", "restore")},
    ("command|getkeys", "arity"): "7.2: a call may be a single word",
    ("command|getkeysandflags", "arity"): "7.2: a call may be a single word",
    ("psync", "words"): "Redis takes FAILOVER as a third argument as well, and does not say so",
    ("zrank", "arity"): "7.2: WITHSCORE",
    ("zrevrank", "arity"): "7.2: WITHSCORE",
    ("migrate", "flags"): "our own: no script or transaction calls it, since these may run twice",
    ("sinterstore", "keys"): "it overwrites the destination without reading it, as SUNIONSTORE does",
    ("xautoclaim", "keys"): "7.2: it returns content",
    ("client|pause", "since"): "7.0 says 2.9.50, which was no release",
    ("client|kill", "words"): "7.4: MAXAGE; Valkey 9: conditions on all fields",
    ("client|list", "words"): "Valkey 9: conditions",
    ("bitop", "words"): "7.2: the operations by name, and those of 8.2",
    **{(name, "words"): "Valkey 9.0: BYPOLYGON" for name in ("geosearch", "geosearchstore")},
    ("set", "words"): "8.4: conditions on the value",
    ("hscan", "words"): "7.4: NOVALUES",
    **{(name, "words"): "8.8: AGGREGATE COUNT" for name in ("zinter", "zinterstore", "zunion", "zunionstore")},
    ("xadd", "words"): "8.2: KEEPREF, DELREF, ACKED",
    ("xread", "words"): "8.10: MAXCOUNT, MAXSIZE",
    ("xreadgroup", "words"): "8.4: CLAIM; 8.10: MAXCOUNT, MAXSIZE",
    ("xtrim", "words"): "8.2: KEEPREF, DELREF, ACKED",
    ("zrank", "words"): "7.2: WITHSCORE",
    ("zrevrank", "words"): "7.2: WITHSCORE",
    **{(name, fact): "7.2: deprecated" for name in ("psetex", "quit", "setex", "setnx")
       for fact in ("doc_flags", "deprecated_since", "replaced_by")},
}


def facts_of(server):
    """The facts of each command and subcommand, by full name."""
    facts = {}

    def add(entry):
        name, arity, flags, first, last, step, categories, tips, keys, subcommands = entry
        facts[name] = {
            "arity": arity,
            "flags": sorted(flags),
            "range": (first, last, step),
            "categories": sorted(categories),
            "tips": sorted(tips),
            "keys": [key_of(key) for key in keys],
        }
        for subcommand in subcommands:
            add(subcommand)

    for entry in server.execute_command("COMMAND INFO"):
        add(entry)
    return facts


def pairs(flat):
    return dict(zip(flat[::2], flat[1::2]))


def key_of(key):
    """A key specification without its notes, which are in own words."""
    key = pairs(key)
    key["notes"] = "notes" in key
    key["flags"] = sorted(key["flags"])
    return key


def arguments_of(arguments):
    """The keys among arguments, as indexes into the key specifications, and the words."""
    keys, words = [], set()
    for argument in map(pairs, arguments):
        if "key_spec_index" in argument:
            keys.append(argument["key_spec_index"])
        if "token" in argument:
            words.add(argument["token"])
        inner_keys, inner_words = arguments_of(argument.get("arguments", []))
        keys, words = keys + inner_keys, words | inner_words
    return keys, words


def documents_of(server):
    """What COMMAND DOCS says beyond texts and names for people, by full name."""
    documents = {}

    def add(flat):
        for name, document in pairs(flat).items():
            document = pairs(document)
            documents[name] = {
                fact: document.get(fact)
                for fact in ("since", "group", "doc_flags", "deprecated_since", "replaced_by")
            }
            keys, words = arguments_of(document.get("arguments", []))
            documents[name] |= {"key arguments": keys, "words": sorted(words)}
            add(document.get("subcommands", []))

    add(server.execute_command("COMMAND DOCS"))
    return documents


def is_missing(name):
    return name in MISSING or name.split("|")[0] in MISSING


def main():
    tierce, reference = (redis.Redis(port=int(port), protocol=2, decode_responses=True) for port in sys.argv[1:3])
    for server in (tierce, reference):
        # The replies as they come.
        server.response_callbacks.clear()
    wrong = []
    ours, theirs = facts_of(tierce), facts_of(reference)
    for server, facts in ((tierce, ours), (reference, theirs)):
        if sorted(server.execute_command("COMMAND LIST")) != sorted(facts):
            wrong.append("COMMAND LIST and COMMAND INFO name different commands")
        if server.execute_command("COMMAND COUNT") != len([name for name in facts if "|" not in name]):
            wrong.append("COMMAND COUNT is another number than that of the commands")

    wrong += [f"{name} is missing" for name in sorted(theirs.keys() - ours.keys()) if not is_missing(name)]
    wrong += [f"{name} is not in Redis" for name in sorted(ours.keys() - theirs.keys() - ADDED.keys())]
    wrong += [f"{name} is listed, and there" for name in sorted(MISSING & ours.keys())]
    for name, document in documents_of(tierce).items():
        # Redis' versions are numbers; a command of our own names our version.
        if document["since"].startswith("Tierce ") != (ADDED.get(name, "").startswith("our own")):
            wrong.append(f"{name}: since is {document['since']}")
    wrong += [f"{name} is listed as added" for name in sorted(ADDED.keys() - (ours.keys() - theirs.keys()))]

    for name, document in documents_of(tierce).items():
        ours[name] |= document
    for name, document in documents_of(reference).items():
        theirs[name] |= document
    differing = {
        (name, fact)
        for name in ours.keys() & theirs.keys()
        for fact in ours[name]
        if ours[name][fact] != theirs[name][fact]
    }
    for name, fact in sorted(differing - DIFFERENT.keys()):
        wrong.append(f"{name}: {fact} is {ours[name][fact]}, in Redis {theirs[name][fact]}")
    wrong += [f"{name}: {fact} no longer differs" for name, fact in sorted(DIFFERENT.keys() - differing)]

    print("\n".join(wrong) or f"{len(ours)} commands and subcommands agree, but for {len(DIFFERENT)} facts that are listed")
    sys.exit(1 if wrong else 0)


main()
