//! Tools files in the common shapes, every way in which they can be wrong, and the model's messages.

use callwright_core::tool::{CallProblem, Tool, Tools};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;

/// Every case: the tools that were read, or the error.
#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/tools");
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let mut report = String::new();
    for name in names {
        let name = name.to_str().unwrap();
        let outcome = match Tools::from_file(folder.join(name)) {
            Ok(tools) => {
                let mut outcome = serde_json::to_string_pretty(&tools.to_json()).unwrap();
                for notice in tools.notices() {
                    write!(outcome, "\n{:?}: {notice}", notice.change).unwrap();
                }
                for exec in tools.iter().filter_map(|tool| tool.exec.as_ref()) {
                    write!(outcome, "\n{exec:?}").unwrap();
                    outcome = outcome.replace(&format!("{}/", folder.display()), "");
                }
                outcome
            }
            Err(error) => error.to_string().replace(&format!("{}/", folder.display()), ""),
        };
        report.push_str(&format!("=== {name}\n{outcome}\n\n"));
    }
    insta::assert_snapshot!("tools", report);
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn files_add_up_and_names_stay_distinct() {
    let mut tools = Tools::from_json(r#"[{"name": "a"}]"#, "one.json").unwrap();
    tools.merge(Tools::from_json(r#"[{"name": "b"}]"#, "two.json").unwrap()).unwrap();
    assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(tools.get("b").unwrap().name, "b");
    let error = tools.merge(Tools::from_json(r#"[{"name": "c"}, {"name": "a"}]"#, "three.json").unwrap()).unwrap_err();
    insta::assert_snapshot!(error, @r#"
    there are two tools named "a"
    hint: a tool of that name is in an earlier file
    "#);
    assert_eq!(tools.len(), 2, "a merge that fails changes nothing");
}

#[test]
fn missing_and_unreadable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Tools::from_file(folder.path().join("no.json")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read ") && missing.contains("no.json"), "{missing}");
    let path = folder.path().join("latin1.toml");
    std::fs::write(&path, b"# \xe4").unwrap();
    let wrong = Tools::from_file(&path).unwrap_err().to_string();
    assert!(wrong.contains("latin1.toml") && wrong.ends_with("not valid UTF-8 at byte 2"), "{wrong}");
}

/// The model's messages about its arguments.
#[test]
fn problems_are_sentences() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1, "maxLength": 8},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "mode": {"const": "fast"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14, "multipleOf": 2},
            "ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "when": {"type": ["string", "null"], "pattern": "^[0-9-]+$"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2, "uniqueItems": true},
            "place": {"type": "object", "required": ["lat"], "properties": {"lat": {"type": "number"}}},
            "id": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "one": {"oneOf": [{"type": "integer"}, {"minimum": 0}]},
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    let tools = Tools::new([Tool::new("get_weather", "", Some(object(schema)))]).unwrap();
    let calls = [
        json!({"city": "Paris"}),
        json!({}),
        json!({"city": 7}),
        json!({"city": ""}),
        json!({"city": "Llanfairpwllgwyngyll"}),
        json!({"city": "Paris", "unit": "kelvin"}),
        json!({"city": "Paris", "mode": "slow"}),
        json!({"city": "Paris", "days": 0}),
        json!({"city": "Paris", "days": 15}),
        json!({"city": "Paris", "days": "3"}),
        json!({"city": "Paris", "ratio": 0}),
        json!({"city": "Paris", "ratio": 1.0}),
        json!({"city": "Paris", "when": "tomorrow"}),
        json!({"city": "Paris", "when": 3}),
        json!({"city": "Paris", "tags": []}),
        json!({"city": "Paris", "tags": ["a", "a", 3]}),
        json!({"city": "Paris", "place": {}}),
        json!({"city": "Paris", "place": {"lat": "north"}}),
        json!({"city": "Paris", "id": 1.5}),
        json!({"city": "Paris", "one": 5}),
        json!({"city": "Paris", "place": "x".repeat(100)}),
        json!({"city": "Paris", "colour": 1}),
        json!({"city": "Paris", "colour": 1, "size": 2}),
    ];
    let mut report = String::new();
    for arguments in calls {
        writeln!(report, "{arguments}").unwrap();
        for problem in tools.problems("get_weather", &object(arguments)) {
            writeln!(report, "    {problem}").unwrap();
        }
    }
    insta::assert_snapshot!(report);
}

/// A filter whose alternatives overlap: the steps of a naive explanation multiply with each level.
#[test]
fn arguments_that_nest_deep_are_checked_in_bounded_time() {
    for several in ["anyOf", "oneOf"] {
        let list = |least: u8| {
            json!({"type": "object", "required": ["and"],
                   "properties": {"and": {"type": "array", "minItems": least, "items": {"$ref": "#/$defs/filter"}}}})
        };
        let schema = json!({
            "type": "object",
            "properties": {"filter": {"$ref": "#/$defs/filter"}, "limit": {"type": "integer"}},
            "required": ["filter"],
            "$defs": {"filter": {several: [{"type": "string"}, list(0), {"$ref": "#/$defs/some"}]}, "some": list(1)},
        });
        let tools = Tools::new([Tool::new("find", "", Some(object(schema)))]).unwrap();
        let problems = |levels: usize, leaf: Value, limit: Value| {
            let filter = (0..levels).fold(leaf, |filter, _| json!({"and": [filter]}));
            CallProblem::sentences(&tools.problems("find", &object(json!({"filter": filter, "limit": limit}))))
        };
        let five = |levels: usize| problems(levels, json!(5), json!(5));
        assert!(five(0).contains("is 5; expected"), "{}", five(0));
        assert!(five(2).contains("expected"), "{}", five(2));
        for levels in [11, 40] {
            assert_eq!(five(levels), "\"filter\" fits none of the alternatives that the schema allows");
            // Other problems are still reported.
            let many = problems(levels, json!(5), json!("many"));
            assert_eq!(many, "\"limit\" is \"many\"; expected an integer");
        }
        assert_eq!(problems(0, json!("x"), json!(5)), "");
        // Two alternatives fit instead of one.
        for levels in [3, 10, 40] {
            let fits = problems(levels, json!("x"), json!(5));
            assert_eq!(fits.is_empty(), several == "anyOf", "{fits}");
        }
    }
}

/// Any kind of recursion of a schema, with any number of alternatives.
#[test]
fn a_schema_that_refers_to_itself_is_checked_in_bounded_time() {
    let alternative = |n: usize, this: &str| {
        json!({"type": "object", "required": ["a"],
        "properties": {"k": {"const": n}, "a": {"$ref": this}}})
    };
    let alternatives = |n: usize, this: &str| -> Vec<Value> { (0..n).map(|n| alternative(n, this)).collect() };
    let mut schemas: Vec<Value> = [2, 5, 8, 16, 64]
        .map(|n| json!({"$defs": {"F": {"anyOf": alternatives(n, "#/$defs/F")}}, "properties": {"a": {"$ref": "#/$defs/F"}}}))
        .to_vec();
    schemas.push(json!({"anyOf": alternatives(3, "#")}));
    schemas.push(json!({"properties": {"a": {"$ref": "#/$defs/N"}}, "$defs": {
        "B": {"type": "object", "properties": {"a": {"$ref": "#/$defs/N"}}},
        "N": {"allOf": [{"$ref": "#/$defs/B"}, {"properties": {"a": {"$ref": "#/$defs/N"}}}]}}}));
    for mut schema in schemas {
        schema["type"] = json!("object");
        let tools = Tools::new([Tool::new("f", "", Some(object(schema.clone())))]).unwrap();
        for levels in 1..60 {
            let value = (0..levels).fold(json!(1), |value, _| json!({"a": value}));
            assert!(!tools.problems("f", &object(value)).is_empty(), "{levels} levels fit {schema}");
        }
    }
}

#[test]
fn a_schema_whose_references_multiply_is_refused() {
    let fan = |link: &dyn Fn(Value) -> Value| {
        let next = |n: usize| json!({"$ref": format!("#/$defs/d{n}")});
        let mut definitions: serde_json::Map<String, Value> =
            (0..40).map(|n| (format!("d{n}"), link(next(n + 1)))).collect();
        definitions.insert("d40".into(), json!({"properties": {"x": {"type": "integer"}}}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    };
    let both = |key: &str, next: Value| json!({key: [next, next]});
    let fans = [
        fan(&|next| both("allOf", next)),
        fan(&|next| both("anyOf", next)),
        fan(&|next| both("oneOf", next)),
        fan(&|next| json!({"not": both("anyOf", next)})),
        fan(&|next| json!({"if": next, "then": next, "else": next})),
        fan(&|next| json!({"dependentSchemas": {"a": next, "b": next}})),
        json!({"properties": {"x": {"contains": {"$ref": "#/$defs/d0"}}}, "$defs": fan(&|next| both("allOf", next))["$defs"]}),
    ];
    for schema in fans {
        let error = Tools::new([Tool::new("f", "", Some(object(schema.clone())))]).unwrap_err().to_string();
        assert!(error.contains("its references multiply"), "{error}");
        // In a file or a request, the other tools are used.
        let both = json!([{"name": "f", "parameters": schema}, {"name": "g"}]);
        let tools = Tools::from_value(&both).unwrap();
        assert!(tools.get("g").is_some() && tools.get("f").is_none(), "{:?}", tools.notices());
    }
    let chain = fan(&|next| json!({"allOf": [next]}));
    Tools::new([Tool::new("f", "", Some(object(chain)))]).unwrap();
}

/// A schema's alternatives and references do not limit how deep a valid value may be.
#[test]
fn valid_arguments_may_nest_deep() {
    let list = |key: &str| {
        json!({"type": "object", "required": [key],
        "properties": {key: {"type": "array", "items": {"$ref": "#/$defs/filter"}}}})
    };
    let schema = json!({
        "type": "object",
        "properties": {"filter": {"$ref": "#/$defs/filter"}, "data": {}},
        "$defs": {"filter": {"anyOf": [list("and"), list("or"), {"type": "string"}]}},
    });
    let tools = Tools::new([Tool::new("find", "", Some(object(schema)))]).unwrap();
    let filter = (0..30).fold(json!("x"), |filter, n| json!({if n % 2 == 0 { "and" } else { "or" }: [filter, "y"]}));
    let data = (0..50).fold(json!(1), |data, _| json!([data]));
    assert_eq!(tools.problems("find", &object(json!({"filter": filter, "data": data}))), []);
}

#[test]
fn an_unknown_tool_is_reported_with_the_known_ones() {
    let tools = |names: &[&str]| Tools::new(names.iter().map(|name| Tool::new(*name, "", None))).unwrap();
    let problem = |names: &[&str], name| CallProblem::sentences(&tools(names).problems(name, &Map::new()));
    let many: Vec<String> = (0..12).map(|index| format!("tool_number_{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let report = [
        problem(&[], "x"),
        problem(&["get_weather", "now"], "getweather"),
        problem(&["get_weather", "now"], "send_mail"),
        problem(&many, "x"),
    ];
    insta::assert_snapshot!(report.join("\n"), @r#"
    there is no tool named "x"; there are no tools
    there is no tool named "getweather"; did you mean "get_weather"?
    there is no tool named "send_mail"; the tools are: get_weather, now
    there is no tool named "x"; the tools are: tool_number_0, tool_number_1, tool_number_2, tool_number_3, tool_number_4, tool_number_5, tool_number_6, tool_number_7, tool_number_8, tool_number_9, …
    "#);
}

/// A program reads the kind and the fields, not the sentence.
#[test]
fn a_problem_is_also_data() {
    let schema = json!({"type": "object", "required": ["city"], "properties": {"days": {"type": "integer"}}});
    let tools = Tools::new([Tool::new("get_weather", "", Some(object(schema)))]).unwrap();
    let problems = |name, arguments| serde_json::to_value(tools.problems(name, &object(arguments))).unwrap();
    assert_eq!(
        problems("get_weather", json!({"days": "two"})),
        json!([
            {"kind": "missing_argument", "path": "city"},
            {"kind": "wrong_value", "path": "days", "value": "\"two\"", "keyword": "type", "expected": "an integer"},
        ])
    );
    assert_eq!(
        problems("getweather", json!({})),
        json!([
            {"kind": "unknown_tool", "name": "getweather", "nearest": "get_weather", "tools": ["get_weather"], "more": 0},
        ])
    );
}

#[test]
fn a_tool_without_parameters_takes_any_arguments() {
    let tools = Tools::from_json(r#"[{"name": "now", "parameters": {}}]"#, "t.json").unwrap();
    assert!(tools.problems("now", &object(json!({"zone": "UTC"}))).is_empty());
}

#[test]
fn a_long_list_of_choices_is_cut() {
    let schema = json!({"type": "object", "properties": {"n": {"enum": (0..1000).collect::<Vec<_>>()}}});
    let tools = Tools::new([Tool::new("pick", "", Some(object(schema)))]).unwrap();
    let problem = CallProblem::sentences(&tools.problems("pick", &object(json!({"n": -1}))));
    assert!(problem.starts_with("\"n\" is -1; expected 0 or 1 or ") && problem.ends_with("19 or …"), "{problem}");
}
