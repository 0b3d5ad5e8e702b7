//! Translates regular expressions of Python, PCRE and JavaScript without the `u` flag to JSON Schema's.

/// Translates a pattern of another dialect to JSON Schema's; a standard pattern is unchanged.
pub(super) fn standard(pattern: &str) -> String {
    let (pattern, any_case) = undelimited(pattern);
    let out = if any_case { "(?i)".to_owned() } else { String::new() };
    let mut translating = Translating { rest: pattern.chars().collect::<Vec<_>>(), at: 0, out };
    translating.run();
    translating.out
}

/// The pattern between the slashes of `/^a$/`, and whether its flags ignore case.
fn undelimited(pattern: &str) -> (&str, bool) {
    let inner = pattern.strip_prefix('/').and_then(|rest| rest.rsplit_once('/'));
    match inner {
        Some((inner, flags))
            if (inner.starts_with('^') || inner.ends_with('$')) && flags.chars().all(|c| "gimuysd".contains(c)) =>
        {
            (inner, flags.contains('i'))
        }
        _ => (pattern, false),
    }
}

struct Translating {
    rest: Vec<char>,
    at: usize,
    out: String,
}

impl Translating {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(index, c)| self.peek(index) == Some(c))
    }

    /// Replaces `from` by `to`; false if `from` is not next.
    fn replace(&mut self, from: &str, to: &str) -> bool {
        let found = self.starts_with(from);
        if found {
            self.at += from.chars().count();
            self.out.push_str(to);
        }
        found
    }

    fn copy(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(c) = self.peek(0) {
                self.out.push(c);
                self.at += 1;
            }
        }
    }

    fn run(&mut self) {
        while let Some(c) = self.peek(0) {
            match c {
                '\\' => self.escape(),
                '[' => self.class(),
                '(' => self.group(),
                '{' if self.peek(1) == Some(',') && self.peek(2).is_some_and(|c| c.is_ascii_digit()) => {
                    self.copy(1);
                    self.out.push('0');
                }
                '*' | '+' | '?' | '}' => {
                    self.copy(1);
                    // Possessive: it matches no more than the plain quantifier.
                    if self.peek(0) == Some('+') {
                        self.at += 1;
                    }
                }
                _ => self.copy(1),
            }
        }
    }

    fn escape(&mut self) {
        const OTHERS: [(&str, &str); 9] = [
            (r"\A", "^"),
            (r"\Z", "$"),
            (r"\z", "$"),
            (r"\G", ""),
            (r"\h", r"[ \t]"),
            (r"\H", r"[^ \t]"),
            (r"\R", r"(?:\r\n|\r|\n)"),
            (r"\e", r"\x1b"),
            (r"\a", r"\x07"),
        ];
        if self.starts_with(r"\Q") {
            self.at += 2;
            while self.at < self.rest.len() && !self.replace(r"\E", "") {
                if let Some(c) = self.peek(0).filter(|c| !c.is_alphanumeric() && c.is_ascii_punctuation()) {
                    self.out.extend(['\\', c]);
                    self.at += 1;
                } else {
                    self.copy(1);
                }
            }
            return;
        }
        if !OTHERS.iter().any(|(from, to)| self.replace(from, to)) {
            self.copy(2);
        }
    }

    fn group(&mut self) {
        if self.starts_with("(?#") {
            while self.peek(0).is_some_and(|c| c != ')') {
                self.at += 1;
            }
            self.at += 1;
            return;
        }
        // An atomic group matches no more than a plain group.
        let replaced = [("(?>", "(?:"), ("(?P<", "(?<")].iter().any(|(from, to)| self.replace(from, to));
        if replaced {
            return;
        }
        if self.starts_with("(?P=") || self.starts_with("(?'") {
            let skip = if self.starts_with("(?'") { 3 } else { 4 };
            let close = if skip == 3 { '\'' } else { ')' };
            self.at += skip;
            let name: String = self.rest[self.at.min(self.rest.len())..].iter().take_while(|c| **c != close).collect();
            self.at += name.chars().count() + 1;
            self.out.push_str(&if skip == 3 { format!("(?<{name}>") } else { format!(r"\k<{name}>") });
            return;
        }
        // What follows is not a quantifier: `(?=`, `(?!`, `(?:`.
        let count = if self.starts_with("(?") { 2 } else { 1 };
        self.copy(count);
    }

    /// A class up to its end.
    fn class(&mut self) {
        self.copy(1);
        if self.peek(0) == Some('^') {
            self.copy(1);
        }
        // Whether the last element is a set, which cannot begin a range.
        let mut set = false;
        let mut first = true;
        while let Some(c) = self.peek(0) {
            match c {
                // In POSIX classes, as in Python and PCRE, a bracket in first place is a literal.
                ']' if first && self.rest[self.at + 1..].contains(&']') => self.out.push_str(r"\]"),
                ']' => return self.copy(1),
                '[' if self.posix() => {
                    (set, first) = (true, false);
                    continue;
                }
                '[' => self.out.push_str(r"\["),
                '-' if set && self.peek(1) != Some(']') => self.out.push_str(r"\-"),
                '-' if self.at_set(1) => self.out.push_str(r"\-"),
                '\\' => {
                    set = self.at_set(0);
                    first = false;
                    if !self.replace(r"\h", r" \t") {
                        self.copy(2);
                    }
                    continue;
                }
                c => self.out.push(c),
            }
            self.at += 1;
            (set, first) = (false, false);
        }
    }

    /// Returns whether there is an escape for a set of characters `ahead`.
    fn at_set(&self, ahead: usize) -> bool {
        self.peek(ahead) == Some('\\') && self.peek(ahead + 1).is_some_and(|c| "wWdDsShHpP".contains(c))
    }

    /// Reads `[:alpha:]` and the like.
    fn posix(&mut self) -> bool {
        const CLASSES: [(&str, &str); 8] = [
            ("[:alpha:]", "a-zA-Z"),
            ("[:digit:]", "0-9"),
            ("[:alnum:]", "a-zA-Z0-9"),
            ("[:upper:]", "A-Z"),
            ("[:lower:]", "a-z"),
            ("[:space:]", r"\s"),
            ("[:xdigit:]", "0-9a-fA-F"),
            ("[:word:]", r"\w"),
        ];
        CLASSES.iter().any(|(from, to)| self.replace(from, to))
    }
}
