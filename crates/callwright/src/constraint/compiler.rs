//! Compiles grammars for one vocabulary.

use super::closing::{Closer, Ends, FIRST_EFFORT};
use super::masks::{Masks, TEXTS};
use crate::engine::Token;
use crate::engine::vocabulary::Vocabulary;
use crate::grammar::{LIMITS, budget, is_large, prepared};
use crate::setting::Setting;
use crate::{Error, ErrorKind, Result};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, ParserFactory, TokenParser};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

/// Marks tokens that match no text of a grammar.
const SPECIAL: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
/// Work on the lexer between two masks, in the grammar engine's unit of about 0.1 µs. Its default is meant for programs
/// that compute a mask for each token.
const LEXER_FUEL: u64 = 4_000_000;
/// Number of compiled grammars to cache.
const KEPT: usize = 32;

/// Compiles grammars for one model's vocabulary and one format's markup.
///
/// Creating one takes about as long as reading the vocabulary a few times. Compiled grammars are cached, and cloned for
/// each answer.
pub struct Compiler {
    factory: Arc<ParserFactory>,
    /// For grammars whose masks only the engine can compute.
    own_masks: Option<Arc<ParserFactory>>,
    tokens: Arc<Tokens>,
    masks: Masks,
    kept: HashMap<String, Begun>,
    ends: Arc<Ends>,
}

/// A grammar at its beginning.
#[derive(Clone)]
pub(super) struct Begun {
    pub matcher: Matcher,
    /// Finds completions; `None` if the grammar does not support that.
    pub closer: Option<Closer>,
    /// A completion from here, if one was found.
    pub completion: Option<Vec<u8>>,
    /// Whether it was searched for: a failing search takes long.
    searched: bool,
    /// Whether it needs a thread with a large stack.
    large: bool,
}

/// The model's own tokenizer, in the grammar engine's interface.
///
/// It is canonical: it tokenises a text as it would be tokenised in a prompt, so that forced text may be appended as
/// tokens.
pub(super) struct Tokens {
    pub vocabulary: Vocabulary,
    /// The tree of all tokens.
    trie: OnceLock<TokTrie>,
    /// A placeholder until it is set.
    no_trie: TokTrie,
    /// The tokens that end a turn.
    pub ends: Vec<TokenId>,
    /// Texts with few tokens for their length.
    fillers: Vec<Vec<u8>>,
    /// Control tokens that the format writes.
    markup: Vec<(Vec<u8>, Token)>,
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        self.trie.get().unwrap_or(&self.no_trie)
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
    /// The tokens of a text that the format or a schema writes, with control tokens only if the format writes them.
    pub(super) fn tokenize(&self, text: &[u8]) -> Vec<Token> {
        self.vocabulary.tokenize_with(text, &self.markup)
    }
}

impl Compiler {
    /// A compiler for a vocabulary; `markup` are the texts that a format writes, `ends` the closing ones.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] if the vocabulary is unusable.
    pub(crate) fn new(vocabulary: Vocabulary, markup: &[&str], ends: Ends) -> Result<Compiler> {
        let failed = |what: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Constraint, format!("the model's vocabulary cannot be constrained: {what}"))
                .hint(format!("{} to generate without a grammar", Setting::ConstrainOff))
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
        // The longest first, if one is a prefix of another.
        written_tokens.sort_by_key(|(bytes, _)| std::cmp::Reverse(bytes.len()));
        let Some(&end) = ids.first() else { return Err(failed(&"no token ends a turn")) };
        let size = u32::try_from(words.len()).map_err(|error| failed(&error))?;
        let mut trie = TokTrie::from(&TokRxInfo::new(size, end), &words);
        if ids.len() > 1 {
            trie = trie.with_eos_tokens(&ids);
        }
        let no_trie = TokTrie::from(&TokRxInfo::new(1, 0), &[vec![SPECIAL]]);
        let fillers = fillers(&vocabulary);
        let trie_later = OnceLock::new();
        let tokens =
            Arc::new(Tokens { vocabulary, trie: trie_later, no_trie, ends: ids, fillers, markup: written_tokens });
        let env: TokEnv = tokens.clone();
        // It copies the tree for masks, which are not needed, so the tree must not exist yet.
        let factory = Arc::new(factory(&env).map_err(|error| failed(&error))?);
        tokens.trie.get_or_init(|| trie);
        let masks = Masks::new(Arc::clone(&tokens));
        Ok(Compiler { factory, own_masks: None, tokens, masks, kept: HashMap::new(), ends: Arc::new(ends) })
    }

    /// The vocabulary that it compiles for.
    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        &self.tokens.vocabulary
    }

    pub(super) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    pub(super) fn masks(&self) -> &Masks {
        &self.masks
    }

    /// A grammar's matcher at its beginning; it computes no masks.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] with the grammar engine's message if it refuses the grammar.
    pub(super) fn matcher(&mut self, lark: &str) -> Result<Matcher> {
        // A clone shares the lexer's automaton, which grows with use: the next answer starts with a warm one.
        self.compiled(lark).map(|begun| begun.matcher.clone())
    }

    fn compiled(&mut self, lark: &str) -> Result<&mut Begun> {
        if self.kept.len() >= KEPT && !self.kept.contains_key(lark) {
            self.kept.clear();
        }
        match self.kept.entry(lark.to_owned()) {
            Entry::Occupied(kept) => Ok(kept.into_mut()),
            Entry::Vacant(place) => {
                let large = is_large(lark);
                let ends = Arc::clone(&self.ends);
                let follow = move |parser: &TokenParser| Closer::new(parser, ends);
                let (mut matcher, closer) = created(&self.factory, lark, large, follow)?;
                if matcher.get_error().is_none() && closer.is_none() {
                    if self.own_masks.is_none() {
                        let env: TokEnv = self.tokens.clone();
                        self.own_masks = Some(Arc::new(factory(&env).map_err(|error| grammar_error(&error))?));
                    }
                    if let Some(factory) = &self.own_masks {
                        matcher = created(factory, lark, large, |_| None::<Closer>)?.0;
                    }
                }
                match matcher.get_error() {
                    Some(why) => Err(grammar_error(&why)),
                    None => Ok(place.insert(Begun { matcher, closer, completion: None, searched: false, large })),
                }
            }
        }
    }

    /// A grammar at its beginning, with a completion if one is found.
    ///
    /// # Errors
    /// [`ErrorKind::Constraint`] with the grammar engine's message if it refuses the grammar.
    pub(super) fn begin(&mut self, lark: &str) -> Result<Begun> {
        let tokens = Arc::clone(&self.tokens);
        let begun = self.compiled(lark)?;
        if !std::mem::replace(&mut begun.searched, true)
            && let Some(mut closer) = begun.closer.take()
        {
            let found = budget::within(begun.large, move || {
                let completion = closer.completion(&[], 0, FIRST_EFFORT, &|_| true);
                let completion = completion
                    .map(|completion| closer.denser(completion, &tokens.fillers, &|text| tokens.tokenize(text).len()));
                (closer, completion)
            });
            match found {
                Ok((closer, completion)) => (begun.closer, begun.completion) = (Some(closer), completion),
                Err(why) => {
                    self.forget(lark);
                    return Err(grammar_error(&why.to_string()));
                }
            }
        }
        Ok(begun.clone())
    }

    /// Where a text violates the grammar: the offset of the first byte that does not fit, or the length if the text
    /// ends too early; `None` if it is accepted.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] if the grammar engine refuses the grammar, [`ErrorKind::Constraint`] if it fails.
    pub fn check(&mut self, lark: &str, text: &str) -> Result<Option<usize>> {
        let mut matcher = self.matcher(lark).map_err(own_grammar)?;
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

    /// Drops a grammar whose shared automaton failed.
    pub(super) fn forget(&mut self, lark: &str) {
        self.kept.remove(lark);
    }
}

/// The longest tokens of a single repeated character and of lower-case letters, as fillers for text with a minimum
/// length.
fn fillers(vocabulary: &Vocabulary) -> Vec<Vec<u8>> {
    let plain = vocabulary.words.iter().filter(|word| !word.control).map(|word| &*word.bytes);
    let is_fit = |byte: u8| matches!(byte, b' '..=b'~') && !b"\"\\'<>[]{}|`".contains(&byte);
    let runs = plain
        .clone()
        .filter(|word| word.first().is_some_and(|first| is_fit(*first) && word.iter().all(|b| b == first)));
    let letters = plain.filter(|word| !word.is_empty() && word.iter().all(u8::is_ascii_lowercase));
    let longest = [runs.max_by_key(|word| word.len()), letters.max_by_key(|word| word.len())];
    longest.into_iter().flatten().map(<[u8]>::to_vec).collect()
}

/// Creates parsers for grammars.
fn factory(env: &TokEnv) -> std::result::Result<ParserFactory, String> {
    let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
    let mut factory = ParserFactory::new(env, capabilities, &[TEXTS.to_owned()]).map_err(|error| error.to_string())?;
    factory.quiet();
    *factory.limits_mut() = ParserLimits { step_lexer_fuel: LEXER_FUEL, ..LIMITS.engine() };
    Ok(factory)
}

/// The matcher of a grammar, with what is made of its parser.
///
/// # Errors
/// [`ErrorKind::Constraint`] if that takes too long or is cancelled. What the engine refuses is in the matcher.
fn created<T: Send + 'static>(
    factory: &Arc<ParserFactory>,
    lark: &str,
    large: bool,
    make: impl FnOnce(&TokenParser) -> Option<T> + Send + 'static,
) -> Result<(Matcher, Option<T>)> {
    let (factory, lark) = (Arc::clone(factory), lark.to_owned());
    let created = budget::within(large, move || {
        let grammar = prepared(TopLevelGrammar::from_lark(lark), Some(factory.tok_env().clone()))?;
        let parser = factory.create_parser_from_init_default(grammar);
        let made = parser.as_ref().ok().and_then(make);
        Ok((Matcher::new(parser), made))
    });
    created.unwrap_or_else(|ended| Err(ended.to_string())).map_err(|why| grammar_error(&why))
}

/// Returns whether a grammar may end here.
pub(super) fn is_complete(matcher: &mut Matcher) -> bool {
    matcher.stop_reason().is_ok() && (matcher.is_stopped() || matcher.is_accepting().unwrap_or(false))
}

pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The grammar engine's message, without its own report of states.
pub(super) fn grammar_error(why: &str) -> Error {
    let first = why.lines().next().unwrap_or(why);
    Error::new(ErrorKind::Constraint, format!("the grammar cannot be used: {first}"))
        .hint(format!("{} to generate without a grammar", Setting::ConstrainOff))
}

/// The same for a user's grammar.
pub(super) fn own_grammar(refused: Error) -> Error {
    Error::new(ErrorKind::Syntax, refused.message()).hint(Setting::GrammarSyntax)
}
