//! Types that authors write instead of JSON Schema's seven: `file`, `string[]`, `Optional[int]`, `a | b`.

use serde_json::{Map, Value, json};

/// The schema of a type; `None` if it is unknown.
pub(super) fn schema_of(text: &str) -> Option<Map<String, Value>> {
    schema(text, 0)
}

/// Maximum nesting of types.
const DEPTH: usize = 8;

fn schema(text: &str, depth: usize) -> Option<Map<String, Value>> {
    let text = text.trim();
    if text.is_empty() || depth > DEPTH {
        return None;
    }
    let parts = alternatives(text);
    if parts.len() > 1 {
        return union(parts.iter().map(|part| schema(part, depth + 1)).collect::<Option<Vec<_>>>()?);
    }
    if let Some(known) = scalar(text) {
        return known.as_object().cloned();
    }
    if let Some(inner) = text.strip_suffix('?') {
        return union(vec![schema(inner, depth + 1)?, null()]);
    }
    if let Some(inner) = text.strip_suffix("[]") {
        return Some(array(schema(inner, depth + 1)?));
    }
    if let Some(inner) = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
        return schema(inner, depth + 1);
    }
    generic(text, depth)
}

/// `list[int]`, `Record<string, number>`, `array of strings`.
fn generic(text: &str, depth: usize) -> Option<Map<String, Value>> {
    if let Some((outer, inner)) = text.split_once(" of ") {
        let inner = inner.trim();
        let inner = schema(inner, depth + 1).or_else(|| schema(inner.strip_suffix('s')?, depth + 1))?;
        return is_list(outer).then(|| array(inner));
    }
    let open = text.find(['<', '['])?;
    let inner = text[open + 1..].strip_suffix(if text[open..].starts_with('<') { '>' } else { ']' })?;
    let outer = text[..open].trim();
    let outer = outer.rsplit('.').next().unwrap_or(outer).to_ascii_lowercase();
    let parts = split(inner, &[","]);
    let parsed = || parts.iter().map(|part| schema(part, depth + 1)).collect::<Option<Vec<_>>>();
    match outer.as_str() {
        "optional" | "nullable" | "maybe" => union(parsed()?.into_iter().chain([null()]).collect()),
        "union" => union(parsed()?),
        "literal" | "enum" => {
            let values: Option<Vec<Value>> = parts.iter().map(|part| literal(part)).collect();
            Some(Map::from_iter([("enum".to_owned(), values?.into())]))
        }
        "dict" | "map" | "record" | "object" | "mapping" | "hashmap" => {
            let value = schema(parts.last()?, depth + 1)?;
            let rest = if value.is_empty() { Value::Bool(true) } else { Value::Object(value) };
            Some(Map::from_iter([("type".to_owned(), "object".into()), ("additionalProperties".to_owned(), rest)]))
        }
        "tuple" => Some(Map::from_iter([("type".to_owned(), "array".into())])),
        outer if is_list(outer) => match parsed()?.as_slice() {
            [item] => Some(array(item.clone())),
            _ => None,
        },
        _ => None,
    }
}

fn is_list(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    ["list", "array", "set", "sequence", "iterable", "collection", "vec", "arraylist", "frozenset"]
        .contains(&name.as_str())
}

fn literal(text: &str) -> Option<Value> {
    let text = text.trim();
    let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    quoted.map(Value::from).or_else(|| serde_json::from_str(text).ok())
}

fn array(items: Map<String, Value>) -> Map<String, Value> {
    let mut array = Map::from_iter([("type".to_owned(), Value::from("array"))]);
    if !items.is_empty() {
        array.insert("items".to_owned(), Value::Object(items));
    }
    array
}

fn null() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), "null".into())])
}

/// Merges several schemas; into a list of types if they are nothing else.
fn union(parts: Vec<Map<String, Value>>) -> Option<Map<String, Value>> {
    if parts.iter().any(Map::is_empty) {
        return Some(Map::new());
    }
    let mut kinds: Vec<Value> = Vec::new();
    for part in &parts {
        match (part.get("type"), part.len()) {
            (Some(Value::String(kind)), 1) => kinds.push(kind.as_str().into()),
            (Some(Value::Array(more)), 1) => kinds.extend(more.iter().cloned()),
            _ => {
                let parts = parts.into_iter().map(Value::Object).collect::<Vec<_>>();
                return Some(Map::from_iter([("anyOf".to_owned(), parts.into())]));
            }
        }
    }
    let mut different: Vec<Value> = Vec::new();
    kinds.into_iter().for_each(|kind| {
        if !different.contains(&kind) {
            different.push(kind);
        }
    });
    let kinds = if different.len() == 1 { different.remove(0) } else { different.into() };
    Some(Map::from_iter([("type".to_owned(), kinds)]))
}

/// The parts of `string | null`, `string or null`, `string, null`, `string/null`.
fn alternatives(text: &str) -> Vec<&str> {
    split(text, &["|", " or ", ",", "/"])
}

/// Splits at separators outside brackets.
fn split<'t>(text: &'t str, separators: &[&str]) -> Vec<&'t str> {
    let (mut parts, mut depth, mut from, mut skip) = (Vec::new(), 0_i32, 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' | '<' | '(' | '{' => depth += 1,
            ']' | '>' | ')' | '}' => depth -= 1,
            _ => {}
        }
        let separator = separators.iter().find(|separator| text[at..].starts_with(**separator));
        if let Some(separator) = separator.filter(|_| depth == 0 && at >= skip) {
            parts.push(text[from..at].trim());
            from = at + separator.len();
            skip = from;
        }
    }
    parts.push(text[from..].trim());
    parts
}

fn scalar(text: &str) -> Option<Value> {
    let formatted = |format: &str| json!({"type": "string", "format": format});
    Some(match text.to_ascii_lowercase().as_str() {
        "string" | "str" | "text" | "char" | "character" | "varchar" | "file" | "filepath" | "path" | "binary"
        | "blob" | "bytes" | "password" | "base64" | "image" | "html" | "markdown" | "regex" | "literal" | "symbol" => {
            json!({"type": "string"})
        }
        "date" => formatted("date"),
        "datetime" | "date-time" => formatted("date-time"),
        "time" => formatted("time"),
        "uri" | "url" => formatted("uri"),
        "email" => formatted("email"),
        "uuid" | "guid" => formatted("uuid"),
        "integer" | "int" | "long" | "short" | "byte" | "int8" | "int16" | "int32" | "int64" | "bigint" => {
            json!({"type": "integer"})
        }
        "uint" | "uint8" | "uint16" | "uint32" | "uint64" => json!({"type": "integer", "minimum": 0}),
        "number" | "float" | "double" | "decimal" | "real" | "numeric" | "float32" | "float64" => {
            json!({"type": "number"})
        }
        "boolean" | "bool" => json!({"type": "boolean"}),
        "null" | "none" | "nil" | "void" | "undefined" | "nonetype" => json!({"type": "null"}),
        "array" | "list" | "tuple" | "set" | "sequence" => json!({"type": "array"}),
        "object" | "dict" | "dictionary" | "map" | "record" | "hash" | "struct" | "mapping" => {
            json!({"type": "object"})
        }
        "any" | "mixed" | "unknown" | "json" | "*" => json!({}),
        _ => return None,
    })
}
