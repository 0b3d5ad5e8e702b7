//! The leaderboard's checker: compares calls with the expected ones, with the leaderboard's rules and error types.
//!
//! The Berkeley Function-Calling Leaderboard (`bfcl_eval`, ast_checker.py) compares calls with lists of accepted
//! values. Some of its rules look like mistakes (an accepted `""` switches a check off, an exception counts as wrong).
//! All are kept: otherwise a score could not be compared with published ones.

use crate::exact::Exact;

/// The error type where the Python checker raises an exception.
pub const CRASH: &str = "checker_crash";

type Verdict<T = ()> = Result<T, &'static str>;

/// Checks an answer: `Err` is the error type of the first mistake.
///
/// The rules depend on `category`. `tools` and `ground_truth` are the case's `function` and `ground_truth`, `answer`
/// the decoded calls, `[{name: {parameter: value}}]`, or `None` where the model's text could not be decoded. With
/// `underscore_to_dot`, tools are expected under their names with `_` for `.`.
pub fn check(
    category: &str,
    tools: &Exact,
    ground_truth: &Exact,
    answer: Option<&Exact>,
    underscore_to_dot: bool,
) -> Result<(), &'static str> {
    if category.contains("irrelevance") {
        return if answer.is_some_and(is_call) { Err("irrelevance_error:decoder_success") } else { Ok(()) };
    }
    if category.contains("relevance") {
        return if answer.is_some_and(is_call) { Ok(()) } else { Err("relevance_error:decoder_failed") };
    }
    let answer = answer.ok_or("ast_decoder:decoder_failed")?;
    let calls = calls(answer).ok_or("ast_decoder:decoder_wrong_output_format")?;
    let expected = ground_truth.elements().ok_or(CRASH)?;
    let tools = tools.elements().ok_or(CRASH)?;
    if category.contains("parallel") {
        return parallel(tools, expected, &calls, underscore_to_dot);
    }
    if category.contains("multiple") {
        if calls.len() != expected.len() {
            return Err("multiple_function_checker:wrong_count");
        }
        let [call, ..] = calls.as_slice() else { return Err(CRASH) };
        let gold = expected.first().ok_or(CRASH)?;
        return one(tool_of(tools, gold)?, gold, call, underscore_to_dot);
    }
    let [call] = calls.as_slice() else { return Err("simple_function_checker:wrong_count") };
    one(tools.first().ok_or(CRASH)?, expected.first().ok_or(CRASH)?, call, underscore_to_dot)
}

/// One call of an answer: name and arguments.
type Call<'a> = (&'a str, &'a [(String, Exact)]);

/// The calls of an answer, if it consists of calls.
fn calls(answer: &Exact) -> Option<Vec<Call<'_>>> {
    answer
        .elements()?
        .iter()
        .map(|item| match item.members()? {
            [(name, arguments)] => Some((name.as_str(), arguments.members()?)),
            _ => None,
        })
        .collect()
}

fn is_call(answer: &Exact) -> bool {
    calls(answer).is_some_and(|calls| !calls.is_empty())
}

/// The expected call's name and accepted values.
fn gold_call(gold: &Exact) -> Verdict<Call<'_>> {
    let (name, accepted) = gold.members().and_then(<[_]>::first).ok_or(CRASH)?;
    Ok((name, accepted.members().ok_or(CRASH)?))
}

fn tool_of<'a>(tools: &'a [Exact], gold: &Exact) -> Verdict<&'a Exact> {
    let (name, _) = gold_call(gold)?;
    tools.iter().find(|tool| tool.get("name").and_then(Exact::as_str) == Some(name)).ok_or(CRASH)
}

/// Greedy, like the leaderboard: an early expected call may take the only answer that fits a later one.
fn parallel(tools: &[Exact], expected: &[Exact], calls: &[Call<'_>], underscore_to_dot: bool) -> Verdict {
    if calls.len() != expected.len() {
        return Err("parallel_function_checker_no_order:wrong_count");
    }
    let mut used = vec![false; calls.len()];
    for gold in expected {
        let tool = tool_of(tools, gold)?;
        let mut found = None;
        for (index, call) in calls.iter().enumerate().filter(|(index, _)| !used[*index]) {
            match one(tool, gold, call, underscore_to_dot) {
                Ok(()) => {
                    found = Some(index);
                    break;
                }
                Err(CRASH) => return Err(CRASH),
                Err(_) => {}
            }
        }
        let index = found.ok_or("parallel_function_checker_no_order:cannot_find_match")?;
        used[index] = true;
    }
    Ok(())
}

/// Python's types of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    None,
    Bool,
    Int,
    Float,
    Str,
    List,
    Dict,
}

impl Type {
    fn of(value: &Exact) -> Type {
        match value {
            Exact::Null => Type::None,
            Exact::Bool(_) => Type::Bool,
            Exact::Int(_) => Type::Int,
            Exact::Float(_) => Type::Float,
            Exact::Text(_) => Type::Str,
            Exact::List(_) => Type::List,
            Exact::Object(_) => Type::Dict,
        }
    }

    /// The type that a schema's type name means.
    fn named(name: &Exact) -> Verdict<Type> {
        Ok(match name.as_str().ok_or(CRASH)? {
            "string" | "any" => Type::Str,
            "integer" => Type::Int,
            "float" => Type::Float,
            "boolean" => Type::Bool,
            "array" | "tuple" => Type::List,
            "dict" => Type::Dict,
            _ => return Err(CRASH),
        })
    }
}

fn one(tool: &Exact, gold: &Exact, call: &Call<'_>, underscore_to_dot: bool) -> Verdict {
    let (_, gold) = gold_call(gold)?;
    let parameters = tool.get("parameters").ok_or(CRASH)?;
    let properties = parameters.get("properties").and_then(Exact::members).ok_or(CRASH)?;
    let required = parameters.get("required").and_then(Exact::elements).ok_or(CRASH)?;
    let name = tool.get("name").and_then(Exact::as_str).ok_or(CRASH)?;
    let wanted = if underscore_to_dot { name.replace('.', "_") } else { name.to_owned() };
    let (name, arguments) = *call;
    if name != wanted {
        return Err("simple_function_checker:wrong_func_name");
    }
    let given = |key: &str| arguments.iter().any(|(name, _)| name == key);
    if required.iter().any(|key| !key.as_str().is_some_and(given)) {
        return Err("simple_function_checker:missing_required");
    }
    for (key, value) in arguments {
        let member = |members: &'_ [(String, Exact)]| members.iter().position(|(name, _)| name == key);
        let (Some(property), Some(accepted)) = (member(properties), member(gold)) else {
            return Err("simple_function_checker:unexpected_param");
        };
        let accepted = gold[accepted].1.elements().ok_or(CRASH)?;
        argument(&properties[property].1, accepted, value)?;
    }
    for (key, accepted) in gold {
        if !given(key) && !may_be_left_out(accepted)? {
            return Err("simple_function_checker:missing_optional");
        }
    }
    Ok(())
}

/// Python's `"" in accepted`.
fn may_be_left_out(accepted: &Exact) -> Verdict<bool> {
    match accepted {
        Exact::List(accepted) => Ok(accepted.iter().any(is_empty_text)),
        Exact::Text(_) => Ok(true),
        Exact::Object(_) => Ok(accepted.get("").is_some()),
        _ => Err(CRASH),
    }
}

fn is_empty_text(value: &Exact) -> bool {
    value.as_str() == Some("")
}

fn argument(schema: &Exact, accepted: &[Exact], value: &Exact) -> Verdict {
    let kind = schema.get("type").ok_or(CRASH)?;
    let wanted = Type::named(kind)?;
    let element = match wanted {
        Type::List => Some(Type::named(schema.get("items").and_then(|items| items.get("type")).ok_or(CRASH)?)?),
        _ => None,
    };
    let converted;
    let value = match value {
        Exact::Int(_) if wanted == Type::Float => {
            converted = Exact::Float(value.int_to_float().ok_or(CRASH)?);
            &converted
        }
        value => value,
    };
    if is_variable(wanted, element, accepted, value)? {
        return equals_one(accepted, value);
    }
    match (wanted, element, value) {
        (Type::Dict, _, Exact::Object(members)) => dict(accepted.iter(), members),
        (Type::List, Some(Type::Dict), Exact::List(elements)) => list_of_dicts(accepted, elements),
        (Type::Str, _, Exact::Text(text)) => {
            let text = normalised(text);
            let among = accepted.iter().filter_map(Exact::as_str).any(|accepted| normalised(accepted) == text);
            if among { Ok(()) } else { Err("value_error:string") }
        }
        (Type::List, _, Exact::List(elements)) => list(accepted, elements),
        _ => equals_one(accepted, value),
    }
}

fn equals_one(accepted: &[Exact], value: &Exact) -> Verdict {
    if accepted.iter().any(|accepted| accepted.equals(value)) { Ok(()) } else { Err("value_error:others") }
}

/// The type of the first accepted value that is not `""`.
fn accepted_type(accepted: &[Exact]) -> Option<Type> {
    accepted.iter().find(|value| !is_empty_text(value)).map(Type::of)
}

/// Checks a value's type. True where the accepted values have another type than the schema: the value is then a
/// variable, and is only compared.
fn is_variable(wanted: Type, element: Option<Type>, accepted: &[Exact], value: &Exact) -> Verdict<bool> {
    let of_accepted = accepted_type(accepted);
    let variable = of_accepted.is_some_and(|kind| kind != wanted);
    if Type::of(value) != wanted {
        return if Some(Type::of(value)) == of_accepted { Ok(true) } else { Err("type_error:simple") };
    }
    let (Some(element), Exact::List(elements)) = (element, value) else { return Ok(variable) };
    let fits = |accepted: &Exact| match accepted {
        Exact::List(accepted) => {
            let other = accepted_type(accepted);
            elements.iter().all(|value| Type::of(value) == element || Some(Type::of(value)) == other)
        }
        _ => true,
    };
    if accepted.iter().any(fits) {
        return Ok(variable);
    }
    Err(if of_accepted == Some(Type::List) { "type_error:nested" } else { "type_error:simple" })
}

/// A string as it is compared: without spaces and most punctuation, in lower case, with one kind of quote.
fn normalised(text: &str) -> String {
    let kept: String = text.chars().filter(|c| !matches!(c, ' ' | ',' | '.' | '/' | '-' | '_' | '*' | '^')).collect();
    kept.to_lowercase().replace('\'', "\"")
}

fn normalised_value(value: &Exact) -> Exact {
    match value {
        Exact::Text(text) => Exact::Text(normalised(text)),
        other => other.clone(),
    }
}

/// The elements of a value that Python can index by number; strings are normalised.
fn indexed(value: &Exact) -> Verdict<Vec<Exact>> {
    match value {
        Exact::List(elements) => Ok(elements.iter().map(normalised_value).collect()),
        Exact::Text(text) => Ok(text.chars().map(|c| Exact::Text(normalised(c.encode_utf8(&mut [0; 4])))).collect()),
        _ => Err(CRASH),
    }
}

fn list(accepted: &[Exact], elements: &[Exact]) -> Verdict {
    let value = Exact::List(elements.iter().map(normalised_value).collect());
    let accepted = accepted.iter().map(indexed).collect::<Verdict<Vec<_>>>()?;
    let among = accepted.into_iter().any(|accepted| Exact::List(accepted).equals(&value));
    if among { Ok(()) } else { Err("value_error:list/tuple") }
}

fn dict<'a>(accepted: impl Iterator<Item = &'a Exact>, members: &[(String, Exact)]) -> Verdict {
    let mut verdict = Err("dict_checker:unclear");
    for accepted in accepted.filter(|accepted| !is_empty_text(accepted)) {
        verdict = one_dict(accepted, members);
        if matches!(verdict, Ok(()) | Err(CRASH)) {
            break;
        }
    }
    verdict
}

fn one_dict(accepted: &Exact, members: &[(String, Exact)]) -> Verdict {
    let gold = accepted.members().ok_or(CRASH)?;
    let mut verdict = Ok(());
    for (key, value) in members {
        let Some(values) = accepted.get(key) else {
            verdict = Err("value_error:dict_key");
            break;
        };
        let value = normalised_value(value);
        if !indexed(values)?.iter().any(|accepted| accepted.equals(&value)) {
            verdict = Err("value_error:dict_value");
            break;
        }
    }
    // Even where a value was wrong: the missing key is then reported.
    for (key, values) in gold {
        if !members.iter().any(|(name, _)| name == key) && !may_be_left_out(values)? {
            return Err("value_error:dict_key");
        }
    }
    verdict
}

fn list_of_dicts(accepted: &[Exact], elements: &[Exact]) -> Verdict {
    let mut verdict = Err("list_dict_checker:unclear");
    for accepted in accepted {
        let length = match accepted {
            Exact::List(accepted) => accepted.len(),
            Exact::Text(text) => text.chars().count(),
            Exact::Object(members) => members.len(),
            _ => return Err(CRASH),
        };
        if length != elements.len() {
            verdict = Err("value_error:list_dict_count");
            continue;
        }
        verdict = match accepted {
            Exact::List(accepted) => dicts(accepted, elements),
            _ if elements.is_empty() => Ok(()),
            // Where an object is expected, Python finds characters, or no member 0.
            _ => Err(CRASH),
        };
        if matches!(verdict, Ok(()) | Err(CRASH)) {
            break;
        }
    }
    verdict
}

fn dicts(accepted: &[Exact], elements: &[Exact]) -> Verdict {
    for (accepted, element) in accepted.iter().zip(elements) {
        if is_empty_text(accepted) {
            return Err("dict_checker:unclear");
        }
        dict(std::iter::once(accepted), element.members().ok_or(CRASH)?)?;
    }
    Ok(())
}
