//! What a table must hold, by what its only client sent and was told.

use std::collections::{BTreeMap, BTreeSet};

/// Values by key; more than one where a batch of unknown outcome may have changed the key.
#[derive(Debug, Default)]
pub(crate) struct Model {
    certain: BTreeMap<i64, i64>,
    doubtful: BTreeMap<i64, BTreeSet<i64>>,
}

impl Model {
    /// A batch was acknowledged; its sequences are the greatest so far.
    pub(crate) fn apply(&mut self, values: BTreeMap<i64, i64>) {
        for key in values.keys() {
            self.doubtful.remove(key);
        }
        self.certain.extend(values);
    }

    /// A batch may be in or not.
    pub(crate) fn doubt(&mut self, values: BTreeMap<i64, i64>) {
        for (key, value) in values {
            self.doubtful.entry(key).or_default().insert(value);
        }
    }

    /// What is wrong with rows, if anything is.
    pub(crate) fn fault(&self, rows: &BTreeMap<i64, i64>) -> Option<String> {
        for (key, value) in &self.certain {
            let may_be = |found| self.doubtful.get(key).is_some_and(|d| d.contains(found));
            match rows.get(key) {
                Some(found) if found == value || may_be(found) => {}
                found => return Some(format!("key {key} holds {found:?} instead of {value}")),
            }
        }
        let unknown =
            |key: &&i64| !self.certain.contains_key(*key) && !self.doubtful.contains_key(*key);
        rows.keys()
            .find(unknown)
            .map(|key| format!("key {key} was never sent"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &[(i64, i64)]) -> BTreeMap<i64, i64> {
        of.iter().copied().collect()
    }

    #[test]
    fn lost_changed_and_invented_rows_are_faults() {
        let mut model = Model::default();
        model.apply(values(&[(1, 10), (2, 20)]));
        assert_eq!(model.fault(&values(&[(1, 10), (2, 20)])), None);
        assert!(model.fault(&values(&[(1, 10)])).is_some());
        assert!(model.fault(&values(&[(1, 10), (2, 21)])).is_some());
        assert!(model.fault(&values(&[(1, 10), (2, 20), (3, 1)])).is_some());
    }

    #[test]
    fn a_batch_of_unknown_outcome_may_be_in_until_a_later_one_is() {
        let mut model = Model::default();
        model.apply(values(&[(1, 10)]));
        model.doubt(values(&[(1, 11)]));
        assert_eq!(model.fault(&values(&[(1, 10)])), None);
        assert_eq!(model.fault(&values(&[(1, 11)])), None);
        model.apply(values(&[(1, 12)]));
        assert!(model.fault(&values(&[(1, 11)])).is_some());
    }
}
