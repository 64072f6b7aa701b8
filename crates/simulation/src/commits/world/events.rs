//! What happens between two steps.

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tidegate_change::TableVersion;
use tidegate_delta::{DeltaLog, TableRoot, names};

use super::clients::What;
use super::{World, ZOMBIE, drive, told};
use crate::commits::ledger::TABLE;

/// Jumps of the clock, milliseconds.
const JUMPS_MS: [i64; 6] = [
    -30 * 86_400_000,
    -3_600_000,
    -1,
    1,
    3_600_000,
    30 * 86_400_000,
];
/// Chance in ten thousand that a stranger appends, in a history where one does.
const APPEND_CHANCE: usize = 15;

impl World {
    /// Lets the dice choose what happens now, which is mostly nothing.
    pub(super) fn event(&mut self) -> Result<(), String> {
        let events = self.plan.events;
        if self.happens(events.crash) {
            let node = self.dice.below(self.nodes.len());
            self.crash(node);
            self.hit("node: killed");
        }
        if self.happens(events.blackout) {
            (0..self.nodes.len()).for_each(|node| self.crash(node));
            self.hit("all nodes: killed");
        }
        if self.happens(events.zombie) {
            let node = self.dice.below(self.nodes.len());
            self.restart(node, ZOMBIE);
        }
        if self.happens(events.clock) {
            let jump = *self.dice.pick(&JUMPS_MS);
            self.clock.jump(jump);
            self.hit("clock: jumped");
        }
        if self.happens(events.election) {
            self.log.elect();
        }
        if self.happens(events.restore) {
            self.log.restore_replica().map_err(told)?;
        }
        self.strangers()?;
        for node in 0..self.nodes.len() {
            let is_down = self
                .nodes
                .get(node)
                .is_some_and(|n| n.coordinator.is_none());
            if is_down && self.dice.percent(5) {
                self.restart(node, "node: restarted");
            }
        }
        Ok(())
    }

    fn strangers(&mut self) -> Result<(), String> {
        let events = self.plan.events;
        if self.happens(events.harmless) && self.foreign_commit(false)? {
            self.hit("stranger: harmless commit");
        }
        if self.plan.foreign_append
            && !self.is_appended
            && self.happens(APPEND_CHANCE)
            && self.foreign_commit(true)?
        {
            self.is_appended = true;
            self.hit("stranger: append");
        }
        if self.happens(events.lost_staged) && self.lose_staged()? > 0 {
            self.hit("staged commit: lost");
        }
        if self.happens(events.lost_data) && self.lose_data()? {
            self.hit("data file: lost before its commit");
        }
        Ok(())
    }

    fn happens(&self, chance: usize) -> bool {
        chance > 0 && self.dice.below(10_000) < chance
    }

    fn restart(&mut self, node: usize, name: &'static str) {
        if !self.is_starting(node) {
            let start = self.start(node);
            self.spawn(node, What::Start, start);
            self.hit(name);
        }
    }

    /// A stranger's commit in the next slot; false where somebody else was first.
    pub(crate) fn foreign_commit(&self, appends: bool) -> Result<bool, String> {
        let inner = self.store.inner();
        let log = DeltaLog::new(TableRoot::new(self.store.inner(), Path::from(TABLE)));
        let now_ms = tidegate_change::clock::Clock::now_ms(self.clock.as_ref());
        let put = async move {
            let Some(latest) = log.latest_version().await? else {
                return Ok(false);
            };
            let commit = log.read_commit(latest).await?;
            let before = commit.info().and_then(|info| info.in_commit_timestamp);
            let time_ms = now_ms.max(before.unwrap_or_default() + 1);
            let location = log.root().location(&names::commit(latest.next()))?;
            let payload = PutPayload::from(foreign_text(time_ms, appends));
            let put = inner.put_opts(&location, payload, PutMode::Create.into());
            Ok(put.await.is_ok())
        };
        drive(put)?.map_err(told)
    }

    /// Loses all staged commits; returns how many there were.
    pub(crate) fn lose_staged(&self) -> Result<usize, String> {
        let inner = self.store.inner();
        let prefix = Path::from(TABLE).join("_tidegate").join("staged");
        let lose = async move {
            let staged: Vec<_> = inner.list(Some(&prefix)).try_collect().await?;
            for object in &staged {
                inner.delete(&object.location).await?;
            }
            Ok::<_, object_store::Error>(staged.len())
        };
        drive(lose)?.map_err(|e| e.to_string())
    }

    /// Loses a data file of an attempt that is not prepared; true where there was one.
    fn lose_data(&self) -> Result<bool, String> {
        let state = self.log.state();
        let Some((_, table)) = state.table_named(TABLE) else {
            return Ok(false);
        };
        let open: Vec<_> = table
            .attempts
            .keys()
            .map(|n| state.attempt_id(*n))
            .collect();
        let inner = self.store.inner();
        let lose = async move {
            let prefix = Path::from(TABLE);
            let objects: Vec<_> = inner.list(Some(&prefix)).try_collect().await?;
            let is_open = |path: &Path| {
                let below = path.as_ref().strip_prefix(TABLE).unwrap_or_default();
                names::attempt_of(below.trim_start_matches('/')).is_some_and(|a| open.contains(&a))
            };
            let found = objects
                .into_iter()
                .find(|o| is_open(&o.location) && o.location.as_ref().ends_with(".parquet"));
            match found {
                Some(object) => inner.delete(&object.location).await.map(|()| true),
                None => Ok(false),
            }
        };
        drive(lose)?.map_err(|e: object_store::Error| e.to_string())
    }

    /// Takes the newest commit away, as an operator who rolls a bucket back.
    pub(crate) fn lose_newest_commit(&self) -> Result<(), String> {
        let log = DeltaLog::new(TableRoot::new(self.store.inner(), Path::from(TABLE)));
        let lose = async move {
            let latest = log.latest_version().await?.unwrap_or(TableVersion(0));
            log.root().delete(&names::commit(latest)).await
        };
        drive(lose)?.map_err(told)
    }
}

fn foreign_text(time_ms: i64, appends: bool) -> String {
    let info = |operation: &str| {
        format!(
            "{{\"commitInfo\":{{\"timestamp\":{time_ms},\"inCommitTimestamp\":{time_ms},\"operation\":\"{operation}\",\"engineInfo\":\"other\"}}}}"
        )
    };
    if !appends {
        return info("VACUUM START");
    }
    let add = "{\"add\":{\"path\":\"part-0.parquet\",\"partitionValues\":{},\"size\":1,\"modificationTime\":1,\"dataChange\":true}}";
    format!("{}\n{add}", info("WRITE"))
}
