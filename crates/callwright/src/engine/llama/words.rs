//! A model's tokens, and what its file says of it.

use super::FLASH_FROM;
use super::weights::Weights;
use crate::engine::vocabulary::{Vocabulary, Word};
use crate::engine::{ModelInfo, Token};
use crate::template::Piece;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token_type::LlamaTokenAttr;
use llama_cpp_2::vocab::VocabType;
use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

/// The tokenizer of a model.
pub(super) struct Words {
    model: Arc<Weights>,
    pub info: ModelInfo,
    /// The bytes of tokens, once they were needed.
    pieces: Vec<OnceCell<Box<[u8]>>>,
    longest: OnceCell<usize>,
}

impl Words {
    pub(super) fn new(model: Arc<Weights>, info: ModelInfo) -> Words {
        let pieces = (0..model.n_vocab()).map(|_| OnceCell::new()).collect();
        Words { model, info, pieces, longest: OnceCell::new() }
    }

    /// The tokens of a prompt. Literal pieces become plain text, never special tokens.
    pub(super) fn tokenize(&self, prompt: &[Piece]) -> Vec<Token> {
        let mut tokens = Vec::new();
        let vocab = self.model.vocab();
        let writes_bos =
            prompt.first().is_some_and(|p| !self.info.bos.is_empty() && p.text.starts_with(&self.info.bos));
        if vocab.should_add_bos() && !writes_bos && vocab.bos().0 >= 0 {
            tokens.push(Token(vocab.bos().0));
        }
        for piece in prompt {
            if !piece.literal {
                self.plain_tokens(&piece.text, true, &mut tokens);
                continue;
            }
            // llama.cpp recognises user-defined tokens even in plain text. Splitting after the first character prevents
            // this.
            let first = piece.text.chars().next().map_or(0, char::len_utf8);
            let (head, tail) = piece.text.split_at(first);
            self.plain_tokens(head, false, &mut tokens);
            self.plain_tokens(tail, false, &mut tokens);
        }
        tokens
    }

    fn plain_tokens(&self, text: &str, special: bool, into: &mut Vec<Token>) {
        let tokens = self.model.vocab().tokenize(text.as_bytes(), false, special);
        into.extend(tokens.iter().map(|token| Token(token.0)));
    }

    /// The bytes of the longest token, where the tokenizer drops nothing of a text and has no token for what it does not know.
    pub(super) fn longest(&self) -> Option<usize> {
        let exact = matches!(self.model.vocab().vocab_type(), VocabType::BPE | VocabType::SPM);
        let all = || (0..self.model.n_vocab()).map(|token| self.bytes(Token(token)).len()).max().unwrap_or(1);
        exact.then(|| *self.longest.get_or_init(all))
    }

    /// The bytes of a token.
    pub(super) fn bytes(&self, token: Token) -> &[u8] {
        let Some(cell) = usize::try_from(token.0).ok().and_then(|index| self.pieces.get(index)) else { return b"" };
        cell.get_or_init(|| {
            let mut bytes = Vec::new();
            read_piece(&self.model, LlamaToken(token.0), &mut bytes);
            bytes.into_boxed_slice()
        })
    }

    /// Returns what reads all tokens, and the tokenizer, on any thread.
    pub(super) fn vocabulary(&self) -> impl FnOnce() -> Vocabulary + Send + 'static {
        let model = Arc::clone(&self.model);
        move || {
            let vocab = model.vocab();
            let mut bytes = Vec::new();
            let words = (0..model.n_vocab()).map(|index| {
                let token = LlamaToken(index);
                let attributes = vocab.attr(token);
                let markup =
                    attributes.contains(LlamaTokenAttr::Control) || attributes.contains(LlamaTokenAttr::Unknown);
                let end = vocab.is_eog(token);
                read_piece(&model, token, &mut bytes);
                Word { bytes: bytes.as_slice().into(), control: markup || end, end }
            });
            let words = words.collect();
            let tokenize = move |text: &[u8]| {
                let tokens = model.vocab().tokenize(text, false, false);
                tokens.iter().map(|token| Token(token.0)).collect()
            };
            Vocabulary::new(words, Arc::new(tokenize))
        }
    }

    /// Where messages begin in a prompt: at tokens that text cannot be, and that end none.
    pub(super) fn messages(&self, prompt: &[Token]) -> Vec<usize> {
        let is_control = |token: Token| {
            (0..self.model.n_vocab()).contains(&token.0)
                && self.model.vocab().attr(LlamaToken(token.0)).contains(LlamaTokenAttr::Control)
        };
        let begins = |(_, token): &(usize, &Token)| is_control(**token) && !self.is_end(**token);
        prompt.iter().enumerate().filter(begins).map(|(place, _)| place).collect()
    }

    /// How much of a prompt of a hybrid model is read with flash attention: what comes before the first message that begins late enough, unless
    /// an answer does. The prompt alone decides it, so that a cache changes no bit of an answer.
    pub(super) fn border(&self, prompt: &[Token]) -> usize {
        let messages = self.messages(prompt);
        // An answer begins as the last message does, which is the one to be written.
        let role = |place: usize| prompt.get(place..place + 2);
        let answer =
            messages.iter().copied().find(|place| messages.last().is_some_and(|last| role(*last) == role(*place)));
        // A token by itself is computed in another way than among others: two have to come between it and the last one.
        let border =
            messages.into_iter().find(|place| *place >= FLASH_FROM).filter(|border| border + 3 <= prompt.len());
        border.filter(|border| answer.is_some_and(|answer| *border <= answer)).unwrap_or_default()
    }

    /// Returns whether a token ends the model's turn.
    pub(super) fn is_end(&self, token: Token) -> bool {
        (0..self.model.n_vocab()).contains(&token.0) && self.model.vocab().is_eog(LlamaToken(token.0))
    }
}

/// The bytes of a token, in place of those that are there.
fn read_piece(model: &LlamaModel, token: LlamaToken, into: &mut Vec<u8>) {
    into.clear();
    into.reserve(16);
    model.vocab().token_to_piece_into(token, into, true, None);
}

/// Returns what a file says of its model.
pub(super) fn describe(model: &LlamaModel, path: &Path) -> ModelInfo {
    let vocab = model.vocab();
    let text = |token: LlamaToken| match token.0 {
        0.. => vocab.text(token).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default(),
        _ => String::new(),
    };
    let mut templates = Vec::new();
    for index in 0..model.meta_count() {
        let Ok(key) = model.meta_key_by_index(index) else { continue };
        let name = match key.strip_prefix("tokenizer.chat_template") {
            Some("") => "default",
            Some(variant) => variant.trim_start_matches('.'),
            None => continue,
        };
        if let Ok(source) = model.meta_val_str_by_index(index) {
            templates.push((name.to_owned(), source));
        }
    }
    let marked = |attribute: LlamaTokenAttr| {
        let tokens = (0..model.n_vocab()).map(LlamaToken);
        tokens.filter(|token| vocab.attr(*token).contains(attribute)).map(text).collect()
    };
    let name = model.meta_val_str("general.name").ok().filter(|name| !name.is_empty());
    ModelInfo {
        name: name.unwrap_or_else(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned()),
        architecture: model.meta_val_str("general.architecture").unwrap_or_default(),
        templates,
        // llama.cpp invents a beginning token for vocabularies that have none.
        bos: model.meta_val_str("tokenizer.ggml.bos_token_id").map(|_| text(vocab.bos())).unwrap_or_default(),
        eos: text(vocab.eos()),
        context_train: model.n_ctx_train() as usize,
        control_tokens: marked(LlamaTokenAttr::Control),
        user_defined_tokens: marked(LlamaTokenAttr::UserDefined),
    }
}
