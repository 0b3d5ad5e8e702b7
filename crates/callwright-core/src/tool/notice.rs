//! Changes made while reading a tools file, so that tolerance hides nothing.

use serde::Serialize;
use std::fmt;

/// How a tool differs from its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// Translated from another dialect; the meaning is the same.
    Read,
    /// A keyword was dropped, so that more arguments fit than intended.
    Relaxed,
    /// The model uses another name for the tool; parsed calls have the tool's own.
    Renamed,
    /// The tool is unusable and was left out.
    LeftOut,
}

/// One change, with its place and the recommended form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct Notice {
    /// The kind of change.
    pub change: Change,
    /// The tool's name, or its place in the file if it has none.
    pub tool: String,
    /// JSON pointer to the schema at fault, from the tool's own schema; empty for the tool or its whole schema.
    pub path: String,
    /// The keyword or key at fault.
    pub keyword: String,
    /// What was found, and how it was read.
    pub message: String,
    /// What to write instead.
    pub instead: String,
    /// Number of other places of the tool with the same change.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { String::new() } else { format!(" at {}", self.path) };
        match self.change {
            Change::LeftOut => write!(f, "tool {:?} is left out: {}", self.tool, self.message)?,
            _ => write!(f, "tool {:?}: {:?}{place}: {}", self.tool, self.keyword, self.message)?,
        }
        match self.more {
            0 => {}
            1 => write!(f, " (and in 1 other place)")?,
            more => write!(f, " (and in {more} other places)")?,
        }
        write!(f, "; {}", self.instead)
    }
}

/// The notices of one tool.
#[derive(Debug, Default)]
pub(super) struct Notices {
    pub tool: String,
    pub list: Vec<Notice>,
}

impl Notices {
    pub(super) fn of(tool: impl Into<String>) -> Notices {
        Notices { tool: tool.into(), list: Vec::new() }
    }

    /// Adds a notice. The same change in another place is only counted: a file in another dialect has it everywhere.
    pub(super) fn add(
        &mut self,
        change: Change,
        path: &str,
        keyword: &str,
        message: impl Into<String>,
        instead: impl Into<String>,
    ) {
        let notice = Notice {
            change,
            tool: self.tool.clone(),
            path: path.to_owned(),
            keyword: keyword.to_owned(),
            message: message.into(),
            instead: instead.into(),
            more: 0,
        };
        let same = |known: &&mut Notice| {
            change == Change::Read && known.keyword == notice.keyword && known.message == notice.message
        };
        match self.list.iter_mut().find(same) {
            Some(known) => known.more += 1,
            None => self.list.push(notice),
        }
    }

    pub(super) fn read(&mut self, path: &str, keyword: &str, message: impl Into<String>, instead: impl Into<String>) {
        self.add(Change::Read, path, keyword, message, instead);
    }

    pub(super) fn relaxed(
        &mut self,
        path: &str,
        keyword: &str,
        message: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.add(Change::Relaxed, path, keyword, message, instead);
    }

    pub(super) fn left_out(&mut self, keyword: &str, message: impl Into<String>, instead: impl Into<String>) {
        self.add(Change::LeftOut, "", keyword, message, instead);
    }
}
