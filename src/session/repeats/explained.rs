//! What explains a repetition: the schema of a value, or the conversation.

use crate::message::{Message, Role};
use serde_json::Value;

/// How often a text may be repeated that the conversation repeats or quotes, where it has no larger number.
const QUOTED: usize = 100;
/// Larger numbers are no counts of repetitions.
const MOST: usize = 1000;
/// Longer periods are not looked for in the conversation.
const LONGEST: usize = 1024;

/// Keywords that prescribe a text, or ask for a long one.
const PRESCRIBED: [&str; 6] = ["enum", "const", "pattern", "minLength", "format", "contentEncoding"];

/// Whether a schema explains that the text which is being written at the end of `json` repeats `period`: it asks for
/// long texts or long lists, or prescribes the text. A list of numbers may always be long. Nothing explains that an object
/// has the same member again, or that a number has the same digits again and again.
pub(super) fn by_schema(schema: &Value, json: &str, period: &str) -> bool {
    let place = Place::at_end(json, json.len().saturating_sub(period.len()));
    if place.in_string && !period.contains('"') {
        let Some(schema) = at(schema, &place.steps) else { return true };
        return PRESCRIBED.iter().any(|keyword| schema.get(keyword).is_some()) || is_composed(schema);
    }
    let structured = period.contains([',', '"', '[', ']', '{', '}']);
    let Some((within, before)) = place.steps[..place.lowest].split_last().filter(|_| structured) else { return false };
    // A schema that refers to itself describes any depth.
    let Some(schema) = at(schema, before) else { return place.deeper || *within == Step::Item };
    if place.deeper || *within != Step::Item {
        return false;
    }
    let items = schema.get("items").unwrap_or(&Value::Null);
    let texts = ["string", "object"].iter().any(|kind| items.get("type").is_some_and(|found| found == kind));
    schema.get("minItems").is_some() || !texts || PRESCRIBED.iter().any(|keyword| items.get(keyword).is_some())
}

/// Whether a schema is made of others, which may prescribe a text.
fn is_composed(schema: &Value) -> bool {
    ["anyOf", "oneOf", "allOf", "$ref", "not", "if"].iter().any(|keyword| schema.get(keyword).is_some())
}

/// The schema of a part of a value; `None` where that cannot be said without resolving references.
fn at<'s>(schema: &'s Value, steps: &[Step]) -> Option<&'s Value> {
    static ANY: Value = Value::Bool(true);
    let mut schema = schema;
    for step in steps {
        if is_composed(schema) {
            return None;
        }
        let next = match step {
            Step::Member(key) => {
                schema.get("properties").and_then(|all| all.get(key)).or_else(|| schema.get("additionalProperties"))
            }
            Step::Item => schema.get("items"),
        };
        schema = next.unwrap_or(&ANY);
    }
    Some(schema)
}

/// One step into a value.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Item,
}

/// A place in JSON that is being written.
#[derive(Debug, Default)]
struct Place {
    steps: Vec<Step>,
    /// Whether it is within a text that is a value.
    in_string: bool,
    /// The fewest steps into the value at the last bytes: these are in that object or list.
    lowest: usize,
    /// Whether the last bytes opened more objects and lists than they closed.
    deeper: bool,
}

impl Place {
    /// The end of `json`, which may be anywhere in it. The last bytes are those from `from` on.
    fn at_end(json: &str, from: usize) -> Place {
        let mut place = Place::default();
        let (mut text, mut escaped, mut string) = (String::new(), false, false);
        // The number of steps at `from`.
        let mut depth = usize::MAX;
        place.lowest = usize::MAX;
        for (index, c) in json.char_indices() {
            if index >= from {
                depth = if depth == usize::MAX { place.steps.len() } else { depth };
                place.lowest = place.lowest.min(place.steps.len());
            }
            match c {
                _ if escaped => {
                    escaped = false;
                    text.push(c);
                }
                '\\' if string => escaped = true,
                '"' if string => string = false,
                c if string => text.push(c),
                '"' => {
                    text.clear();
                    string = true;
                }
                ':' => {
                    if let Some(Step::Member(key)) = place.steps.last_mut() {
                        *key = std::mem::take(&mut text);
                    }
                }
                // The key is not known yet.
                '{' => place.steps.push(Step::Member(String::new())),
                '[' => place.steps.push(Step::Item),
                '}' | ']' => drop(place.steps.pop()),
                _ => {}
            }
        }
        let length = place.steps.len();
        place.in_string = string;
        place.deeper = depth < length;
        place.lowest = place.lowest.min(length);
        place
    }
}

/// What the messages of a conversation say, to find a repeated text in it.
pub(super) struct Asked {
    /// Each message, in plain letters.
    texts: Vec<String>,
    /// The texts in quotation marks.
    quoted: Vec<String>,
    /// The numbers that the user writes, which may be how often to repeat something.
    numbers: Vec<usize>,
}

impl Asked {
    pub(super) fn in_messages(messages: &[Message]) -> Asked {
        // The model's own messages explain nothing: a loop goes on in the next answer.
        let read = messages.iter().filter(|message| message.role != Role::Assistant);
        let users = messages.iter().filter(|message| message.role == Role::User);
        let digits = users.flat_map(|message| message.content.split(|c: char| !c.is_ascii_digit()));
        Asked {
            texts: read.clone().map(|message| plain(&message.content)).collect(),
            quoted: read.flat_map(|message| quotations(&message.content)).map(plain).collect(),
            numbers: digits.filter_map(|digits| digits.parse().ok()).filter(|number| *number <= MOST).collect(),
        }
    }

    /// Whether the conversation explains that `period` comes so often: it repeats it, or quotes it, or has it and a number
    /// of times.
    pub(super) fn explains(&self, period: &str, copies: usize) -> bool {
        if period.len() > LONGEST {
            return false;
        }
        // The period may begin within a word, which its end begins.
        let whole = |c: char| !c.is_alphanumeric();
        let Some(cut) = period.find(whole) else { return self.explains_syllable(&period.to_lowercase(), copies) };
        let period = plain(&format!("{}{}", &period[cut..], &period[..cut]));
        let words: Vec<&str> = period.split(' ').collect();
        // A number in what is repeated says nothing of how often.
        let counts = self.numbers.iter().filter(|number| !words.contains(&number.to_string().as_str()));
        let number = counts.max().copied().unwrap_or(0);
        if period.is_empty() || copies > number.max(QUOTED) {
            return false;
        }
        // The period may begin anywhere in what is repeated.
        (0..words.len()).any(|first| {
            let one = [&words[first..], &words[..first]].concat().join(" ");
            let twice = format!("{one} {one}");
            self.quoted.iter().any(|quoted| holds(quoted, &one))
                || self.texts.iter().any(|text| holds(text, &twice) || copies <= number && holds(text, &one))
        })
    }

    /// The same for a period without spaces: the conversation repeats it.
    fn explains_syllable(&self, period: &str, copies: usize) -> bool {
        let number = self.numbers.iter().max().copied().unwrap_or(0);
        let twice = period.repeat(2);
        copies <= number.max(QUOTED) && self.texts.iter().any(|text| text.contains(&twice))
    }
}

/// Whether a text has these words in it.
fn holds(text: &str, words: &str) -> bool {
    format!(" {text} ").contains(&format!(" {words} "))
}

/// A text's words: letters and digits in lower case, with single spaces between them.
fn plain(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The texts in quotation marks and in backquotes.
fn quotations(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (open, close) in [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('„', '“'), ('‘', '’'), ('«', '»')]
    {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(open) {
            rest = after;
            // An apostrophe opens nothing.
            if before.ends_with(char::is_alphanumeric) {
                continue;
            }
            let Some((inside, further)) = after.split_once(close) else { break };
            found.push(inside);
            rest = further;
        }
    }
    found
}
