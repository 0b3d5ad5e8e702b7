//! Grammar of arguments one by one between tags: the schema types the values, and strings are unquoted.

use super::flat::{self, Flat};
use super::json::{impossible, number, possible, unless_impossible, unwritable};
use super::rules::literal;
use super::{Builder, Unenforced, schema};
use crate::error::Result;
use crate::format::history::spaced_json;
use crate::format::typed;
use crate::format::{Marker, TaggedCall};
use crate::schema::{Schema, TABLES, Types, concerns, types};
use crate::tool::Tool;
use serde_json::{Map, Value, json};

/// Keywords of objects whose members are written one by one, and only those that the schema names.
pub(super) const MEMBERS: [&str; 4] = ["type", "properties", "required", "additionalProperties"];

/// Maximum length to count: beyond it, the grammar engine gives up on a terminal that counts and also searches for a
/// tag.
const COUNTED: u64 = 1000;
/// Budget for minimum lengths, whose cost is quadratic: one of 250 is the budget of a whole grammar.
const LEAST_COUNTED: u64 = 250 * 250;
/// Lengths up to this are cheap.
const FEW: u64 = 8;
/// The parser also reads the text after this as a value.
const CDATA: &str = "<![CDATA[";
/// The types other than text that are written without brackets.
const SCALARS: [(&str, Types); 4] =
    [("null", Types::NULL), ("boolean", Types::BOOLEAN), ("integer", Types::INTEGER), ("number", Types::NUMBER)];
/// The parser does not read longer names.
const NAME: usize = 128;

impl Builder<'_> {
    pub(super) fn tagged_arguments(&mut self, tool: &Tool, tagged: &TaggedCall) -> Result<String> {
        let Some(schema) = self.schema(tool)? else { return Ok(String::new()) };
        let parts = self.tagged_members(&tool.name, &schema, tagged, "$")?;
        Ok(self.rules.sequence(&parts))
    }

    /// The members of an object, one by one.
    fn tagged_members(
        &mut self,
        tool: &str,
        object: &Map<String, Value>,
        tagged: &TaggedCall,
        path: &str,
    ) -> Result<Vec<String>> {
        self.leave_for(Some("object"), object, &MEMBERS, path);
        let mut parts = Vec::new();
        for (key, value, required) in properties(object) {
            let value = with_definitions(value, object);
            let member = self.tagged_argument(tool, &key, &value, tagged, &format!("{path}.properties.{key}"));
            let Some(member) = unless_impossible(required, member)? else { continue };
            parts.push(if required { member } else { format!("{member}?") });
        }
        Ok(parts)
    }

    fn tagged_argument(
        &mut self,
        tool: &str,
        key: &str,
        schema: &Value,
        tagged: &TaggedCall,
        path: &str,
    ) -> Result<String> {
        let (key_end, tag_end) = tagged.around_type().unwrap_or((&tagged.key_end, &tagged.key_end));
        let written = tagged.write_key(key);
        let ends = |text: &str| !text.trim().is_empty() && written.contains(text.trim());
        let readable = !key.is_empty() && key.trim() == key && !key.starts_with('/') && written.len() <= NAME;
        if !readable || ends(key_end) || ends(tag_end) {
            return Err(unwritable(tool, key, path, &self.format.name));
        }
        let end = tagged.value_end.replace("{key}", key);
        if !tagged.types.is_empty() {
            return self.typed_argument(tool, key, schema, &end, tagged, path);
        }
        let before =
            literal(&format!("{}{}{}{}", tagged.key_start, tagged.write_key(key), tagged.key_end, tagged.value_start));
        let value = self.tagged_value(tool, schema, &end, tagged, path)?;
        Ok(self.rules.sequence(&[before, value]))
    }

    /// An argument whose tag gives the type of its value: for each word, the values of its types.
    fn typed_argument(
        &mut self,
        tool: &str,
        key: &str,
        schema: &Value,
        end: &str,
        tagged: &TaggedCall,
        path: &str,
    ) -> Result<String> {
        let expected = types_of(schema);
        let mut options = Vec::new();
        for (word, types) in tagged.words() {
            if !expected.is_unknown() && !expected.has(types) {
                continue;
            }
            let before = format!("{}{}{}", tagged.key_start, tagged.write_key(key), tagged.key_end_with(&word));
            let before = literal(&format!("{before}{}", tagged.value_start));
            if types == Types::STRING {
                let (alternatives, dropped) = flat::alternatives(schema, path);
                self.unenforced.extend(dropped.into_iter().filter(|left| concerns(&left.keyword, "string")));
                let texts = self.texts(&alternatives, schema, end, Types::STRING);
                options.extend(texts.into_iter().map(|text| Ok(self.rules.sequence(&[before.clone(), text]))));
            } else {
                let json = self.json_value(&of_types(schema, types), tool, path);
                options.push(json.map(|json| self.rules.sequence(&[before, json, literal(end)])));
            }
        }
        let options = possible(options.into_iter())?;
        if options.is_empty() {
            return Err(impossible(Some(tool), path, None, "no value is allowed that could be read back"));
        }
        Ok(self.rules.alternatives(&options))
    }

    /// Returns what is written right before the values that are no text, in calls of `tools`. A name that means text in
    /// one of them is left out.
    pub(super) fn before_json(&mut self, tools: &[&Tool], tagged: &TaggedCall) -> Vec<String> {
        let mut keys: Vec<(String, bool)> = Vec::new();
        for tool in tools {
            if let Ok(Some(schema)) = self.schema(tool) {
                collect_keys(&schema, tagged.nested, &mut keys);
            }
        }
        let words: Vec<String> = match tagged.types.is_empty() {
            true => vec![tagged.key_end.clone()],
            false => {
                let others = tagged.words().into_iter().filter(|(_, types)| *types != Types::STRING);
                others.map(|(word, _)| tagged.key_end_with(&word)).collect()
            }
        };
        let is_text = |key: &str| tagged.types.is_empty() && keys.iter().any(|(known, text)| *text && known == key);
        let mut found = Vec::new();
        for (key, _) in keys.iter().filter(|(key, _)| !is_text(key)) {
            for word in &words {
                let before = format!("{}{}{word}{}", tagged.key_start, tagged.write_key(key), tagged.value_start);
                if !found.contains(&before) {
                    found.push(before);
                }
            }
        }
        found
    }

    /// A value and its end tag.
    fn tagged_value(
        &mut self,
        tool: &str,
        schema: &Value,
        end: &str,
        tagged: &TaggedCall,
        path: &str,
    ) -> Result<String> {
        let types = types_of(schema);
        if tagged.nested
            && let Value::Object(object) = schema
        {
            if types == Types::OBJECT && object.contains_key("properties") {
                let mut parts = self.tagged_members(tool, object, tagged, path)?;
                parts.push(literal(end));
                return Ok(self.rules.sequence(&parts));
            }
            if types == Types::ARRAY && object.get("items").is_some_and(Value::is_object) {
                self.leave_for(Some("array"), object, &["type", "items", "minItems", "maxItems"], path);
                let items = with_definitions(&object["items"], object);
                let item = self.tagged_argument(tool, "item", &items, tagged, &format!("{path}.items"))?;
                // Without an element it would be empty text, which is not an array.
                let (least, most) = schema::item_counts(object);
                let least = least.max(1);
                let most = most.unwrap_or(least.max(super::MANY as u64));
                if most < least {
                    return Err(impossible(Some(tool), path, Some("maxItems"), "there is no room for an item"));
                }
                return Ok(self.rules.sequence(&[format!("{item}{{{least},{most}}}"), literal(end)]));
            }
        }
        let (alternatives, dropped) = flat::alternatives(schema, path);
        if types.is_unknown() {
            if alternatives.is_empty() {
                return Err(impossible(Some(tool), path, None, "nothing is allowed"));
            }
            // The schema does not restrict the type, so any text is valid.
            self.unenforced.extend(dropped);
            alternatives.iter().for_each(|flat| self.leave(&flat.schema, &[], &flat.path));
            return Ok(self.raw(&Map::new(), end, path, Types::STRING));
        }
        let mut options = Vec::new();
        if types.has(Types::STRING) {
            let kinds = SCALARS.iter().filter(|(_, kind)| types.has(*kind)).map(|(name, _)| *name).chain(["string"]);
            let kinds: Vec<&str> = kinds.collect();
            let concerns = |left: &Unenforced| kinds.iter().any(|kind| concerns(&left.keyword, kind));
            self.unenforced.extend(dropped.into_iter().filter(concerns));
            options.extend(self.texts(&alternatives, schema, end, types).into_iter().map(Ok));
            options.extend(self.scalars(&alternatives, schema, end, types).into_iter().map(Ok));
        }
        let brackets = Types::OBJECT.or(Types::ARRAY);
        if !types.has(Types::STRING) || types.has(brackets) {
            let json = if types.has(Types::STRING) { of_types(schema, brackets) } else { schema.clone() };
            let json = self.json_value(&json, tool, path);
            options.push(json.map(|json| self.rules.sequence(&[json, literal(end)])));
        }
        let options = possible(options.into_iter())?;
        if options.is_empty() {
            return Err(impossible(Some(tool), path, None, "no text is allowed that could be read back"));
        }
        Ok(self.rules.alternatives(&options))
    }

    /// The texts that the alternatives allow, each with its end, except those that the parser reads as another of
    /// `types`.
    fn texts(&mut self, alternatives: &[Flat], whole: &Value, end: &str, types: Types) -> Vec<String> {
        let nothing = Map::new();
        let whole = whole.as_object().unwrap_or(&nothing);
        let mut options = Vec::new();
        for Flat { schema, path } in alternatives {
            if schema.get("type").is_some_and(|kinds| !schema::names_type(kinds, "string")) {
                continue;
            }
            match schema::listed(schema, whole) {
                Some(values) => {
                    let texts = values.iter().filter_map(Value::as_str);
                    let is_whole = |text: &str| end.trim().is_empty() || !text.contains(end.trim());
                    let texts = texts.filter(|text| is_whole(text) && !text.contains(CDATA));
                    let texts = texts.filter(|text| !is_read_otherwise(text, types));
                    options.extend(texts.map(|text| literal(&format!("{text}{end}"))));
                }
                None => options.push(self.raw(schema, end, path, types)),
            }
        }
        options
    }

    /// The numbers, words and listed values that the alternatives allow in addition to text. Text may begin like them,
    /// so the terminal has to include the end.
    fn scalars(&mut self, alternatives: &[Flat], whole: &Value, end: &str, types: Types) -> Vec<String> {
        let nothing = Map::new();
        let whole = whole.as_object().unwrap_or(&nothing);
        let mut options = Vec::new();
        for Flat { schema, path } in alternatives {
            if let Some(values) = schema::listed(schema, whole) {
                let values = values.iter().filter(|value| !value.is_string());
                options.extend(values.map(|value| literal(&format!("{}{end}", spaced_json(value)))));
                continue;
            }
            for (kind, of_kind) in SCALARS {
                let allowed = schema.get("type").is_none_or(|kinds| schema::names_type(kinds, kind));
                if !allowed || !types.has(of_kind) {
                    continue;
                }
                let (written, heeded): (&str, &[&str]) = match kind {
                    "null" => ("\"null\"", &[]),
                    "boolean" => ("(\"true\" | \"false\")", &[]),
                    _ => number(kind, schema),
                };
                self.leave_for(Some(kind), schema, heeded, path);
                options.push(self.rules.terminal(&format!("{written} {}", literal(end))));
            }
        }
        options
    }

    /// Text up to its end tag, which is part of the terminal because only the tag ends the text. Texts that the parser
    /// reads as another of `types` are excluded.
    pub(super) fn raw(&mut self, schema: &Map<String, Value>, end: &str, path: &str, types: Types) -> String {
        let mut conditions = vec!["/(?s:.*)/".to_owned()];
        let others = read_otherwise(types);
        if !others.is_empty() {
            conditions.push(format!("~(/{}/)", others.join("/ | /")));
        }
        let mut heeded = vec!["minLength", "maxLength", "pattern"];
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let (mut least, mut most) = (count("minLength").unwrap_or(0), count("maxLength"));
        if most.is_some_and(|most| most > COUNTED) {
            heeded.retain(|keyword| *keyword != "maxLength");
            most = None;
        }
        let counted = least.saturating_mul(least).saturating_add(self.counted);
        if least > FEW && counted > LEAST_COUNTED {
            heeded.retain(|keyword| *keyword != "minLength");
            least = 0;
        } else {
            self.counted = counted;
        }
        if least > 0 || most.is_some() {
            let most = most.map_or(String::new(), |most| most.to_string());
            conditions.push(format!("/(?s:.{{{least},{most}}})/"));
        }
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if pattern.is_some() || conditions.len() > 1 + usize::from(!others.is_empty()) {
            // White space at a value's edges may belong to the format.
            conditions.push(r"/(?s:[^\s].*[^\s]|[^\s]?)/".to_owned());
        }
        let searched = pattern.and_then(searched);
        if searched.is_none() {
            heeded.retain(|keyword| *keyword != "pattern");
        }
        self.leave_for(Some("string"), schema, &heeded, path);
        conditions.extend(searched);
        let forbidden = self.markup(end);
        // Any bytes, not any text: the engine then sees at once that nothing else follows. Otherwise it goes through
        // all counted lengths and gives up.
        let any_bytes = self.rules.terminal("~(/a/ & /b/)");
        conditions.push(format!("~(/(?s:.*)/ ({}) {any_bytes})", forbidden.join(" | ")));
        if self.is_tagged() && !end.trim().is_empty() {
            conditions.push(format!("~(/(?s:.*)/ {} / ?/)", literal(end.trim())));
        }
        let text = self.rules.terminal(&conditions.join(" & "));
        self.rules.terminal(&format!("{text} {}", literal(end)))
    }

    /// Returns whether only the text after a closing tag shows that it is one.
    fn is_tagged(&self) -> bool {
        matches!(self.format.payload, crate::format::Payload::Tagged(_))
    }

    /// Texts that must not occur in a text that ends at `end`: the format's own markup, and the closing tag where the
    /// parser would accept it. Before text on the same line, the tag is part of the value.
    fn markup(&self, end: &str) -> Vec<String> {
        let markers = [&self.format.start, &self.format.end];
        let section = self.format.section.iter().flat_map(|section| [&section.start, &section.end]);
        let markers = markers.into_iter().flatten().chain(section).filter_map(Marker::text);
        let mut texts: Vec<&str> = markers.collect();
        if let crate::format::Payload::Tagged(tagged) = &self.format.payload {
            texts.push(tagged.key_start.as_str());
        }
        texts = texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).collect();
        let mut firsts: Vec<char> = texts.iter().chain([&end.trim()]).filter_map(|text| text.chars().next()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        texts.push(CDATA);
        let mut forbidden: Vec<String> = texts.into_iter().map(literal).collect();
        if !self.is_tagged() {
            forbidden.extend([end.trim()].into_iter().filter(|end| !end.is_empty()).map(literal));
        } else if !end.trim().is_empty() {
            let firsts: String = firsts.iter().map(|first| format!("\\x{{{:x}}}", u32::from(*first))).collect();
            forbidden.push(format!(r"{} /[\t\n\x0b\x0c\r{firsts}]| [\s{firsts}]/", literal(end.trim())));
        }
        forbidden.sort();
        forbidden.dedup();
        forbidden
    }
}

/// A schema's pattern as a terminal that matches the whole text containing it; `None` if the pattern is not simple
/// enough.
fn searched(pattern: &str) -> Option<String> {
    let from_start = pattern.starts_with('^');
    let to_end = pattern.ends_with('$') && !pattern.ends_with("\\$");
    let inner = &pattern[usize::from(from_start)..pattern.len() - usize::from(to_end)];
    // With alternatives, an anchor may belong to only one of them.
    if inner.contains(['^', '$']) || (from_start || to_end) && has_alternatives(inner) {
        return None;
    }
    let (before, after) = (if from_start { "" } else { "(?s:.*)" }, if to_end { "" } else { "(?s:.*)" });
    let terminal = format!("/{before}({}){after}/", llguidance::regex_to_lark(inner, "dw"));
    schema::compile(&json!({"type": "string", "pattern": pattern})).is_ok().then_some(terminal)
}

/// Returns whether a pattern has a `|` outside of groups.
fn has_alternatives(pattern: &str) -> bool {
    let (mut depth, mut class, mut escaped) = (0usize, false, false);
    for byte in pattern.bytes() {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' => escaped = true,
            b']' => class = false,
            _ if class => {}
            b'[' => class = true,
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// The properties in order: name, schema, whether it is required. Names that the schema only requires come last.
pub(super) fn properties(schema: &Map<String, Value>) -> Vec<(String, &Value, bool)> {
    const ANY: &Value = &Value::Bool(true);
    // A name pattern may match any name.
    let rest = schema.get("additionalProperties").filter(|_| !schema.contains_key("patternProperties"));
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let declared = schema.get("properties").and_then(Value::as_object);
    let mut found: Vec<(String, &Value, bool)> = declared
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value, required.contains(&name.as_str())))
        .collect();
    for name in required {
        if !found.iter().any(|(known, _, _)| known == name) {
            found.push((name.to_owned(), rest.unwrap_or(ANY), true));
        }
    }
    found
}

/// Adds the names of an object's members, each with whether its value may be text; those of members as well if they
/// are `nested`.
fn collect_keys(schema: &Map<String, Value>, nested: bool, keys: &mut Vec<(String, bool)>) {
    let mut add = |key: &str, value: &Value| {
        let types = types_of(value);
        keys.push((key.to_owned(), types.is_unknown() || types.has(Types::STRING)));
    };
    let members = properties(schema).into_iter().map(|(key, value, _)| (key, with_definitions(value, schema)));
    let items =
        schema.get("items").filter(|_| nested).map(|items| ("item".to_owned(), with_definitions(items, schema)));
    let found: Vec<(String, Value)> = members.chain(items).collect();
    found.iter().for_each(|(key, value)| add(key, value));
    for value in found.iter().filter(|_| nested).filter_map(|(_, value)| value.as_object()) {
        collect_keys(value, nested, keys);
    }
}

/// A part of a schema, with the definitions of the whole.
pub(super) fn with_definitions(part: &Value, whole: &Map<String, Value>) -> Value {
    let mut part = part.clone();
    if let Value::Object(object) = &mut part {
        for key in TABLES {
            if let Some(definitions) = whole.get(key) {
                object.entry(key).or_insert_with(|| definitions.clone());
            }
        }
    }
    part
}

/// The types that the parser expects of a value.
fn types_of(schema: &Value) -> Types {
    types(&Schema::read(schema), [])
}

/// Texts, as regular expressions, that the parser does not read as a string if the value may have these types.
fn read_otherwise(expected: Types) -> Vec<&'static str> {
    let number = if expected.has(Types::NUMBER) {
        r"\s*-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?\s*"
    } else {
        r"\s*(0|-?[1-9][0-9]*)\s*"
    };
    let kinds = [
        (Types::NULL, r"\s*(?i:null|none)\s*"),
        (Types::BOOLEAN, r"\s*(?i:true|false)\s*"),
        (Types::NUMBER.or(Types::INTEGER), number),
        (Types::OBJECT.or(Types::ARRAY), r"(?s:\s*[\{\[].*)"),
    ];
    kinds.into_iter().filter(|(kind, _)| expected.has(*kind)).map(|(_, regex)| regex).collect()
}

/// Returns whether one of those matches this text.
fn is_read_otherwise(text: &str, expected: Types) -> bool {
    let text = text.trim();
    let is = |words: [&str; 2]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    let number = serde_json::from_str(text).ok().filter(Value::is_number);
    expected.has(Types::NULL) && is(["null", "none"])
        || expected.has(Types::BOOLEAN) && is(["true", "false"])
        || expected.has(Types::OBJECT.or(Types::ARRAY)) && text.starts_with(['{', '['])
        || number.is_some_and(|number| expected.has(Types::of(&number)))
}

/// The part of a schema about these types.
fn of_types(whole: &Value, wanted: Types) -> Value {
    let kinds: Vec<&str> = typed::KINDS[..7].iter().copied().filter(|kind| wanted.has(Types::of_name(kind))).collect();
    let mut schema = whole.clone();
    let Value::Object(object) = &mut schema else { return json!({"type": kinds}) };
    let leads = ["$ref", "allOf"].iter().any(|key| object.contains_key(*key));
    let tells = ["type", "anyOf", "oneOf", "enum", "const"].iter().any(|key| object.contains_key(*key));
    if leads || !tells {
        let joined = json!({"allOf": [schema::without_definitions(object), {"type": kinds}]});
        return with_definitions(&joined, object);
    }
    if let Some(named) = object.get_mut("type") {
        *named = kinds.iter().filter(|kind| schema::names_type(named, kind)).copied().collect();
    }
    let definitions = object.clone();
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(options)) = object.get_mut(key) {
            let all = |option: &Value| with_definitions(option, &definitions);
            let types = |option: &Value| types_of(&all(option));
            options.retain(|option| types(option).is_unknown() || types(option).has(wanted));
            for option in options.iter_mut().filter(|option| types(option).or(wanted) != wanted) {
                if let Value::Object(rest) = of_types(&all(option), wanted) {
                    *option = schema::without_definitions(&rest);
                }
            }
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| wanted.has(Types::of(value)));
    }
    schema
}
