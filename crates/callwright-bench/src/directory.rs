//! A run's directory: the plan, and each answer as soon as it exists.
//!
//! `run.json` has the plan, `suite.jsonl` the cases, `samples.jsonl` a line for each answer and `prompts.jsonl` one for
//! each prompt. Lines are only appended, each with one write: killing a run damages at most the last line, and the run
//! resumes after the line before.

use super::configuration::Configuration;
use super::run::in_order;
use super::sample::Sample;
use super::score::SCORER;
use super::shard::Shard;
use super::suite::{Case, Suite, wrong};
use callwright::error::{Error, ErrorKind, Location, Result};
use callwright::files::{self, Readers};
use callwright::models::Gguf;
use callwright::setting::Setting;
use callwright::text_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The version of the files.
const VERSION: u32 = 1;

/// run.json: all that is needed to repeat a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// The version of the directory's files.
    pub callwright_bench: u32,
    /// The program's version.
    pub callwright: String,
    /// The version of the outcomes' meanings, `SCORER`.
    pub scorer: u32,
    /// The command line, if there was one.
    pub command: Vec<String>,
    /// The day on which it began, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// The suite's name.
    pub suite: String,
    /// The hash of the suite's lines.
    pub suite_sha256: String,
    /// The number of cases, in all shards.
    pub cases: usize,
    /// The number of answers to each case.
    pub repeat: usize,
    /// The number of cases asked at a time.
    #[serde(default = "one")]
    pub parallel_cases: usize,
    /// Whether each case was asked as if it were the only one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
    /// The part of the cases that this run asks, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// The time that chat templates get.
    pub now: String,
    /// The configurations.
    pub configurations: Vec<Configuration>,
    /// The models' files, by their hashes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, ModelFile>,
}

/// What is shown of a model's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFile {
    /// Its size in bytes.
    pub bytes: u64,
    /// How its weights are stored, if it says so.
    pub quantization: Option<String>,
}

impl ModelFile {
    /// The file, or files, of a GGUF.
    pub fn of(gguf: &Gguf) -> ModelFile {
        let bytes = gguf.files().iter().filter_map(|file| std::fs::metadata(file).ok()).map(|data| data.len()).sum();
        ModelFile { bytes, quantization: gguf.quantization().map(str::to_owned) }
    }
}

fn one() -> usize {
    1
}

impl Plan {
    /// The plan of a run over `suite`.
    pub fn new(suite: &Suite, configurations: Vec<Configuration>, repeat: usize) -> Plan {
        Plan {
            callwright_bench: VERSION,
            callwright: env!("CARGO_PKG_VERSION").to_owned(),
            scorer: SCORER,
            command: Vec::new(),
            date: None,
            suite: suite.name.clone(),
            suite_sha256: suite.sha256(),
            cases: suite.cases.len(),
            repeat,
            parallel_cases: 1,
            exact: false,
            shard: None,
            now: NOW.to_owned(),
            configurations: configurations.into_iter().map(Configuration::identified).collect(),
            files: BTreeMap::new(),
        }
    }

    /// The command that started the run, quoted for a shell.
    pub(crate) fn command_line(&self) -> String {
        let plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
        let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        };
        self.command.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }

    /// The difference that keeps a run from being resumed with another plan.
    pub fn difference(&self, other: &Plan) -> Option<&'static str> {
        let ids = |plan: &Plan| plan.configurations.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
        if self.suite_sha256 != other.suite_sha256 {
            Some("the cases")
        } else if ids(self) != ids(other) {
            Some("models, templates, formats or options")
        } else if self.repeat != other.repeat {
            Some(Setting::Repeat.name())
        } else if self.exact != other.exact {
            Some("whether each case is asked alone")
        } else if self.shard != other.shard {
            Some("the shard")
        } else {
            None
        }
    }
}

/// Files that an interrupted start may leave behind.
const BEGINNING: [&str; 5] = ["suite.jsonl", "samples.jsonl", "prompts.jsonl", "run.json", LOCK];

/// An empty file, locked by the running process. It is separate because some systems do not allow reading a locked
/// file.
const LOCK: &str = "run.lock";

/// The time that chat templates get, so that a prompt does not change from day to day.
pub const NOW: &str = "2025-01-01T12:00:00";

/// A run's directory.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// The plan.
    pub plan: Plan,
    /// The cases.
    pub suite: Suite,
    /// The answers so far, in the order in which they arrived.
    pub samples: Vec<Sample>,
    /// The prompts' texts, by hash.
    pub prompts: HashMap<String, String>,
    /// What the user should know about the directory's state.
    pub notices: Vec<String>,
    journal: Option<Journal>,
}

/// The open files of a run in progress.
#[derive(Debug)]
struct Journal {
    samples: File,
    prompts: File,
    /// Keeps other processes out while it is open.
    _lock: Lock,
}

impl Journal {
    fn new(path: &Path, lock: Lock) -> Result<Journal> {
        Ok(Journal { samples: append(path, "samples.jsonl")?, prompts: append(path, "prompts.jsonl")?, _lock: lock })
    }
}

impl RunDirectory {
    /// Checks that a run can start at `path`: nothing exists, or an empty directory, or the files of an interrupted
    /// start.
    ///
    /// # Errors
    /// [`ErrorKind::Suite`] when a run or anything else exists; [`ErrorKind::Io`].
    pub fn check_free(path: &Path) -> Result<()> {
        if path.join("run.json").exists() {
            return Err(wrong(format!("there is a run in {}", path.display())).hint(Setting::Resume));
        }
        if !path.exists() {
            return Ok(());
        }
        let entries = std::fs::read_dir(path).map_err(|error| Error::io("read", path, &error))?;
        for entry in entries {
            let name = entry.map_err(|error| Error::io("read", path, &error))?.file_name();
            let name = name.to_string_lossy();
            if !BEGINNING.contains(&name.trim_end_matches(".part")) {
                return Err(wrong(format!("{} is not empty and no run: it has {name}", path.display()))
                    .hint(Setting::NewDirectory));
            }
        }
        Ok(())
    }

    /// Starts a run at `path`, or, with `resume`, resumes the existing one.
    ///
    /// # Errors
    /// [`ErrorKind::Suite`] when a run exists and must not be resumed, differs from the plan, or is in progress in
    /// another process; [`ErrorKind::Io`].
    pub fn start(path: &Path, plan: Plan, suite: &Suite, resume: bool) -> Result<RunDirectory> {
        let goes_on = || resume && path.join("run.json").exists();
        let mut notices = Vec::new();
        if !goes_on() {
            RunDirectory::check_free(path)?;
            if resume {
                notices.push(format!("there was no run in {}: one begins", path.display()));
            }
            std::fs::create_dir_all(path).map_err(|error| Error::io("create", path, &error))?;
        }
        let lock = lock(path)?;
        // Only the lock makes sure that no other process starts a run here.
        if goes_on() {
            let mut found = RunDirectory::read(path, true)?;
            if let Some(what) = found.plan.difference(&plan) {
                return Err(wrong(format!("the run in {} differs in {what}", path.display()))
                    .hint(format!("{}: run.json has it", Setting::SameCommand)));
            }
            if plan.parallel_cases > found.plan.parallel_cases {
                // The reports state how many cases were asked at a time.
                found.plan.parallel_cases = plan.parallel_cases;
                found.write_plan()?;
            }
            let there = found.samples.len();
            found.samples.retain(|sample| !sample.broke());
            if found.samples.len() < there {
                let answers = match there - found.samples.len() {
                    1 => "an answer that something broke at is".to_owned(),
                    count => format!("{count} answers that something broke at are"),
                };
                found.notices.push(format!("{answers} asked for again"));
            }
            found.journal = Some(Journal::new(path, lock)?);
            return Ok(found);
        }
        RunDirectory::check_free(path)?;
        write(path, "suite.jsonl", &suite.to_text())?;
        let run = RunDirectory {
            path: path.to_owned(),
            plan,
            suite: suite.clone(),
            samples: Vec::new(),
            prompts: HashMap::new(),
            notices,
            journal: Some(Journal::new(path, lock)?),
        };
        // Last: a directory with run.json is complete.
        run.write_plan()?;
        Ok(run)
    }

    /// Reads an existing run, which may still be in progress.
    ///
    /// # Errors
    /// [`ErrorKind::Suite`] when `path` has no run, or a line other than the last is damaged.
    pub fn open(path: &Path) -> Result<RunDirectory> {
        RunDirectory::read(path, false)
    }

    /// Reads a run; with `cut` it removes a damaged last line from the file.
    fn read(path: &Path, cut: bool) -> Result<RunDirectory> {
        let described = path.join("run.json");
        if !described.exists() {
            return Err(wrong(format!("there is no run in {}", path.display())).hint(Setting::RunDirectory));
        }
        let plan: Plan = serde_json::from_str(&text_file::read(&described)?)
            .map_err(|error| wrong(format!("not a run that this version can read: {error}")).in_file(&described))?;
        if plan.callwright_bench != VERSION {
            return Err(wrong(format!("the run is of version {}", plan.callwright_bench)).in_file(&described));
        }
        let cases = path.join("suite.jsonl");
        let suite = Suite::from_text(&plan.suite, &text_file::read(&cases)?, &cases)?;
        if suite.sha256() != plan.suite_sha256 {
            return Err(wrong("the cases are not those that the run began with").in_file(&cases));
        }
        let mut notices = Vec::new();
        let lines: Vec<Prompt> = read_lines(&path.join("prompts.jsonl"), cut, &mut notices)?;
        let prompts = lines.into_iter().map(|prompt| (prompt.sha256, prompt.text)).collect();
        let samples: Vec<Sample> = read_lines(&path.join("samples.jsonl"), cut, &mut notices)?;
        let mut run =
            RunDirectory { path: path.to_owned(), plan, suite, samples: Vec::new(), prompts, notices, journal: None };
        run.take(samples)?;
        Ok(run)
    }

    /// Adds the samples that were read. Of two samples of one answer it keeps one, preferably one that did not fail.
    fn take(&mut self, samples: Vec<Sample>) -> Result<()> {
        let own = self.own_cases();
        let cases: HashSet<&str> = own.iter().map(|(_, case)| case.id.as_str()).collect();
        let configurations: HashSet<&str> = self.plan.configurations.iter().map(|one| one.id.as_str()).collect();
        let mut places = HashMap::new();
        for (index, sample) in samples.into_iter().enumerate() {
            let (case, config, repeat) = sample.key();
            if !cases.contains(case) || !configurations.contains(config) || repeat >= self.plan.repeat {
                let message = format!("the sample of {case:?} is none of this run");
                let file = Some(self.path.join("samples.jsonl"));
                return Err(wrong(message).at(Location { file, line: Some(index + 1), column: None }));
            }
            let place = *places.entry((case.to_owned(), config.to_owned(), repeat)).or_insert(self.samples.len());
            match self.samples.get_mut(place) {
                None => self.samples.push(sample),
                Some(kept) if kept.broke() => *kept = sample,
                Some(_) => self.notices.push(format!("samples.jsonl has {case} twice; the first counts")),
            }
        }
        Ok(())
    }

    /// The cases that the run asks, in that order; each with the number of its tools.
    pub(super) fn own_cases(&self) -> Vec<(usize, Case)> {
        let cases = &self.suite.cases;
        self.plan.shard.map_or_else(|| in_order(cases), |shard| shard.cases(cases))
    }

    /// The number of answers that the run will have.
    pub(crate) fn total(&self) -> usize {
        let cases = self.plan.shard.map_or(self.plan.cases, |_| self.own_cases().len());
        cases * self.plan.repeat * self.plan.configurations.len()
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes an answer to the file before it returns.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it cannot be written, or the directory was opened for reading only.
    pub(crate) fn append(&mut self, sample: Sample, prompt: &str) -> Result<()> {
        let path = self.path.join("samples.jsonl");
        let Some(Journal { samples, prompts, .. }) = &mut self.journal else {
            return Err(Error::new(ErrorKind::Io, format!("{} was opened for reading", path.display())));
        };
        if !prompt.is_empty() && !self.prompts.contains_key(&sample.prompt_sha256) {
            let line = Prompt { sha256: sample.prompt_sha256.clone(), text: prompt.to_owned() };
            write_line(prompts, &line).map_err(|error| Error::io("write", self.path.join("prompts.jsonl"), &error))?;
            self.prompts.insert(line.sha256, line.text);
        }
        write_line(samples, &sample).map_err(|error| Error::io("write", path, &error))?;
        self.samples.push(sample);
        Ok(())
    }

    /// Rewrites run.json.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]
    pub(crate) fn write_plan(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.plan)
            .map_err(|error| Error::io("write", self.path.join("run.json"), &error.into()))?;
        self.write("run.json", &(text + "\n"))
    }

    /// The number of answers still missing: the run is in progress, or was interrupted.
    pub fn lacking(&self) -> usize {
        self.total().saturating_sub(self.samples.len())
    }

    /// Writes a file of the directory atomically.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        write(&self.path, name, text)
    }
}

/// A line of prompts.jsonl.
#[derive(Serialize, Deserialize)]
struct Prompt {
    sha256: String,
    text: String,
}

/// The lock of a run's directory. It ends with this value, also where a process that is just being started has the file, too.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn lock(folder: &Path) -> Result<Lock> {
    let file = append(folder, LOCK)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(wrong(format!("another process is at work on the run in {}", folder.display()))
                .hint(format!("wait for it to end, or {}", Setting::Elsewhere)))
        }
        // Some file systems have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Lock(file)),
    }
}

fn append(folder: &Path, name: &str) -> Result<File> {
    let path = folder.join(name);
    files::options(Readers::Owner)
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| Error::io("write", &path, &error))
}

fn write_line(file: &mut File, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)?;
    file.flush()
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    files::write(&path, text.as_bytes(), Readers::Owner).map_err(|error| Error::io("write", &path, &error))
}

/// The lines of a journal. A damaged last line is dropped with a notice; `cut` removes it from the file too.
fn read_lines<T: for<'de> Deserialize<'de>>(path: &Path, cut: bool, notices: &mut Vec<String>) -> Result<Vec<T>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bytes = std::fs::read(path).map_err(|error| Error::io("read", path, &error))?;
    let mut read = Vec::new();
    let mut at = 0;
    let mut number = 0;
    while at < bytes.len() {
        number += 1;
        let end = bytes[at..].iter().position(|byte| *byte == b'\n').map(|length| at + length + 1);
        let line = &bytes[at..end.unwrap_or(bytes.len())];
        match serde_json::from_slice(line) {
            Ok(value) if end.is_some() => read.push(value),
            _ if end.is_none_or(|end| end == bytes.len()) => {
                if cut {
                    let shortened = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(at as u64));
                    shortened.map_err(|error| Error::io("cut the damaged last line off", path, &error))?;
                }
                notices.push(format!("{}: the last line was damaged, and is dropped", path.display()));
                break;
            }
            Ok(_) => {}
            Err(error) => {
                return Err(wrong(format!("the line is damaged: {error}"))
                    .at(Location { file: Some(path.to_owned()), line: Some(number), column: None })
                    .hint("only a last line can be dropped; take this one out to have its sample made again"));
            }
        }
        at = end.unwrap_or(bytes.len());
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_though_the_file_is_open_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path()).unwrap();
        let elsewhere = held.0.try_clone().unwrap();
        assert!(lock(folder.path()).is_err());
        drop(held);
        assert!(lock(folder.path()).is_ok());
        drop(elsewhere);
    }
}
