//! The bounds of the replicated state (commit protocol 2.10).

/// Batch marks that a table remembers.
pub const BATCH_MARKS_MAX: usize = 256;
/// Sources with sequence numbers of a table.
pub const SOURCES_MAX: usize = 64;
/// Source partitions with a stored offset of a table.
pub const OFFSETS_MAX: usize = 4_096;
/// Open attempts of a table.
pub const OPEN_ATTEMPTS_MAX: usize = 8;
/// Aborted attempts of a table whose files may still lie about; older ones are left to vacuum.
pub const UNCOLLECTED_MAX: usize = 256;
/// Nodes of a cluster.
pub const NODES_MAX: usize = 1_000;
/// Bytes of a node's endpoint.
pub const ENDPOINT_BYTES_MAX: usize = 512;
/// Batches of one commit.
pub const BATCHES_PER_COMMIT_MAX: usize = 64;
/// Bytes of a batch id, a source name or a partition name.
pub const NAME_BYTES_MAX: usize = 512;
/// Bytes of a location.
pub const LOCATION_BYTES_MAX: usize = 2_048;
/// Bytes of the reason of a quarantine.
pub const REASON_BYTES_MAX: usize = 2_048;
/// Bytes of a watermark's JSON.
pub const WATERMARK_BYTES_MAX: usize = 8_192;
/// Bytes of a commit that may ride in `Prepare` itself.
pub const INLINE_COMMIT_BYTES_MAX: usize = 32 << 10;
/// Age beyond which an attempt cannot be prepared any more: foreign VACUUM may have taken its files.
pub const ATTEMPT_AGE_MS_MAX: i64 = 24 * 3_600_000;
/// Metadata nodes that a group remembers as removed.
pub const REMOVED_MAX: usize = 10_000;
/// Bytes that one table may take in the state, roughly.
pub const TABLE_BYTES_MAX: usize = 512 << 10;
