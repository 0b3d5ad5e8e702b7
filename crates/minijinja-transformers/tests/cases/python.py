"""Writes python.jsonl and expressions.jsonl beside this file: small templates and what Jinja2 3.1.6 makes of them.

Run it with Jinja2 installed after adding a case, here or as a line {"template": …} of expressions.jsonl; the environment
is that of transformers' apply_chat_template.
"""

import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).parent

VARS = {
    "s": "  Ünï <b>'x'</b> \t\n",
    "t": "one,two,,three",
    "words": "the quick  brown fox",
    "lines": "a\nb\r\nc\n",
    "n": None,
    "yes": True,
    "i": 7,
    "big": 9007199254740993,
    "floats": [1.0, -0.5, 1e-07, 1e16, 1e15, 123456789012345680.0, 0.0001, 0.00001, 3.14159, 1e100, -0.0],
    "list": [3, 1, 2],
    "mixed": [1, "two", None, True, 2.5, {"k": [1, "it's"]}],
    "d": {"b": 1, "a": {"items": 2, "x": "y\"z"}, "c": [True, None]},
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yo", "tool_calls": []},
        {"role": "user", "content": ""},
    ],
    "emoji": "a😀b",
    "ctl": "\u0001\u007f\u00a0\u200b\\",
    "unseen": "\u0301\u3000\u2003\u00ade\u0301\u061c\ue000\u2028\ufeff\U0001f600\U000e0001",
}

CASES = """
{{ n }}|{{ yes }}|{{ i }}|{{ big }}|{{ big + 1 }}|{{ nothing }}|
{{ floats }}
{% for f in floats %}{{ f }} {% endfor %}
{{ floats | tojson }}
{{ mixed }}
{{ mixed | tojson }}
{{ d }}
{{ d | tojson }}
{{ d | tojson(indent=2) }}
{{ d | tojson(indent=4, sort_keys=True) }}
{{ d | tojson(separators=(',', ':')) }}
{{ emoji | tojson }} {{ emoji | tojson(ensure_ascii=True) }}
{{ emoji | tojson(True) }}
{{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }}
{{ {2: 1, none: 4, 1.5: 5, true: 3} | tojson }}
{{ s | tojson }}
{{ ctl | tojson }}
{{ [ctl] }}
{{ ['it\\'s', 'a"b', 'a\\'b"c'] }}
{{ 'a' ~ 1 ~ true ~ none ~ 1.0 ~ [1] ~ nothing }}
{{ 1 + 2 ~ 3 * 2 ~ 4 - 1 }}
{{ 'a' + 'b' ~ 'c' + 'd' }}
{{ 'a' + 1 }}
{{ 'a' + nothing }}
{{ 'a' + none }}
{{ 1 + true }} {{ true + true }}
{{ [1] + [2] }} {{ [1] * 3 }} {{ 'ab' * 3 }} {{ 'ab' * 0 }}|
{{ 7 / 2 }} {{ 7 // 2 }} {{ 7 % 3 }} {{ 2 ** 10 }} {{ 6 / 2 }} {{ 7.5 // 2 }}
{{ -7 // 2 }} {{ -7 % 3 }} {{ -i }} {{ 2 - -2 }}
{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ none == false }}
{{ not yes }} {{ yes and 'x' }} {{ none or 'y' }} {{ 0 or '' }}|{{ i and 0 }} {{ nothing and 1 }}|
{{ 1 and 0 }}
{{ 'x' in 'xyz' }} {{ 4 in list }} {{ 'a' in d }} {{ 'zz' not in d }}
{{ 'x' in none }}
{{ 'x' in nothing }}
{{ 3 in 'abc' }}
{{ list[0] }} {{ list[-1] }} {{ list[5] }}|{{ d['b'] }} {{ d.b }} {{ d.nope }}|{{ d['nope'] }}|
{{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ list[::2] }} {{ list[5:] }} {{ list[-2:] }}
{{ words[4:9] }} {{ words[::-1] }} {{ words[-3:] }} {{ emoji[1:2] }} {{ words[10:2:-2] }}
{{ list[1:][0] }} {{ (list + [4])[1:3] }} {{ messages[1:][0].role }} {{ list[list[1]:] }} {{ list[i - 6:] }}
{{ list[:i // 3] }} {{ {'a': [1, 2]}['a'][1:] }} {{ list[1:] is sequence }} {{ list[1:] | length }}
{{ nothing[1:] }}
{{ n[1:] }}
{{ d.a.items }}
{{ d.a['items'] }} {{ d['a'].x }}
{{ nothing.attr }}
{{ nothing.attr.attr }}
{{ d.nope.deeper }}
{{ d.b.nope }}|
{{ nothing() }}
{{ d.items() | map('first') | list }} {{ d.keys() | list }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 'z') }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }}{% endfor %}
{% for k, v in d | items %}{{ k }};{% endfor %}
{% for k, v in d | dictsort %}{{ k }};{% endfor %}
{% for x in none %}x{% endfor %}
{% for x in nothing %}x{% else %}none{% endfor %}
{% for x in 3 %}x{% endfor %}
{% for x in 'añb' %}{{ x }}.{% endfor %}
{% for x in 1, 2 %}{{ x }}{% endfor %}
{% for x in list if x > 1 %}{{ loop.index }}{{ x }}{% endfor %}
{% for x in list %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }} {% endfor %}
{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}
{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}
{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}
{% for m in messages %}{{ loop.cycle('a', 'b') }}{{ m['role'] }}{% endfor %}
{% set x = 1 %}{% for y in list %}{% set x = x + y %}{% endfor %}{{ x }}
{% set ns = namespace(x=1, l=[]) %}{% for y in list %}{% set ns.x = ns.x + y %}{% set ns.l = ns.l + [y] %}{% endfor %}{{ ns.x }}{{ ns.l }}
{% set a, b = 1, 'x' %}{{ a }}{{ b }}
{% set x %}a {{ i }}{% endset %}[{{ x }}]
{% set x | upper %}abc{% endset %}{{ x }}
{% if x is not defined %}u{% endif %}{% if i is defined %}d{% endif %}
{% macro f(a, b=2, *c) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=5, a=4) }}
{% macro f(a) %}{{ a }}{{ caller() }}{% endmacro %}{% call f(1) %}inner{% endcall %}
{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f() }}
{% macro f() %}  x  {% endmacro %}{{ f() | trim }}|{{ f() ~ 'y' }}|{{ f() + 'y' }}
{% filter upper %}abc{{ i }}{% endfilter %}
{% generation %}a{{ i }}{% endgeneration %}b
{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}
{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}
{% if false %}{{ nope() }}{% endif %}ok
{{ 'a' if yes }}{{ 'b' if not yes }}{{ 'c' if not yes else 'd' }}
{% raw %}{{ x }}{% endraw %}
{# comment #}a{#- comment -#} b
a  {%- if yes %} b {% endif -%}  c
  {% if yes %}  
    x
  {% endif %}  
y
{{- ' x ' -}} y
{%+ if yes %} x{% endif %}
<{{ s.strip() }}><{{ s | trim }}><{{ s.lstrip() }}><{{ s.rstrip() }}>
{{ 'xxaxx'.strip('x') }}{{ 'abcXcba'.lstrip('abc') }}{{ 'a,b;'.rstrip(',;') }}{{ 'xxaxx' | trim('x') }}
{{ t.split(',') }} {{ t.split(',', 1) }} {{ t.rsplit(',', 1) }} {{ words.split() }} {{ words.split(None, 1) }} {{ words.split(' ') }}
{{ t.split(',')[-1] }} {{ t.split('zz') }} {{ ''.split(',') }} {{ ''.split() }} {{ words.rsplit(None, 1) }} {{ '  a '.split(None, 5) }}
{{ t.split('') }}
{{ t.partition(',') | list }} {{ t.rpartition(',') | list }} {{ t.partition('#') | list }} {{ t.rpartition('#') | list }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ lines.splitlines(keepends=True) }}
{{ t.replace(',', '-') }} {{ t.replace(',', '-', 1) }} {{ 'aaa'.replace('', '.') }} {{ t | replace(',', ';') }}
{{ t.find('two') }} {{ emoji.find('b') }} {{ t.find('q') }} {{ t.rfind(',') }} {{ t.index('two') }} {{ t.count(',') }} {{ 'aaa'.count('') }}
{{ t.index('q') }}
{{ t.startswith('one') }} {{ t.startswith(('a', 'o')) }} {{ t.endswith('x') }}
{{ 'ab'.upper() }} {{ 'AB'.lower() }} {{ 'hello world'.title() }} {{ 'hELLO'.capitalize() }} {{ 'aB'.swapcase() }} {{ 'ß'.casefold() }}
{{ 'ab' | upper }} {{ 'AB' | lower }} {{ 'hello wOrld' | title }} {{ 'hELLO' | capitalize }} {{ list | upper }} {{ none | upper }}
{{ ''.isdigit() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isspace() }} {{ 'A1'.isupper() }} {{ '1'.isupper() }}
{{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }} {{ 'ab'.center(5) }}| {{ 'a'.center(4, '*') }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }}
{{ ', '.join(['a', 'b']) }} {{ list | join('-') }} {{ mixed | join }} {{ messages | join(',', attribute='role') }} {{ 'abc' | join('.') }}
{{ ', '.join([1]) }}
{{ '{} {x} {0!r:>5} {:03d} {:.2f}'.format('a', 2, 3.14159, x=1) }}
{{ '{0} {1}'.format('a', true) }} {{ '{:>6}|{:<6}|{:^6}'.format('a', 'b', 'c') }} {{ '{a[k]}'.format(a={'k': 1}) }}
{{ '%s=%d' | format('a', 3) }} {{ '%05.1f' | format(3.14159) }}
{{ list | length }} {{ words | length }} {{ emoji | length }} {{ d | length }} {{ nothing | length }} {{ list | count }}
{{ none | length }}
{{ 3 | length }}
{{ list | first }} {{ list | last }} {{ [] | first }}| {{ list | sort }} {{ list | sort(reverse=true) }} {{ list | reverse | list }} {{ 'abc' | reverse }}
{{ list | min }} {{ list | max }} {{ list | sum }} {{ [1, 1, 2] | unique | list }} {{ messages | map(attribute='role') | list }}
{{ messages | map(attribute='role') | unique | join(',') }} {{ list | map('string') | list }} {{ ['a', 'b'] | map('upper') | join }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'eq', 'user') | list | length }}
{{ messages | selectattr('tool_calls', 'defined') | map(attribute='content') | list }} {{ list | select('odd') | list }} {{ list | reject('gt', 2) | list }}
{{ messages | groupby('role') | map('first') | list }}
{{ [1, 2, 3] | batch(2) | list }} {{ [1, 2, 3] | slice(2) | list }} {{ list | list }} {{ 'abc' | list }} {{ d | list }}
{{ none | list }}
{{ nothing | default('x') }} {{ '' | default('x') }} {{ '' | default('x', true) }} {{ none | default('x') }} {{ none | d('x', boolean=true) }}
{{ '3' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ 3.9 | int }} {{ '2.5' | float }} {{ 3 | float }} {{ -3 | abs }} {{ 3.456 | round(2) }} {{ 3.5 | round }}
{{ i | string + 'x' }} {{ none | string }} {{ true | string }} {{ 1.0 | string }} {{ list | string | length }} {{ d.a | string }}
{{ '<a>' | e }} {{ '<a>' | escape }} {{ '<a>' | safe }} {{ 'a b' | replace(' ', '') }}
{{ 'a\\nb' | indent }}| {{ 'a\\n\\nb' | indent(2, true) }}| {{ 'a\\n\\nb' | indent(2, blank=true) }}| {{ 'a\\nb' | indent('> ') }}
{{ i is number }} {{ yes is number }} {{ yes is boolean }} {{ i is integer }} {{ 1.5 is float }} {{ yes is integer }} {{ 's' is string }} {{ n is none }}
{{ d is mapping }} {{ list is mapping }} {{ list is iterable }} {{ 's' is iterable }} {{ n is iterable }} {{ i is iterable }} {{ nothing is iterable }}
{{ list is sequence }} {{ 's' is sequence }} {{ d is sequence }} {{ n is sequence }} {{ i is sequence }} {{ nothing is sequence }}
{{ 3 is odd }} {{ 3 is divisibleby 3 }} {{ 3 is in list }} {{ 3 is not in list }} {{ 'A' is upper }} {{ 1 is sameas 1 }} {{ true is true }} {{ 1 is true }}
{{ 2 is eq 2 }} {{ 2 is gt(1) }} {{ 'ab' is filter }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ range is callable }}
{{ range(5) | list }} {{ range(1, 10, 3) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }}
{{ range(3) | tojson }}
{{ dict(a=1, b=2) }} {{ dict(a=1) | tojson }}
{{ messages[0].role == 'user' and messages[0]['content'] != '' }} {{ (messages | last).role }} {{ messages[-1].content | length }}
{{ 'a' 'b' }} {{ "it's" }} {{ 'tab\\tnl\\n' }}| {{ '\\u00e9' }}
{{ {'a': 1, 'b': {'c': 2}}.b.c }} {{ [1, [2, 3]][1][0] }} {{ (1, 2) | list }} {{ (1,)[0] }} {{ () | length }}
{{ (1, 2) }}
{{ raise_exception('no ' ~ i) }}
{{ strftime_now('%d %b %Y %H:%M:%S') }} {{ strftime_now('%-d %B %y, %A %j') }}
{{ nofilter | nosuchfilter }}
{% if false %}{{ 1 | nosuchfilter }}{% endif %}ok
{{ list.append(4) }}
{{ d.update({'x': 1}) }}
{{ d.pop('b') }}
{{ list.index(1) }} {{ list.count(1) }} {{ d.copy() == d }}
{{ ''.__class__ }}
{{ (list | map('upper') | list) }} {{ 1 if 2 > 1 else nope }}
{{ loop }}
{{ 10 / 4 * 2 ~ 'x' }} {{ 2 * 'ab' }} {{ i % 2 == 1 }} {{ '=' * i }}|{{ list * 2 }}
{%- for x in list -%}
  {{ x }}
{%- endfor %}
{% for x in list %}
  {{ x }}
{% endfor %}
end
{{ d | tojson | length }} {{ (d | tojson)[:5] }} {{ mixed[5].k[1] }}
{{ 'a,b'.split(',') | map('trim') | list | tojson }} {{ [1, 2] == [1, 2] }} {{ {'a': 1} == {'a': 1} }}
{{ messages | tojson(indent=2) }}
{{ words.split() | length > 3 }} {{ (words.split() | length) > 3 }}
{% set msgs = messages[1:] if messages[0].role == 'user' else messages %}{{ msgs | length }}
{{ nothing == none }} {{ nothing is none }} {{ nothing or 'x' }} {{ not nothing }}
{{ -1 | abs }} {{ (-1) | abs }} {{ -i ** 2 }} {{ 2 ** 3 ** 2 }}
{{ 1_000 }} {{ 0x10 }} {{ 1e3 }} {{ 2.50 }}
{{ i[1:] }}
{{ '-12' | int }} {{ '0x1f' | int(base=16) }} {{ none | int }} {{ ' 7 ' | int }} {{ '3.7' | int }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ true | int }}
{% for a in 'abc' %}{{ a }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }} {% endfor %}
{% for a in emoji %}{{ a }}{% if not loop.last %}, {% endif %}{% endfor %}{% for a in '' %}x{% else %}none{% endfor %}
{{ ctl | tojson(ensure_ascii=True) }}
{{ [unseen] }} {{ unseen.isprintable() }} {{ emoji.isprintable() }}
{{ i | capitalize }} {{ n | capitalize }} {{ yes | capitalize }} {{ ['A'] | capitalize }} {{ nothing | capitalize }} {{ 'éA' | capitalize }}
{{ nothing | int }}
{{ nothing | int(3) }}
{{ nothing | float }}
{{ nothing | float(1.5) }}
"""


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @staticmethod
    def _body(caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.datetime(2026, 1, 15, 12, 0, 0).strftime(format)
    return env


def main():
    env = environment()
    lines = CASES.strip("\n").split("\n")
    # A case is a line; lines that begin without a tag, or are indented, belong to the case before.
    cases = []
    for line in lines:
        continues = cases and (line.startswith("  ") or line in ("y", "end") or line.startswith("{%- endfor") or line == "{% endfor %}")
        if continues:
            cases[-1] += "\n" + line
        else:
            cases.append(line)
    write("python.jsonl", env, VARS, cases)
    lines = (FOLDER / "expressions.jsonl").read_text().splitlines()
    write("expressions.jsonl", env, json.loads(lines[0])["vars"], [json.loads(line)["template"] for line in lines[1:]])


def write(name, env, variables, cases):
    rows = [json.dumps({"vars": variables}, ensure_ascii=True)]
    for case in cases:
        try:
            row = {"template": case, "expected": env.from_string(case).render(**variables)}
        except Exception as error:
            row = {"template": case, "error": f"{type(error).__name__}: {error}"}
        rows.append(json.dumps(row, ensure_ascii=True))
    (FOLDER / name).write_text("\n".join(rows) + "\n")


main()
