//! An engine without a model: it replays a recording, or a test's script.

use super::sampler::Sampling;
use super::vocabulary::{ReadVocabulary, Vocabulary};
use super::{Abilities, Engine, ModelInfo, Prompt, Token};
use crate::answer;
use crate::files::{self, Readers};
use crate::hash::sha256;
use crate::setting::Setting;
use crate::template::Piece;
use crate::{Error, ErrorKind, Result, text_file};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The end-of-turn token of a hand-written script; lower tokens are bytes.
const SCRIPT_END: Token = Token(256);

/// The start of a recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The format's version.
    pub callwright_recording: u32,
    /// The recorded model.
    pub model: ModelInfo,
    /// Maximum number of tokens in its context.
    pub context_limit: usize,
    /// The request, for the caller to repeat.
    pub request: Value,
    /// The caller's entries between the generations, with line numbers.
    #[serde(skip)]
    pub beside: Vec<(usize, Value)>,
    /// What to say of a request beyond the last answer.
    #[serde(skip)]
    pub over: Option<Error>,
}

/// An entry of the caller.
#[derive(Serialize, Deserialize)]
struct Entry<T> {
    beside: T,
}

/// The length of a prompt that was only measured.
#[derive(Serialize, Deserialize)]
struct Measured {
    measured_sha256: String,
    tokens: usize,
}

/// One recorded generation.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Generation {
    prompt_sha256: String,
    prompt: Vec<Token>,
    sampling: Sampling,
    produced: Vec<(Token, Bytes)>,
}

/// A token's bytes, as text if they are valid.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Bytes {
    Text(String),
    Raw(Vec<u8>),
}

impl Bytes {
    fn new(bytes: &[u8]) -> Bytes {
        std::str::from_utf8(bytes).map_or_else(|_| Bytes::Raw(bytes.to_vec()), |text| Bytes::Text(text.to_owned()))
    }

    fn into_vec(self) -> Vec<u8> {
        match self {
            Bytes::Text(text) => text.into_bytes(),
            Bytes::Raw(bytes) => bytes,
        }
    }
}

/// Writes a recording, one line for each generation, flushed when it is complete.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: File,
    path: PathBuf,
}

impl Recorder {
    /// Starts a recording at `path`, and replaces an existing one.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be written.
    pub(crate) fn create(path: &Path, engine: &dyn Engine, request: Value) -> Result<Recorder> {
        let mut options = files::options(Readers::Owner);
        let opened = options.write(true).create(true).truncate(true).open(path);
        let file = opened.map_err(|error| Error::io("write", path, &error))?;
        let mut recorder = Recorder { file, path: path.to_owned() };
        recorder.line(&Header {
            callwright_recording: 1,
            model: engine.model().clone(),
            context_limit: engine.context_limit(),
            request,
            beside: Vec::new(),
            over: None,
        })?;
        Ok(recorder)
    }

    /// Goes on with a file that [`Recorder::create`] began. A last line that was cut off is removed.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be written.
    pub(crate) fn append(path: &Path) -> Result<Recorder> {
        let text = std::fs::read(path).map_err(|error| Error::io("read", path, &error))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let failed = |error: &std::io::Error| Error::io("write", path, error);
        let file = File::options().append(true).open(path).map_err(|error| failed(&error))?;
        file.set_len(whole as u64).map_err(|error| failed(&error))?;
        Ok(Recorder { file, path: path.to_owned() })
    }

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be written.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::io("write", &self.path, &error))
    }

    /// Adds one generation: the prompt as text and as tokens, and the result.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be written.
    pub(crate) fn record(
        &mut self,
        engine: &dyn Engine,
        text: &str,
        prompt: &[Token],
        sampling: &Sampling,
        generation: &answer::Generation,
    ) -> Result<()> {
        let produced = generation.tokens.iter().map(|token| (*token, Bytes::new(engine.token_bytes(*token)))).collect();
        self.line(&Generation { prompt_sha256: sha256(text), prompt: prompt.to_vec(), sampling: *sampling, produced })
    }

    /// Adds an entry of the caller, which [`Header::beside`] returns.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be written.
    pub(crate) fn beside(&mut self, value: &impl Serialize) -> Result<()> {
        self.line(&Entry { beside: value })
    }

    /// Adds the length of a prompt that is tokenized but not sent.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be written.
    pub(crate) fn measured(&mut self, text: &str, tokens: usize) -> Result<()> {
        self.line(&Measured { measured_sha256: sha256(text), tokens })
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let written = serde_json::to_string(value).map_err(std::io::Error::from).and_then(|mut line| {
            line.push('\n');
            self.file.write_all(line.as_bytes())?;
            self.file.flush()
        });
        written.map_err(|error| Error::io("write", &self.path, &error))
    }
}

/// Reads the request of a recording, and the entries between its generations with their lines. A last line that was cut
/// off is left out.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be read, [`ErrorKind::Replay`] with the line if it is not a recording.
pub(crate) fn read_lines(path: &Path) -> Result<(Value, Vec<(usize, Value)>)> {
    let bytes = std::fs::read(path).map_err(|error| Error::io("read", path, &error))?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&bytes[..whole]);
    let wrong = |line: usize, error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Replay, format!("not a recording: {error}")).at(crate::error::Location {
            file: Some(path.to_owned()),
            line: Some(line),
            column: None,
        })
    };
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().ok_or_else(|| wrong(1, &"the file is empty"))?;
    let header: Header = serde_json::from_str(first).map_err(|error| wrong(1, &error))?;
    if header.callwright_recording != 1 {
        return Err(wrong(1, &format!("it is of version {}", header.callwright_recording)));
    }
    let mut entries = Vec::new();
    for (index, line) in lines {
        let value: Value = serde_json::from_str(line).map_err(|error| wrong(index + 1, &error))?;
        entries.extend(value.get("beside").map(|entry| (index + 1, entry.clone())));
    }
    Ok((header.request, entries))
}

/// Replays a recording or a script, token by token.
#[derive(Debug)]
pub struct ScriptedEngine {
    info: ModelInfo,
    context_limit: usize,
    vocabulary: BTreeMap<Token, Vec<u8>>,
    end: Token,
    generations: std::vec::IntoIter<Generation>,
    /// The lengths of measured prompts, by their hashes.
    measured: BTreeMap<String, usize>,
    /// What to say of a request beyond the last answer.
    over: Option<Error>,
    current: Option<Generation>,
    /// Hand-written scripts accept any prompt.
    any_prompt: bool,
    prompt_len: usize,
    cached: Vec<Token>,
    logits: Vec<f32>,
    likeliest: usize,
    /// The logits for [`Engine::logits_at`].
    rows: Vec<Vec<f32>>,
}

impl ScriptedEngine {
    /// An engine that answers the first prompt with the first text, and so on; after the last, with nothing.
    /// The token that ends a turn has the text [`ModelInfo::eos`].
    ///
    /// ```
    /// use callwright::{ScriptedEngine, model::ModelInfo};
    /// let engine = ScriptedEngine::from_texts(ModelInfo { context_train: 4096, ..Default::default() }, ["Hello."]);
    /// ```
    pub fn from_texts<'a>(info: ModelInfo, texts: impl IntoIterator<Item = &'a str>) -> ScriptedEngine {
        let generations = texts
            .into_iter()
            .map(|text| Generation {
                prompt_sha256: String::new(),
                prompt: Vec::new(),
                sampling: Sampling::default(),
                produced: text.bytes().map(|byte| (Token(i32::from(byte)), Bytes::Raw(vec![byte]))).collect(),
            })
            .collect();
        let context_limit = info.context_train;
        let bytes = (0..=255u8).map(|byte| (Token(i32::from(byte)), vec![byte]));
        ScriptedEngine {
            vocabulary: bytes.chain([(SCRIPT_END, info.eos.clone().into_bytes())]).collect(),
            any_prompt: true,
            ..ScriptedEngine::new(info, context_limit, SCRIPT_END, generations)
        }
    }

    /// Opens a recording: the engine that replays it, and its header.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be read, [`ErrorKind::Replay`] with the line if it is not a recording.
    pub(crate) fn replay(path: &Path) -> Result<(ScriptedEngine, Header)> {
        let bytes = std::fs::File::open(path).and_then(text_file::read_all);
        let mut bytes = bytes.map_err(|error| Error::io("read", path, &error))?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let cut = whole > 0 && whole < bytes.len() && serde_json::from_slice::<Value>(&bytes[whole..]).is_err();
        if cut {
            bytes.truncate(whole);
        }
        let text = text_file::in_utf8(bytes, path)?;
        let mut lines = text.lines().enumerate();
        let damaged = |line: usize, error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Replay, format!("not a recording that this version can read: {error}"))
                .at(crate::error::Location { file: Some(path.to_owned()), line: Some(line + 1), column: None })
                .hint(format!("{} writes one", Setting::Record))
        };
        let (line, first) = lines.next().ok_or_else(|| damaged(0, &"the file is empty"))?;
        let mut header: Header = serde_json::from_str(first).map_err(|error| damaged(line, &error))?;
        if header.callwright_recording != 1 {
            return Err(damaged(line, &format!("its version is {}", header.callwright_recording)));
        }
        let mut generations = Vec::new();
        let mut vocabulary = BTreeMap::new();
        let mut measured = BTreeMap::new();
        for (line, text) in lines {
            if let Ok(Entry { beside }) = serde_json::from_str(text) {
                header.beside.push((line + 1, beside));
                continue;
            }
            if let Ok(Measured { measured_sha256, tokens }) = serde_json::from_str(text) {
                measured.insert(measured_sha256, tokens);
                continue;
            }
            let generation: Generation = serde_json::from_str(text).map_err(|error| damaged(line, &error))?;
            for (token, bytes) in &generation.produced {
                if !(0..1 << 24).contains(&token.0) {
                    return Err(damaged(line, &format!("token {} is not a valid id", token.0)));
                }
                vocabulary.insert(*token, bytes.clone().into_vec());
            }
            generations.push(generation);
        }
        header.over = Some(over(path, &header, generations.len(), cut));
        let last = vocabulary.last_key_value().map_or(0, |(token, _)| token.0);
        let engine = ScriptedEngine {
            vocabulary,
            measured,
            over: header.over.clone(),
            ..ScriptedEngine::new(header.model.clone(), header.context_limit, Token(last + 1), generations)
        };
        Ok((engine, header))
    }

    fn new(info: ModelInfo, context_limit: usize, end: Token, generations: Vec<Generation>) -> ScriptedEngine {
        ScriptedEngine {
            info,
            context_limit,
            vocabulary: BTreeMap::new(),
            end,
            generations: generations.into_iter(),
            measured: BTreeMap::new(),
            over: None,
            current: None,
            any_prompt: false,
            prompt_len: 0,
            cached: Vec::new(),
            logits: vec![f32::NEG_INFINITY; usize::try_from(end.0).unwrap_or(0) + 1],
            likeliest: 0,
            rows: Vec::new(),
        }
    }
}

/// Returns what to say of a request beyond the last answer of a recording. `cut`: its last line is not whole.
fn over(path: &Path, header: &Header, answers: usize, cut: bool) -> Error {
    let entries = |name: &str| header.beside.iter().filter(|(_, entry)| entry.get(name).is_some()).count();
    let (runs, ended) = (entries("run"), entries("finished"));
    let after = match answers {
        0 => "before its first answer".to_owned(),
        1 => "after 1 answer".to_owned(),
        many => format!("after {many} answers"),
    };
    let interrupted = cut || runs > ended || (runs, answers) == (0, 0);
    let (why, hint) = match header.request.get("invocation") {
        _ if !interrupted => ("and this request is another one", "record again".to_owned()),
        Some(_) => ("because it was interrupted", format!("callwright resume {} goes on with the run", path.display())),
        None => ("because it was interrupted", "record again".to_owned()),
    };
    Error::new(ErrorKind::Replay, format!("the recording ends {after}, {why}")).hint(hint)
}

impl ScriptedEngine {
    /// Appends tokens; afterwards the script's next token is the likeliest.
    fn write(&mut self, tokens: &[Token]) {
        self.cached.extend_from_slice(tokens);
        let said = self.cached.len().saturating_sub(self.prompt_len);
        let next = self.current.as_ref().and_then(|generation| generation.produced.get(said));
        let next = usize::try_from(next.map_or(self.end, |(token, _)| *token).0).unwrap_or(0);
        self.logits[self.likeliest] = f32::NEG_INFINITY;
        self.logits[next] = 0.0;
        self.likeliest = next;
    }
}

impl Engine for ScriptedEngine {
    fn model(&self) -> &ModelInfo {
        &self.info
    }

    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        let text: String = prompt.iter().map(|piece| piece.text.as_str()).collect();
        if self.any_prompt {
            return Ok(text.bytes().map(|byte| Token(i32::from(byte))).collect());
        }
        let wanted = sha256(&text);
        let recorded = self.generations.as_slice().iter().find(|generation| generation.prompt_sha256 == wanted);
        let measured = || self.measured.get(&wanted).map(|tokens| vec![self.end; *tokens]);
        recorded.map(|generation| generation.prompt.clone()).or_else(measured).ok_or_else(|| {
            let over = self.over.clone().filter(|_| self.generations.as_slice().is_empty());
            over.unwrap_or_else(|| {
                Error::new(ErrorKind::Replay, "the recording has no answer to this prompt: the request has changed")
                    .hint("replay with the same messages, tools, template and format, or record again")
            })
        })
    }

    fn token_bytes(&self, token: Token) -> &[u8] {
        self.vocabulary.get(&token).map_or(b"", Vec::as_slice)
    }

    fn vocabulary(&self) -> Option<ReadVocabulary> {
        // A recording only has the tokens that were produced, and was constrained when it was made.
        self.any_prompt.then(|| Box::new(Vocabulary::of_bytes) as ReadVocabulary)
    }

    fn is_end(&self, token: Token) -> bool {
        token == self.end
    }

    fn reserve(&mut self, _now: usize, _most: usize) -> Result<()> {
        Ok(())
    }

    fn context_limit(&self) -> usize {
        self.context_limit
    }

    fn cached(&self) -> &[Token] {
        &self.cached
    }

    fn truncate(&mut self, len: usize) {
        self.cached.truncate(len);
    }

    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        self.rows.clear();
        self.write(tokens);
        Ok(())
    }

    fn decode_all(&mut self, tokens: &[Token], first: usize) -> Result<()> {
        self.rows.clear();
        for (index, token) in tokens.iter().enumerate() {
            self.write(std::slice::from_ref(token));
            if index >= first {
                self.rows.push(self.logits.clone());
            }
        }
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        self.rows.get(row).unwrap_or(&self.logits)
    }

    fn can(&self) -> Abilities {
        // A script says what comes at each place, whatever precedes it.
        Abilities { truncate: true, go_back: false, draft: true }
    }

    fn begin(&mut self, Prompt { tokens: prompt, .. }: Prompt<'_>, sampling: &Sampling) -> Result<()> {
        self.current = self.generations.next();
        self.prompt_len = prompt.len();
        match &self.current {
            Some(generation) if !self.any_prompt && generation.prompt != prompt => {
                Err(Error::new(ErrorKind::Replay, "the prompts come in another order than they were recorded"))
            }
            Some(generation) if !self.any_prompt && generation.sampling != *sampling => {
                Err(Error::new(ErrorKind::Replay, "the sampling options differ from the recorded ones")
                    .hint(format!("recorded: {}", json!(generation.sampling))))
            }
            None => self.over.clone().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }
}
