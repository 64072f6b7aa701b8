//! Names of vector files: a UUID of version 8 whose free bits hold writer, attempt and number.

use tidegate_change::{AttemptId, Code, Error, Result, WriterId};
use uuid::Uuid;

use super::z85;

/// Bits of the number of a vector file within its attempt.
const NUMBER_BITS: u32 = 26;
/// Bits of the UUID behind the variant.
const LOW_BITS: u32 = 62;
/// Bits of the UUID between version and variant.
const MIDDLE_BITS: u32 = 12;

/// The UUID of the n-th vector file of an attempt.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` beyond 2^26 files of one attempt.
pub fn file_uuid(attempt: AttemptId, n: u32) -> Result<Uuid> {
    if n >> NUMBER_BITS != 0 {
        let message = format!("attempt {attempt}: too many deletion vector files");
        return Err(Error::new(Code::ResourceExhausted, message));
    }
    let free = (u128::from(attempt.writer.0) << (64 + NUMBER_BITS))
        | (u128::from(attempt.index) << NUMBER_BITS)
        | u128::from(n);
    let high = free >> (LOW_BITS + MIDDLE_BITS);
    let middle = (free >> LOW_BITS) & ((1 << MIDDLE_BITS) - 1);
    let low = free & ((1 << LOW_BITS) - 1);
    Ok(Uuid::from_u128(
        (high << 80) | (8 << 76) | (middle << 64) | (0b10 << LOW_BITS) | low,
    ))
}

/// The attempt and number that a UUID of version 8 holds; None for other UUIDs.
#[must_use]
pub fn attempt_of(uuid: Uuid) -> Option<(AttemptId, u32)> {
    if uuid.get_version_num() != 8 {
        return None;
    }
    let bits = uuid.as_u128();
    let high = bits >> 80;
    let middle = (bits >> 64) & ((1 << MIDDLE_BITS) - 1);
    let low = bits & ((1 << LOW_BITS) - 1);
    let free = (high << (LOW_BITS + MIDDLE_BITS)) | (middle << LOW_BITS) | low;
    let number = u32::try_from(free & ((1 << NUMBER_BITS) - 1)).ok()?;
    let index = u64::try_from((free >> NUMBER_BITS) & u128::from(u64::MAX)).ok()?;
    let writer = WriterId(u32::try_from(free >> (64 + NUMBER_BITS)).ok()?);
    Some((AttemptId { writer, index }, number))
}

/// The name of the file with that UUID.
#[must_use]
pub fn file_name(uuid: Uuid) -> String {
    format!("deletion_vector_{uuid}.bin")
}

/// The file that a descriptor of storage type `u` names: an optional directory, then 20 characters.
pub(crate) fn descriptor_file(encoded: &str) -> Option<String> {
    let split = encoded.len().checked_sub(20)?;
    let (directory, uuid) = encoded.split_at_checked(split)?;
    let uuid = Uuid::from_slice(&z85::decode(uuid)?).ok()?;
    let name = file_name(uuid);
    Some(if directory.is_empty() {
        name
    } else {
        format!("{directory}/{name}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_hold_the_extremes() {
        for (writer, index, n) in [
            (0, 0, 0),
            (u32::MAX, u64::MAX, (1 << 26) - 1),
            (0xdead_beef, 77, 5),
        ] {
            let attempt = AttemptId {
                writer: WriterId(writer),
                index,
            };
            let uuid = file_uuid(attempt, n).unwrap();
            assert_eq!(uuid.get_version_num(), 8);
            assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(attempt_of(uuid), Some((attempt, n)));
        }
        assert!(
            file_uuid(
                AttemptId {
                    writer: WriterId(0),
                    index: 0
                },
                1 << 26
            )
            .is_err()
        );
    }

    #[test]
    fn the_protocol_s_example_names_its_file() {
        assert_eq!(
            descriptor_file("ab^-aqEH.-t@S}K{vb[*k^").unwrap(),
            "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
        );
    }
}
