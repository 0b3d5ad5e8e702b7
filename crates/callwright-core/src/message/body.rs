//! The fields of a request body other than its messages and tools.
//!
//! The fields are those of OpenAI's chat completions, and those that llama.cpp's server and others add. Fields that
//! have no counterpart here are listed, so that nobody assumes they took effect.

use super::Conversation;
use crate::error::{Error, ErrorKind, Result, nearest};
use crate::json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::ops::RangeInclusive;

/// Valid temperatures.
pub const TEMPERATURE: RangeInclusive<f32> = 0.0..=100.0;
/// Valid shares of the probability.
pub const SHARE: RangeInclusive<f32> = 0.0..=1.0;
/// Valid repetition penalties, which are divisors.
pub const REPEAT_PENALTY: RangeInclusive<f32> = 0.01..=100.0;
/// Valid presence and frequency penalties.
pub const PENALTY: RangeInclusive<f32> = -100.0..=100.0;
/// Valid values of DRY's multiplier.
pub const DRY_MULTIPLIER: RangeInclusive<f32> = 0.0..=100.0;

/// No limit on tokens: the answer ends when the context is full.
pub const NO_LIMIT: usize = usize::MAX;

/// OpenAI's `response_format`: the answer is JSON that fits a schema, or, if there are tools, calls of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResponseFormat {
    /// The schema; `{"type": "object"}` for any object.
    pub schema: Value,
    /// Whether it is an error if a grammar cannot enforce the schema. Otherwise a note reports it, and the finished
    /// answer is checked.
    pub strict: bool,
}

/// The fields of a request body; `None` or empty if absent.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Body {
    /// `max_completion_tokens`, or `max_tokens`.
    pub max_tokens: Option<usize>,
    /// `temperature`.
    pub temperature: Option<f32>,
    /// `top_p`.
    pub top_p: Option<f32>,
    /// `top_k`.
    pub top_k: Option<u32>,
    /// `min_p`.
    pub min_p: Option<f32>,
    /// `seed`.
    pub seed: Option<u64>,
    /// `repeat_penalty`, or `repetition_penalty`.
    pub repeat_penalty: Option<f32>,
    /// `presence_penalty`.
    pub presence_penalty: Option<f32>,
    /// `frequency_penalty`.
    pub frequency_penalty: Option<f32>,
    /// `repeat_last_n`.
    pub repeat_last_n: Option<i32>,
    /// `dry_multiplier`.
    pub dry_multiplier: Option<f32>,
    /// `stop`.
    pub stop: Vec<String>,
    /// `logit_bias`: tokens, and what is added to their logits.
    pub logit_bias: Vec<(i32, f32)>,
    /// `parallel_tool_calls`.
    pub parallel_tool_calls: Option<bool>,
    /// `response_format`, if it is not text.
    pub response_format: Option<ResponseFormat>,
    /// Variables of the chat template: `chat_template_kwargs`, and `reasoning_effort`.
    pub variables: Map<String, Value>,
    /// What was read in another form.
    pub notes: Vec<String>,
    /// The unused fields.
    pub unused: Vec<UnusedField>,
}

/// A field of a request body that has no effect. `Display` writes its name, with the advice in parentheses.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UnusedField {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// Why it is not used, or what to write instead; empty if nothing is known.
    pub advice: String,
}

impl fmt::Display for UnusedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, " ({})", self.advice) }
    }
}

/// Reasons for unused fields, and replacements.
const REASONS: [(&str, &str); 16] = [
    ("stream", "events report the answer while the model writes"),
    ("stream_options", "events report the answer while the model writes"),
    ("n", "one answer is written"),
    ("best_of", "one answer is written"),
    ("logprobs", "no probabilities are reported"),
    ("top_logprobs", "no probabilities are reported"),
    ("system", "give a message with the role system"),
    ("stop_sequences", "write stop"),
    ("grammar", "it is not read from a body"),
    ("json_schema", "write response_format"),
    ("n_predict", "write max_tokens"),
    ("num_predict", "write max_tokens"),
    ("max_new_tokens", "write max_tokens"),
    ("max_output_tokens", "write max_tokens"),
    ("max_length", "write max_tokens"),
    ("options", "write its fields into the body itself"),
];

/// Fields that a conversation has besides those of [`Body::of`].
const CONVERSATION: [&str; 6] =
    ["messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"];

/// Fields that this program adds to messages, and that have no effect.
const OWN: [&str; 5] = ["usage", "finish_reason", "status", "error", "diagnostics"];

impl Body {
    /// Reads the other fields of a conversation's body.
    ///
    /// # Errors
    /// [`ErrorKind::Messages`] if a used field has an invalid value.
    pub fn of(conversation: &Conversation) -> Result<Body> {
        let mut fields = Fields { left: conversation.extra.clone(), known: CONVERSATION.to_vec(), notes: Vec::new() };
        fields.left.retain(|_, value| !value.is_null());
        let body = Body {
            max_tokens: fields.max_tokens()?,
            temperature: fields.number("temperature", TEMPERATURE)?,
            top_p: fields.number("top_p", SHARE)?,
            // -1 means 0: no limit.
            top_k: fields.whole("top_k", -1..=u32::MAX.into())?.and_then(|count| u32::try_from(count.max(0)).ok()),
            min_p: fields.number("min_p", SHARE)?,
            // Any integer is a valid seed, as long as equal ones give equal results.
            seed: fields.whole("seed", i64::MIN.into()..=u64::MAX.into())?.map(|seed| seed as u64),
            repeat_penalty: fields
                .either(["repeat_penalty", "repetition_penalty"], |fields, name| fields.number(name, REPEAT_PENALTY))?,
            presence_penalty: fields.number("presence_penalty", PENALTY)?,
            frequency_penalty: fields.number("frequency_penalty", PENALTY)?,
            repeat_last_n: fields.whole("repeat_last_n", -1..=i32::MAX.into())?.and_then(|n| i32::try_from(n).ok()),
            dry_multiplier: fields.number("dry_multiplier", DRY_MULTIPLIER)?,
            stop: fields.stop()?,
            logit_bias: fields.logit_bias()?,
            parallel_tool_calls: conversation.parallel_tool_calls,
            response_format: fields.response_format()?,
            variables: fields.variables()?,
            ..Body::default()
        };
        let Fields { left, known, notes } = fields;
        let model = conversation.model.iter().map(|model| UnusedField {
            name: "model".to_owned(),
            advice: format!("another one is chosen, not {model:?}"),
            value: model.as_str().into(),
        });
        let rest = left.into_iter().filter(|(name, value)| !asks_nothing(name, value)).map(|(name, value)| {
            let advice = advice(&name, &known);
            UnusedField { name, value, advice }
        });
        Ok(Body { notes, unused: model.chain(rest).collect(), ..body })
    }

    /// One sentence about all unused fields.
    pub fn unused_note(&self) -> Option<String> {
        let fields: Vec<String> = self.unused.iter().map(UnusedField::to_string).collect();
        (!fields.is_empty()).then(|| format!("not used in the request body: {}", fields.join(", ")))
    }
}

/// Why a field is not used, or which of the `known` fields it may mean.
fn advice(name: &str, known: &[&str]) -> String {
    match (REASONS.iter().find(|(other, _)| *other == name), nearest(name, known.iter().copied())) {
        (Some((_, reason)), _) => (*reason).to_owned(),
        (None, Some(meant)) => format!("did you mean {meant}?"),
        (None, None) => String::new(),
    }
}

/// Returns whether an unused field would have had no effect.
fn asks_nothing(name: &str, value: &Value) -> bool {
    let empty = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        // Zero answers is not the default.
        Value::Number(number) => number.as_f64() == Some(0.0) && !matches!(name, "n" | "best_of"),
        Value::Bool(true) => false,
    };
    empty || OWN.contains(&name) || matches!(name, "n" | "best_of") && value.as_f64() == Some(1.0)
}

/// The fields of a body that are still unread.
struct Fields {
    left: Map<String, Value>,
    /// The names of all fields that are read, present or not.
    known: Vec<&'static str>,
    notes: Vec<String>,
}

impl Fields {
    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.left.shift_remove(name)
    }

    fn number(&mut self, name: &'static str, range: RangeInclusive<f32>) -> Result<Option<f32>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_f64().map(|number| number as f32).filter(|number| range.contains(number));
        let wanted = || format!("a number from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| wrong(name, &wanted(), &value))
    }

    fn whole(&mut self, name: &'static str, range: RangeInclusive<i128>) -> Result<Option<i128>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let whole = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
        // Some programs write 5 as 5.0.
        let whole = whole.or_else(|| value.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 1e15).map(|n| n as i128));
        let wanted = || match *range.end() {
            end if end == u64::MAX.into() => format!("a whole number from {} to {end}", range.start()),
            end if end >= i32::MAX.into() => format!("a whole number from {} up", range.start()),
            end => format!("a whole number from {} to {end}", range.start()),
        };
        whole.filter(|whole| range.contains(whole)).map(Some).ok_or_else(|| wrong(name, &wanted(), &value))
    }

    /// One of two fields with the same meaning; the first if both are present and differ.
    fn either<T: PartialEq>(
        &mut self,
        [first, second]: [&'static str; 2],
        read: impl Fn(&mut Fields, &'static str) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let (one, other) = (read(self, first)?, read(self, second)?);
        if one.is_some() && other.is_some() && one != other {
            self.notes.push(format!("the request body has {first} and {second}; {first} is used"));
        }
        Ok(one.or(other))
    }

    fn max_tokens(&mut self) -> Result<Option<usize>> {
        self.either(["max_completion_tokens", "max_tokens"], |fields, name| {
            // In llama.cpp, -1 means no limit.
            if fields.left.get(name).and_then(Value::as_i64) == Some(-1) {
                fields.take(name);
                return Ok(Some(NO_LIMIT));
            }
            let limit = fields.whole(name, 1..=u32::MAX.into())?;
            Ok(limit.and_then(|limit| usize::try_from(limit).ok()))
        })
    }

    fn stop(&mut self) -> Result<Vec<String>> {
        let wanted = "a string or a list of strings";
        let texts = match self.take("stop") {
            None => Vec::new(),
            Some(Value::String(text)) => vec![text],
            Some(Value::Array(items)) => {
                let text = |item: Value| match item {
                    Value::String(text) => Ok(text),
                    other => Err(wrong("stop", wanted, &other)),
                };
                items.into_iter().map(text).collect::<Result<_>>()?
            }
            Some(other) => return Err(wrong("stop", wanted, &other)),
        };
        Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
    }

    /// An object of token ids, or llama.cpp's list of pairs.
    fn logit_bias(&mut self) -> Result<Vec<(i32, f32)>> {
        let Some(value) = self.take("logit_bias") else { return Ok(Vec::new()) };
        let wanted = "an object of token ids and numbers from -100 to 100, such as {\"123\": -100}";
        let pair = |id: Option<i32>, bias: &Value| {
            let bias = bias.as_f64().map(|bias| bias as f32).filter(|bias| (-100.0..=100.0).contains(bias));
            id.filter(|id| *id >= 0).zip(bias)
        };
        let pairs: Option<Vec<_>> = match &value {
            Value::Object(fields) => fields.iter().map(|(id, bias)| pair(id.trim().parse().ok(), bias)).collect(),
            Value::Array(pairs) => {
                let id = |id: &Value| id.as_i64().and_then(|id| i32::try_from(id).ok());
                pairs.iter().map(|one| pair(id(one.get(0)?), one.get(1)?)).collect()
            }
            _ => None,
        };
        pairs.ok_or_else(|| {
            Error::new(ErrorKind::Messages, format!("logit_bias is {}; expected {wanted}", json::shown(&value)))
        })
    }

    fn response_format(&mut self) -> Result<Option<ResponseFormat>> {
        let Some(value) = self.take("response_format") else { return Ok(None) };
        let Value::Object(format) = &value else {
            return Err(wrong("response_format", "an object with \"type\"", &value));
        };
        let any = || serde_json::json!({"type": "object"});
        // llama.cpp's server accepts the schema without the object around it, also for json_object.
        let inner = format.get("json_schema").and_then(Value::as_object).unwrap_or(format);
        let schema = inner.get("schema").filter(|schema| !schema.is_null()).cloned();
        let strict = match inner.get("strict") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(strict)) => *strict,
            Some(other) => return Err(wrong("response_format.json_schema.strict", "true or false", other)),
        };
        match format.get("type").and_then(Value::as_str) {
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(ResponseFormat { schema: schema.unwrap_or_else(any), strict })),
            Some("json_schema") => match schema {
                Some(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(Some(ResponseFormat { schema, strict })),
                Some(other) => Err(wrong("response_format.json_schema.schema", "a JSON Schema", &other)),
                None => Err(Error::new(ErrorKind::Messages, "response_format has no json_schema.schema")
                    .hint(r#"write {"type": "json_schema", "json_schema": {"name": "…", "schema": {…}}}"#)),
            },
            _ => {
                let kind = format.get("type").map_or("missing".to_owned(), json::shown);
                let message = format!("response_format.type is {kind}; expected text, json_object or json_schema");
                Err(Error::new(ErrorKind::Messages, message))
            }
        }
    }

    fn variables(&mut self) -> Result<Map<String, Value>> {
        let mut variables = Map::new();
        match self.take("reasoning_effort") {
            None => {}
            Some(effort @ Value::String(_)) => drop(variables.insert("reasoning_effort".to_owned(), effort)),
            Some(other) => return Err(wrong("reasoning_effort", "a string, such as \"low\"", &other)),
        }
        match self.take("chat_template_kwargs") {
            None => {}
            Some(Value::Object(given)) => variables.extend(given),
            Some(other) => return Err(wrong("chat_template_kwargs", "an object", &other)),
        }
        Ok(variables)
    }
}

fn wrong(name: &str, expected: &str, found: &Value) -> Error {
    let found = match found {
        Value::Array(_) | Value::Object(_) => json::kind(found).to_owned(),
        scalar => json::shown(scalar),
    };
    Error::new(ErrorKind::Messages, format!("{name} is {found}; expected {expected}"))
}
