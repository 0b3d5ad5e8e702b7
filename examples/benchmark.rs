//! Ask a model the first cases of the built-in suite, and print its scores.
//!
//! ```console
//! $ cargo run --release --example benchmark
//! ```

use callwright::bench::ask::SessionAnswers;
use callwright::bench::configuration::Configuration;
use callwright::bench::directory::{Plan, RunDirectory};
use callwright::bench::report;
use callwright::bench::run::{Answerer, run};
use callwright::bench::suite::Suite;
use callwright::bench::summary::Summary;
use callwright::constraint::Mode;
use callwright::engine::sampler::Sampling;
use callwright::{Result, Session};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> Result<()> {
    let session = Session::open("bundled")?;
    // All that decides an answer. The hashes identify the files; a run of one's own may leave them empty.
    let configuration = |constrain| {
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        Configuration {
            id: String::new(),
            model: "bundled".to_owned(),
            model_sha256: String::new(),
            template: session.template().name().to_owned(),
            template_sha256: String::new(),
            format: session.format().name.clone(),
            format_declaration: session.format().to_toml(),
            constrain,
            sampling,
            repair: true,
            max_tokens: 256,
            context: None,
            call_threshold: None,
            no_call_below: None,
        }
        .identified()
    };
    let configurations = vec![configuration(Mode::Off), configuration(Mode::Strict)];

    let suite = Suite::builtin()?.limited(20);
    let plan = Plan::new(&suite, configurations, 1);
    let now = plan.now.clone();
    let path = std::env::temp_dir().join(format!("callwright-benchmark-{}", std::process::id()));
    let mut directory = RunDirectory::start(&path, plan, &suite, false)?;

    let cancel = Arc::new(AtomicBool::new(false));
    let mut open = |_: usize| {
        let session = Session::open("bundled")?;
        Ok(Box::new(SessionAnswers::new(session, &now, Arc::clone(&cancel))?) as Box<dyn Answerer>)
    };
    run(&mut directory, &mut open, &mut |at| eprint!("\r{} of {} ", at.done, at.total), &cancel)?;
    eprintln!();

    let summary = Summary::new(&directory)?;
    for one in &summary.configurations {
        println!("{}", one.label);
        for (score, share) in one.scores.iter() {
            let share = share.map_or_else(|| "none".to_owned(), |share| report::with_interval(&share));
            println!("  {:<24} {share}", score.title);
        }
    }
    report::write(&summary)?;
    println!("every answer: {}", path.join("report.html").display());
    Ok(())
}
