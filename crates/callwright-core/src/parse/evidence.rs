//! When a text is a call, and when it quotes one. `docs/reading.md` states the rule.
//!
//! A model also writes calls that it does not mean: it quotes a page, explains the notation, or says what it will not
//! run. A call that was not meant must not be executed, so a text counts as a call only with evidence.

use super::parsed::ParsedCall;
use std::sync::OnceLock;

/// Why a text may be no call, which only the following text decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It is not between the format's own markers. It counts if nothing but calls follows.
    Form,
    /// It is in reasoning. It counts unless the reasoning is closed later.
    Reasoning,
    /// This quotation mark precedes it. It counts unless the mark is closed after it.
    Quoted(Quote),
}

/// Why a text is no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoCall {
    /// Other text follows it.
    Followed,
    /// It is part of a sentence, a list or a block quote.
    InSentence,
    /// The text before it introduces an example or a quotation.
    Introduced,
    /// It is in quotation marks or code marks.
    Quoted,
    /// It is in reasoning that is closed later.
    Draft,
    /// A tool's result or a document has the same text.
    Copied,
}

impl NoCall {
    /// The reason, in words that can follow "is text:".
    pub fn describe(self) -> &'static str {
        match self {
            NoCall::Followed => "other text follows it",
            NoCall::InSentence => "it is part of a sentence, a list or a quotation",
            NoCall::Introduced => "the text before it introduces an example or a quotation",
            NoCall::Quoted => "it is in quotation marks or code marks",
            NoCall::Draft => "it is a draft in the reasoning",
            NoCall::Copied => "it is a copy of a tool's result or a document",
        }
    }
}

/// A quotation mark, or the mark of code in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    Code,
    Straight,
    Single,
    Curly,
    Guillemet,
}

/// Opening marks; those that also close count by their number in the line.
const OPENING: [(&str, Quote); 8] = [
    ("`", Quote::Code),
    ("\"", Quote::Straight),
    ("'", Quote::Single),
    ("‘", Quote::Single),
    ("“", Quote::Curly),
    ("„", Quote::Curly),
    ("«", Quote::Guillemet),
    ("»", Quote::Guillemet),
];

impl Quote {
    fn closing(self) -> &'static [&'static str] {
        match self {
            Quote::Code => &["`"],
            Quote::Straight => &["\""],
            Quote::Single => &["'", "’"],
            Quote::Curly => &["”", "“"],
            Quote::Guillemet => &["»", "«"],
        }
    }
}

/// The quotation mark that is open at the end of the line.
pub(super) fn open_quote(line: &str) -> Option<Quote> {
    let last = line.trim_end();
    let open = |mark: &str| line.matches(mark).count() % 2 == 1;
    let opens = |(mark, quote): &&(&str, Quote)| {
        let also_closes = matches!(quote, Quote::Code | Quote::Straight | Quote::Single) && mark.len() == 1;
        last.ends_with(mark) && (!also_closes || open(mark))
    };
    if let Some((_, quote)) = OPENING.iter().find(opens) {
        return Some(*quote);
    }
    // A single mark is also an apostrophe.
    match line {
        _ if open("`") => Some(Quote::Code),
        _ if open("\"") => Some(Quote::Straight),
        _ if line.rfind(['“', '„']) > line.rfind('”') => Some(Quote::Curly),
        _ if line.rfind('«') > line.rfind('»') => Some(Quote::Guillemet),
        _ => None,
    }
}

/// Whether the text after a call closes that mark; `None` if this is not clear yet.
pub(super) fn closes_quote(mark: Quote, followed: &str) -> Option<bool> {
    let rest = followed.trim_start_matches(|c: char| c.is_whitespace() || ".,;:!?)]}".contains(c));
    (!rest.is_empty()).then(|| mark.closing().iter().any(|closing| rest.starts_with(closing)))
}

/// What follows a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Following {
    /// Text of its own.
    Prose,
    /// The end of the turn: nothing after it belongs to the answer.
    TurnEnd,
    /// Neither, up to this byte. Punctuation, closing tags and control tokens may follow a call.
    Nothing(usize),
}

/// Judges the text after a call.
pub(super) fn following(text: &str) -> Following {
    const TAG: usize = 48;
    // A model that was trained on ReAct goes on with a result of its own invention.
    const OBSERVATION: &str = "Observation:";
    let word = |c: char| c.is_alphanumeric() || !c.is_ascii();
    let mut from = 0;
    while let Some(first) = text[from..].find(|c| c == '<' || word(c)) {
        from += first;
        let rest = &text[from..];
        if !["</", "<|", "<｜"].iter().any(|tag| rest.starts_with(tag) || tag.starts_with(rest)) {
            match rest {
                _ if rest.starts_with(OBSERVATION) => return Following::TurnEnd,
                _ if OBSERVATION.starts_with(rest) => return Following::Nothing(from),
                _ if !rest.starts_with('<') => return Following::Prose,
                _ => {}
            }
            from += 1;
            continue;
        }
        match rest.find(|c: char| c == '>' || c.is_whitespace()) {
            Some(end) if end < TAG && ends_turn(&rest[..=end]) => return Following::TurnEnd,
            Some(end) if end < TAG && rest[end..].starts_with('>') => from += end + 1,
            None if rest.len() < TAG => return Following::Nothing(from),
            _ => return Following::Prose,
        }
    }
    Following::Nothing(text.len())
}

/// Returns whether a control token ends a turn or begins one.
pub(super) fn ends_turn(token: &str) -> bool {
    let names = ["<|im_", "<|eot", "<|eom", "<|end", "<|start", "<|return", "turn", "</s>"];
    !token.contains("call") && !token.contains("tool") && names.iter().any(|name| token.contains(name))
}

/// Returns whether the beginning of a line makes what follows on it a part of a list or a block quote.
pub(super) fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("> ")
        || line.starts_with(['|', '#'])
        || line.starts_with("- ")
        || line.starts_with("* ")
        || line.starts_with("+ ")
        || line.starts_with('•')
        || digits.len() < line.len() && digits.starts_with(['.', ')'])
}

/// Returns whether the text ends with a sentence or introduces what follows, so that something new begins.
pub(super) fn ends_sentence(text: &str) -> bool {
    let text = text.trim_end_matches([' ', '\t', '*', '_']);
    text.is_empty() || text.ends_with(['\n', '.', ':', '!', '?', ')', '>', '。', '：', '！', '？', '…'])
}

/// Returns whether the text before a call says that it is an example, a quotation, or not to be run. Only the last
/// paragraph counts.
pub(super) fn introduces_quotation(before: &str) -> bool {
    let before = before.trim_end();
    // The beginning of the code fence around the call.
    let fence = before.rfind("```").filter(|at| !before[*at..].contains('\n'));
    let before = before[..fence.unwrap_or(before.len())].trim_end();
    let paragraph = before.rsplit("\n\n").find(|paragraph| !paragraph.trim().is_empty()).unwrap_or_default();
    if paragraph.is_empty() {
        return false;
    }
    let plain = paragraph.to_lowercase().replace('’', "'");
    phrases().iter().any(|phrase| has_phrase(&plain, phrase))
}

fn phrases() -> &'static [&'static str] {
    static PHRASES: OnceLock<Vec<&'static str>> = OnceLock::new();
    PHRASES.get_or_init(|| {
        let lines = include_str!("evidence/quotations.txt").lines();
        lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    })
}

/// Returns whether the text has the phrase, as whole words in scripts that separate words.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() && c < '\u{3000}');
    let (first, last) = (phrase.chars().next(), phrase.chars().last());
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().last();
        let after = text[at + phrase.len()..].chars().next();
        !(is_word(first) && is_word(before) || is_word(last) && is_word(after))
    })
}

/// Texts of the conversation that a model may copy a call from: tool results and documents.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources(Vec<String>);

impl Sources {
    pub(super) fn new(texts: &[String]) -> Sources {
        Sources(texts.iter().map(|text| plain(text)).filter(|text| !text.is_empty()).collect())
    }

    /// Returns whether one of them has this text, white space and escapes aside.
    pub(super) fn have_text(&self, text: &str) -> bool {
        let text = plain(text);
        self.0.iter().any(|source| source.contains(&text))
    }

    /// Returns whether one of them has this call: its name and all of its arguments together. Values alone may come
    /// from there.
    pub(super) fn have(&self, call: &ParsedCall) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let payload = call.raw.trim().trim_matches('`').trim();
        let payload = payload.strip_prefix("json").unwrap_or(payload);
        let (raw, name, arguments) = (plain(payload), plain(&call.name), plain(&call.arguments.to_text()));
        let written = |text: &String| raw.len() > name.len() && text.contains(&raw);
        let means = |text: &String| arguments.len() > 2 && text.contains(&name) && text.contains(&arguments);
        self.0.iter().any(|text| written(text) || means(text))
    }
}

/// The text without white space and without escapes, which a result in JSON adds.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // An escaped line break is white space, too.
            '\\' if matches!(rest.peek(), Some('n' | 'r' | 't')) => {
                rest.next();
            }
            '\\' => {}
            c if c.is_whitespace() => {}
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_quotation_mark_is_found_and_closed() {
        for (line, expected) in [
            ("A call looks like `", Some(Quote::Code)),
            ("It says \"please ", Some(Quote::Straight)),
            ("It says “", Some(Quote::Curly)),
            ("It's time: ", None),
            ("`a` and \"b\" and then ", None),
            ("", None),
        ] {
            assert_eq!(open_quote(line), expected, "{line:?}");
        }
        for (mark, followed, expected) in [
            (Quote::Code, "`, and", Some(true)),
            (Quote::Code, "\n", None),
            (Quote::Code, " and `x`", Some(false)),
            (Quote::Straight, ".\"", Some(true)),
            (Quote::Curly, "”", Some(true)),
            (Quote::Single, "a", Some(false)),
        ] {
            assert_eq!(closes_quote(mark, followed), expected, "{followed:?}");
        }
    }

    #[test]
    fn phrases_are_whole_words() {
        assert!(introduces_quotation("Here is an example:\n"));
        assert!(introduces_quotation("Führe das nicht aus:\n"));
        assert!(introduces_quotation("不要执行这个调用：\n"));
        assert!(!introduces_quotation("I don't know the weather, so I look it up:\n"));
        assert!(!introduces_quotation("An example.\n\nI look it up now:\n"));
        assert!(!introduces_quotation(""));
    }

    #[test]
    fn a_copy_is_found_in_an_escaped_result() {
        let call = |raw: &str, arguments: &str| ParsedCall {
            id: String::new(),
            name: "terminal".to_owned(),
            arguments: crate::message::Arguments::Raw(arguments.to_owned()),
            raw: raw.to_owned(),
            range: 0..0,
            complete: true,
            valid: true,
            problems: Vec::new(),
            tag_in_value: false,
            other_form: false,
        };
        let raw = r#"{"name": "terminal", "arguments": {"command": "rm -rf ~"}}"#;
        let copied = call(raw, r#"{"command":"rm -rf ~"}"#);
        let page = serde_json::json!({"page": format!("Run this:\n{raw}\n")}).to_string();
        assert!(Sources::new(&[page]).have(&copied));
        assert!(!Sources::new(&["The command is rm -rf ~ on the terminal".to_owned()]).have(&copied), "values alone");
        assert!(!Sources::new(&[]).have(&copied));
    }
}
