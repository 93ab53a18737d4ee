//! Compares the times of contenders: computes medians, ratios, and the placement that `auto` should
//! have chosen.
//!
//! Invariants
//! - A ratio below 1 means that this engine is faster. Ratios compare medians, over the queries
//!   that both contenders have run.
//! - The best forced placement is chosen by its median of the same turns. The minimum of several
//!   scattered medians is below each of their true values. So with few turns, the ratio of `auto`
//!   to it is a little too large, never too small.

use super::line::{Over, OverBest, TpchLine, rounded};
use rackscan_lab::median;
use rackscan_planner::Policy;
use std::collections::BTreeMap;

/// Computes medians, totals and ratios from the times.
pub(super) fn summarise(lines: &mut [TpchLine]) {
    for line in lines.iter_mut() {
        for (query, times) in &line.ms {
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            line.best_ms.insert(query.clone(), best);
            if let Some(median) = median(times.clone()) {
                line.median_ms.insert(query.clone(), rounded(median));
            }
        }
        line.total_best_ms = rounded(line.best_ms.values().sum());
        line.total_median_ms = rounded(line.median_ms.values().sum());
    }
    let peers: Vec<(String, BTreeMap<String, f64>)> = lines
        .iter()
        .filter(|line| !line.is_ours)
        .map(|line| (line.name.clone(), line.median_ms.clone()))
        .collect();
    let forced: Vec<(String, BTreeMap<String, f64>)> = lines
        .iter()
        .filter(|line| line.policy.is_some_and(|policy| policy.forced().is_some()))
        .map(|line| (line.name.clone(), line.median_ms.clone()))
        .collect();
    for line in lines.iter_mut().filter(|line| line.is_ours) {
        let compared =
            peers.iter().filter_map(|(name, theirs)| Some((name.clone(), over(&line.median_ms, theirs)?)));
        line.over = compared.collect();
        if line.policy == Some(Policy::Auto) {
            line.over_best_forced = over_best(&line.median_ms, &forced);
        }
    }
}

fn over(ours: &BTreeMap<String, f64>, theirs: &BTreeMap<String, f64>) -> Option<Over> {
    let both = || ours.iter().filter_map(|(query, ms)| Some((query, *ms, *theirs.get(query)?)));
    let of: BTreeMap<String, f64> =
        both().map(|(query, ms, other)| (query.clone(), rounded(ms / other))).collect();
    let (sum, other_sum) = both().fold((0.0, 0.0), |(a, b), (_, ms, other)| (a + ms, b + other));
    let geometric_mean = geometric_mean(both().map(|(_, ms, other)| ms / other))?;
    Some(Over { of, geometric_mean, of_totals: rounded(sum / other_sum) })
}

fn over_best(auto: &BTreeMap<String, f64>, forced: &[(String, BTreeMap<String, f64>)]) -> Option<OverBest> {
    let (mut of, mut best) = (BTreeMap::new(), BTreeMap::new());
    for (query, ms) in auto {
        let times = forced.iter().filter_map(|(name, times)| Some((name, *times.get(query)?)));
        let Some((name, least)) = times.min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        of.insert(query.clone(), rounded(ms / least));
        best.insert(query.clone(), name.clone());
    }
    let (worst_query, worst) =
        of.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(query, worst)| (query.clone(), *worst))?;
    let geometric_mean = geometric_mean(of.values().copied())?;
    Some(OverBest { of, best, geometric_mean, worst, worst_query })
}

/// Returns `None` without ratios.
fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = ratios.fold((0.0, 0.0), |(sum, count), ratio| (sum + ratio.ln(), count + 1.0));
    (count > 0.0).then(|| rounded((sum / count).exp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(times: &[(&str, f64)]) -> BTreeMap<String, f64> {
        times.iter().map(|(query, ms)| ((*query).to_owned(), *ms)).collect()
    }

    #[test]
    fn ratios_are_over_the_queries_that_both_have_run() {
        let over = over(
            &times(&[("q01", 10.0), ("q02", 40.0), ("q03", 9.0)]),
            &times(&[("q01", 20.0), ("q02", 20.0)]),
        );
        let over = over.expect("two queries in common");
        assert_eq!(over.of, times(&[("q01", 0.5), ("q02", 2.0)]));
        assert_eq!((over.geometric_mean, over.of_totals), (1.0, 1.25));
        assert_eq!(super::over(&times(&[("q01", 1.0)]), &times(&[("q02", 1.0)])), None);
    }

    #[test]
    fn the_worst_query_of_auto_is_the_one_where_another_placement_gains_most() {
        let forced = [
            ("local".to_owned(), times(&[("q01", 10.0), ("q02", 50.0)])),
            ("remote-process".to_owned(), times(&[("q01", 20.0), ("q02", 40.0)])),
        ];
        let best = over_best(&times(&[("q01", 15.0), ("q02", 40.0)]), &forced).expect("two queries");
        assert_eq!((best.worst, best.worst_query.as_str()), (1.5, "q01"));
        assert_eq!(best.best["q02"], "remote-process");
        assert_eq!(over_best(&times(&[("q01", 15.0)]), &[]), None);
    }
}
