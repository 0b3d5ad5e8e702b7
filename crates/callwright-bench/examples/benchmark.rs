//! Ask a model the first cases of the built-in suite, and print its scores.
//!
//! ```console
//! $ cargo run --release --example benchmark
//! ```

use callwright::session::Mode;
use callwright::{Result, Session};
use callwright_bench::{Answerer, Configuration, Plan, RunDirectory, SessionAnswers, Suite, Summary, run};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> Result<()> {
    let session = Session::open("bundled")?;
    let configuration = |mode| {
        let mut configuration = Configuration::new("bundled", &session);
        configuration.constrain = mode;
        configuration.max_tokens = 256;
        configuration
    };
    let configurations = vec![configuration(Mode::Off), configuration(Mode::Strict)];

    let suite = Suite::open("builtin")?.limited(20);
    let plan = Plan::new(&suite, configurations, 1);
    let now = plan.now.clone();
    let path = std::env::temp_dir().join(format!("callwright-benchmark-{}", std::process::id()));
    let mut directory = RunDirectory::start(&path, plan, &suite, false)?;

    let cancel = Arc::new(AtomicBool::new(false));
    let mut open = |_: usize, _: usize| {
        let session = Session::open("bundled")?;
        Ok(vec![Box::new(SessionAnswers::new(session, &now, Arc::clone(&cancel))?) as Box<dyn Answerer>])
    };
    run(&mut directory, &mut open, &mut |at| eprint!("\r{} of {} ", at.done, at.total), &cancel)?;
    eprintln!();

    let summary = Summary::new(&directory)?;
    for one in &summary.configurations {
        println!("{}", one.label);
        for (score, share) in one.scores.iter() {
            let share = share.map_or_else(|| "none".to_owned(), |share| share.to_string());
            println!("  {:<24} {share}", score.title);
        }
    }
    summary.write_reports()?;
    println!("every answer: {}", path.join("report.html").display());
    Ok(())
}
