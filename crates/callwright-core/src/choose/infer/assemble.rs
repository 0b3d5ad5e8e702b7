//! Assembles a declaration from rendered text.

use super::header;
use super::reading::{Kind, Reading, read};
use super::reasoning::{self, Reasoning, is_word};
use super::renders::{FIRST, INNER_KEY, NUMBER, Renders, SECOND, Sentinel, TEXT, THOUGHT};
use super::texts::{Repeated, common_prefix, common_suffix, repeated, tags, whole_tags};
use super::{Ends, Inference};
use crate::format::{
    Around, Declaration, Format, Head, History, JsonCall, Marker, NamedCall, Payload, TaggedCall, history, typed,
};
use crate::message::Arguments;
use crate::parse::{ParsedCall, Parser, ParserOptions};
use crate::template::ChatTemplate;
use crate::tool::{Tool, Tools};
use serde_json::{Value, json};
use std::sync::Arc;

pub fn infer(template: &ChatTemplate) -> Inference {
    let renders = Renders::new(template);
    let Some(answer) = answer(&renders) else {
        let notes = vec!["it cannot be rendered with a question and tools, or leaves them out".to_owned()];
        let headers = headers_without_tools(&renders, None);
        return Inference { format: None, reasoning: None, parallel: false, notes, turns: false, headers };
    };
    let (head, end) = answer.split_once(TEXT).unwrap_or_default();
    let turn = Turn { prompt: renders.prompt(&[]).unwrap_or_default(), head, end: turn_end(&renders, end) };
    let (reasoning, around) = reasoning_of(&renders, &turn.prompt, head);
    let headers = headers_around(&renders, head, around.as_ref());
    let mut inference =
        Inference { format: None, reasoning: around, parallel: false, notes: Vec::new(), turns: false, headers };
    let found = declaration(&renders, &turn, reasoning.as_ref(), &mut inference);
    let Some(Found { declaration, sample, in_object }) = found else { return inference };
    let declaration = Declaration { reasoning: inference.reasoning.clone(), ..declaration };
    if says_a_sentinel(&declaration) {
        inference.notes.push("it writes parts of a call in a place that no payload kind supports".to_owned());
        return inference;
    }
    let format = Format::unchecked(declaration).with_headers(Arc::clone(&inference.headers));
    // Calls in one object are read as a call in another form, which only that of a known tool is.
    let tools = in_object.then(|| Tools::new([Tool::new(FIRST.name, "", None)]).ok().map(Arc::new));
    let read = read_back(&format, &sample, tools.flatten());
    let call = FIRST.call();
    let names = |arguments: &Arguments| arguments.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>());
    let is_call = read.is_some_and(|read| {
        // Only the tool's schema can give the type of an argument.
        let as_written = writes(&format, &sample) && names(&read.arguments) == names(&call.arguments);
        read.name == call.name && (as_written || read.arguments == call.arguments)
    });
    match is_call {
        true => inference.format = Some(format),
        false => inference.notes.push("the calls that it writes are not read back unchanged".to_owned()),
    }
    inference
}

/// A value with both quotes, which every notation with quotes escapes.
const QUOTES: &str = "xqa\"b'cqx";

/// The headers alone, which cost a few renderings.
pub fn headers(template: &ChatTemplate) -> Arc<[String]> {
    let renders = Renders::new(template);
    let Some(answer) = answer(&renders) else { return headers_without_tools(&renders, None) };
    let head = answer.split_once(TEXT).map_or("", |(head, _)| head);
    let prompt = renders.prompt(&[]).unwrap_or_default();
    let (_, around) = reasoning_of(&renders, &prompt, head);
    headers_around(&renders, head, around.as_ref())
}

/// See [`super::turn`].
pub fn turn(template: &ChatTemplate) -> Ends {
    let mut renders = Renders::new(template);
    if answer(&renders).is_none() {
        renders = renders.without_tools();
    }
    let (prompt, unasked) = (renders.prompt(&[]).unwrap_or_default(), renders.unasked().unwrap_or_default());
    let tail = &prompt[common_prefix(&prompt, &unasked).len()..];
    // Some templates write the header after every conversation.
    let prompt = if tail.is_empty() { prompt } else { tail.to_owned() };
    let answer = renders.answer(TEXT).unwrap_or_default();
    let (_, end) = answer.split_once(TEXT).unwrap_or_default();
    let last_tag =
        |text: &str| tags(text).pop().filter(|tag| tag.end == text.trim_end().len()).map(|tag| text[tag].to_owned());
    Ends { prompt, answer: turn_end(&renders, end), calls: renders.typed().as_deref().and_then(last_tag) }
}

/// Returns what the template writes after the user's message: an answer, or a prompt if it writes none.
fn answer(renders: &Renders) -> Option<String> {
    renders.answer(TEXT).or_else(|| renders.prompt(&[]))
}

fn reasoning_of(renders: &Renders, prompt: &str, head: &str) -> (Option<Reasoning>, Option<Around>) {
    let reasoning = reasoning::read(renders, prompt, head);
    let around = reasoning.as_ref().map(|found| Around { start: literal(&found.start), end: literal(&found.end) });
    (reasoning, around)
}

fn headers_around(renders: &Renders, head: &str, reasoning: Option<&Around>) -> Arc<[String]> {
    let headers: Arc<[String]> = header::read(renders, head, reasoning).into();
    if headers.is_empty() { headers_without_tools(renders, reasoning) } else { headers }
}

/// The headers of a template that fails if it is given tools.
fn headers_without_tools(renders: &Renders, reasoning: Option<&Around>) -> Arc<[String]> {
    let renders = renders.without_tools();
    let answer = renders.answer(TEXT).or_else(|| renders.prompt(&[])).unwrap_or_default();
    let head = answer.split_once(TEXT).map_or("", |(head, _)| head);
    header::read(&renders, head, reasoning).into()
}

/// Returns whether the format writes the answer as the template does, ignoring white space and quotes.
fn writes(format: &Format, answer: &str) -> bool {
    let plain = |text: &str| text.replace('\'', "\"").split_whitespace().collect::<String>();
    let head = match &format.payload {
        Payload::Named(NamedCall { head, .. }) | Payload::Tagged(TaggedCall { head, .. }) => head.forms.first(),
        Payload::Json(_) | Payload::Python { .. } => None,
    };
    // A name inside an object is written, but not read.
    let in_object = head.and_then(|head| head.split("{name}").next()).is_some_and(|before| before.contains('"'));
    let (written, answer) = (plain(&format.write_calls(&[FIRST.call()])), plain(answer));
    // A template may omit the end of a section, which the parser accepts.
    let section_end = format.section.as_ref().and_then(|section| section.end.text()).map(plain).unwrap_or_default();
    !in_object && (written == answer || written.strip_suffix(section_end.as_str()) == Some(&answer))
}

/// Returns whether part of a call was mistaken for a text of the format.
fn says_a_sentinel(declaration: &Declaration) -> bool {
    let block = declaration.to_toml();
    let parts = [&FIRST, &SECOND].into_iter().flat_map(|call| {
        let arguments = call.arguments.iter().flat_map(|(key, value)| [*key, *value]);
        arguments.chain([call.name, call.id])
    });
    parts.chain([TEXT, THOUGHT]).any(|part| block.contains(part))
}

/// What a template's calls were found to be.
struct Found {
    declaration: Declaration,
    /// An answer with a call.
    sample: String,
    /// Whether the list of calls is the only member of an object.
    in_object: bool,
}

/// The answer parsed as a call, if it contains exactly one.
fn read_back(format: &Format, answer: &str, tools: Option<Arc<Tools>>) -> Option<ParsedCall> {
    let mut parser = Parser::new(format, tools, ParserOptions::default()).ok()?;
    parser.push(answer.as_bytes(), &mut |_| ());
    let mut calls = parser.finish(&mut |_| ()).calls;
    calls.pop().filter(|_| calls.is_empty())
}

/// An assistant's turn.
struct Turn<'a> {
    /// The end of a prompt, after the user's message.
    prompt: String,
    /// The text between the user's message and an answer.
    head: &'a str,
    /// The text that ends the turn.
    end: String,
}

/// The text that ends a turn. Some templates write it only if another turn follows.
fn turn_end(renders: &Renders, end: &str) -> String {
    let past = || {
        let text = renders.past_answer(TEXT)?;
        let rest = text.split_once(TEXT)?.1;
        Some(rest[..tags(rest).first()?.end].to_owned())
    };
    if end.trim().is_empty() { past().unwrap_or_else(|| end.to_owned()) } else { end.to_owned() }
}

/// The text around the calls of an answer.
struct Frame {
    parts: Repeated,
    /// Whether the calls are in a bracketed list.
    list: bool,
    /// Whether that list is the only member of an object.
    in_object: bool,
    /// The text between content and the first call, apart from the call's start.
    after_text: Option<String>,
}

/// The declaration, without reasoning, and an answer as the template writes it.
fn declaration(
    renders: &Renders,
    turn: &Turn,
    reasoning: Option<&Reasoning>,
    inference: &mut Inference,
) -> Option<Found> {
    let notes = &mut inference.notes;
    let Some(one) = renders.calls("", &[&FIRST]) else {
        notes.push("it writes no tool calls".to_owned());
        return None;
    };
    let Some(first) = read(&one, 0, &FIRST) else {
        notes.push("its calls are written in a way that no payload kind describes".to_owned());
        return None;
    };
    let tagged = tagged(renders, &one, &first, notes);
    let last = |text: &str, reading: &Reading, call: &Sentinel| match &tagged {
        Some(tagged) => reading.unit.end + filled_end(tagged, &text[reading.unit.end..], call),
        None => reading.unit.end,
    };
    let after_text = renders.calls(TEXT, &[&FIRST]).and_then(|text| {
        let unit = read(&text, 0, &FIRST)?.unit;
        let at = text[..unit.start].find(TEXT)? + TEXT.len();
        Some(text[at..unit.start].to_owned())
    });
    let before = lead(&one[..first.unit.start], after_text.as_deref(), turn, reasoning);
    let two = renders.calls("", &[&FIRST, &SECOND]);
    let both = two.as_ref().and_then(|two| {
        let first = read(two, 0, &FIRST)?;
        let first_end = last(two, &first, &FIRST);
        let second = read(two, first_end, &SECOND)?;
        let between = &two[first_end..second.unit.start];
        let after = without_end(&two[last(two, &second, &SECOND)..], &turn.end);
        Some((first, second, between, after))
    });
    inference.parallel = both.is_some();
    let between = both.as_ref().map(|(_, _, between, _)| *between);
    let after = both.as_ref().map(|(_, _, _, after)| *after);
    let after = after.unwrap_or_else(|| without_end(&one[last(&one, &first, &FIRST)..], &turn.end));
    let counted = between.and_then(|between| counted(before, between)).filter(|_| first.kind.has_head());
    let (before_first, between) = match &counted {
        Some((before, between)) => (before.as_str(), Some(between.as_str())),
        None => (before, between),
    };
    let frame = frame(before_first, between, after, after_text.as_deref(), &first.kind);
    if first.python_literals {
        notes.push("it writes arguments as Python prints them, not as JSON".to_owned());
    }
    if first.kind.arguments_are_text() {
        notes.push("it writes the arguments of calls as JSON in a string".to_owned());
    }
    if frame.in_object {
        notes.push("it writes the list of calls as the member of an object".to_owned());
    }
    if matches!(first.kind, Kind::Json { wrapped: true, .. }) {
        notes.push("it wraps each call in one more object".to_owned());
    }

    let mut markup = markup(turn, reasoning);
    let heads = both.as_ref().map(|(first, second, ..)| (&first.kind, &second.kind));
    let mut declaration = declared(&frame, &first.kind, heads, tagged.as_ref(), &markup, reasoning, notes)?;
    if declaration.start.is_none()
        && !matches!(declaration.payload, Payload::Json(_) | Payload::Python { list: true, .. })
    {
        notes.push("its calls have no start marker, and cannot be distinguished from text".to_owned());
        return None;
    }
    let has_marker = declaration.start.is_some();
    if let Payload::Python { raw, .. } = &mut declaration.payload {
        let text = renders.with_value(json!(QUOTES)).unwrap_or_default();
        // A model of calls with a marker was trained on them, and escapes what the template does not.
        *raw = text.contains(&format!("={QUOTES}")) || text.contains(QUOTES) && !has_marker;
        let note = "it writes the values of arguments as they are, without quotes or without escapes";
        inference.notes.extend(raw.then(|| note.to_owned()));
    }
    let turns = frame.parts.between.trim();
    if declaration.section.is_none() && turns.contains(turn.prompt.trim()) && !turn.prompt.trim().is_empty() {
        inference.turns = true;
        markup.push(turns.to_owned());
        markup.extend(tags(turns).first().map(|tag| turns[tag.clone()].to_owned()));
    }
    let outer = frame.parts.outer_start.trim();
    if declaration.section.is_none() && !outer.is_empty() {
        markup.push(outer.to_owned());
    }
    if declaration.start.is_none() && declaration.section.is_none() {
        markup.extend(unused_tokens(renders.source(), &[&one, &turn.prompt, turn.head, &turn.end]));
    }
    declaration.markup = markup.iter().map(|text| literal(text)).collect();
    opened(&mut declaration, turn);
    let end = last(&one, &first, &FIRST);
    let sample = &one[first.unit.start - before.len()..end];
    let sample = format!("{sample}{}", without_end(&one[end..], &turn.end));
    Some(Found { declaration, sample, in_object: frame.in_object })
}

/// If prompts end with the beginning of a call, it is the header of the assistant's turn as well.
fn opened(declaration: &mut Declaration, turn: &Turn) {
    let Payload::Named(named) = &mut declaration.payload else { return };
    let start = declaration.start.as_ref().and_then(Marker::text).unwrap_or_default();
    let before_name = |form: &String| form.find('{').map(|at| form[..at].to_owned());
    let Some(head) = named.head.forms.first().and_then(before_name) else { return };
    let begins = format!("{start}{head}").trim_start().to_owned();
    let prompt = turn.prompt.trim_end();
    if begins.trim().is_empty() || !prompt.ends_with(begins.trim_end()) {
        return;
    }
    named.head.forms.retain(|form| form.starts_with(&head));
    named.head.forms.iter_mut().for_each(|form| drop(form.drain(..head.len())));
    let written = turn.head.strip_prefix(prompt).unwrap_or_default();
    let text = format!("{}{}", begins.trim_end(), written.trim_end());
    // Punctuation alone is text unless a call follows.
    let header = begins.contains(char::is_alphanumeric).then(|| literal(&begins));
    let text = (!written.trim().is_empty()).then(|| literal(&text));
    declaration.markup.extend(text.into_iter().chain(header.clone()));
    declaration.start = header.or(declaration.start.take());
    declaration.opened = Some(begins);
}

/// The declaration of calls of a kind, between the markers of a frame. `kinds` are those of the two calls of an answer.
fn declared(
    frame: &Frame,
    kind: &Kind,
    kinds: Option<(&Kind, &Kind)>,
    tagged: Option<&TaggedCall>,
    markup: &[String],
    reasoning: Option<&Reasoning>,
    notes: &mut Vec<String>,
) -> Option<Declaration> {
    let thinking = reasoning.map_or("", |found| found.start.as_str());
    let (start, end) = (&frame.parts.start, &frame.parts.end);
    Some(match kind {
        Kind::Json { name, arguments, id, .. } => {
            let (name, arguments, id) = (name.clone(), arguments.clone(), id.clone());
            framed(frame, Payload::Json(JsonCall { name, arguments, id, array: frame.list, keyed: false }), start, end)
        }
        Kind::Keyed => {
            let keys = JsonCall { array: frame.list, keyed: true, ..JsonCall::default() };
            framed(frame, Payload::Json(keys), start, end)
        }
        Kind::Python => framed(frame, Payload::Python { list: frame.list, raw: false }, start, end),
        Kind::Named { head, quote, bare_keys, .. } => {
            let cut = split_start(&frame.parts, &[thinking, &markup.join("")]);
            let tag = tags(end).first().map_or(end.len(), |tag| tag.start);
            // White space alone belongs to the marker.
            let tail = if end[..tag].trim().is_empty() { 0 } else { tag };
            let payload = Payload::Named(NamedCall {
                head: declared_head(&start[cut..], head, kinds, notes),
                tail: end[..tail].to_owned(),
                quote: quote.clone(),
                bare_keys: *bare_keys,
            });
            framed(frame, payload, &start[..cut], &end[tail..])
        }
        Kind::Tagged { .. } => {
            let mut call = tagged.cloned()?;
            let cut = split_start(&frame.parts, &[&call.key_start, thinking]);
            call.head = declared_head(&start[cut..], &call.head.forms[0], kinds, notes);
            wrapped(framed(frame, Payload::Tagged(call), &start[..cut], end))
        }
    })
}

/// The special tokens that the source writes in cases not rendered here, such as built-in tools. If calls have no
/// marker, a model with one in its vocabulary may use it.
fn unused_tokens(source: &str, written: &[&str]) -> Vec<String> {
    let mut unused: Vec<String> = Vec::new();
    let plain = |c: char| c.is_alphanumeric() || c == '_';
    for tag in tags(source) {
        let token = &source[tag];
        let inner = token.strip_prefix("<|").and_then(|token| token.strip_suffix("|>"));
        let new = !written.iter().any(|text| text.contains(token)) && !unused.iter().any(|known| known == token);
        if new && inner.is_some_and(|inner| !inner.is_empty() && inner.chars().all(plain)) {
            unused.push(token.to_owned());
        }
    }
    unused
}

/// The texts before the first and the second call with `{index}` or `{number}` in place of their number, if they have one
/// after the first tag.
fn counted(before: &str, between: &str) -> Option<(String, String)> {
    let same = common_suffix(before, between);
    let number = |text: &str| {
        let rest = &text[..text.len() - same.len()];
        let digits = rest.len() - rest.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        rest[rest.len() - digits..].parse::<u32>().ok().map(|number| (number, rest.len() - digits))
    };
    let ((first, at), (second, at_second)) = (number(before)?, number(between)?);
    let part = match (first, second) {
        (0, 1) => "{index}",
        (1, 2) => "{number}",
        _ => return None,
    };
    let marker = tags(before).first().map_or(before.len(), |tag| tag.end);
    let with = |text: &str, at: usize| format!("{}{part}{same}", &text[..at]);
    (marker <= at).then(|| (with(before, at), with(between, at_second)))
}

/// Returns what the model writes before its first call if it writes no text.
fn lead<'a>(before: &'a str, after_text: Option<&str>, turn: &Turn, reasoning: Option<&Reasoning>) -> &'a str {
    let (prompt, answer) = (turn.prompt.as_str(), turn.head);
    let head = match prompt {
        prompt if !prompt.trim().is_empty() && before.starts_with(prompt) => prompt.len(),
        _ => whole_tags(common_prefix(before, answer)).len(),
    };
    let lead = &before[head..];
    let lead = match after_text.map(|after_text| (common_suffix(before, after_text), after_text)) {
        // After text there is no turn header and no reasoning, but white space may belong to the header.
        Some((same, text)) if same.trim_start() == text.trim_start() => {
            let head = head.max(whole_tags(common_prefix(before, answer)).len());
            let length = same.len().min(before.len() - head).max(same.trim_start().len());
            &same[same.len() - length..]
        }
        _ => reasoning.map_or(lead, |reasoning| reasoning.strip(lead)),
    };
    // A call in a turn of its own comes after the header that prompts end with.
    let header = prompt.trim();
    let own =
        lead.rfind(header).filter(|_| header.contains(char::is_alphanumeric)).map(|at| &lead[at + header.len()..]);
    let lead = own.filter(|own| !own.trim().is_empty()).unwrap_or(lead);
    if lead.trim().is_empty() { "" } else { lead }
}

/// Returns what follows the last call, without the end of the turn.
fn without_end<'a>(after: &'a str, end: &str) -> &'a str {
    let mark = end.trim();
    if mark.is_empty() {
        return after.strip_suffix(end).unwrap_or(after);
    }
    let Some(at) = after.find(mark) else {
        // Alternative ends of a turn share at least the last tag, which ends generation.
        let last = tags(mark).pop().map_or("", |tag| &mark[tag]);
        return after.trim_end().strip_suffix(last).filter(|_| !last.is_empty()).unwrap_or(after);
    };
    let space = &end[..end.len() - end.trim_start().len()];
    after[..at].strip_suffix(space).unwrap_or(&after[..at])
}

fn frame(before: &str, between: Option<&str>, after: &str, after_text: Option<&str>, kind: &Kind) -> Frame {
    let in_list = matches!(kind, Kind::Json { .. } | Kind::Keyed | Kind::Python);
    let comma = between.is_none_or(|between| between.trim() == ",");
    let bracket = before.trim_end().strip_suffix('[').zip(after.trim_start().strip_prefix(']'));
    if let Some((before, after)) = bracket.filter(|_| in_list && comma) {
        // The parser knows such objects, whose brackets are no markers.
        let in_object = before.trim().strip_prefix("{\"").is_some_and(|key| key.trim_end().ends_with("\":"));
        let in_object = in_object && after.trim() == "}";
        let (before, after) = if in_object { ("", "") } else { (before, after) };
        let parts = Repeated { start: before.to_owned(), end: after.to_owned(), ..Repeated::default() };
        return Frame { parts, list: true, in_object, after_text: after_text.map(str::to_owned) };
    }
    let mut parts = match between {
        Some(between) => repeated(before, between, after),
        None => {
            let between = after_text.and_then(|text| text.strip_suffix(before)).unwrap_or("\n");
            let (start, end) = (before.to_owned(), after.to_owned());
            Repeated { start, end, between: between.to_owned(), ..Repeated::default() }
        }
    };
    if *kind == Kind::Python && parts.start.trim().is_empty() {
        // One pair of markers around all calls.
        parts = Repeated { start: parts.outer_start, end: parts.outer_end, ..Repeated::default() };
    } else if parts.outer_start.trim().is_empty() {
        // A text that only ends is the end of the turn.
        parts.outer_start.clear();
        parts.outer_end.clear();
    }
    Frame { parts, list: false, in_object: false, after_text: after_text.map(str::to_owned) }
}

fn literal(text: &str) -> Marker {
    Marker::Literal(text.to_owned())
}

/// A declaration with the markers that are present.
fn framed(frame: &Frame, payload: Payload, start: &str, end: &str) -> Declaration {
    let marker = |text: &str| (!text.trim().is_empty()).then(|| literal(text));
    let (outer_start, outer_end) = (&frame.parts.outer_start, &frame.parts.outer_end);
    let section = !outer_start.trim().is_empty() && !outer_end.trim().is_empty();
    let default = History::default();
    let between = match &frame.after_text {
        _ if !frame.list => Some(frame.parts.between.as_str()),
        Some(text) => text.trim_end().strip_suffix(start.trim()).and_then(|text| text.strip_suffix('[')),
        // It is not known what comes between text and a list without a marker.
        None => start.trim().is_empty().then_some(default.between.as_str()),
    };
    Declaration {
        name: "inferred".to_owned(),
        section: section.then(|| Around { start: literal(outer_start), end: literal(outer_end) }),
        start: marker(start),
        end: marker(end),
        payload,
        history: History { between: between.unwrap_or_default().to_owned(), ..default.clone() },
        ..Declaration::default()
    }
}

/// Where the call's start marker ends: at its first tag, if nothing else begins with that one. The rest belongs to the
/// head, so that a call with a damaged head is still recognised.
fn split_start(parts: &Repeated, others: &[&str]) -> usize {
    let start = &parts.start;
    let Some(first) = tags(start).into_iter().next() else { return start.len() };
    let rest = &start[first.end..];
    let end = first.end + rest.len() - rest.trim_start().len();
    let marker = start[..first.end].trim_start();
    let unclosed = whole_tags(start).len() < start.len();
    let outer = [parts.outer_start.as_str(), &parts.outer_end, &parts.end];
    let taken = outer.iter().chain(others).any(|other| other.trim_start().starts_with(marker));
    if taken || unclosed { start.len() } else { end }
}

/// A marker of two tags around a call of two tags is a section written for each call. The inner tags are the call's,
/// and models omit the outer ones.
fn wrapped(mut declaration: Declaration) -> Declaration {
    let (Some(Marker::Literal(start)), Some(Marker::Literal(end)), None) =
        (&declaration.start, &declaration.end, &declaration.section)
    else {
        return declaration;
    };
    let (outer, closing) = (tags(start), tags(end));
    let ([opening], [.., inner, _]) = (&outer[..], &closing[..]) else { return declaration };
    let inner_start = start.len() - start[opening.end..].trim_start().len();
    if inner_start == start.len() {
        return declaration;
    }
    let (outer_start, start) = start.split_at(inner_start);
    let (end, outer_end) = end.split_at(inner.end);
    let between = format!("{outer_end}{}{outer_start}", declaration.history.between);
    let section = Around { start: literal(outer_start), end: literal(outer_end) };
    let (start, end) = (literal(start), literal(end));
    declaration.section = Some(section);
    declaration.start = Some(start);
    declaration.end = Some(end);
    declaration.history.between = between;
    declaration
}

/// The parts of a call whose arguments are between tags.
fn tagged(renders: &Renders, text: &str, reading: &Reading, notes: &mut Vec<String>) -> Option<TaggedCall> {
    let Kind::Tagged { head, key_to_value, value_to_key } = &reading.kind else { return None };
    let (last_key, _) = FIRST.arguments.last()?;
    let name_end = head.rfind('}')? + 1;
    let after = text[reading.unit.end..].replace(last_key, "{key}");
    let mut parts = repeated(&head[name_end..], value_to_key, &after);
    // White space before every key belongs after the head and the values, if it also follows the last value.
    let space = parts.start[..parts.start.len() - parts.start.trim_start().len()].to_owned();
    if !space.is_empty() && parts.outer_start.is_empty() && after[parts.end.len()..].starts_with(&space) {
        parts.start.drain(..space.len());
        parts.end.push_str(&space);
        parts.outer_start = space;
    }
    let typed = renders.typed().unwrap_or_default();
    let nested = typed.find(INNER_KEY).is_some_and(|at| typed[..at].trim_end().ends_with(parts.start.trim()));
    let number = typed.split(&NUMBER.to_string()).next().and_then(|before| before.rsplit_once(last_key));
    let typed = number.is_some_and(|(_, between)| between != key_to_value);
    let types = if typed { type_words(renders, key_to_value) } else { Some((key_to_value.clone(), Vec::new())) };
    let Some((key_to_value, types)) = types else {
        notes.push("it says of each argument of which type it is, which no payload kind describes".to_owned());
        return None;
    };
    let (key_end, value_start) = key_to_value.split_at(last_opening(&key_to_value));
    Some(TaggedCall {
        head: Head { forms: vec![format!("{}{}", &head[..name_end], parts.outer_start)], id: None },
        key_start: parts.start,
        key_end: key_end.to_owned(),
        value_start: value_start.to_owned(),
        value_end: parts.end,
        nested,
        types,
        escaped_keys: false,
    })
}

/// The text between key and value with `{type}` for the word that names the value's type, and the words.
fn type_words(renders: &Renders, of_text: &str) -> Option<(String, Vec<(String, String)>)> {
    let (key, _) = FIRST.arguments.last()?;
    let after_key = |value: Value| {
        let text = renders.with_value(value)?;
        Some(text[text.rfind(key)? + key.len()..].to_owned())
    };
    let of_number = after_key(json!(NUMBER))?;
    let of_number = of_number.split(&NUMBER.to_string()).next()?;
    // A word begins and ends at punctuation.
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let (before, after) = (common_prefix(of_text, of_number), common_suffix(of_text, of_number));
    let (before, after) = (before.trim_end_matches(in_word), after.trim_start_matches(in_word));
    if before.trim().is_empty() || after.trim().is_empty() {
        return None;
    }
    let word = |text: &str| Some(text.strip_prefix(before)?.split_once(after)?.0.to_owned()).filter(|w| !w.is_empty());
    let values = [("boolean", json!(true)), ("null", json!(null)), ("object", json!({"a": 1})), ("array", json!([1]))];
    let number = word(of_number)?;
    let mut words = vec![("string".to_owned(), word(of_text)?)];
    let others = values.into_iter().map(|(kind, value)| Some((kind, word(&after_key(value)?)?)));
    // A value that the template does not write has the same type as the rest.
    let others: Vec<(&str, String)> = others.flatten().collect();
    if others.iter().all(|(_, word)| *word == number) {
        words.push(("other".to_owned(), number));
    } else {
        let all = others.len() == 4;
        words.push(("number".to_owned(), number.clone()));
        words.extend(others.into_iter().map(|(kind, word)| (kind.to_owned(), word)));
        words.extend((!all).then(|| ("other".to_owned(), number)));
    }
    let shared = words.iter().skip(1).any(|(_, word)| *word == words[0].1);
    (!shared).then(|| (format!("{before}{}{after}", typed::PART), words))
}

/// Where the second tag of `</key>\n<value>` begins; the end if there is only one.
fn last_opening(text: &str) -> usize {
    let closed = text.find(['>', ']']).map(|at| at + 1);
    let opening = closed.and_then(|closed| {
        let rest = text[closed..].trim_start();
        rest.starts_with(['<', '[']).then(|| text.len() - rest.len())
    });
    opening.unwrap_or(text.len())
}

/// The length of the end of the last value, at the beginning of `text`.
fn filled_end(tagged: &TaggedCall, text: &str, call: &Sentinel) -> usize {
    let key = call.arguments.last().map_or("", |(key, _)| key);
    let end = tagged.value_end.replace("{key}", key);
    common_prefix(&end, text).len()
}

/// The head, with `{index}` if it counts, and how the id is built from it.
fn declared_head(start: &str, head: &str, both: Option<(&Kind, &Kind)>, notes: &mut Vec<String>) -> Head {
    let mut form = format!("{start}{head}");
    if let Some((
        Kind::Named { head: a, .. } | Kind::Tagged { head: a, .. },
        Kind::Named { head: b, .. } | Kind::Tagged { head: b, .. },
    )) = both
    {
        let (same, rest) = (common_prefix(a, b), common_suffix(a, b));
        let count = |head: &str| head.get(same.len()..head.len().saturating_sub(rest.len())).map(str::to_owned);
        match (count(a).as_deref(), count(b).as_deref()) {
            (Some(first @ ("0" | "1")), Some("1" | "2")) => {
                let at = start.len() + same.len();
                if form.get(at..=at) == Some(first) {
                    form.replace_range(at..=at, if first == "1" { "{number}" } else { "{index}" });
                }
            }
            _ if a != b => notes.push("the heads of its calls differ by more than their names and ids".to_owned()),
            _ => {}
        }
    }
    let composed = form.contains("{index}") && !form.contains("{id}");
    if let (true, Some(name)) = (composed, form.find("{name}")) {
        // A counted id consists of the name, the number and the text between markers.
        let boundary = |c: char| matches!(c, '<' | '>' | '[' | ']') || c.is_whitespace();
        let from =
            form[..name].rfind(boundary).map_or(0, |at| at + form[at..].chars().next().map_or(1, char::len_utf8));
        let to = form[name..].find(boundary).map_or(form.len(), |at| name + at);
        let id = form[from..to].to_owned();
        if history::parts(&id).any(|part| part == "index") {
            form.replace_range(from..to, "{id}");
            return Head { forms: vec![form], id: Some(id) };
        }
    }
    let mut forms = vec![form.clone()];
    // Omit an id after the name if there may be none to write.
    let id = form.find("{id}").filter(|id| form.find("{name}").is_some_and(|name| name < *id));
    if let (Some(name), Some(id)) = (form.find("{name}"), id) {
        forms.push(format!("{}{}", &form[..name + "{name}".len()], &form[id + "{id}".len()..]));
    }
    Head { forms, id: None }
}

/// Returns what a plain-text answer begins with after the prompt, and what it ends with.
fn markup(turn: &Turn, reasoning: Option<&Reasoning>) -> Vec<String> {
    let (prompt, answer) = (turn.prompt.as_str(), turn.head);
    let mut markup: Vec<String> = Vec::new();
    let mut add = |text: &str| {
        let text = text.trim();
        if !text.is_empty() && !markup.iter().any(|known| known == text) {
            markup.push(text.to_owned());
        }
    };
    let written = answer.strip_prefix(prompt).filter(|_| !prompt.trim().is_empty()).unwrap_or_default();
    let written = reasoning.map_or(written, |reasoning| reasoning.strip(written)).trim();
    let rest = reasoning.map_or("", |reasoning| reasoning.rest.as_str());
    // The text after reasoning is the header of another turn, which may also come before a call.
    add(rest);
    add(written);
    if rest != written {
        add(rest.strip_suffix(written).unwrap_or_default());
    }
    // Of several tags at the end of a turn, the last one ends generation; the model writes the others.
    if let [.., before, _] = tags(&turn.end).as_slice() {
        add(&turn.end[..before.end]);
    }
    // For a tag followed by a name, such as `<|channel>thought`, a model may write the tag alone.
    let start = reasoning.map_or("", |reasoning| reasoning.start.trim());
    if let [tag] = tags(start).as_slice()
        && tag.start == 0
        && is_word(&start[tag.end..])
    {
        add(&start[tag.clone()]);
    }
    markup
}
