//! Logistic regression with two features: the weights of the decision to call.

/// A small penalty of large weights, so that cases that can be separated perfectly have finite ones.
const PENALTY: f64 = 1e-4;
const MOST_STEPS: usize = 100;

/// A bias, and a weight for each of the two features, that make the labels likeliest, where both labels count alike,
/// however many rows have them. By Newton's method, which is deterministic. `None` where the rows do not determine them.
pub(super) fn fit(rows: &[([f64; 2], bool)]) -> Option<[f64; 3]> {
    let count = rows.len() as f64;
    let positive = rows.iter().filter(|(_, label)| *label).count() as f64;
    if positive == 0.0 || positive == count {
        return None;
    }
    let mean = [0, 1].map(|k| rows.iter().map(|(x, _)| x[k]).sum::<f64>() / count);
    let deviation = [0, 1].map(|k| {
        let variance = rows.iter().map(|(x, _)| (x[k] - mean[k]).powi(2)).sum::<f64>() / count;
        if variance > 0.0 { variance.sqrt() } else { 1.0 }
    });
    let scaled: Vec<([f64; 3], bool)> = rows
        .iter()
        .map(|(x, label)| ([1.0, (x[0] - mean[0]) / deviation[0], (x[1] - mean[1]) / deviation[1]], *label))
        .collect();
    let mut weights = [0.0; 3];
    for _ in 0..MOST_STEPS {
        let mut gradient = weights.map(|weight| -PENALTY * weight);
        let mut curvature = [[PENALTY, 0.0, 0.0], [0.0, PENALTY, 0.0], [0.0, 0.0, PENALTY]];
        for (x, label) in &scaled {
            let share = if *label { 0.5 / positive } else { 0.5 / (count - positive) };
            let sum: f64 = x.iter().zip(&weights).map(|(x, weight)| x * weight).sum();
            let probability = 1.0 / (1.0 + (-sum).exp());
            let error = f64::from(u8::from(*label)) - probability;
            for i in 0..3 {
                gradient[i] += share * error * x[i];
                for j in 0..3 {
                    curvature[i][j] += share * probability * (1.0 - probability) * x[i] * x[j];
                }
            }
        }
        let step = solve(curvature, gradient)?;
        weights = [0, 1, 2].map(|i| weights[i] + step[i]);
        if step.iter().all(|step| step.abs() < 1e-10) {
            break;
        }
    }
    let unscaled = [weights[1] / deviation[0], weights[2] / deviation[1]];
    let bias = weights[0] - unscaled[0] * mean[0] - unscaled[1] * mean[1];
    let fitted = [bias, unscaled[0], unscaled[1]];
    fitted.iter().all(|weight| weight.is_finite()).then_some(fitted)
}

/// Solves three linear equations by elimination.
fn solve(mut matrix: [[f64; 3]; 3], mut right: [f64; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        if matrix[column][column].abs() < 1e-300 {
            return None;
        }
        for row in 0..3 {
            if row == column {
                continue;
            }
            let factor = matrix[row][column] / matrix[column][column];
            let pivot = matrix[column];
            matrix[row].iter_mut().zip(pivot).for_each(|(value, pivot)| *value -= factor * pivot);
            right[row] -= factor * right[column];
        }
    }
    Some([0, 1, 2].map(|i| right[i] / matrix[i][i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows whose label depends on the second feature alone, with exceptions.
    fn rows() -> Vec<([f64; 2], bool)> {
        (0..200)
            .map(|i| {
                let (noise, fit) = (f64::from(i * 37 % 100) / 10.0, f64::from(i % 20));
                ([noise, fit], (fit > 9.0) != (i % 17 == 0))
            })
            .collect()
    }

    #[test]
    fn the_feature_that_says_something_gets_the_weight() {
        let [bias, noise, fit] = fit(&rows()).unwrap();
        assert!(fit > 0.2 && noise.abs() < fit / 3.0, "{bias} {noise} {fit}");
        let middle = -(bias + noise * 5.0) / fit;
        assert!((8.0..11.0).contains(&middle), "{middle}");
    }

    #[test]
    fn labels_count_alike_however_many_rows_have_them() {
        let mut more = rows();
        more.extend(rows().into_iter().filter(|(_, label)| *label));
        let (once, twice) = (fit(&rows()).unwrap(), fit(&more).unwrap());
        assert!(once.iter().zip(&twice).all(|(a, b)| (a / b - 1.0).abs() < 0.01), "{once:?} {twice:?}");
    }

    #[test]
    fn rows_that_can_be_separated_have_finite_weights_and_one_label_has_none() {
        let separable: Vec<_> = (0..20).map(|i| ([0.0, f64::from(i)], i >= 10)).collect();
        let [_, same, fitted] = fit(&separable).unwrap();
        assert!(fitted.is_finite() && fitted > 0.0 && same == 0.0);
        assert_eq!(fit(&separable[..5]), None);
        assert_eq!(fit(&[]), None);
    }
}
