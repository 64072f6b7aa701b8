//! Rows as streams of JSON objects, for clients that know only what reflection tells.

use futures::{StreamExt, TryStreamExt};
use tidegate_change::{Error, Result, json};
use tidegate_query::Rows;
use tidegate_rpc::status::status_of;

use super::Answers;

/// Bytes of JSON in a message, about.
const MESSAGE_BYTES: usize = 512 << 10;
/// Rows of a batch that are turned to text at once.
const SLICE_ROWS: usize = 1_024;

/// The rows as messages, each of a list of objects.
pub(super) fn messages<T: Send + 'static>(
    rows: Rows,
    message: impl Fn(Vec<String>) -> T + Send + 'static,
) -> Answers<T> {
    rows.into_stream()
        .map_ok(|batch| {
            let starts = (0..batch.num_rows()).step_by(SLICE_ROWS);
            let slices: Vec<_> = starts
                .map(|start| batch.slice(start, SLICE_ROWS.min(batch.num_rows() - start)))
                .collect();
            futures::stream::iter(slices.into_iter().map(Ok))
        })
        .try_flatten()
        .map(|slice| objects(&slice?))
        .map_ok(|objects| futures::stream::iter(cut(objects).into_iter().map(Ok)))
        .try_flatten()
        .map_ok(message)
        .map_err(|error: Error| status_of(&error))
        .boxed()
}

fn objects(batch: &arrow::array::RecordBatch) -> Result<Vec<String>> {
    let mut text = Vec::new();
    json::write_rows(batch, &mut text)?;
    let text = String::from_utf8(text)
        .map_err(|e| Error::internal("rows are written as UTF-8").with_source(e))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Lists of objects that fit into a message each; a larger object has one for itself.
fn cut(objects: Vec<String>) -> Vec<Vec<String>> {
    let mut lists: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for object in objects {
        if lists.is_empty() || bytes + object.len() > MESSAGE_BYTES {
            lists.push(Vec::new());
            bytes = 0;
        }
        bytes += object.len();
        if let Some(list) = lists.last_mut() {
            list.push(object);
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_objects_are_spread_over_messages() {
        let large = "x".repeat(MESSAGE_BYTES / 2);
        let huge = "y".repeat(MESSAGE_BYTES * 2);
        let lists = cut(vec![large.clone(), large.clone(), large, huge, "z".into()]);
        let lengths: Vec<_> = lists.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 1, 1, 1]);
        assert!(cut(Vec::new()).is_empty());
    }
}
