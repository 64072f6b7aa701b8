//! Vectors through files, and files that lie.

use tidegate_change::{Code, WriterId};

use super::*;

fn attempt() -> AttemptId {
    AttemptId {
        writer: WriterId(7),
        index: 41,
    }
}

async fn packed(root: &TableRoot) -> Vec<DeletionVectorDescriptor> {
    let vectors = [
        DeletionVector::from_positions([0, 5, 70_000]),
        DeletionVector::from_positions(0..100_000),
        DeletionVector::from_positions([u32::MAX - 1]),
    ];
    let descriptors = write_packed(root, attempt(), 0, &vectors).await.unwrap();
    for (vector, descriptor) in vectors.iter().zip(&descriptors) {
        assert_eq!(&read(root, descriptor).await.unwrap(), vector);
    }
    descriptors
}

#[tokio::test]
async fn many_vectors_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let root = TableRoot::local(directory.path());
    let descriptors = packed(&root).await;
    assert_eq!(descriptors[0].offset, Some(1));
    assert!(descriptors[2].offset > descriptors[1].offset);
    let name = descriptor_file(&descriptors[0].path_or_inline_dv).unwrap();
    let bytes = std::fs::read(directory.path().join(&name)).unwrap();
    assert_eq!(bytes[0], 1);
    assert_eq!(&bytes[5..9], &[0xd1, 0xd3, 0x39, 0x64]);
    assert_eq!(crate::names::attempt_of(&name), Some(attempt()));
}

#[tokio::test]
async fn every_flipped_bit_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let root = TableRoot::local(directory.path());
    let descriptor = packed(&root).await.swap_remove(0);
    let path = directory
        .path()
        .join(descriptor_file(&descriptor.path_or_inline_dv).unwrap());
    let good = std::fs::read(&path).unwrap();
    let end = 1 + 4 + usize::try_from(descriptor.size_in_bytes).unwrap() + 4;
    for at in 1..end {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        assert_eq!(
            read(&root, &descriptor).await.unwrap_err().code(),
            Code::Corrupt,
            "byte {at}"
        );
    }
    std::fs::write(&path, &good[..end - 1]).unwrap();
    assert_eq!(
        read(&root, &descriptor).await.unwrap_err().code(),
        Code::Corrupt
    );
    std::fs::write(&path, &good).unwrap();
    let lying = DeletionVectorDescriptor {
        cardinality: 4,
        ..descriptor
    };
    assert_eq!(read(&root, &lying).await.unwrap_err().code(), Code::Corrupt);
}

#[test]
fn deleting_the_last_row_leaves_nothing() {
    let vector = DeletionVector::from_positions([0, 2]);
    assert_eq!(vector.clone().delete([2], 3).unwrap(), Remains::Unchanged);
    assert_eq!(vector.clone().delete([1, 2], 3).unwrap(), Remains::Nothing);
    assert!(
        matches!(vector.clone().delete([1], 4).unwrap(), Remains::Some(next, 1) if next.len() == 3)
    );
    assert_eq!(vector.delete([3], 3).unwrap_err().code(), Code::Internal);
}

#[test]
fn ranges_are_counted() {
    let vector = DeletionVector::from_positions([0, 5, 9]);
    assert_eq!(vector.count_between(0, 10), 3);
    assert_eq!(vector.count_between(1, 9), 1);
    assert_eq!(vector.count_between(5, 5), 0);
}
