//! Sizes of tables, indexes and nodes over time, and whether they stay flat.

use std::collections::BTreeMap;

use super::faults::{Cluster, SCHEMA};
use crate::measure::{Line, Outcome};
use crate::soak::{ALLOWED_KIB, MIN_SAMPLES, halves, stays};

/// One sample: KiB by the name of a table (with its indexes), an index, or `node_rss`.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    pub(super) ms: u64,
    pub(super) kib: BTreeMap<String, u64>,
}

/// Memory of the largest node.
const NODE: &str = "node_rss";
/// Growth in KiB of a table or index that is always allowed: it grows between two vacuums.
const ALLOWED_PAGES_KIB: u64 = 512;
/// Sum of all tables with their indexes.
const ALL: &str = "all_tables";

const SIZES: &str = "SELECT c.relname::text, c.relkind = 'r', (CASE c.relkind \
     WHEN 'r' THEN pg_total_relation_size(c.oid) ELSE pg_relation_size(c.oid) END / 1024)::bigint \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = $1 AND c.relkind IN ('r', 'i')";

impl Sample {
    /// Takes a sample; an error while the database cannot be reached.
    pub(super) fn take(cluster: &Cluster, ms: u64) -> Outcome<Self> {
        let sql = cluster.sql()?;
        let mut kib = BTreeMap::new();
        let mut all = 0;
        for row in sql.runtime.block_on(sql.client.query(SIZES, &[&SCHEMA]))? {
            let (name, is_table): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
            let size = row.try_get::<_, i64>(2)?.unsigned_abs();
            all += if is_table { size } else { 0 };
            kib.insert(name, size);
        }
        let nodes = cluster.nodes();
        let largest = nodes.iter().flatten().map(|node| node.resident_kib() as u64).max();
        kib.insert(NODE.to_owned(), largest.unwrap_or(0));
        kib.insert(ALL.to_owned(), all);
        Ok(Self { ms, kib })
    }

    /// The sample as a line.
    pub(super) fn line(&self, json: bool) -> Outcome<String> {
        let mut line = Line::new(json, "soak-nodes-sample").count("ms", usize::try_from(self.ms)?);
        for (name, kib) in &self.kib {
            line = line.count(&format!("{name}_kib"), usize::try_from(*kib)?);
        }
        Ok(line.finish())
    }
}

/// A line for each table, index and the nodes, and whether all of them are flat; `None` with too
/// few samples after `settled_ms`.
#[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
pub(super) fn judge(
    json: bool,
    samples: &[Sample],
    settled_ms: u64,
) -> Outcome<(Vec<String>, Option<bool>)> {
    let judged: Vec<&Sample> = samples.iter().filter(|sample| sample.ms >= settled_ms).collect();
    if judged.len() < MIN_SAMPLES {
        return Ok((Vec::new(), None));
    }
    let names = judged.iter().flat_map(|sample| sample.kib.keys());
    let names: std::collections::BTreeSet<&String> = names.collect();
    let (mut lines, mut flat) = (Vec::new(), true);
    for name in names {
        let figures: Vec<u64> =
            judged.iter().map(|sample| sample.kib.get(name).copied().unwrap_or(0)).collect();
        let (early, late) = halves(&figures);
        let allowed = if name == NODE { ALLOWED_KIB } else { ALLOWED_PAGES_KIB };
        let stays = stays(early, late, allowed);
        flat &= stays;
        let line = Line::new(json, "soak-nodes-size")
            .word("of", name)
            .count("first_half_kib", usize::try_from(early)?)
            .count("second_half_kib", usize::try_from(late)?)
            .ratio("ratio", late as f64 / early.max(1) as f64)
            .word("flat", if stays { "yes" } else { "no" });
        lines.push(line.finish());
    }
    Ok((lines, Some(flat)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(grows: u64) -> Vec<Sample> {
        let kib = |at: u64| BTreeMap::from([("jobs".to_owned(), 50_000 + at * grows)]);
        (0..20).map(|at| Sample { ms: at * 1_000, kib: kib(at) }).collect()
    }

    #[test]
    fn a_table_that_grows_is_not_flat() {
        let (lines, flat) = judge(true, &samples(0), 4_000).unwrap();
        assert_eq!(flat, Some(true), "{lines:?}");
        let (lines, flat) = judge(true, &samples(2_000), 4_000).unwrap();
        assert_eq!(flat, Some(false), "{lines:?}");
        assert!(lines[0].contains(r#""of":"jobs""#) && lines[0].contains(r#""flat":"no""#));
    }

    #[test]
    fn few_looks_dare_no_verdict() {
        assert_eq!(judge(true, &samples(0), 15_000).unwrap(), (Vec::new(), None));
    }
}
