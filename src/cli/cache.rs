//! `callwright cache`.

use super::hardware::prompt_cache_folder;
use super::{DONE, notice, screen};
use anyhow::Result;
use callwright::engine::prompt_cache::{Kept, clear, list};
use callwright::{Error, ErrorKind};
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanBytes;
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

/// Show or remove the prompts that are kept on disk
#[derive(Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Subcommand)]
enum CacheCommand {
    /// List for which models prompts are kept, and how many bytes they take
    List {
        /// Write a table, or JSON
        #[arg(long, value_name = "text|json", default_value = "text")]
        output: Output,
        #[command(flatten)]
        place: Place,
    },
    /// Remove all prompts that are kept
    Clear {
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args)]
struct Place {
    /// Use the prompts in this folder, as --prompt-cache DIR does [default: those in the cache folder]
    #[arg(long, value_name = "DIR")]
    prompt_cache: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Place {
    fn folder(self) -> Result<PathBuf> {
        let folder = self.prompt_cache.or_else(prompt_cache_folder);
        Ok(folder.ok_or_else(|| {
            Error::new(ErrorKind::Config, "this system names no cache folder").hint("name a folder with --prompt-cache")
        })?)
    }
}

pub fn run(args: CacheArgs) -> Result<u8> {
    let mut out = screen::data();
    match args.command {
        CacheCommand::List { output, place } => {
            let folder = place.folder()?;
            let kept = list(&folder);
            match output {
                Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&kept)?)?,
                Output::Text if kept.is_empty() => notice(&format!("no prompts are kept in {}", folder.display())),
                Output::Text => writeln!(out, "{}\n{}", table(&kept), folder.display())?,
            }
        }
        CacheCommand::Clear { place } => {
            let (count, bytes) = clear(&place.folder()?)?;
            let prompts = if count == 1 { "prompt" } else { "prompts" };
            writeln!(out, "removed {count} {prompts}, {}", HumanBytes(bytes))?;
        }
    }
    Ok(DONE)
}

fn table(kept: &[Kept]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["MODEL", "PROMPTS", "LONGEST", "SIZE", "LAST USED"]);
    for one in kept {
        let age = one.used.and_then(|used| SystemTime::now().duration_since(used).ok());
        let age = age.map(|age| format!("{} ago", indicatif::HumanDuration(age))).unwrap_or_default();
        let longest = format!("{} tokens", one.longest);
        table.add_row([one.model.clone(), one.prompts.to_string(), longest, HumanBytes(one.bytes).to_string(), age]);
    }
    for column in [1, 2, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
