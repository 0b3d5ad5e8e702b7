//! The patterns that count as a marker: the declared one, and usual misspellings.

use super::{Lookahead, Side, Sign};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Around, Declaration, Marker, Payload};
use crate::parse::suffix;
use regex_automata::util::syntax;
use std::ops::RangeInclusive;

/// The low bar that separates words in the markers of some formats.
const LOW: &[u8] = "▁".as_bytes();

/// Number of letters in a marker for which one may be wrong. With fewer, another word may be meant; with more, the
/// automaton takes tens of milliseconds to build.
const LETTERS: RangeInclusive<usize> = 6..=24;

/// The bars in markers, and those that models write in their place: `|`, `｜`, `‖`, `│`, `∣`, `∥`, `¦`.
const BAR: &str = r"(?:\x7c|\xef\xbd\x9c|\xe2(?:\x80\x96|\x94\x82|\x88[\xa3\xa5])|\xc2\xa6)";
pub(in crate::parse) const BARS: [char; 7] = ['|', '｜', '‖', '│', '∣', '∥', '¦'];

/// A name without white space.
const WORD: &str = "[A-Za-z0-9_.:/-]{1,64}";

/// Markers are bytes: `\w`, `\d` and `\s` are ASCII, because the Unicode classes need thousands of states.
pub(super) fn syntax_config() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false)
}

/// Patterns as declared, longest first: of two markers with the same beginning, the longer one wins.
pub(super) struct Patterns(Vec<(Sign, String)>);

impl Patterns {
    pub(super) fn exact(declaration: &Declaration) -> Patterns {
        let around = |around: &Option<Around>, start, end| {
            around
                .iter()
                .flat_map(|around| [(start, around.start.clone()), (end, around.end.clone())])
                .collect::<Vec<_>>()
        };
        let mut markers = around(&declaration.section, Side::SectionStart, Side::SectionEnd);
        markers.extend(around(&declaration.reasoning, Side::ReasoningStart, Side::ReasoningEnd));
        markers.extend(declaration.start.iter().map(|start| (Side::Start, start.clone())));
        markers.extend(declaration.end.iter().map(|end| (Side::End, end.clone())));
        markers.extend(declaration.hidden.iter().map(|hidden| (Side::Hidden, hidden.clone())));
        markers.extend(declaration.markup.iter().map(|markup| (Side::Markup, markup.clone())));
        markers.sort_by_key(|(_, marker)| std::cmp::Reverse(marker.pattern().len()));
        let pattern = |(side, marker): (Side, Marker)| {
            let word = matches!(&marker, Marker::Literal(text) if text.trim().ends_with(|c: char| c.is_alphanumeric()));
            match (side, brackets(declaration)) {
                // A word is a marker only if a call follows.
                (Side::Start, Some(opening)) if word => {
                    let sign = Sign { side, exact: true, lookahead: Lookahead::Brackets };
                    (sign, format!("(?:{})[ \\t\\r\\n]{{0,16}}(?:{opening})", marker.pattern()))
                }
                (Side::Start, None) => match signs_alone(declaration, &marker).or_else(|| header(declaration, &marker))
                {
                    Some(head) => (Sign { side, exact: true, lookahead: Lookahead::Head }, head),
                    None => (Sign { side, exact: true, lookahead: Lookahead::None }, marker.pattern()),
                },
                _ => (Sign { side, exact: true, lookahead: Lookahead::None }, marker.pattern()),
            }
        };
        Patterns(markers.into_iter().map(pattern).collect())
    }

    pub(super) fn all(&self) -> Vec<(Sign, String)> {
        self.0.clone()
    }

    pub(super) fn of(&self, sides: &[Side]) -> Vec<(Sign, String)> {
        self.0.iter().filter(|(sign, _)| sides.contains(&sign.side)).cloned().collect()
    }
}

/// A start marker of punctuation only, such as `>>>`, is a marker only if a name and a bracket follow: ordinary text
/// contains such punctuation.
fn signs_alone(declaration: &Declaration, marker: &Marker) -> Option<String> {
    let (Marker::Literal(text), Payload::Named(named)) = (marker, &declaration.payload) else { return None };
    let first = text.trim().bytes().next().filter(|byte| byte.is_ascii())?;
    let plain = named.head.forms.iter().all(|form| form.starts_with("{name}"));
    if text.contains(char::is_alphanumeric) || !plain {
        return None;
    }
    // A pattern that can restart inside itself needs many states.
    let name = format!(r#"[^\x00-\x20\x7f\{{\[\(\)"'=,;{}]+"#, escape(first));
    Some(format!(r"(?:{})[ ]?{name}[ \t\r\n]{{0,4}}(?:\{{|```|\z)", marker.pattern()))
}

/// A start marker that also begins text, such as the header of a turn, is a marker only if a name and a bracket follow.
fn header(declaration: &Declaration, marker: &Marker) -> Option<String> {
    let Payload::Named(named) = &declaration.payload else { return None };
    if declaration.start_of_calls().is_some() {
        return None;
    }
    let after = |form: &String| {
        let text = form.strip_prefix("{name}").filter(|text| !text.contains('{'))?.trim();
        Some(text.bytes().map(escape).collect::<String>()).filter(|text| !text.is_empty())
    };
    let after: Vec<String> = named.head.forms.iter().filter_map(after).collect();
    let after = if after.is_empty() { String::new() } else { format!("(?:{})?[ \\t\\r\\n]{{0,4}}", after.join("|")) };
    Some(format!(r"(?:{})[ \t\r\n]{{0,4}}{WORD}[ \t\r\n]{{0,4}}{after}(?:\{{|```)", marker.pattern()))
}

/// The first bracket of a payload, if it begins with one.
fn brackets(declaration: &Declaration) -> Option<&'static str> {
    matches!(declaration.payload, Payload::Json(_)).then_some(r"\{|```|\[[ \t\r\n]{0,8}\{")
}

/// A near miss of the start marker, if a call follows.
pub(super) fn near_start(declaration: &Declaration) -> Option<(Sign, String)> {
    let start = declaration.start_of_calls()?;
    let mut near = start.near_miss()?;
    let (lookahead, opening) = opening(declaration);
    // A letter is not enough to show a call: require a bracket.
    if lookahead == Lookahead::Brackets
        && let Some(slip) = start.slip()
    {
        near = format!("{near}|{slip}");
    }
    let sign = Sign { side: Side::Start, exact: false, lookahead };
    Some((sign, format!("(?:{near})[ \\t\\r\\n]{{0,16}}(?:{opening})")))
}

/// A start marker that is a tag with an attribute, whose equals sign or quotes are missing or others: `<invoke name"f">`.
/// Everything up to the end of the tag must follow, and the name be that of a known tool.
pub(super) fn near_attribute(declaration: &Declaration) -> Option<(Sign, String)> {
    let text = declaration.start_of_calls().filter(|start| matches!(start, Marker::Literal(_)))?.text()?.trim();
    let tag = text.strip_suffix('=').or_else(|| text.strip_suffix("=\""))?;
    let tag = tag.strip_suffix(" name").unwrap_or(tag);
    if !tag.contains('<') || tag.contains(char::is_whitespace) {
        return None;
    }
    let near = Marker::Literal(tag.to_owned()).near_miss()?;
    let attribute = "[ \\t]{0,3}(?:(?:name|tool|function)[ \\t]{0,3})?[=:]?[ \\t]{0,3}[\"'`]{0,2}";
    let sign = Sign { side: Side::Start, exact: false, lookahead: Lookahead::Attribute };
    Some((sign, format!("(?:{near}){attribute}{WORD}[\"'`]{{0,2}}[ \\t]{{0,3}}/?>")))
}

/// A start marker that ends with a namespace, without it or with another one: ` to=f`. The text after the name must
/// follow, and the name be that of a known tool.
pub(super) fn near_recipient(declaration: &Declaration) -> Option<(Sign, String)> {
    let (Some(Marker::Pattern { pattern, .. }), Payload::Named(named)) = (&declaration.start, &declaration.payload)
    else {
        return None;
    };
    let before = pattern.strip_suffix(r"functions\.").filter(|before| before.ends_with('='))?;
    let last = named.head.forms.iter().filter_map(|form| Some(form.rsplit_once('}')?.1.trim()));
    let last = last.min_by_key(|last| last.len()).filter(|last| !last.is_empty())?;
    let last: String = last.bytes().map(escape).collect();
    let header = r"(?:[ ]?<\|[a-z]{1,12}\|>[a-z]{0,12}|[ ][a-z]{1,12}){0,3}[ ]?";
    let sign = Sign { side: Side::Start, exact: false, lookahead: Lookahead::Recipient };
    Some((sign, format!(r"(?:{before})[ ]?{WORD}(?:{header}{last}|[ ]?\{{)")))
}

/// The markers in text with another suffix than the declared one, or without one.
pub(super) fn with_other_suffix(declaration: &Declaration) -> Vec<(Sign, String)> {
    let around = |around: &Option<Around>, start, end| {
        around.iter().flat_map(|around| [(start, around.start.clone()), (end, around.end.clone())]).collect::<Vec<_>>()
    };
    let mut markers = around(&declaration.section, Side::SectionStart, Side::SectionEnd);
    markers.extend(around(&declaration.reasoning, Side::ReasoningStart, Side::ReasoningEnd));
    markers.extend(declaration.start.iter().map(|start| (Side::Start, start.clone())));
    let sign = |side| Sign { side, exact: true, lookahead: Lookahead::None };
    markers.iter().filter_map(|(side, marker)| Some((sign(*side), suffix::any(declaration, marker)?))).collect()
}

/// A start marker in reasoning with another suffix.
pub(super) fn start_in_reasoning_with_other_suffix(declaration: &Declaration) -> Option<(Sign, String)> {
    let any = |marker: &Marker| suffix::any(declaration, marker);
    let section = declaration.section.as_ref().and_then(|section| any(&section.start)).unwrap_or_default();
    let start = any(declaration.start.as_ref()?)?;
    let sign = Sign { side: Side::Start, exact: true, lookahead: Lookahead::Letter };
    Some((sign, format!("(?:{section}[ \\t\\r\\n]{{0,16}})?{start}[ \\t\\r\\n]{{0,16}}[A-Za-z0-9_]")))
}

/// A near miss of the end marker. At that place only a marker is expected.
pub(super) fn near_end(declaration: &Declaration) -> Option<(Sign, String)> {
    let near = declaration.end.as_ref()?.near_or_slip()?;
    Some((Sign { side: Side::End, exact: false, lookahead: Lookahead::None }, format!("(?:{near})")))
}

/// A near miss of a section's marker; of the start only if a call follows.
pub(super) fn near_section(declaration: &Declaration, side: Side) -> Option<(Sign, String)> {
    let section = declaration.section.as_ref()?;
    let marker = if side == Side::SectionStart { &section.start } else { &section.end };
    let near = marker.near_or_slip()?;
    let sign = |lookahead| Sign { side, exact: false, lookahead };
    if side == Side::SectionEnd {
        return Some((sign(Lookahead::None), format!("(?:{near})")));
    }
    let start = literal_start(declaration)?;
    let first = declaration.start.as_ref()?.text()?.trim().bytes().next();
    let before = marker.text().unwrap_or_default().bytes().filter(|byte| Some(*byte) == first).count();
    Some((sign(Lookahead::Start(before as u8)), format!("(?:{near})[ \\t\\r\\n]{{0,16}}(?:{start})")))
}

/// A literal start marker, or a near miss of it.
pub(super) fn literal_start(declaration: &Declaration) -> Option<String> {
    let start = declaration.start.as_ref().filter(|start| matches!(start, Marker::Literal(_)))?;
    let near = start.near_miss().map(|near| format!("|{near}"));
    Some(start.pattern() + &near.unwrap_or_default())
}

/// The first byte that shows that a call follows.
fn opening(declaration: &Declaration) -> (Lookahead, &'static str) {
    match (brackets(declaration), &declaration.payload) {
        (Some(opening), _) => (Lookahead::Brackets, opening),
        (None, Payload::Python { .. }) => (Lookahead::Letter, r"\[?[ \t\r\n]{0,8}[A-Za-z0-9_]"),
        (None, _) => (Lookahead::Letter, "[A-Za-z0-9_]"),
    }
}

/// The name and following text that show that a call follows.
fn whole_head(declaration: &Declaration) -> Option<(Lookahead, String)> {
    let start = declaration.start.as_ref().filter(|start| matches!(start, Marker::Literal(_)))?.text()?.trim();
    if start.starts_with(|c: char| c.is_alphanumeric() || "_.:/-".contains(c)) {
        // A pattern that can restart inside itself needs many states.
        return None;
    }
    let escaped = |text: &str| text.trim().bytes().map(escape).collect::<String>();
    let end = declaration.end.as_ref().map(Marker::pattern);
    let (head, following) = match &declaration.payload {
        Payload::Json(_) => return None,
        Payload::Named(named) => (Some(&named.head), Some(r"\{".to_owned())),
        Payload::Tagged(tagged) => (Some(&tagged.head), Some(escaped(&tagged.key_start))),
        Payload::Python { .. } => (None, Some(r"\(".to_owned())),
    };
    let (mut before, mut after) = (vec![String::new()], vec![following, end]);
    for form in head.iter().flat_map(|head| &head.forms) {
        let (first, rest) = form.split_once('{').unwrap_or((form, ""));
        before.push(escaped(first));
        let text = rest.split_once('}').map_or("", |(_, rest)| rest.split('{').next().unwrap_or_default());
        after.push(Some(escaped(text)));
    }
    after.retain(|text| text.as_ref().is_some_and(|text| !text.is_empty()));
    let after: Vec<String> = after.into_iter().flatten().collect();
    let list = if head.is_none() { r"\[?[ \t\r\n]{0,8}" } else { "" };
    let head = format!("{list}(?:{})[ ]?{WORD}[ \\t\\r\\n]{{0,4}}(?:{})", before.join("|"), after.join("|"));
    Some((Lookahead::Head, head))
}

/// The start marker in reasoning: a model may think about the marker, so a call must follow.
pub(super) fn start_in_reasoning(declaration: &Declaration) -> Option<(Sign, String)> {
    let start = declaration.start.as_ref()?;
    let (lookahead, opening) = whole_head(declaration).unwrap_or_else(|| {
        let (lookahead, opening) = opening(declaration);
        (lookahead, opening.to_owned())
    });
    let section = declaration
        .section
        .as_ref()
        .map_or_else(String::new, |section| format!("(?:(?:{})[ \\t\\r\\n]{{0,16}})?", section.start.pattern()));
    let sign = Sign { side: Side::Start, exact: true, lookahead };
    Some((sign, format!("{section}(?:{})[ \\t\\r\\n]{{0,16}}(?:{opening})", start.pattern())))
}

/// Another call in a string whose quote is missing. A name right after a quote cannot be in a string of JSON; in the
/// strings of other notations, the name has to be a tool's.
pub(super) fn call_in_string(declaration: &Declaration) -> Vec<(Sign, String)> {
    let blank = r"[ \t\r\n]{0,8}";
    let word = "[A-Za-z0-9_.:/-]{1,64}";
    let escaped = |text: &str| text.trim().bytes().map(escape).collect::<String>();
    let start = declaration.start.as_ref().filter(|start| matches!(start, Marker::Literal(_))).map(Marker::pattern);
    let mut patterns = Vec::new();
    let following = match &declaration.payload {
        Payload::Json(keys) => {
            let name = escaped(&keys.name);
            let member = match keys.keyed {
                true => format!(r#""{word}"{blank}:{blank}\{{"#),
                false => format!(r#""(?:{name}|name)"{blank}:"#),
            };
            let side = if declaration.start.is_some() { Side::Bare } else { Side::Start };
            let sign = Sign { side, exact: true, lookahead: Lookahead::Object };
            patterns.push((sign, format!(r"[}}\]][}}\] \t\r\n,;]*\{{{blank}{member}")));
            format!(r"(?:\[{blank})?\{{{blank}{member}")
        }
        Payload::Named(named) => {
            let part = |text: &str| match text.split_once('}') {
                Some((_, rest)) => format!("{word}{blank}{}", escaped(rest)),
                None => escaped(text),
            };
            let form = |form: &String| form.split('{').map(part).collect::<Vec<_>>().join(blank);
            let heads: Vec<String> = named.head.forms.iter().map(form).collect();
            let first = if named.quote.is_some() { "" } else { r#"[ \t\r\n]{0,8}"[A-Za-z_]"# };
            format!(r"(?:{}){blank}\{{{first}", heads.join("|"))
        }
        Payload::Python { .. } => format!(r"(?:\[{blank})?{word}\("),
        Payload::Tagged(_) => return patterns,
    };
    if let Some(start) = start.filter(|start| !start.is_empty()) {
        let sign = Sign { side: Side::Start, exact: true, lookahead: Lookahead::Head };
        patterns.push((sign, format!("(?:{start}){blank}{following}")));
    }
    patterns
}

/// A call in a format without start marker: an object whose first keys are those of a call.
pub(super) fn bare_call(declaration: &Declaration) -> Option<(Sign, String)> {
    let sign = Sign { side: Side::Bare, exact: true, lookahead: Lookahead::All };
    let keys = match (&declaration.start, &declaration.payload) {
        (None, Payload::Json(keys)) => keys,
        // A name alone looks like any word, so only a list of calls can be distinguished from text.
        (None, Payload::Python { list: true, .. }) => {
            return Some((sign, r"\[[ \t\r\n]*[A-Za-z_][A-Za-z0-9_.:/$-]*[ \t]*\(".to_owned()));
        }
        _ => return None,
    };
    let text = |text: &str| text.bytes().map(escape).collect::<String>();
    let (name, arguments) = (text(&keys.name), text(&keys.arguments));
    // Unbounded, because bounds need a state for each number of bytes in each place; the scanner bounds the whole.
    // Names have no brackets, because a pattern that can restart inside itself needs many states.
    let blank = r"[ \t\r\n]*";
    let string = r#""[^"\\{}\[\]\r\n]+""#;
    let kind = format!(r#"(?:"(?:type|id)"{blank}:{blank}{string}{blank},{blank})?"#);
    let wrapper = format!(r#"(?:"function"{blank}:{blank}\{{{blank})?"#);
    let next = format!(r#"(?:\}}|,{blank}"(?:{arguments}|arguments|parameters)"{blank}:)"#);
    let keyed = if keys.keyed { format!(r"{string}{blank}:{blank}(?:\{{|null)|") } else { String::new() };
    let call = format!(r#"{kind}{wrapper}"(?:{name}|name)"{blank}:{blank}{string}{blank}{next}"#);
    Some((sign, format!(r"(?:\[{blank})?\{{{blank}(?:{keyed}{call})")))
}

impl Marker {
    /// The marker as a regular expression.
    fn pattern(&self) -> String {
        match self {
            Marker::Literal(text) => text.trim().bytes().map(escape).collect(),
            Marker::Pattern { pattern, .. } => pattern.clone(),
        }
    }

    /// The longest text that counts as this marker, including near misses.
    pub(crate) fn longest(&self) -> Result<usize> {
        match self {
            Marker::Literal(text) => {
                let length = |parts: &[Part]| parts.iter().map(|part| part.longest).sum::<usize>();
                let near = self.parts(0, true).map_or(0, |parts| length(&parts));
                // A slip adds a letter at most.
                let slip = self.parts(0, false).filter(|parts| self.slipped(parts).is_some());
                let slip = slip.map_or(0, |parts| length(&parts) + 1);
                Ok(near.max(slip).max(text.trim().len()))
            }
            Marker::Pattern { pattern, .. } => longest(pattern),
        }
    }

    /// Misspellings of a literal marker: different case, spaces, bars or number of a repeated character, a missing
    /// separator. `None` if there is nothing to vary.
    pub(super) fn near_miss(&self) -> Option<String> {
        let parts = self.parts(0, true)?;
        Some(format!("(?i-u:{})", parts.iter().map(|part| part.pattern.as_str()).collect::<String>()))
    }

    /// Like `near_miss`, with one letter missing, doubled, changed, added, or swapped with the next one. `None` if the
    /// marker has too few or too many letters, or begins with one: a pattern that can restart inside itself needs many
    /// states.
    fn slip(&self) -> Option<String> {
        self.slipped(&self.parts(0, false)?)
    }

    /// Like `slip` with its last character, or else like [`Marker::near_miss`]. (If the last character were optional,
    /// the match would end before an extra letter.)
    fn near_or_slip(&self) -> Option<String> {
        let near = self.near_miss()?;
        let slip = self.parts(1, false).and_then(|parts| self.slipped(&parts));
        Some(slip.map_or(near.clone(), |slip| format!("{slip}|{near}")))
    }

    fn slipped(&self, parts: &[Part]) -> Option<String> {
        if parts[0].letter || !LETTERS.contains(&parts.iter().filter(|part| part.letter).count()) {
            return None;
        }
        let letter = |index: usize| parts.get(index).is_some_and(|part| part.letter);
        // The beginning of the marker, up to some part, with a slip. What follows a slip is written once, for all slips before
        // it: an automaton has a state for each place in each copy, but none for copies of the same beginning.
        let (mut as_is, mut slipped) = (String::new(), String::new());
        let mut as_is_before_last = String::new();
        for (index, Part { pattern, .. }) in parts.iter().enumerate() {
            let mut variants = Vec::new();
            // The first byte is fixed, so that few bytes of a text have to be checked.
            if letter(index) && index > 0 {
                let added = if letter(index + 1) { String::new() } else { format!("|{pattern}[a-z]") };
                variants.push(format!("{as_is}(?:[a-z]||[a-z]{pattern}{added})"));
            }
            if letter(index) && index > 1 && letter(index - 1) {
                variants.push(format!("{as_is_before_last}{pattern}{}", parts[index - 1].pattern));
            }
            if !slipped.is_empty() {
                variants.push(format!("{slipped}{pattern}"));
            }
            slipped = if variants.len() > 1 { format!("(?:{})", variants.join("|")) } else { variants.concat() };
            as_is_before_last.clone_from(&as_is);
            as_is.push_str(pattern);
        }
        Some(format!("(?i-u:{slipped})"))
    }

    /// The marker in characters or runs, with the usual variations; the last run has at least `least_last` characters.
    /// Bars vary only if they are `loose`: a slip repeats its beginning many times.
    fn parts(&self, least_last: usize, loose: bool) -> Option<Vec<Part>> {
        let Marker::Literal(text) = self else { return None };
        let text = text.trim();
        if !text.bytes().any(|b| b.is_ascii_alphabetic()) {
            return None;
        }
        let characters: Vec<(usize, char)> = text.char_indices().collect();
        let runs = characters.chunk_by(|(_, a), (_, b)| a == b && !a.is_ascii_alphanumeric());
        let mut starts: Vec<usize> = runs.map(|run| run[0].0).collect();
        starts.push(text.len());
        let runs: Vec<&[u8]> = starts.windows(2).map(|ends| &text.as_bytes()[ends[0]..ends[1]]).collect();
        let repeated = |run: &[u8]| run.len() > 1 && run[0].is_ascii_punctuation();
        let blank = |run: &[u8]| run[0].is_ascii_whitespace();
        let part = |index: usize| {
            let run = runs[index];
            let last = index + 1 == runs.len();
            if blank(run) {
                return ("[ \\t]{0,3}".to_owned(), 3);
            }
            if loose && matches!(run, b"_" | b"-" | LOW) {
                return (r"(?:[_ -]|\xe2\x96\x81)?".to_owned(), 3);
            }
            if matches!(run, b"_" | b"-") {
                return ("[_ -]?".to_owned(), 1);
            }
            if loose && index > 0 && str::from_utf8(run).is_ok_and(|run| run.starts_with(BARS)) {
                let most = 2 * str::from_utf8(run).map_or(1, |run| run.chars().count());
                return (format!("[ ]?{BAR}{{0,{most}}}[ ]?"), 3 * most + 2);
            }
            if !repeated(run) {
                return (run.iter().map(|&b| escape(b)).collect(), run.len());
            }
            let before = if index > 0 && !blank(runs[index - 1]) { "[ \\t]{0,3}" } else { "" };
            let after = if !last && !blank(runs[index + 1]) { "[ \\t]{0,3}" } else { "" };
            let least = if last { least_last } else { 1 };
            let pattern = format!("{before}{}{{{least},{}}}{after}", escape(run[0]), 2 * run.len());
            let around = [before, after].iter().filter(|text| !text.is_empty()).count();
            (pattern, 2 * run.len() + 3 * around)
        };
        let letter = |index: usize| runs[index][0].is_ascii_alphabetic();
        let part = |index: usize| {
            let (pattern, longest) = part(index);
            Part { pattern, letter: letter(index), longest }
        };
        Some((0..runs.len()).map(part).collect())
    }
}

/// Maximum length of a match of a pattern.
fn longest(pattern: &str) -> Result<usize> {
    let hir = syntax::parse_with(pattern, &syntax_config()).map_err(|e| {
        let reason = e.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Error::new(ErrorKind::Format, format!("a marker is not a valid regular expression: {reason}")).caused_by(e)
    })?;
    hir.properties()
        .maximum_len()
        .ok_or_else(|| Error::new(ErrorKind::Format, "a marker can grow without end; write `[ ]{0,3}` for `[ ]*`"))
}

/// A part of a marker.
struct Part {
    pattern: String,
    letter: bool,
    /// Maximum length of what the pattern matches.
    longest: usize,
}

/// One byte as a regular expression, valid in Unicode mode too.
pub(in crate::parse) fn escape(byte: u8) -> String {
    match byte {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b' ' | b'_' => char::from(byte).to_string(),
        0x80.. => format!("(?-u:\\x{byte:02x})"),
        _ => format!("\\x{byte:02x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    /// What is added up is what the regular expressions say.
    #[test]
    fn the_longest_misspelling_of_every_marker_is_known() {
        let mut seen = 0;
        for builtin in Format::builtins() {
            let format = builtin.format();
            let around = [&format.section, &format.reasoning].into_iter().flatten().flat_map(|a| [&a.start, &a.end]);
            for marker in format.start.iter().chain(&format.end).chain(around).chain(&format.markup) {
                let patterns = [Some(marker.pattern()), marker.near_miss(), marker.slip()];
                let by_pattern = patterns.iter().flatten().map(|pattern| longest(pattern).unwrap()).max();
                assert_eq!(Some(marker.longest().unwrap()), by_pattern, "{marker:?}");
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen}");
    }
}
