//! Translates GBNF, llama.cpp's grammar notation, to Lark.
//!
//! GBNF has no lexer: a text matches if it can be derived character by character. The grammar engine reads the longest
//! terminal first, and would find nothing to match the last letter of `[a-z]* "a"`. A grammar without recursion
//! therefore becomes a single terminal. In any other grammar, a part without recursion is a terminal if the longest
//! match is provably right; otherwise each character is one.

mod units;

use super::rules::literal;
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use units::{Parts, Unit, Units};

/// Maximum nesting: more is a mistake.
const DEEPEST: usize = 200;
/// Maximum count of a repetition.
const MOST: u32 = 10_000;

/// The right side of `::=`, or the content of parentheses: alternative sequences.
type Alternatives = Vec<Vec<Part>>;

struct Rule {
    name: String,
    body: Alternatives,
}

/// An element and its repetition.
struct Part {
    what: What,
    least: u32,
    most: Option<u32>,
}

enum What {
    Text(String),
    /// One character, as a regular expression.
    Class(String),
    /// A rule's name and its position.
    Rule(String, usize),
    Group(Alternatives),
}

/// Translates a GBNF grammar to Lark.
///
/// # Errors
/// [`ErrorKind::Syntax`] with line and column if the text is not GBNF, names an unknown rule, or has no `root`.
pub(super) fn to_lark(text: &str) -> Result<String> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    let rules = reader.rules()?;
    let numbers: HashMap<&str, usize> = rules.iter().enumerate().map(|(index, rule)| (&*rule.name, index)).collect();
    for rule in &rules {
        for (name, at) in references(&rule.body) {
            if !numbers.contains_key(name) {
                let known = rules.iter().map(|rule| rule.name.as_str());
                let error = error(text, at, format!("there is no rule {name:?}"));
                return Err(error.suggest(name, known, ""));
            }
        }
    }
    let Some(&root) = numbers.get("root") else {
        return Err(Error::new(ErrorKind::Syntax, "there is no rule \"root\", with which a GBNF grammar begins"));
    };
    let used = reached(&rules, &numbers, root);
    let settled = |done: &dyn Fn(&Rule, &[bool]) -> bool| -> Vec<bool> {
        let mut settled = vec![false; rules.len()];
        loop {
            let next: Vec<bool> = rules.iter().map(|rule| done(rule, &settled)).collect();
            if next == settled {
                return settled;
            }
            settled = next;
        }
    };
    let ends = settled(&|rule, settled| {
        rule.body.iter().any(|parts| parts.iter().all(|part| can_end(part, &|name| settled[numbers[name]])))
    });
    if !ends[root] {
        return Err(Error::new(ErrorKind::Syntax, "no text fits the grammar: its rules refer to each other for ever"));
    }
    let flat = settled(&|rule, settled| references(&rule.body).iter().all(|(name, _)| settled[numbers[name]]));
    let parts = Parts { rules: &rules, numbers: &numbers, flat: &flat };
    let units = if flat[root] { None } else { parts.units(&used) };
    let writer = Writer { parts, units };
    let mut lark = format!("start: {}\n", writer.name("root", flat[root]));
    for (index, rule) in rules.iter().enumerate().filter(|(index, _)| used[*index]) {
        if flat[root] || !flat[index] || writer.units.is_none() {
            let (name, body) = (writer.name(&rule.name, flat[root]), writer.body(&rule.body, flat[root]));
            lark.push_str(&format!("// {}\n{name}: {body}\n", rule.name));
        }
    }
    let mut units: Vec<(&String, &Unit)> = writer.units.iter().flatten().collect();
    units.sort_by_key(|(_, unit)| unit.number);
    for (regex, unit) in units {
        let filled = if unit.nullable { "/(?s:.+)/ & " } else { "" };
        lark.push_str(&format!("{}: {filled}/{regex}/\n", unit.name()));
    }
    Ok(lark)
}

fn error(text: &str, at: usize, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Syntax, message).marked(text, at..at)
}

/// The rules that a body refers to.
fn references(body: &Alternatives) -> Vec<(&str, usize)> {
    let parts = body.iter().flatten();
    parts
        .flat_map(|part| match &part.what {
            What::Rule(name, at) => vec![(name.as_str(), *at)],
            What::Group(inner) => references(inner),
            What::Text(_) | What::Class(_) => Vec::new(),
        })
        .collect()
}

fn reached(rules: &[Rule], numbers: &HashMap<&str, usize>, root: usize) -> Vec<bool> {
    let mut used = vec![false; rules.len()];
    let mut open = vec![root];
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut used[index], true) {
            open.extend(references(&rules[index].body).iter().map(|(name, _)| numbers[name]));
        }
    }
    used
}

fn can_end(part: &Part, rule: &dyn Fn(&str) -> bool) -> bool {
    part.least == 0
        || match &part.what {
            What::Text(_) | What::Class(_) => true,
            What::Rule(name, _) => rule(name),
            What::Group(inner) => inner.iter().any(|parts| parts.iter().all(|part| can_end(part, rule))),
        }
}

/// Writes Lark.
struct Writer<'a> {
    parts: Parts<'a>,
    /// The terminals of a recursive grammar; if `None`, each character is one.
    units: Option<Units>,
}

impl Writer<'_> {
    fn name(&self, name: &str, terminal: bool) -> String {
        format!("{}{}", if terminal { "T" } else { "r" }, self.parts.numbers[name])
    }

    fn body(&self, body: &Alternatives, terminal: bool) -> String {
        let options = body.iter().map(|parts| {
            let parts: Vec<String> = parts.iter().map(|part| self.part(part, terminal)).collect();
            if parts.is_empty() { "\"\"".to_owned() } else { parts.join(" ") }
        });
        options.collect::<Vec<_>>().join(" | ")
    }

    fn part(&self, part: &Part, terminal: bool) -> String {
        if let Some(units) = self.units.as_ref().filter(|_| !terminal && self.parts.is_flat(part))
            && let Some(unit) = self.parts.regex(part).and_then(|regex| units.get(&regex))
        {
            return match unit.nullable {
                true => format!("{}?", unit.name()),
                false => unit.name(),
            };
        }
        let what = match &part.what {
            What::Text(text) if text.is_empty() => "\"\"".to_owned(),
            What::Text(text) if terminal || text.chars().count() == 1 => literal(text),
            What::Text(text) => {
                let characters: Vec<String> = text.chars().map(|c| literal(&c.to_string())).collect();
                format!("({})", characters.join(" "))
            }
            What::Class(class) => format!("/{class}/"),
            What::Rule(name, _) => self.name(name, terminal),
            What::Group(inner) => format!("({})", self.body(inner, terminal)),
        };
        match (part.least, part.most) {
            (1, Some(1)) => what,
            (_, Some(0)) => "\"\"".to_owned(),
            (0, Some(1)) => format!("{what}?"),
            (0, None) => format!("{what}*"),
            (1, None) => format!("{what}+"),
            (least, None) => format!("{what}{{{least},}}"),
            (least, Some(most)) => format!("{what}{{{least},{most}}}"),
        }
    }
}

/// Reads GBNF.
struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn error(&self, message: impl Into<String>) -> Error {
        error(self.text, self.at, message)
    }

    fn expected(&self, what: &str) -> Error {
        match self.peek() {
            Some(found) => self.error(format!("expected {what}, found {found:?}")),
            None => self.error(format!("expected {what}, but the grammar ends here")),
        }
    }

    /// Skips white space and comments.
    fn space(&mut self, newlines: bool) {
        loop {
            let rest = self.rest();
            let blank = |c: char| c == ' ' || c == '\t' || (newlines && (c == '\r' || c == '\n'));
            let length = match rest.chars().next() {
                Some('#') => rest.find(['\r', '\n']).unwrap_or(rest.len()),
                _ => rest.find(|c| !blank(c)).unwrap_or(rest.len()),
            };
            if length == 0 {
                return;
            }
            self.at += length;
        }
    }

    fn word(&mut self) -> Option<String> {
        let rest = self.rest();
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).unwrap_or(rest.len());
        let word = rest[..length].to_owned();
        self.at += length;
        (length > 0).then_some(word)
    }

    fn rules(&mut self) -> Result<Vec<Rule>> {
        let mut rules: Vec<Rule> = Vec::new();
        self.take("\u{feff}");
        self.space(true);
        while self.peek().is_some() {
            let begin = self.at;
            let Some(name) = self.word() else { return Err(self.expected("the name of a rule")) };
            if rules.iter().any(|rule| rule.name == name) {
                return Err(error(self.text, begin, format!("the rule {name:?} is defined twice")));
            }
            self.space(false);
            if !self.take("::=") {
                return Err(self.expected("\"::=\" after the name of a rule"));
            }
            self.space(true);
            let body = self.alternatives(false)?;
            if !matches!(self.peek(), None | Some('\r' | '\n')) {
                return Err(self.expected("the end of the line, or more of the rule"));
            }
            self.space(true);
            rules.push(Rule { name, body });
        }
        Ok(rules)
    }

    /// If `nested` (in parentheses), a line break is white space.
    fn alternatives(&mut self, nested: bool) -> Result<Alternatives> {
        let mut options = vec![self.sequence(nested)?];
        while self.take("|") {
            self.space(true);
            options.push(self.sequence(nested)?);
        }
        Ok(options)
    }

    fn sequence(&mut self, nested: bool) -> Result<Vec<Part>> {
        let mut parts: Vec<Part> = Vec::new();
        loop {
            let what = match self.peek() {
                Some('"') => What::Text(self.quoted()?),
                Some('[') => What::Class(self.class()?),
                Some('.') => {
                    self.at += 1;
                    What::Class("(?s:.)".to_owned())
                }
                Some('(') => What::Group(self.group()?),
                Some('<' | '!') => {
                    let error = self.error("a grammar cannot name tokens here");
                    return Err(error.hint("write the text of the token in quotes"));
                }
                Some('*' | '+' | '?' | '{') => {
                    let Some(last) = parts.pop() else {
                        return Err(self.error("there is nothing before this repetition"));
                    };
                    let (least, most) = self.repetition(nested)?;
                    // A repetition of a repetition.
                    let what = match (last.least, last.most) {
                        (1, Some(1)) => last.what,
                        _ => What::Group(vec![vec![last]]),
                    };
                    parts.push(Part { what, least, most });
                    continue;
                }
                _ => {
                    let at = self.at;
                    match self.word() {
                        Some(name) => What::Rule(name, at),
                        None => return Ok(parts),
                    }
                }
            };
            self.space(nested);
            parts.push(Part { what, least: 1, most: Some(1) });
        }
    }

    fn group(&mut self) -> Result<Alternatives> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error(format!("parentheses are nested more than {DEEPEST} deep")));
        }
        self.space(true);
        let inner = self.alternatives(true)?;
        if !self.take(")") {
            return Err(self.expected("\")\""));
        }
        self.depth -= 1;
        Ok(inner)
    }

    fn repetition(&mut self, nested: bool) -> Result<(u32, Option<u32>)> {
        let times = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            _ => {
                self.at += 1;
                self.space(nested);
                let least = self.count()?;
                self.space(nested);
                let mut most = Some(least);
                if self.take(",") {
                    self.space(nested);
                    most = if self.peek() == Some('}') { None } else { Some(self.count()?) };
                    self.space(nested);
                }
                if most.is_some_and(|most| most < least) {
                    return Err(self.error("the repetition's highest count is below its lowest"));
                }
                if self.peek() != Some('}') {
                    return Err(self.expected("\"}\""));
                }
                (least, most)
            }
        };
        self.at += 1;
        self.space(nested);
        Ok(times)
    }

    fn count(&mut self) -> Result<u32> {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if length == 0 {
            return Err(self.expected("a number"));
        }
        let count = rest[..length].parse().ok().filter(|count| *count <= MOST);
        let Some(count) = count else { return Err(self.error(format!("a repetition is at most {MOST} times"))) };
        self.at += length;
        Ok(count)
    }

    fn quoted(&mut self) -> Result<String> {
        let begin = self.at;
        self.at += 1;
        let mut text = String::new();
        while !self.take("\"") {
            if matches!(self.peek(), None | Some('\n')) {
                return Err(error(self.text, begin, "this text has no closing quote"));
            }
            text.push(self.character()?);
        }
        Ok(text)
    }

    fn class(&mut self) -> Result<String> {
        let begin = self.at;
        self.at += 1;
        let mut class = if self.take("^") { "[^".to_owned() } else { "[".to_owned() };
        let first = class.len();
        while !self.take("]") {
            if matches!(self.peek(), None | Some('\n')) {
                return Err(error(self.text, begin, "these characters have no closing \"]\""));
            }
            let at = self.at;
            let from = self.character()?;
            class.push_str(&format!("\\x{{{:x}}}", u32::from(from)));
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                let to = self.character()?;
                if to < from {
                    return Err(error(self.text, at, "this range of characters runs backwards"));
                }
                class.push_str(&format!("-\\x{{{:x}}}", u32::from(to)));
            }
        }
        if class.len() == first {
            return Err(error(self.text, begin, "there are no characters between these brackets"));
        }
        class.push(']');
        Ok(class)
    }

    /// One character or escape.
    fn character(&mut self) -> Result<char> {
        let Some(plain) = self.peek() else { return Err(self.expected("a character")) };
        if plain != '\\' {
            self.at += plain.len_utf8();
            return Ok(plain);
        }
        let escaped = self.rest()[1..].chars().next();
        let digits = match escaped {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(one @ ('t' | 'r' | 'n' | '\\' | '"' | '[' | ']' | '-')) => {
                self.at += 2;
                return Ok(match one {
                    't' => '\t',
                    'r' => '\r',
                    'n' => '\n',
                    one => one,
                });
            }
            _ => {
                let known = r#"known are \t \r \n \\ \" \[ \] \- \xXX \uXXXX \UXXXXXXXX"#;
                return Err(self.error("unknown escape").hint(known));
            }
        };
        let code = self.rest().get(2..2 + digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let Some(character) = code.and_then(char::from_u32) else {
            return Err(self.error(format!("this escape needs {digits} hexadecimal digits of a character")));
        };
        self.at += 2 + digits;
        Ok(character)
    }
}
