//! Lark grammars as regular expressions.
//!
//! A schema holds a string to a regex, and to nothing that recurses. The grammars of agents' tools, such as that of a patch, recurse
//! nowhere: their rules are written into one another.

use std::collections::HashMap;

/// A longer regex is enforced by no grammar.
const LONGEST: usize = 4000;
/// Rules within rules, and groups within groups; more are a recursion.
const DEEPEST: usize = 40;

/// The terminals of Lark's `common` that have a short regex.
const COMMON: [(&str, &str); 11] = [
    ("LF", "\\n"),
    ("CR", "\\r"),
    ("NEWLINE", "(\\r?\\n)+"),
    ("WS", "[ \\t\\f\\r\\n]+"),
    ("WS_INLINE", "[ \\t]+"),
    ("DIGIT", "[0-9]"),
    ("INT", "[0-9]+"),
    ("SIGNED_INT", "[+-]?[0-9]+"),
    ("LETTER", "[A-Za-z]"),
    ("WORD", "[A-Za-z]+"),
    ("CNAME", "[A-Za-z_][A-Za-z0-9_]*"),
];

/// The regex of the texts of a grammar; `None` for one that recurses, or that has what is not known here.
pub(super) fn to_regex(grammar: &str) -> Option<String> {
    let mut rules = Rules::default();
    let mut last = None;
    for line in grammar.lines().map(without_comment).filter(|line| !line.trim().is_empty()) {
        let trimmed = line.trim();
        if let Some(import) = trimmed.strip_prefix("%import common.") {
            let (name, own) = import.split_once("->").map_or((import, import), |(name, own)| (name, own));
            let (_, regex) = COMMON.iter().find(|(known, _)| *known == name.trim())?;
            rules.imported.insert(own.trim().to_owned(), (*regex).to_owned());
            last = None;
        } else if trimmed.starts_with('%') {
            return None;
        } else if let Some((name, body)) = head(trimmed) {
            rules.bodies.insert(name.to_owned(), body.to_owned());
            last = Some(name.to_owned());
        } else {
            let body = rules.bodies.get_mut(last.as_deref()?)?;
            body.push(' ');
            body.push_str(trimmed);
        }
    }
    let regex = rules.named("start", 0)?;
    (regex.len() <= LONGEST).then_some(regex)
}

/// The name of the rule that begins in a line, and what follows it. A template of rules has parameters, and is none.
fn head(line: &str) -> Option<(&str, &str)> {
    let (head, body) = line.split_once(':')?;
    let name = head.trim().trim_start_matches(['?', '!']).split('.').next()?.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then_some((name, body))
}

/// A line up to its comment.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut escaped, mut before) = (None, false, ' ');
    for (at, c) in line.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '/') if line[at..].starts_with("//") && before.is_whitespace() => return &line[..at],
            (None, '"' | '/') => quote = Some(c),
            (None, _) => {}
        }
        before = c;
    }
    line
}

#[derive(Default)]
struct Rules {
    bodies: HashMap<String, String>,
    imported: HashMap<String, String>,
}

impl Rules {
    fn named(&self, name: &str, depth: usize) -> Option<String> {
        if let Some(regex) = self.imported.get(name) {
            return Some(regex.clone());
        }
        if depth > DEEPEST {
            return None;
        }
        let mut reader = Reader { rules: self, rest: self.bodies.get(name)?, depth: depth + 1 };
        let regex = reader.alternatives()?;
        reader.rest.trim().is_empty().then_some(regex)
    }
}

/// Reads the body of a rule.
struct Reader<'r> {
    rules: &'r Rules,
    rest: &'r str,
    depth: usize,
}

impl<'r> Reader<'r> {
    fn takes(&mut self, text: &str) -> bool {
        let rest = self.rest.trim_start();
        let taken = rest.strip_prefix(text);
        self.rest = taken.unwrap_or(rest);
        taken.is_some()
    }

    fn word(&mut self) -> &'r str {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.rest = &rest[end..];
        &rest[..end]
    }

    fn alternatives(&mut self) -> Option<String> {
        let mut all = vec![self.sequence()?];
        while self.takes("|") {
            all.push(self.sequence()?);
        }
        (all.iter().map(String::len).sum::<usize>() <= LONGEST).then(|| all.join("|"))
    }

    fn sequence(&mut self) -> Option<String> {
        let mut sequence = String::new();
        loop {
            if self.takes("->") {
                self.word();
            }
            let next = self.rest.trim_start().chars().next();
            if next.is_none_or(|next| matches!(next, '|' | ')' | ']')) {
                return (sequence.len() <= LONGEST).then_some(sequence);
            }
            let item = self.item()?;
            sequence += &self.repeated(item)?;
        }
    }

    fn item(&mut self) -> Option<String> {
        if self.depth > DEEPEST {
            return None;
        }
        for (open, close, after) in [("(", ")", ""), ("[", "]", "?")] {
            if self.takes(open) {
                self.depth += 1;
                let inner = self.alternatives()?;
                self.depth -= 1;
                return self.takes(close).then(|| format!("(?:{inner}){after}"));
            }
        }
        if self.rest.starts_with('"') {
            let from = self.quoted('"')?;
            if self.takes("..") {
                let to = self.quoted('"')?;
                return Some(format!("[{}-{}]", escaped(&unquoted(from)?), escaped(&unquoted(to)?)));
            }
            let text = escaped(&unquoted(from)?);
            return Some(if self.rest.starts_with('i') { self.any_case(&text) } else { text });
        }
        if self.rest.starts_with('/') {
            let regex = self.quoted('/')?.replace("\\/", "/");
            // Flags change what a part means, which a schema's regex cannot.
            return (!self.rest.starts_with(|c: char| c.is_ascii_lowercase())).then(|| format!("(?:{regex})"));
        }
        let depth = self.depth;
        let name = self.word();
        Some(format!("(?:{})", self.rules.named(name, depth)?))
    }

    fn any_case(&mut self, text: &str) -> String {
        self.rest = &self.rest[1..];
        let both = |c: char| match c.is_ascii_alphabetic() {
            true => format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase()),
            false => c.to_string(),
        };
        text.chars().map(both).collect()
    }

    /// What is between two quotes, escapes and all.
    fn quoted(&mut self, quote: char) -> Option<&'r str> {
        let inner = self.rest.trim_start().strip_prefix(quote)?;
        let mut is_escaped = false;
        let end = inner.char_indices().find(|(_, c)| {
            let ends = *c == quote && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            ends
        });
        let (end, _) = end?;
        self.rest = &inner[end + 1..];
        Some(&inner[..end])
    }

    /// An item with what says how often it comes.
    fn repeated(&mut self, item: String) -> Option<String> {
        for sign in ["?", "*", "+"] {
            if self.rest.starts_with(sign) {
                self.rest = &self.rest[1..];
                return Some(format!("(?:{item}){sign}"));
            }
        }
        if !self.takes("~") {
            return Some(item);
        }
        let least: usize = self.word().parse().ok()?;
        if !self.takes("..") {
            return Some(format!("(?:{item}){{{least}}}"));
        }
        let most: usize = self.word().parse().ok()?;
        Some(format!("(?:{item}){{{least},{most}}}"))
    }
}

/// The text of a string in a grammar.
fn unquoted(text: &str) -> Option<String> {
    serde_json::from_str(&format!("\"{text}\"")).ok()
}

/// A text as a regex that fits only this text.
fn escaped(text: &str) -> String {
    let mut regex = String::new();
    for c in text.chars() {
        match c {
            '\n' => regex.push_str("\\n"),
            '\r' => regex.push_str("\\r"),
            '\t' => regex.push_str("\\t"),
            c if "\\^$.|?*+()[]{}-/".contains(c) => regex.extend(['\\', c]),
            c => regex.push(c),
        }
    }
    regex
}

#[cfg(test)]
mod tests {
    use super::*;
    use callwright::tool::misfits;
    use serde_json::json;

    /// The grammar of a patch, as a coding agent sends it.
    const PATCH: &str = r#"
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk   // one file each
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"#;

    #[test]
    fn a_grammar_without_recursion_is_a_regex() {
        let fits = |grammar: &str, text: &str| {
            let regex = to_regex(grammar).unwrap_or_else(|| panic!("{grammar}"));
            misfits(&json!({"type": "string", "pattern": format!("^(?:{regex})$")}), &json!(text)).unwrap().is_empty()
        };
        let patch =
            "*** Begin Patch\n*** Update File: src/a.rs\n@@ fn x()\n-old (1)\n+new [2]\n context\n*** End Patch";
        assert!(fits(PATCH, patch) && !fits(PATCH, &patch.replace("*** End", "*** Fin")));
        assert!(!fits(PATCH, "*** Begin Patch\n*** End Patch"));
        for (grammar, good, bad) in [
            ("start: \"a\"~2..3 [\"b\"i]", "aaB", "aaaa"),
            ("start: NAME (\",\" NAME)*\nNAME: \"a\"..\"c\" | /[x-z]/ |\n  \"\\\"\"", "a,z,\"", "a,,z"),
            ("?start: INT \"//\" // half\n  | \"no\"\n%import common.INT", "12//", "12"),
            ("start: \"a\" ~ 2", "aa", "a"),
        ] {
            assert!(fits(grammar, good) && !fits(grammar, bad), "{grammar}");
        }
    }

    #[test]
    fn what_recurses_or_is_not_known_is_none() {
        for grammar in [
            "start: \"(\" start? \")\"",
            "start: other",
            "start: \"a\"\n%ignore /x/",
            "start: /a/i",
            "start: \"a",
            "start: (\"a\"",
            "start: \"a\" )",
            "x: \"a\"",
            "",
            "start: many\nmany: sep{\"a\"}\nsep{x}: x x",
            "%import common.ESCAPED_STRING\nstart: ESCAPED_STRING",
        ] {
            assert_eq!(to_regex(grammar), None, "{grammar}");
        }
        let doubling: String = (0..30).map(|n| format!("r{n}: r{0} r{0}\n", n + 1)).collect();
        assert_eq!(to_regex(&format!("start: r0\n{doubling}r30: \"a\"")), None);
    }
}
