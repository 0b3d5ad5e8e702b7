//! What was changed in a tools file while it was read, so that tolerance hides nothing.

use serde::Serialize;
use std::fmt;

/// How a tool differs from what its file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// Another dialect was read; the meaning is the same.
    Read,
    /// A keyword was left out, so that more arguments fit than the author wanted.
    Relaxed,
    /// The model calls the tool by another name; calls that are read carry the tool's own.
    Renamed,
    /// The tool cannot be used and was left out.
    LeftOut,
}

/// One change, with its place and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Notice {
    /// What was done.
    pub change: Change,
    /// The tool's name; its place in the file where it has none.
    pub tool: String,
    /// JSON pointer to the schema at fault, from the tool's own schema; empty for the tool and for its whole schema.
    pub path: String,
    /// The keyword or key at fault.
    pub keyword: String,
    /// What was found, and how it was read.
    pub message: String,
    /// What to write instead.
    pub instead: String,
    /// How many other places of the tool are read in the same way.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { String::new() } else { format!(" at {}", self.path) };
        write!(f, "tool {:?}: {:?}{place}: {}", self.tool, self.keyword, self.message)?;
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

    /// Adds a notice. The same reading in another place is counted: a file in another dialect has it everywhere.
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
