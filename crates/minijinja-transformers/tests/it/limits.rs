//! Limits of time, memory and stack.

use minijinja_transformers::{ErrorKind, Template};
use serde_json::Map;

/// Templates that would never end, exhaust the memory or overflow the stack are stopped.
#[test]
fn hostile_templates_end_in_an_error() {
    let growing = |step: &str| {
        format!(
            "{{% set ns = namespace(x=['ab'], s='ab') %}}{{% for i in range(100000) %}}{{% set {step} %}}{{% endfor %}}"
        )
    };
    let endless = "{% for i in range(100000) %}{% for j in range(100000) %}BODY{% endfor %}{% endfor %}";
    // One step takes a millisecond, and a hundred thousand are allowed.
    let heavy = |step: &str| {
        format!(
            "{{% set text = 'a ' * 100000 %}}{{% set list = range(100000) | list %}}{{% set ns = namespace(x={{}}) %}}\
             {{% for i in range(100000) %}}{{% set x = {step} %}}{{% endfor %}}"
        )
    };
    let raw = "x".repeat(200);
    let doubled = |last: &str| {
        let step = "{% set x = [x, x] %}{% set y = [y, y] %}";
        format!("{{% set x = 1 %}}{{% set y = 1.0 %}}{}{last}", step.repeat(40))
    };
    let flat = |last: &str, x: &str, y: &str| {
        let step = "{% set x = x + x %}{% set y = y + y %}";
        format!("{{% set x = {x} %}}{{% set y = {y} %}}{}{}", step.repeat(17), last.repeat(50))
    };
    let cases = [
        ("endless loop", endless.replace("BODY", "")),
        ("endless output", endless.replace("BODY", &raw)),
        ("endless capture", format!("{{% set x %}}{}{{% endset %}}", endless.replace("BODY", &raw))),
        (
            "endless raw capture",
            format!(
                "{{% set x %}}{}{{% endset %}}",
                endless.replace("BODY", &format!("{{% raw %}}{raw}{{% endraw %}}"))
            ),
        ),
        ("endless macro", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}".to_owned()),
        ("doubling macro", "{% macro f(x) %}{{ f(x + x) }}{% endmacro %}{{ f('aaaaaaaaaaaaaaaa') }}".to_owned()),
        ("doubling +", growing("ns.s = ns.s + ns.s")),
        ("doubling ~", growing("ns.s = ns.s ~ ns.s")),
        ("doubling replace", growing("ns.s = ns.s.replace('a', 'aa')")),
        ("doubling join", growing("ns.s = [ns.s, ns.s] | join")),
        ("doubling format", growing("ns.s = '{}{}'.format(ns.s, ns.s)")),
        ("doubling list", growing("ns.x = ns.x + ns.x")),
        ("multiplied list", "{{ (range(100000) | list * 100000) | sort | length }}".to_owned()),
        ("multiplied text", "{{ 'a' * 1000000000000 }}".to_owned()),
        ("huge factor", "{{ [1, 2, 3, 4] * 4611686018427387904 }}".to_owned()),
        ("huge factor in a variable", "{% set n = 4611686018427387904 %}{{ [1, 2, 3, 4] * n }}".to_owned()),
        ("width", "{{ '{:>1000000000}'.format('x') }}".to_owned()),
        ("printf width", "{{ '%1000000000d' | format(1) }}".to_owned()),
        ("indent", "{{ 'a\nb' | indent(1000000000) }}".to_owned()),
        ("batch", "{{ [1] | batch(1000000000, 0) | list }}".to_owned()),
        ("padding", "{{ 'a'.ljust(1000000000) }}".to_owned()),
        ("nesting list", growing("ns.x = [ns.x]") + "{{ ns.x }}"),
        ("nesting dict", growing("ns.x = {'a': ns.x}")),
        ("nesting batch", growing("ns.x = ns.x | batch(1) | list") + "{{ ns.x }}"),
        ("endless sort", heavy("range(100000) | sort")),
        ("endless split", heavy("text.split()")),
        ("endless tojson", heavy("range(100000) | list | tojson")),
        ("endless dict", heavy("dict(ns.x, **{'k' ~ i: 1})").replace("set x", "set ns.x")),
        ("endless in", heavy("-1 in list")),
        ("endless map", "{{ ([range(100000) | list] * 100000) | map('sort') | list | length }}".to_owned()),
        ("itself", "{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}".to_owned()),
        ("itself as JSON", "{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns | tojson }}".to_owned()),
        ("equal doubled lists", doubled("{{ x == y }}")),
        ("unequal doubled lists", doubled("{{ x != y }}")),
        ("ordered doubled lists", doubled("{{ x < y }}")),
        ("doubled lists in a list", doubled("{{ x in [1, y] }}")),
        ("doubled lists as keys", doubled("{{ {x: 1}[y] }}")),
        ("doubled lists sorted", doubled("{{ [x, y] | sort | length }}")),
        ("doubled lists as text", doubled("{{ x }}")),
        ("doubled lists as JSON", doubled("{{ x | tojson | length }}")),
        ("doubled lists joined", doubled("{{ x | join }}")),
        ("doubled lists, pretty", doubled("{{ x | pprint }}")),
        ("doubled dicts", doubled("{{ x == y }}").replace("[x, x]", "{'a': x, 'b': x}").replace("[y, y]", "dict(a=y, b=y)")),
        ("doubled tuples", doubled("{{ x == y }}").replace("[x, x]", "(x, x)").replace("[y, y]", "(y, y)")),
        (
            "doubled namespaces",
            doubled("{{ x == y }}").replace("[x, x]", "namespace(a=x, b=x)").replace("[y, y]", "namespace(a=y, b=y)"),
        ),
        (
            "doubled in a macro",
            "{% macro f(x, y, n) %}{% if n %}{{ f([x, x], [y, y], n - 1) }}{% else %}{{ x == y }}{% endif %}{% endmacro %}{{ f(1, 1.0, 40) }}"
                .to_owned(),
        ),
        ("doubled long lists", flat("{{ x == y }}", "[[0] * 2000]", "[[0] * 2000]")),
        ("doubled text split", "{% set x = 'a,' * 2000000 %}{{ x.split(',') | length }}".to_owned()),
        ("doubled lines", "{% set x = '\n' * 4000000 %}{{ x.splitlines() | length }}".to_owned()),
        (
            "namespaces that contain themselves",
            "{% set a = namespace(x=1) %}{% set b = namespace(x=1) %}{% set a.x = [a] %}{% set b.x = [b] %}{{ a == b }}"
                .to_owned(),
        ),
        ("append to itself", "{% set x = [] %}{% set _ = x.append(x) %}{{ x }}".to_owned()),
    ];
    let mut report = String::new();
    for (name, source) in cases {
        // A library must manage with a test thread's stack.
        let failure = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
            let template = Template::new(source).map(|template| template.with_output_limit(4 << 20));
            let error = template.and_then(|template| template.render(&Map::new())).unwrap_err();
            assert_eq!(error.kind == ErrorKind::Limit, error.message.starts_with("the template"), "{error}");
            error.message
        });
        report += &format!("{name}: {}\n", failure.unwrap().join().unwrap());
    }
    insta::assert_snapshot!("hostile", report);
}

/// The error message of a source that does not compile, on a thread with the tests' stack size.
fn refusal(source: String) -> Option<(String, Option<usize>)> {
    let compile = move || Template::new(source).map(drop);
    let error = std::thread::Builder::new().stack_size(2 << 20).spawn(compile).unwrap().join().unwrap().err()?;
    Some((error.message, error.line))
}

/// minijinja recurses for each operator and each `elif`; a template from a model's file may have any number of them.
#[test]
fn templates_that_nest_too_deeply_are_refused() {
    let expression = |(before, operation, after): (&str, &str, &str), count| {
        format!("\n{{{{ {before}{}{after} }}}}", operation.repeat(count))
    };
    let message = "the expression nests more than 1000 operations";
    for parts in [
        ("", "-", "1"),
        ("", "not ", "1"),
        ("", "1 if 1 else ", "1"),
        ("1", " if 1 else 1", ""),
        ("a", ".b", ""),
        ("a", "[0]", ""),
        ("a", "[:1]", ""),
        ("a", "()", ""),
        ("a", "|upper", ""),
        ("a", " is defined", ""),
        ("a", "+a", ""),
        ("a", "~a", ""),
        ("a", "*a", ""),
        ("a", "**a", ""),
        ("a", " and a", ""),
        ("a", " or a", ""),
        ("a", " < a", ""),
        ("a", " in a", ""),
        ("f(a, 'x')[", "-", "1]"),
    ] {
        let most = if parts.0.contains('(') { 998 } else { 1000 };
        assert!(refusal(expression(parts, most)).is_none_or(|(shown, _)| shown != message), "{parts:?}");
        for count in [most + 1, 100_000] {
            assert_eq!(refusal(expression(parts, count)), Some((message.to_owned(), Some(2))), "{parts:?}");
            // The first part is compiled first, whatever error follows.
            let broken = expression(parts, count) + "{{ 'never closed";
            assert_eq!(refusal(broken), Some((message.to_owned(), Some(2))), "{parts:?}");
        }
    }
    let elif = |count| "{% if 0 %}".to_owned() + &"\n{% elif 0 %}".repeat(count);
    let message = "there are more than 500 nested elif".to_owned();
    assert_eq!(refusal(elif(500) + "{% endif %}"), None);
    assert_eq!(refusal(elif(501) + "{% endif %}"), Some((message.clone(), Some(502))));
    assert_eq!(refusal(elif(100_000)), Some((message.clone(), Some(502))));
    assert_eq!(refusal(elif(300) + &elif(201)), Some((message, Some(502))));
    // Neighbours do not nest, however many there are.
    assert_eq!(refusal((elif(300) + "{% endif %}").repeat(10)), None);
    let list = "{'a': b.c[0]|upper, 'd': -1 + 2}, ".repeat(1900);
    assert_eq!(refusal(format!("{{% set x = [{list}] %}}{{{{ f({}) }}}}", "a.b.c, ".repeat(600))), None);
    // The deepest nesting that is accepted: blocks, their branches, brackets and operators.
    let blocks = "{% for a in b %}".repeat(70) + &elif(500);
    let inner = format!("{{{{ {}{}1{} }}}}", "(".repeat(35), "not ".repeat(960), ")".repeat(35));
    let ends = "{% endif %}".to_owned() + &"{% endfor %}".repeat(70);
    assert_eq!(refusal(blocks + &inner + &ends), None);
}
