"""Tools that no table holds: made of verbs, nouns and parameters at random, or of invented words.

What a table teaches can be remembered. Here nothing can: which tool and which value goes where has to be read.
"""

import re
from functools import cache

from . import pools
from .tables import Parameter, Tool, enumerate_text, parse_phrase, plain_type

# Groups of verbs that mean the same: the name takes one, the question another.
VERBS = [
    ("find", "search", "look up", "locate", "query"),
    ("get", "fetch", "show", "retrieve", "read"),
    ("create", "add", "make", "new", "register"),
    ("delete", "remove", "erase", "drop"),
    ("update", "change", "edit", "modify"),
    ("send", "deliver", "dispatch", "forward"),
    ("start", "launch", "run", "begin"),
    ("stop", "halt", "end", "terminate"),
    ("book", "reserve"),
    ("check", "verify", "inspect", "test"),
    ("calculate", "compute", "work out", "estimate"),
    ("list", "enumerate"),
    ("schedule", "plan", "arrange"),
    ("cancel", "call off"),
    ("download", "save"),
    ("upload", "publish"),
    ("analyze", "examine", "study"),
    ("compare",),
    ("convert", "transform"),
    ("track", "follow", "monitor"),
    ("rate", "review", "score"),
    ("open", "unlock"),
    ("close", "shut"),
    ("order", "buy", "purchase"),
    ("sell",),
    ("rent", "hire", "lease"),
    ("measure",),
    ("repair", "fix"),
    ("approve", "accept"),
    ("reject", "decline"),
    ("merge", "combine", "join"),
    ("split", "divide"),
    ("export",),
    ("import", "load"),
    ("validate",),
    ("clean", "clear"),
    ("paint",),
    ("mix",),
    ("rank", "sort"),
    ("simulate", "model"),
    ("predict", "forecast"),
    ("assign", "allocate"),
    ("lock",),
    ("count",),
    ("print",),
    ("move", "shift", "transfer"),
    ("pay",),
    ("visit",),
    ("invite",),
    ("notify", "alert", "warn"),
]
NOUNS = """report|shipment|lesson|garden|contract|profile|gallery|bridge|sample|workflow|session|gateway|beacon|ledger|voucher|cabin|boat|bicycle|trail|concert|exhibit|lecture|course|
patient record|lab test|experiment|satellite|telescope|antenna|turbine|pump|valve|tank|conveyor|drone|locker|parcel|pallet|crate|auction|bid|donation|grant|petition|ballot|policy|claim|audit|asset|bond|fund|portfolio|
recording|episode|chapter|poem|sketch|sculpture|mural|costume|recipe box|menu card|tasting|harvest|orchard|greenhouse|hive|kennel|stable|aquarium|reef|glacier|river level|tide|storm|earthquake|volcano|fossil|mineral|
molecule|protein|gene|enzyme|vaccine|prescription|therapy|clinic|ward|ambulance|shelter|campsite|lodge|ferry|tram|tunnel|runway|hangar|depot|crane|forklift|elevator|escalator|boiler|solar panel|battery|meter|fuse|circuit|
module|package|plugin|snapshot|container|cluster|queue|bucket|token|certificate|key pair|firewall rule|proxy|domain name|record|schema|index|dataset|feature flag|pipeline|artifact|dashboard|widget|badge|banner|campaign|coupon book|subscription|membership|wishlist|
puzzle|tournament|league entry|trophy|quest|avatar|level map|track|choir|orchestra|playlist entry|lyric|melody|chord|beat|studio|archive|catalog|museum|statue|festival|parade|ceremony|anthem|treaty|border post|census|court case|verdict|statute""".replace(
    "\n", ""
).split("|")
# A parameter and how a question says it: {} is the value.
PARAMETERS = [
    ("source|origin|from", "city", ("from {}", "starting at {}")),
    ("destination|target|to", "city", ("to {}", "towards {}")),
    ("location|place|city|area", "city", ("in {}", "near {}", "around {}")),
    ("region|country", "country", ("in {}", "for the region {}")),
    ("name|title|label", "title", ("called {}", "named {}", 'with the name "{}"', "titled {}")),
    ("id|code|reference", "id", ("with id {}", "{}", "number {}", "with the code {}")),
    ("owner|author|creator", "person", ("by {}", "owned by {}", "made by {}")),
    ("recipient|receiver|customer", "person", ("for {}", "to {}")),
    ("assignee|manager|contact", "person", ("handled by {}", "with {} in charge", "managed by {}")),
    ("topic|subject|theme", "topic", ("about {}", "on {}", "on the topic of {}")),
    ("category|type|kind", "genre", ("of type {}", "in the category {}", "of the kind {}")),
    ("date|day|when", "date", ("{}",)),
    ("time|start_time|at", "time", ("at {}", "starting at {}")),
    ("limit|max_results|top|count", "int(1,99)", ("limit {}", "at most {} of them", "only the first {}", "{} results")),
    ("amount|quantity|number|units", "int(1,900)", ("{} times", "quantity {}", "an amount of {}", "{} units")),
    ("price|max_price|cost|budget", "num(1,900)", ("for {} dollars", "costing {}", "below {}", "with a budget of {}")),
    ("weight|mass", "num(0,300)", ("weighing {} kg", "with a weight of {}")),
    ("length|distance|size", "num(0,900)", ("{} meters long", "of length {}", "{} in size")),
    ("temperature|degrees", "num(-40,400)", ("at {} degrees", "with the temperature {}")),
    ("duration|minutes", "int(1,300)", ("for {} minutes", "lasting {} minutes")),
    ("days|period", "int(1,60)", ("for {} days", "over {} days")),
    ("year|edition", "int(1900,2030)", ("from {}", "of the year {}", "in {}")),
    ("language|locale", "language", ("in {}", "written in {}")),
    ("color|colour", "colour", ("in {}", "coloured {}", "with the colour {}")),
    ("message|comment|note|text", "sentence", ('saying "{}"', 'with the note "{}"', 'with this text: "{}"')),
    ("email|address", "email", ("to {}", "using {}")),
    ("url|link|endpoint", "url", ("from {}", "at {}", "using the link {}")),
    ("file|path|filename", "path", ("from {}", "stored in {}", "using the file {}")),
    ("format|output_format", "json|csv|xml|pdf", ("as {}", "in {} format")),
    ("priority|urgency", "low|medium|high|critical", ("with {} priority", "priority {}")),
    ("status|state", "active|pending|archived|failed", ("that are {}", "with status {}")),
    ("mode|strategy", "fast|safe|full|auto", ("in {} mode", "using the mode {}")),
    ("order|sort_by", "name|date|price|size", ("sorted by {}", "ordered by {}")),
    ("material|substance", "material", ("made of {}", "from {}")),
    ("tags|labels|keywords", "[tag]", ("tagged {}", "with the tags {}", "labelled {}")),
    ("participants|members|guests", "[person]", ("with {}", "together with {}")),
    ("values|numbers|scores", "[int(-50,100)]", ("with the values {}", "for {}")),
    ("ids|codes", "[id]", ("for {}", "with the ids {}")),
    ("level|rating|score", "int(0,10)", ("at level {}", "rated {}", "level {}")),
    ("percent|ratio|threshold", "num(0,100)", ("at {} percent", "with a threshold of {}")),
    ("version|release", "version", ("version {}", "in version {}")),
    ("reason|purpose", "sentence", ('because "{}"', 'reason: "{}"')),
    ("company|vendor|brand", "company", ("from {}", "made by {}")),
    ("phone|number", "phone", ("on {}", "reachable at {}")),
    ("speed|rate", "num(0,200)", ("at {} km/h", "with a speed of {}")),
    ("depth|height|altitude", "int(-500,9000)", ("at a height of {}", "{} meters deep")),
]
FLAGS = [
    "urgent",
    "verbose",
    "recursive",
    "public",
    "private",
    "dry_run",
    "notify",
    "force",
    "include_archived",
    "compressed",
    "encrypted",
    "confirmed",
    "insured",
    "shared",
    "gift_wrap",
    "express",
]
POOLS = [
    "invented",
    "invented",
    "city",
    "person",
    "id",
    "topic",
    "sentence",
    "title",
    "int(-99,999)",
    "int(0,9)",
    "num(-50,500)",
    "email",
    "url",
    "path",
    "phone",
    "date",
    "word",
    "product",
    "code",
    "time",
    "bool",
    "[tag]",
    "[int(-9,99)]",
    "[invented]",
    "enum",
]
PLAIN = "name value key size mode kind x y z n a b level item count index start end step left right width height depth angle radius mass speed limit offset seed factor weight flag first second input output base top alpha beta gamma delta epsilon lambda mu sigma p q r k m t".split()


def topic_tool(rng, noun=None):
    """A verb and a noun, parameters that English has words for; the question may use other words than the name."""
    group = rng.choice(VERBS)
    noun = noun or rng.choice(NOUNS)
    return phrase_tool(rng, group, noun)


def phrase_tool(rng, group, noun):
    verb = rng.choice(group)
    tool = Tool(
        noun,
        [f"{verb} {noun}"],
        [f"{word.capitalize()} a {noun}." for word in group]
        + [f"{rng.choice(group).capitalize()} {noun}s.", f"{verb.capitalize()} the {noun} of the user."],
    )
    chosen, used = [], set()
    for names, pool, says in rng.sample(PARAMETERS, rng.choice((0, 1, 1, 2, 2, 3, 3, 4))):
        name = rng.choice(names.split("|"))
        # Two values after the same preposition could not be told apart.
        says = [say for say in says if say.split("{")[0] not in used]
        if says and all(name != other[0] for other in chosen):
            used.update(say.split("{")[0] for say in says)
            chosen.append((name, pool, says))
    wrap = rng.random() < 0.12 and len(chosen) > 1
    for name, pool, says in chosen:
        path = f"options.{name}" if wrap else name
        tool.parameters.append(
            Parameter(
                path,
                [name],
                pool,
                rng.random() < 0.6,
                False,
                [f"The {name.replace('_', ' ')}", f"{name.replace('_', ' ').capitalize()} of the {noun}"],
            )
        )
    flag = rng.choice(FLAGS) if rng.random() < 0.2 else None
    if flag:
        tool.parameters.append(Parameter(flag, [flag], "bool", False, False, []))
    for _ in range(3):
        asked = rng.choice(group)
        order = list(zip(tool.parameters, chosen))
        rng.shuffle(order)
        parts = [f"{asked} {rng.choice(('the', 'a', 'the', 'my'))} {noun}"]
        mention_name = rng.random() < 0.25
        for parameter, (name, _, says) in order:
            if not parameter.required and rng.random() < 0.3:
                continue
            words = name.replace("_", " ")
            say = (
                rng.choice((f"with {words} {{}}", f"where {words} is {{}}", f"({words}: {{}})"))
                if mention_name
                else rng.choice(says)
            )
            parts.append(say.replace("(", "\x01").replace(")", "\x02").replace("{}", "{" + parameter.path + "}"))
        text = rng.choice((" ", " ", " ", ", ")).join(parts)
        if flag and rng.random() < 0.5:
            text += " {%s=true:, make it %s}" % (flag, flag.replace("_", " "))
        tool.phrases.append(("!", restore(parse_phrase(text))))
    return tool


def restore(parts):
    return [part.replace("\x01", "(").replace("\x02", ")") if isinstance(part, str) else part for part in parts]


def random_tool(rng, word):
    """Names and parameters without meaning: only reading helps. `word` makes one."""
    words = [
        word() if rng.random() < 0.6 else rng.choice(rng.choice(VERBS)).split()[0],
        word() if rng.random() < 0.6 else rng.choice(NOUNS),
    ]
    name = " ".join(words[: rng.choice((1, 2, 2))])
    tool = Tool(
        words[0],
        [name],
        [
            f"{words[0].capitalize()} the {words[-1]}.",
            f"Runs {name}.",
            f"{word().capitalize()} {words[-1]}.",
        ],
    )
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 5))):
        key = rng.choice(PLAIN) if rng.random() < 0.5 else word().replace(" ", "_")
        if key in [parameter.path for parameter in tool.parameters]:
            continue
        pool = rng.choice(POOLS)
        if pool == "enum":
            pool = "|".join(sorted({word().split()[0] for _ in range(rng.randint(2, 4))} | {"auto"}))
        tool.parameters.append(Parameter(key, [key], pool, rng.random() < 0.7, False, [f"The {key}"]))
    for _ in range(3):
        style = rng.randrange(6)
        given = [p for p in tool.parameters if p.required or rng.random() < 0.6]
        rng.shuffle(given)
        between = rng.choice((" = ", " is ", ": ", " ", "=", " set to ", " of "))
        pairs = [f"{p.path}{between}{placeholder(rng, p)}" for p in given]
        listed = ", ".join(pairs) if style % 2 else " and ".join(pairs)
        verb = rng.choice(("use", "call", "run", "apply", "invoke", "do")) if style > 1 else ""
        text = f"{verb} {name}".strip()
        text += f" {rng.choice(('with', 'where', 'using', 'for'))} {listed}" if listed else ""
        tool.phrases.append(("!" if verb or rng.random() < 0.3 else "?", parse_phrase(text)))
    return tool


def placeholder(rng, parameter):
    """Where the value goes; quoted if it may hold commas and full stops."""
    if parameter.kind == "bool":
        value = rng.choice(("true", "false"))
        return f"{{{parameter.path}={value}:{value}}}"
    return f'"{{{parameter.path}}}"' if parameter.kind in ("sentence", "code") else f"{{{parameter.path}}}"


# How a question puts a label to a number, or to a text: before it or after it.
NUMBERED = "{l} {v}|{v} {l}|{l} at {v}|{v} at the {l}|the {l} by {v}|{v} as {l}|{v} for the {l}|{l} of {v}|a {l} of {v}|{l}: {v}|{l} is {v}|{v} as the {l}".split(
    "|"
)
WORDED = "{l} {v}|{v} as the {l}|{l}: {v}|the {l} is {v}|{v} for the {l}|{l} of {v}|{v} as {l}|the {l} {v}|{v} is the {l}".split(
    "|"
)


BARELY = "{v}|{v}|{v}|the {v}|for {v}|with {v}|at {v}|in {v}|on {v}|by {v}|to {v}".split("|")
# So many questions have no labels.
BARE = 0.4


def ways(kind):
    """How a question puts a label to a value of this kind."""
    return NUMBERED if plain_type(kind) in ("integer", "number") else WORDED


def labels(tools):
    """Names of the tables' parameters with plain values, and what they are drawn from: words to tell values apart by."""
    barred = {"bool", "date", "time", "moment", "arithmetic", "sentence", "phrase", "code", "command", "query", "regex"}
    found = {}
    for tool in tools:
        for parameter in tool.parameters:
            if "." not in parameter.path and parameter.kind[0] not in "<[" and parameter.kind not in barred:
                for name in parameter.names:
                    found.setdefault(name, parameter.kind)
    return list(found.items())


@cache
def form(kind):
    """What its values look like."""
    if "|" in kind:
        return "choice"
    if plain_type(kind) != "string":
        return "number"
    if kind not in pools.LISTS:
        return "name" if kind == "person" else kind
    values = pools.LISTS[kind].split("|")
    for name, pattern in (("id", r".*\d"), ("name", "[A-Z]")):
        if sum(bool(re.match(pattern, value)) for value in values) > len(values) / 2:
            return name
    return "word"


def labelled_tool(rng, labels):
    """A question says its values in any order, each with its label: where a value goes is read off the words beside it.

    Of some no labels are said: where a value goes is read off what it is.
    """
    bare, forms, kinds = rng.random() < BARE, set(), set()
    group, noun = rng.choice(VERBS), rng.choice(NOUNS)
    verb = rng.choice(group)
    tool = Tool(noun, [f"{verb} {noun}"], [f"{word.capitalize()} a {noun}." for word in group])
    numbers = rng.random() < 0.5
    words, paths = set(), []
    outer = rng.choice(labels)[0] if rng.random() < 0.35 else None
    for name, kind in rng.sample(labels, 30):
        # A word that two labels share would tell nothing.
        own = set(name.split("_"))
        if words & own or own & {verb, outer, *noun.split()} or (numbers and not bare and ways(kind) is WORDED):
            continue
        if bare and (form(kind) in forms and form(kind) not in ("word", "choice") or kind in kinds):
            continue
        forms.add(form(kind))
        kinds.add(kind)
        words |= own
        path = f"{outer}.{name}" if outer and len(paths) < 3 else name
        required = rng.random() < 0.65
        text = f"The {name.replace('_', ' ')}"
        tool.parameters.append(Parameter(path, [name], kind, required, False, [text], telling=bare))
        paths.append((path, name))
        if len(paths) == 5 or len(paths) > 1 and rng.random() < 0.35:
            break
    if rng.random() < 0.08 and "name" not in words:
        first, last = rng.choice((("first_name", "last_name"), ("forename", "surname"), ("given_name", "family_name")))
        tool.parameters += [
            Parameter(first, [first], "given", True, False, []),
            Parameter(last, [last], "family", True, False, []),
        ]
        subject = f"{noun} {{{first}}} {{{last}}}"
    else:
        subject = f"{rng.choice(('the', 'a', 'the', 'my'))} {noun}"
    for _ in range(3):
        given = [one for one in paths if tool.parameter(one[0]).required or rng.random() < 0.7]
        rng.shuffle(given)
        alike, usual, said = rng.random() < 0.6, (rng.choice(WORDED), rng.choice(NUMBERED)), {}
        for path, name in given:
            choices = ways(tool.parameter(path).kind)
            label = name.replace("_", " ") if rng.random() < 0.8 else rng.choice(name.split("_"))
            way = usual[choices is NUMBERED] if alike else rng.choice(choices)
            said[path] = (rng.choice(BARELY) if bare else way).format(l=label, v=f"{{{path}}}")
        listed = enumerate_text(rng, [said[path] for path, *_ in given]) if given else ""
        asked = f"{rng.choice(group)} {subject}"
        if listed and rng.random() < 0.2:
            tool.phrases.append(("?", parse_phrase(f"{listed}: {asked}")))
        else:
            asked += (rng.choice((" with ", ", ", ": ", " for ", " using ", " ")) if listed else "") + listed
            tool.phrases.append(("!", parse_phrase(asked)))
    return tool


def near(rng, tool):
    """A distractor that shares the noun or the verb with `tool`."""
    group = rng.choice(VERBS)
    return phrase_tool(rng, group, tool.domain if tool.domain in NOUNS else rng.choice(NOUNS))
