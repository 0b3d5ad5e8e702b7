//! The statistics of the reports, each with its source.

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The normal quantile of a two-sided interval of 95%.
const Z: f64 = 1.959_963_984_540_054;

/// A share with its 95% confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Proportion {
    /// Successes.
    pub successes: usize,
    /// Trials.
    pub trials: usize,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl Proportion {
    /// The share; 0 without trials.
    pub fn share(&self) -> f64 {
        if self.trials == 0 { 0.0 } else { self.successes as f64 / self.trials as f64 }
    }
}

/// With the share, as in report.json.
impl Serialize for Proportion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Proportion { successes, trials, low, high } = self;
        let share = self.share();
        serde_json::json!({"successes": successes, "trials": trials, "share": share, "low": low, "high": high})
            .serialize(serializer)
    }
}

/// The share with its interval: `83.3% (71.9–90.7)`.
impl std::fmt::Display for Proportion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1}% ({:.1}–{:.1})", 100.0 * self.share(), 100.0 * self.low, 100.0 * self.high)
    }
}

/// Wilson's score interval (1927), which is sound with few trials and at 0% and 100%.
pub(crate) fn wilson(successes: usize, trials: usize) -> Proportion {
    let share = successes as f64 / trials.max(1) as f64;
    let (low, high) = score_interval(share, trials as f64);
    Proportion { successes, trials, low, high }
}

fn score_interval(share: f64, n: f64) -> (f64, f64) {
    if n == 0.0 {
        return (0.0, 1.0);
    }
    let z2 = Z * Z;
    let centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    // Rounding must not exclude a share of exactly 0 or 1.
    let low = if share == 0.0 { 0.0 } else { (centre - half).max(0.0) };
    let high = if share == 1.0 { 1.0 } else { (centre + half).min(1.0) };
    (low, high)
}

/// The interval for trials in clusters, which are not independent: Wilson's, with the effective number of trials (Korn
/// and Graubard 1998). That follows from the linearised variance of a ratio, with a design effect of at least 1. Where
/// all or no trials succeeded it cannot be estimated: each cluster then counts once.
///
/// `samples` are the cluster and whether the trial succeeded.
pub(crate) fn clustered<'a>(samples: impl IntoIterator<Item = (&'a str, bool)>) -> Proportion {
    let mut clusters: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (cluster, success) in samples {
        let (successes, trials) = clusters.entry(cluster).or_default();
        *successes += usize::from(success);
        *trials += 1;
    }
    let successes = clusters.values().map(|(successes, _)| successes).sum();
    let trials: usize = clusters.values().map(|(_, trials)| trials).sum();
    let count = clusters.len();
    if count == trials {
        return wilson(successes, trials);
    }
    let n = trials as f64;
    let share = successes as f64 / n;
    let effective = if successes == 0 || successes == trials || count < 2 {
        count as f64
    } else {
        let squares: f64 =
            clusters.values().map(|(successes, trials)| (*successes as f64 - share * *trials as f64).powi(2)).sum();
        let variance = count as f64 / (count as f64 - 1.0) * squares / (n * n);
        let design_effect = (variance / (share * (1.0 - share) / n)).max(1.0);
        n / design_effect
    };
    let (low, high) = score_interval(share, effective);
    Proportion { successes, trials, low, high }
}

/// The exact McNemar test: the probability of a split at least as uneven as `b` to `c`, if each pair that differs were
/// as likely to fall either way. Two-sided.
pub(crate) fn mcnemar(b: usize, c: usize) -> f64 {
    let n = b + c;
    let tail = b.min(c);
    // Terms of the binomial distribution in logarithms: 2^-1000 is 0 in doubles.
    let mut term = -(n as f64) * 2f64.ln();
    let mut sum = 0.0;
    for k in 0..=tail {
        if k > 0 {
            term += ((n - k + 1) as f64).ln() - (k as f64).ln();
        }
        sum += term.exp();
    }
    (2.0 * sum).min(1.0)
}

/// The design effect of pairs in clusters, which are not independent: the variance of the clusters' net changes divided
/// by that of single pairs, if each change were as likely to go either way (as Yang, Sun and Hardin 2010). At least 1.
/// `changes` are the cluster and whether the change was for the better.
pub(crate) fn paired_design_effect<'a>(changes: impl IntoIterator<Item = (&'a str, bool)>) -> f64 {
    let (mut nets, mut count) = (BTreeMap::new(), 0);
    for (cluster, better) in changes {
        *nets.entry(cluster).or_insert(0i64) += if better { 1 } else { -1 };
        count += 1;
    }
    let squares: i64 = nets.values().map(|net| net * net).sum();
    (squares as f64 / f64::from(count.max(1))).max(1.0)
}

/// [`mcnemar`] with the effective number of pairs, rounded towards no difference.
pub(crate) fn clustered_mcnemar(b: usize, c: usize, design_effect: f64) -> f64 {
    let worth = ((b + c) as f64 / design_effect).floor() as usize;
    let fewer = (b.min(c) as f64 / design_effect).ceil() as usize;
    mcnemar(fewer, worth.saturating_sub(fewer))
}

/// The difference of two paired shares with its 95% interval (Agresti and Min 2005): of `n` pairs `b` changed from
/// right to wrong and `c` from wrong to right; `design_effect` pairs count as one.
pub(crate) fn paired_difference(b: usize, c: usize, n: usize, design_effect: f64) -> (f64, f64, f64) {
    if n == 0 {
        return (0.0, -1.0, 1.0);
    }
    let (b, c, n) = (b as f64 / design_effect, c as f64 / design_effect, n as f64 / design_effect);
    let difference = (c - b) / n;
    let (b, c, n) = (b + 0.5, c + 0.5, n + 2.0);
    let centre = (c - b) / n;
    let half = Z / n * (b + c - (c - b) * (c - b) / n).sqrt();
    (difference, (centre - half).max(-1.0), (centre + half).min(1.0))
}

/// The power with which [`pairs_needed`] would find a difference.
const POWER: f64 = 0.8;

/// The number of pairs at which McNemar's test at `level` would find the difference that was seen, with a power of 80%
/// (Connor 1987), if as large a share of them changed: `b` of `n` one way and `c` the other, `design_effect` counting as
/// one. `None` where nothing differs.
pub(crate) fn pairs_needed(b: usize, c: usize, n: usize, design_effect: f64, level: f64) -> Option<usize> {
    if b == c {
        return None;
    }
    let (changed, difference) = ((b + c) as f64 / n as f64, (c as f64 - b as f64) / n as f64);
    let deviations = quantile(level) * changed.sqrt()
        + quantile(2.0 * (1.0 - POWER)) * (changed - difference * difference).max(0.0).sqrt();
    Some((design_effect * (deviations / difference).powi(2)).ceil() as usize)
}

/// The probability of a normal deviate at least as far from 0 as `z`, on either side: the approximation of the
/// complementary error function in Numerical Recipes (6.2), whose relative error is below 1.2e-7 everywhere.
pub(crate) fn two_sided(z: f64) -> f64 {
    const TERMS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let x = z.abs() / 2f64.sqrt();
    let t = 1.0 / (1.0 + 0.5 * x);
    let sum = TERMS.iter().rev().fold(0.0, |sum, term| sum * t + term);
    (t * (sum - x * x).exp()).min(1.0)
}

/// The deviate whose [`two_sided`] probability is `p`.
fn quantile(p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if two_sided(middle) > p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The mean of differences with its 95% interval, and the p-value of a mean that far from 0. Differences of one cluster
/// are no independent evidence: they count by the variance between the clusters. With few clusters the intervals of the
/// normal distribution are too narrow.
pub(crate) fn mean_difference<'a>(differences: impl IntoIterator<Item = (&'a str, f64)>) -> Option<Mean> {
    let mut clusters: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (cluster, difference) in differences {
        let (sum, count) = clusters.entry(cluster).or_default();
        *sum += difference;
        *count += 1.0;
    }
    let k = clusters.len() as f64;
    let n: f64 = clusters.values().map(|(_, count)| count).sum();
    if k < 2.0 {
        return None;
    }
    let mean = clusters.values().map(|(sum, _)| sum).sum::<f64>() / n;
    let squares: f64 = clusters.values().map(|(sum, count)| (sum - count * mean).powi(2)).sum();
    let error = (k / (k - 1.0) * squares).sqrt() / n;
    let p = if error > 0.0 { two_sided(mean / error) } else { f64::from(u8::from(mean == 0.0)) };
    Some(Mean { mean, low: mean - Z * error, high: mean + Z * error, p })
}

/// A mean with its 95% interval, and the p-value against a mean of 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// The p-value.
    pub p: f64,
}

/// Holm's correction (1979): several p-values, in the same order, that can be compared with one level.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0f64;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max(((p_values.len() - rank) as f64 * p_values[index]).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

/// The area under an ROC curve with its 95% interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Area {
    /// The probability that a positive has a higher value than a negative, where a tie counts half.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

/// The area under the ROC curve of values: each with its cluster and whether it is a positive. The variance is that of
/// DeLong, DeLong and Clarke-Pearson (1988), for clusters after Obuchowski (1997).
pub(crate) fn area(values: &[(&str, bool, f64)]) -> Area {
    let side = |positive: bool| values.iter().filter(move |(_, is, _)| *is == positive);
    let (m, n) = (side(true).count() as f64, side(false).count() as f64);
    if m == 0.0 || n == 0.0 {
        return Area { value: 0.5, low: 0.0, high: 1.0 };
    }
    // The share of the other side that each value is on the right side of.
    let component = |(_, positive, value): &(&str, bool, f64)| {
        let sum: f64 = side(!positive)
            .map(|(_, _, other)| if other == value { 0.5 } else { f64::from(u8::from((value > other) == *positive)) })
            .sum();
        sum / if *positive { n } else { m }
    };
    let mut clusters: BTreeMap<&str, [f64; 4]> = BTreeMap::new();
    let mut sum = 0.0;
    for one in values {
        let share = component(one);
        let of = clusters.entry(one.0).or_default();
        let at = if one.1 { 0 } else { 2 };
        of[at] += share;
        of[at + 1] += 1.0;
        sum += if one.1 { share } else { 0.0 };
    }
    let value = sum / m;
    let deviation = |of: &[f64; 4], at: usize| of[at] - of[at + 1] * value;
    let variance = |at: usize, count: f64| {
        let with = clusters.values().filter(|of| of[at + 1] > 0.0);
        let (clusters, squares) = with.fold((0.0, 0.0), |(k, sum), of| (k + 1.0, sum + deviation(of, at).powi(2)));
        if clusters < 2.0 { 0.0 } else { clusters / (clusters - 1.0) * squares / count / count }
    };
    let k = clusters.len() as f64;
    let products: f64 = clusters.values().map(|of| deviation(of, 0) * deviation(of, 2)).sum();
    let covariance = if k < 2.0 { 0.0 } else { 2.0 * k / (k - 1.0) * products / (m * n) };
    let half = Z * (variance(0, m) + variance(2, n) + covariance).max(0.0).sqrt();
    Area { value, low: (value - half).max(0.0), high: (value + half).min(1.0) }
}

/// The probability that `k` samples of a case are all right, an unbiased estimate from `successes` of `trials`
/// (pass^k of τ-bench, Yao et al. 2024); `None` where there are fewer than `k`.
pub(crate) fn pass_hat(k: usize, successes: usize, trials: usize) -> Option<f64> {
    if k > trials {
        return None;
    }
    Some((0..k).map(|i| successes.saturating_sub(i) as f64 / (trials - i) as f64).product())
}

/// The quantile `q`: the smallest value with at least that share of the values at or below it.
pub(crate) fn percentile(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 5e-5, "{a} is not {b}");
    }

    #[test]
    fn wilson_is_newcombes_table() {
        // Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3.
        for (successes, trials, low, high) in
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]
        {
            let interval = wilson(successes, trials);
            near(interval.low, low);
            near(interval.high, high);
        }
        let all = wilson(10, 10);
        assert_eq!(all.high, 1.0);
        assert_eq!((wilson(0, 0).low, wilson(0, 0).high), (0.0, 1.0));
    }

    #[test]
    fn clusters_that_agree_count_as_one_trial_each() {
        let names: Vec<String> = (0..20).map(|i| format!("c{i}")).collect();
        // Each cluster ten trials of one outcome: worth twenty trials; the variance has 20/19 of a binomial one.
        let samples = || names.iter().enumerate().flat_map(|(i, name)| (0..10).map(move |_| (name.as_str(), i < 10)));
        let wide = clustered(samples());
        let (low, high) = score_interval(0.5, 19.0);
        near(wide.low, low);
        near(wide.high, high);
        // One trial each: Wilson's own.
        assert_eq!(clustered(names.iter().map(|name| (name.as_str(), true))), wilson(20, 20));
        // Nothing failed: as many trials as clusters.
        let none_failed = clustered(samples().map(|(name, _)| (name, true)));
        near(none_failed.low, wilson(20, 20).low);
    }

    #[test]
    fn the_area_is_the_share_of_pairs_in_the_right_order() {
        let names: Vec<String> = (0..8).map(|i| format!("c{i}")).collect();
        let values = [
            (true, 0.9),
            (true, 0.6),
            (true, 0.4),
            (true, 0.4),
            (false, 0.1),
            (false, 0.4),
            (false, 0.5),
            (false, 0.0),
        ];
        let own: Vec<(&str, bool, f64)> =
            names.iter().zip(values).map(|(name, (positive, value))| (name.as_str(), positive, value)).collect();
        // By hand: 4 + 4 + 2.5 + 2.5 of 16 pairs.
        let one = area(&own);
        near(one.value, 13.0 / 16.0);
        // Components 1, 1, 5/8, 5/8 and 1, 1/2 + 1/8 + 1/8, 1/2, 1: by hand, the variance is (3/64 + 11/192) / 4.
        let positives = [1.0, 1.0, 0.625, 0.625].map(|v: f64| (v - 0.8125).powi(2)).iter().sum::<f64>() / 3.0;
        let negatives = [1.0, 0.75, 0.5, 1.0].map(|v: f64| (v - 0.8125).powi(2)).iter().sum::<f64>() / 3.0;
        near(one.low, 13.0 / 16.0 - Z * ((positives + negatives) / 4.0).sqrt());
        assert_eq!(one.high, 1.0);
        // The same values again in their clusters are no more evidence, or hardly.
        let twice: Vec<_> = own.iter().chain(&own).copied().collect();
        let both = area(&twice);
        near(both.value, one.value);
        near(both.low, one.low);
        assert_eq!(area(&[("a", true, 1.0)]).value, 0.5);
    }

    #[test]
    fn mcnemar_is_a_binomial_test() {
        // By hand: 2 · 2^-10 · (1 + 10) and 2 · 2^-5.
        near(mcnemar(1, 9), 22.0 / 1024.0);
        near(mcnemar(5, 0), 2.0 / 32.0);
        assert_eq!(mcnemar(0, 0), 1.0);
        assert_eq!(mcnemar(7, 7), 1.0);
        assert!(mcnemar(0, 5000) == 0.0 && mcnemar(2400, 2600) > 0.004);
    }

    #[test]
    fn differences_of_pairs() {
        // By hand from the formula: b* = 5.5, c* = 15.5, n* = 102.
        let (difference, low, high) = paired_difference(5, 15, 100, 1.0);
        near(difference, 0.10);
        let half = Z / 102.0 * (21.0f64 - 100.0 / 102.0).sqrt();
        near(low, 10.0 / 102.0 - half);
        near(high, 10.0 / 102.0 + half);
        assert_eq!(paired_difference(0, 0, 0, 1.0), (0.0, -1.0, 1.0));
        // Pairs that count for half are half as many.
        assert_eq!(paired_difference(10, 30, 200, 2.0), (difference, low, high));
    }

    #[test]
    fn normal_deviates_are_those_of_tables() {
        for (z, p) in [(0.0, 1.0), (1.959_964, 0.05), (2.575_829, 0.01), (3.890_592, 1e-4)] {
            assert!((two_sided(z) / p - 1.0).abs() < 1e-5, "{z}: {}", two_sided(z));
            assert!((quantile(p) - z).abs() < 1e-4);
        }
        assert!(two_sided(10.0) > 0.0 && two_sided(10.0) < 2e-23);
    }

    #[test]
    fn a_difference_needs_so_many_pairs() {
        // By hand: 20% and 10% change, 0.1 apart: ((1.96 sqrt(0.3) + 0.8416 sqrt(0.29)) / 0.1)^2 = 233.1.
        assert_eq!(pairs_needed(10, 20, 100, 1.0, 0.05), Some(234));
        assert_eq!(pairs_needed(10, 20, 100, 2.0, 0.05), Some(467));
        assert!(pairs_needed(10, 20, 100, 1.0, 0.01) > Some(300));
        assert_eq!((pairs_needed(5, 5, 40, 1.0, 0.05), pairs_needed(0, 0, 40, 1.0, 0.05)), (None, None));
        // All of them changed one way.
        assert_eq!(pairs_needed(0, 10, 10, 1.0, 0.05), Some(4));
    }

    #[test]
    fn a_mean_of_differences_by_clusters() {
        let names: Vec<String> = (0..16).map(|i| format!("c{i}")).collect();
        // 1 and 3 in turn: the mean is 2, its standard error sqrt(16/15 / 16).
        let each = |times: usize| {
            let values = names.iter().enumerate().map(|(i, name)| (name.as_str(), if i % 2 == 0 { 1.0 } else { 3.0 }));
            mean_difference(values.flat_map(|value| std::iter::repeat_n(value, times))).unwrap()
        };
        let one = each(1);
        near(one.mean, 2.0);
        near(one.high, 2.0 + Z * (1.0f64 / 15.0).sqrt());
        assert!(one.p < 1e-10);
        // The same again in the same clusters is no more evidence.
        near(each(5).high, one.high);
        assert_eq!(mean_difference([("a", 1.0), ("a", 2.0)]), None);
        assert_eq!(mean_difference([("a", 0.0), ("b", 0.0)]).unwrap().p, 1.0);
        assert_eq!(mean_difference([("a", 1.0), ("b", 1.0)]).unwrap().p, 0.0);
    }

    #[test]
    fn changes_of_one_cluster_are_one_change() {
        let names: Vec<String> = (0..10).map(|i| format!("c{i}")).collect();
        let each = |pairs: usize, better: fn(usize) -> bool| {
            paired_design_effect(
                names.iter().flat_map(|name| (0..pairs).map(move |pair| (name.as_str(), better(pair)))),
            )
        };
        assert_eq!(each(1, |_| true), 1.0);
        assert_eq!(each(5, |_| true), 5.0);
        // Changes either way within a cluster say that it has no side.
        assert_eq!(each(4, |pair| pair % 2 == 0), 1.0);
        assert_eq!(paired_design_effect([]), 1.0);
        // Ten clusters that went one way: a sign test of ten.
        assert_eq!(clustered_mcnemar(0, 50, 5.0), mcnemar(0, 10));
        assert_eq!(clustered_mcnemar(3, 9, 1.0), mcnemar(3, 9));
        assert_eq!((clustered_mcnemar(0, 20, 20.0), clustered_mcnemar(1, 1, 1.5)), (1.0, 1.0));
    }

    #[test]
    fn holm_is_holms_example() {
        // Holm 1979: the smallest times m, the next times m - 1, never falling.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (adjusted, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            near(*adjusted, expected);
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn pass_hat_counts_samples_without_replacement() {
        near(pass_hat(1, 3, 4).unwrap(), 0.75);
        // 3 of 4 right: C(3,2)/C(4,2) of the pairs are.
        near(pass_hat(2, 3, 4).unwrap(), 0.5);
        assert_eq!(pass_hat(4, 3, 4), Some(0.0));
        assert_eq!(pass_hat(5, 5, 4), None);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), Some(50.0));
        assert_eq!(percentile(&values, 0.95), Some(95.0));
        assert_eq!(percentile(&[7.0], 0.5), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
