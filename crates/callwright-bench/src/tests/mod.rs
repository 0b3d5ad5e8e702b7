//! Cases, scores, journal and reports.

mod bfcl;
mod browser;
mod fake;
mod kill;
mod multi_turn;
mod runs;
mod scores;
mod shards;
mod suites;

#[test]
fn the_documentation_has_every_outcome_and_score() {
    let page = include_str!("../../../../docs/benchmark.md");
    let outcomes = super::outcome::OUTCOMES.iter().map(|outcome| format!("| `{}` |", outcome.name));
    let scores = super::summary::SCORES.iter().map(|score| format!("| `{}` |", score.key));
    for row in outcomes.chain(scores) {
        assert!(page.contains(&row), "docs/benchmark.md lacks {row}");
    }
}
