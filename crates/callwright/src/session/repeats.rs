//! Whether an answer repeats itself without end, while it is written.

use crate::parse::event::Event;
use crate::setting::Setting;
use crate::tool::Tools;
use callwright_core::schema::{Schema, Step};
use serde_json::Value;
use std::collections::VecDeque;

/// The longest period, in tokens: four copies are the last 256 tokens.
const PERIOD: usize = 64;
/// How many copies are a loop.
const COPIES: usize = 4;
/// How many tokens the copies have together, at least. In 2,949 pieces of documentation, source code, licences and
/// web pages, up to 1,024 tokens each, nothing repeats for so long. With 32 tokens, 8 of them do.
const LENGTH: usize = 64;
/// How many tokens later a repetition that a schema asks for is looked at again.
const LATER: usize = 16;

/// A repetition that ends an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loop {
    /// How many tokens it has.
    pub period: usize,
    /// How often they came.
    pub copies: usize,
    /// What they are.
    pub text: String,
}

/// Looks for a repetition at the end of an answer, token by token.
pub(super) struct Repeats<'a> {
    tools: &'a Tools,
    /// The schema of an answer that has to be JSON.
    schema: Option<Schema>,
    /// The last tokens.
    recent: VecDeque<Vec<u8>>,
    /// For each period, how many of the last tokens are the same as the token one period before.
    same: [usize; PERIOD + 1],
    /// The call that is being written: its tool and its arguments.
    call: Option<(String, String)>,
    /// The text of the answer, where a schema describes it.
    text: String,
    /// Tokens before the next look.
    pause: usize,
}

impl<'a> Repeats<'a> {
    /// For an answer that may call `tools`, and has to fit `schema`, if there is one.
    pub(super) fn new(tools: &'a Tools, schema: Option<&Value>) -> Repeats<'a> {
        Repeats {
            tools,
            schema: schema.map(Schema::read),
            recent: VecDeque::new(),
            same: [0; PERIOD + 1],
            call: None,
            text: String::new(),
            pause: 0,
        }
    }

    /// Takes note of what a token was read as, before [`Repeats::push`].
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::CallStart { name, .. } => {
                self.begin();
                self.call = Some((name.clone(), String::new()));
            }
            Event::CallArguments { delta, .. } => {
                if let Some((_, arguments)) = &mut self.call {
                    *arguments += delta;
                }
            }
            Event::CallEnd { .. } => {
                self.begin();
                self.call = None;
            }
            Event::Text { delta } if self.schema.is_some() => self.text += delta,
            _ => {}
        }
    }

    /// Several calls are alike, and identical ones are counted elsewhere.
    fn begin(&mut self) {
        self.recent.clear();
        self.same = [0; PERIOD + 1];
        self.pause = 0;
    }

    /// The repetition that the answer ends in with this token, where no schema asks for it.
    pub(super) fn push(&mut self, token: &[u8]) -> Option<Loop> {
        for period in 1..=self.recent.len() {
            let before = &self.recent[self.recent.len() - period];
            self.same[period] = if before == token { self.same[period] + 1 } else { 0 };
        }
        if self.recent.len() == PERIOD {
            self.recent.pop_front();
        }
        self.recent.push_back(token.to_vec());
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let long = |period: &usize| self.same[*period] + period >= LENGTH.max(COPIES * period);
        let period = (1..=PERIOD).find(long)?;
        let bytes: Vec<u8> = self.recent.iter().skip(self.recent.len() - period).flatten().copied().collect();
        let found =
            Loop { period, copies: self.same[period] / period + 1, text: String::from_utf8_lossy(&bytes).into_owned() };
        if self.is_asked_for() {
            self.pause = LATER;
            return None;
        }
        Some(found)
    }

    /// Returns whether the schema of the string that is being written, or of the list that it is in, asks for it.
    fn is_asked_for(&self) -> bool {
        match &self.call {
            // A tool that nobody offered has no schema.
            Some((tool, arguments)) => self.tools.schema(tool).is_some_and(|schema| asks(schema, arguments)),
            None => self.schema.as_ref().is_some_and(|schema| asks(schema, &self.text)),
        }
    }
}

/// Returns whether a schema asks for a long text, or for many items, where `json` ends.
fn asks(schema: &Schema, json: &str) -> bool {
    let (steps, in_string) = place(json);
    let list = steps.split_last().filter(|(last, _)| **last == Step::Item);
    in_string && schema.asks(&steps) || list.is_some_and(|(_, list)| schema.asks(list))
}

/// Where a text of JSON ends: the steps into its value, and whether that is within a string.
fn place(json: &str) -> (Vec<Step>, bool) {
    let (mut steps, mut text, mut escaped, mut in_string) = (Vec::new(), String::new(), false, false);
    for c in json.chars() {
        match c {
            _ if escaped => {
                escaped = false;
                text.push(c);
            }
            '\\' if in_string => escaped = true,
            '"' if in_string => in_string = false,
            c if in_string => text.push(c),
            '"' => {
                text.clear();
                in_string = true;
            }
            ':' => {
                if let Some(Step::Member(key)) = steps.last_mut() {
                    *key = std::mem::take(&mut text);
                }
            }
            // The key is not known yet.
            '{' => steps.push(Step::Member(String::new())),
            '[' => steps.push(Step::Item),
            '}' | ']' => drop(steps.pop()),
            _ => {}
        }
    }
    (steps, in_string)
}

impl std::fmt::Display for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 60;
        let mut shown: String = self.text.chars().take(SHOWN).collect();
        if shown.len() < self.text.len() {
            shown.push('…');
        }
        let tokens = if self.period == 1 { "token".to_owned() } else { format!("{} tokens", self.period) };
        write!(
            f,
            "the answer was ended because it repeats itself: the same {tokens} {} times, {shown:?} ({} 1.1, \
             {} 0.7 or another {} may help; {} lets it go on)",
            self.copies,
            Setting::RepeatPenalty,
            Setting::Temperature,
            Setting::Format,
            Setting::LoopGuardOff
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The words of a text as tokens, each with the space before it.
    fn words(text: &str) -> Vec<String> {
        text.split_inclusive(' ').map(str::to_owned).collect()
    }

    fn found(text: &str) -> Option<(usize, usize)> {
        let tools = Tools::default();
        let mut repeats = Repeats::new(&tools, None);
        let found = words(text).iter().find_map(|word| repeats.push(word.as_bytes()));
        found.map(|found| (found.period, found.copies))
    }

    #[test]
    fn a_repetition_is_found_once_it_is_long() {
        let sorry = "I am not able to access the server. ";
        assert_eq!(found(&sorry.repeat(7)), None);
        assert_eq!(found(&sorry.repeat(9)), Some((8, 8)));
        assert_eq!(found(&"ha ".repeat(63)), None);
        assert_eq!(found(&"ha ".repeat(65)), Some((1, 64)));
        let long: String = (0..64).map(|word| format!("{word} ")).collect();
        assert_eq!(found(&long.repeat(4)), Some((64, 4)));
        let longer: String = (0..65).map(|word| format!("{word} ")).collect();
        assert_eq!(found(&longer.repeat(8)), None);
        // What counts up is no repetition.
        let list: String = (0..400).map(|line| format!("{line} . the same line \n ")).collect();
        assert_eq!(found(&list), None);
    }

    #[test]
    fn what_a_schema_asks_for_is_no_loop() {
        let tools = Tools::from_value(&json!([{"name": "plot", "parameters": {"type": "object", "properties": {
            "title": {"type": "string"},
            "points": {"type": "array", "items": {"type": "number"}},
            "words": {"type": "array", "items": {"type": "string"}},
            "six": {"type": "array", "items": {"type": "string"}, "minItems": 100},
            "code": {"type": "string", "pattern": "^(ab)*$"},
            "pad": {"type": "string", "minLength": 300},
            "style": {"enum": ["a a a a a a a"]},
            "map": {"type": "object"},
            "rows": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "tree": {"$ref": "#"}
        }}}]))
        .unwrap();
        for (before, token, ends) in [
            (r#"{"title": ""#, "very ", true),
            (r#"{"points": [0"#, ", 0", true),
            (r#"{"words": ["a""#, ", \"a\"", true),
            (r#"{"six": ["a""#, ", \"a\"", false),
            (r#"{"code": ""#, "ab", false),
            (r#"{"pad": ""#, "x", false),
            (r#"{"style": ""#, "a ", false),
            (r#"{"other": ""#, "a ", true),
            // The same member again, whatever it has.
            (r#"{"map": {"#, r#""k": "v", "#, true),
            (r#"{"map": {"#, r#""k": [1, 1], "#, true),
            (r#"{"rows": ["#, "[1, 1], ", true),
            // Deeper and deeper, digits, white space.
            ("", r#"{"map": "#, true),
            ("", r#"{"tree": "#, true),
            (r#"{"map": {"k": 1"#, "0", true),
            (r#"{"map": {"k": 1"#, " ", true),
        ] {
            let mut repeats = Repeats::new(&tools, None);
            let id = String::from("call00001");
            repeats.event(&Event::CallStart { id: id.clone(), name: "plot".into() });
            repeats.event(&Event::CallArguments { id: id.clone(), delta: before.into() });
            let found = (0..200).find_map(|_| {
                repeats.event(&Event::CallArguments { id: id.clone(), delta: token.into() });
                repeats.push(token.as_bytes())
            });
            assert_eq!(found.is_some(), ends, "{before}");
        }
    }
}
