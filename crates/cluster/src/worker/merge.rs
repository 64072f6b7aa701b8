//! What an owner of buckets does: fetches their events from all readers and merges them.

use futures::{StreamExt, TryStreamExt, stream};
use tidegate_apply::phases::{BatchTable, MergeIntake, MergePart};

use super::{
    CallError, Called, Fetch, Fetched, MergeOrder, MergeOutcome, ReaderAt, Rows, Watcher, Worker,
};

/// Readers that an owner fetches from at one time.
const FETCHES_AT_ONCE: usize = 4;

impl Worker {
    /// Merges, or says which reader is lost.
    pub(super) async fn merge_order(
        &self,
        order: &MergeOrder,
        watcher: Watcher,
    ) -> Called<Result<MergePart, MergeOutcome>> {
        let attempt = order.token.attempt;
        let context = self.context(&order.table, attempt).await?;
        let table = BatchTable::open_planned(&context, &order.plan, order.owner)?;
        let mut intake = MergeIntake::new(&table, &order.plan, &self.means(watcher))?;
        let of = order.plan.settled.resolved.spec.buckets.count();
        let readers = order.readers.clone();
        let opened = stream::iter(readers).map(|reader| self.open_events(order, reader, of));
        let rows = opened.flatten_unordered(FETCHES_AT_ONCE);
        let mut rows = Box::pin(rows);
        while let Some((part, events)) = rows.next().await {
            match events {
                Ok(events) => intake.take(&events)?,
                Err(CallError::Lost(error) | CallError::Stale(error)) => {
                    tracing::info!(%attempt, part, %error, "a reader of a batch is lost");
                    return Ok(Err(MergeOutcome::ReaderLost { part }));
                }
                Err(failed) => return Err(failed),
            }
        }
        drop(rows);
        Ok(Ok(Box::pin(intake.merge()).await?))
    }

    /// The events of the order's buckets from one reader, with its part.
    fn open_events<'a>(
        &'a self,
        order: &'a MergeOrder,
        reader: ReaderAt,
        of: u32,
    ) -> stream::BoxStream<'a, (u32, Called<arrow::array::RecordBatch>)> {
        let part = reader.part;
        let open = async move {
            let fetch = Fetch {
                token: order.token,
                what: Fetched::Events {
                    part,
                    buckets: order.buckets.clone(),
                    of,
                },
            };
            self.fetch_at(&reader, fetch).await
        };
        let rows = stream::once(open).try_flatten();
        rows.map(move |rows| (part, rows)).boxed()
    }

    /// Rows of a reader, which may be this worker itself.
    async fn fetch_at(&self, reader: &ReaderAt, fetch: Fetch) -> Called<Rows> {
        let is_own = reader.seat.node == self.parts.node
            && reader.seat.incarnation == self.parts.incarnation;
        if is_own {
            return self.rows_of(&fetch);
        }
        self.parts.links.link(&reader.seat)?.fetch(fetch).await
    }
}
