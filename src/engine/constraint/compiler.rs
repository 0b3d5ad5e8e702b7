//! Grammars compiled for one vocabulary, and what follows from a grammar's state.

use crate::engine::Token;
use crate::engine::vocabulary::Vocabulary;
use crate::{Error, ErrorKind, Result};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use std::collections::HashMap;
use std::sync::Arc;

/// Marks the tokens that no text of a grammar matches.
const SPECIAL: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
/// Tokens that fit a JSON string as a whole, so that a mask need not look at each. The grammar engine has more such
/// sets by default, for strings of bounded length, too: each takes longer to prepare than it ever saves.
const SLICES: [&str; 1] = [r#"[^"\\\x00-\x1F\x7F]+"#];
/// Compiled grammars that are kept.
const KEPT: usize = 32;

/// Compiles grammars for one model's vocabulary and one format's markup.
///
/// Making one takes about as long as reading the vocabulary a few times; compiled grammars are kept, and cloned for
/// each answer.
pub struct Compiler {
    factory: ParserFactory,
    tokens: Arc<Tokens>,
    kept: HashMap<String, Matcher>,
    pub(super) closers: Closers,
}

/// The model's own tokenizer, as the grammar engine wants it.
///
/// It is canonical: what it makes of a text is what the model would be given for it, so that forced text may be
/// appended as tokens.
pub(super) struct Tokens {
    pub vocabulary: Vocabulary,
    trie: TokTrie,
    /// Control tokens that the format writes.
    markup: Vec<(Vec<u8>, Token)>,
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.tokenize(text).iter().map(|token| id(*token)).collect()
    }
}

pub(super) fn id(token: Token) -> TokenId {
    TokenId::try_from(token.0).unwrap_or(TokenId::MAX)
}

pub(super) fn token(id: TokenId) -> Token {
    Token(i32::try_from(id).unwrap_or(i32::MAX))
}

impl Tokens {
    /// The tokens of a text that the format or a schema writes: control tokens only where the format does.
    pub(super) fn tokenize(&self, text: &[u8]) -> Vec<Token> {
        let (mut tokens, mut plain, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let Some((bytes, token)) = self.markup.iter().find(|(bytes, _)| text[at..].starts_with(bytes)) else {
                at += 1;
                continue;
            };
            tokens.extend(self.vocabulary.tokenize(&text[plain..at]));
            tokens.push(*token);
            at += bytes.len();
            plain = at;
        }
        tokens.extend(self.vocabulary.tokenize(&text[plain..]));
        tokens
    }
}

/// What ends things: tried in order where a call has to be closed.
pub(super) struct Closers {
    /// The format's own ends of values: closing tags, quotes of its own.
    ends: Vec<Vec<Token>>,
    /// What ends a JSON string, and begins one too.
    quote: Vec<Token>,
    /// What leads to the end elsewhere, the shortest way first.
    structure: Vec<Token>,
    /// What text can be filled with that has to go on.
    filler: Vec<Token>,
}

impl Closers {
    fn new(tokens: &Tokens, ends: &[String]) -> Closers {
        let single = |text: &str| -> Vec<Token> {
            text.chars()
                .filter_map(|c| match tokens.tokenize(c.to_string().as_bytes()).as_slice() {
                    [token] => Some(*token),
                    _ => None,
                })
                .collect()
        };
        let ends = ends.iter().map(|end| tokens.tokenize(end.as_bytes())).filter(|end| !end.is_empty());
        Closers {
            ends: ends.collect(),
            quote: tokens.tokenize(b"\""),
            structure: single("}]),\"1234567890ntfNTF[{-. "),
            filler: single("abcdefghijklmnopqrstuvwxyz0123456789@.:-/_+ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        }
    }
}

impl Compiler {
    /// A compiler for a vocabulary; `markup` is the texts that a format writes, `ends` what ends a value in it.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] when the vocabulary cannot be used.
    pub fn new(vocabulary: Vocabulary, markup: &[&str], ends: &[String]) -> Result<Compiler> {
        let failed = |what: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Constraint, format!("the model's vocabulary cannot be constrained: {what}"))
                .hint("--constrain off does without")
        };
        let written = |text: &[u8]| !text.is_empty() && markup.iter().any(|m| contains(m.as_bytes(), text));
        let mut written_tokens = Vec::new();
        let mut ids = Vec::new();
        let mut words = Vec::with_capacity(vocabulary.words.len());
        for (index, word) in vocabulary.words.iter().enumerate() {
            let index = TokenId::try_from(index).map_err(|_| failed(&"it has too many tokens"))?;
            if word.end {
                ids.push(index);
            }
            let plain = !word.control || (!word.end && written(&word.bytes));
            if plain && word.control {
                written_tokens.push((word.bytes.to_vec(), token(index)));
            }
            let usable = word.bytes.first() != Some(&SPECIAL) && word.bytes.len() < 200;
            words.push(match (plain, usable) {
                (true, true) => word.bytes.to_vec(),
                (true, false) => Vec::new(),
                (false, _) => [&[SPECIAL], &word.bytes[..word.bytes.len().min(200)]].concat(),
            });
        }
        // The longest first, where one begins another.
        written_tokens.sort_by_key(|(bytes, _)| std::cmp::Reverse(bytes.len()));
        let Some(&end) = ids.first() else { return Err(failed(&"no token ends a turn")) };
        let size = u32::try_from(words.len()).map_err(|error| failed(&error))?;
        let mut trie = TokTrie::from(&TokRxInfo::new(size, end), &words);
        if ids.len() > 1 {
            trie = trie.with_eos_tokens(&ids);
        }
        let tokens = Arc::new(Tokens { vocabulary, trie, markup: written_tokens });
        let env: TokEnv = tokens.clone();
        let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let mut factory =
            ParserFactory::new(&env, capabilities, &SLICES.map(str::to_owned)).map_err(|error| failed(&error))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        let closers = Closers::new(&tokens, ends);
        Ok(Compiler { factory, tokens, kept: HashMap::new(), closers })
    }

    pub(super) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// A grammar's matcher at its beginning.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] with the grammar engine's words when it refuses the grammar.
    pub fn matcher(&mut self, lark: &str) -> Result<Matcher> {
        if let Some(matcher) = self.kept.get(lark) {
            // A clone shares the lexer's automaton, which grows while it is used: the next answer finds it warm.
            return Ok(matcher.clone());
        }
        let parser = self.factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned()));
        let matcher = Matcher::new(parser);
        if let Some(why) = matcher.get_error() {
            return Err(grammar_error(&why));
        }
        if self.kept.len() >= KEPT {
            self.kept.clear();
        }
        self.kept.insert(lark.to_owned(), matcher.clone());
        Ok(matcher)
    }

    /// Where a text leaves the grammar: the byte that does not fit, or its length where it ends too early; `None` where
    /// all of it is accepted.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] when the grammar engine refuses the grammar, or fails.
    pub fn check(&mut self, lark: &str, text: &str) -> Result<Option<usize>> {
        let mut matcher = self.matcher(lark)?;
        let mut at = 0;
        for token in self.tokens.tokenize(text.as_bytes()) {
            let fits = !matcher.is_stopped() && matcher.validate_tokens(&[id(token)]).is_ok_and(|count| count == 1);
            if !fits {
                return Ok(Some(at));
            }
            matcher.consume_token(id(token)).map_err(|error| grammar_error(&error.to_string()))?;
            at += self.tokens.vocabulary.bytes(token).len();
        }
        Ok((!is_complete(&mut matcher)).then_some(at))
    }

    /// Forgets a grammar whose shared automaton failed.
    pub(super) fn forget(&mut self, lark: &str) {
        self.kept.remove(lark);
    }

    /// Whether nearly anything may come next: text.
    fn is_free(&self, matcher: &mut Matcher) -> bool {
        matcher.compute_mask().is_ok_and(|mask| is_wide(&mask))
    }

    /// Tokens that bring the grammar to its end, as few as are easily found and at most `most`; `None` where it takes
    /// more.
    pub(super) fn closing(&self, matcher: &Matcher, most: usize) -> Option<Vec<Token>> {
        // Where a pattern has to be filled in, another order of letters may lead out of it, or sooner.
        (0..4).find_map(|turn| self.close(matcher.clone(), most, turn * 7))
    }

    fn close(&self, mut matcher: Matcher, most: usize, turn: usize) -> Option<Vec<Token>> {
        let mut path = Vec::new();
        while path.len() <= most {
            if is_complete(&mut matcher) {
                return Some(path);
            }
            let forced = matcher.compute_ff_tokens();
            if !forced.is_empty() {
                matcher.consume_tokens(&forced).ok()?;
                path.extend(forced.into_iter().map(token));
                continue;
            }
            let mask = matcher.compute_mask().ok()?;
            let (next, tokens) = self.step(&matcher, &mask, turn + path.len())?;
            matcher = next;
            path.extend(tokens);
        }
        None
    }

    /// The next step towards the end, and where it leads.
    fn step(&self, matcher: &Matcher, mask: &SimpleVob, turn: usize) -> Option<(Matcher, Vec<Token>)> {
        let allowed = |token: &Token| mask.is_allowed(id(*token));
        let after = |tokens: &[Token]| {
            let mut next = matcher.clone();
            let ids: Vec<TokenId> = tokens.iter().map(|token| id(*token)).collect();
            (next.validate_tokens(&ids).ok()? == ids.len() && next.consume_tokens(&ids).is_ok()).then_some(next)
        };
        let quote = is_wide(mask).then_some(&self.closers.quote);
        let ends = self.closers.ends.iter().chain(quote).filter(|end| end.first().is_some_and(allowed));
        for end in ends {
            if let Some(mut next) = after(end)
                && (is_complete(&mut next) || !self.is_free(&mut next))
            {
                return Some((next, end.clone()));
            }
        }
        if quote.is_none() {
            let mut opens = None;
            for token in self.closers.structure.iter().filter(|token| allowed(token)) {
                let Some(mut next) = after(&[*token]) else { continue };
                if is_complete(&mut next) || !self.is_free(&mut next) {
                    return Some((next, vec![*token]));
                }
                opens.get_or_insert((next, vec![*token]));
            }
            if opens.is_some() {
                return opens;
            }
        }
        let filler: Vec<Token> = self.closers.filler.iter().copied().filter(allowed).collect();
        let chosen = match filler.len() {
            0 => token(TokenId::try_from(mask.first_bit_set()?).ok()?),
            count => filler[turn % count],
        };
        Some((after(&[chosen])?, vec![chosen]))
    }
}

/// Whether a grammar may end here.
pub(super) fn is_complete(matcher: &mut Matcher) -> bool {
    matcher.stop_reason().is_ok() && (matcher.is_stopped() || matcher.is_accepting().unwrap_or(false))
}

fn is_wide(mask: &SimpleVob) -> bool {
    mask.num_set() > mask.len() / 4
}

pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The grammar engine's refusal, without its own report of states.
pub(super) fn grammar_error(why: &str) -> Error {
    let first = why.lines().next().unwrap_or(why);
    Error::new(ErrorKind::Constraint, format!("the grammar cannot be used: {first}"))
        .hint("--constrain off does without")
}
