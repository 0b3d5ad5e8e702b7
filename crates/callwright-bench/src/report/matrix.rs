//! One page for several runs: a table for each set of cases, whose numbers open the answers in the reports of the runs. The same in
//! Markdown has links to the runs.

use super::{STYLE, escaped, html, render};
use crate::configuration::labels;
use crate::suite::wrong;
use crate::summary::{ConfigurationSummary, SCORES, Summary};
use callwright::error::{Error, Result};
use callwright::files::{self, Readers};
use minijinja::{Value, context};
use std::path::{Path, PathBuf};

/// Writes index.html and index.md into `folder`, and beside them the report of each run. Returns the path of the first.
///
/// # Errors
/// [`ErrorKind::Suite`](callwright::ErrorKind::Suite) when two runs have the same name; [`ErrorKind::Io`](callwright::ErrorKind::Io)
/// when a file cannot be written.
pub fn write_matrix(runs: &[Summary<'_>], folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, &error))?;
    let write = |name: &str, text: &str| -> Result<PathBuf> {
        let path = folder.join(name);
        files::write(&path, text.as_bytes(), Readers::All).map_err(|error| Error::io("write", &path, &error))?;
        Ok(path)
    };
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        let path = run.run.path();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if names.contains(&name) {
            return Err(wrong(format!("two runs are called {name}")).hint("rename the folder of one"));
        }
        write(&page(&name), &html(run)?)?;
        names.push(name);
    }
    let page = context! {
        style => Value::from_safe_string(STYLE.to_owned()),
        groups => groups(runs, &names),
        definitions => SCORES,
    };
    write("index.md", &render("matrix.md", include_str!("matrix.md.jinja"), page.clone())?)?;
    write("index.html", &render("matrix.html", include_str!("matrix.html.jinja"), page)?)
}

/// The file of a run's report.
fn page(name: &str) -> String {
    format!("run-{name}.html")
}

/// The runs by their cases, in the order in which they are named.
fn groups(runs: &[Summary<'_>], names: &[String]) -> Vec<Value> {
    let mut groups: Vec<Vec<(&Summary<'_>, &String)>> = Vec::new();
    for run in runs.iter().zip(names) {
        match groups.iter_mut().find(|group| group[0].0.run.plan.suite_sha256 == run.0.run.plan.suite_sha256) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups.iter().map(|group| of_cases(group)).collect()
}

/// A table of runs of the same cases.
fn of_cases(runs: &[(&Summary<'_>, &String)]) -> Value {
    let all: Vec<_> = runs.iter().flat_map(|(run, _)| run.run.plan.configurations.iter().cloned()).collect();
    let summaries =
        || runs.iter().flat_map(|(run, name)| run.configurations.iter().enumerate().map(move |one| (name, one)));
    let row = |((name, (index, one)), label): ((&&String, (usize, &ConfigurationSummary<'_>)), String)| {
        let link = format!("{}#configuration={index}&outcome=", escaped(&page(name)));
        context! { label, scores => one.scores, link }
    };
    let has = |key: &str| summaries().any(|(_, (_, one))| one.scores.get(key).is_some());
    let run = |(run, name): &(&Summary<'_>, &String)| {
        let plan = &run.run.plan;
        context! {
            name,
            page => escaped(&page(name)),
            folder => escaped(name),
            date => plan.date,
            version => plan.callwright,
            answers => run.run.samples.len(),
            command => plan.command_line(),
        }
    };
    let plan = &runs[0].0.run.plan;
    // The labels leave out what is the same everywhere.
    let mut models: Vec<String> = all.iter().map(|one| one.values()[0].clone()).collect();
    models.dedup();
    let model = if let [model] = &models[..] { format!(", {model}") } else { String::new() };
    context! {
        title => format!("{} cases of {}{model}", plan.cases, plan.suite),
        scores => SCORES.iter().filter(|score| has(score.key)).collect::<Vec<_>>(),
        configurations => summaries().zip(labels(&all)).map(row).collect::<Vec<_>>(),
        runs => runs.iter().map(run).collect::<Vec<_>>(),
    }
}
