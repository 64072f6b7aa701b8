//! The golden values were computed with another implementation (Python `struct` and `xxhash`). They must
//! never change: stored tables are laid out by them.

use std::sync::Arc;

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, StringArray, StringViewArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Fields};

use super::*;

const SEED: u64 = 0x0123_4567_89ab_cdef;

fn longs(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn strings(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn assert_golden(columns: &[ArrayRef], golden: &[(u64, u128)]) {
    let keys = CanonicalKeys::encode(columns).unwrap();
    let found: Vec<_> = keys
        .key_hashes()
        .into_iter()
        .zip(keys.index_hashes(SEED))
        .map(|(key, index)| (key.0, index.0))
        .collect();
    assert_eq!(found, golden);
}

#[test]
fn integers_hash_by_blocks_of_neighbours() {
    assert_golden(
        &[longs(&[
            0,
            1,
            1023,
            1024,
            -1,
            -1024,
            -1025,
            42,
            i64::MAX,
            i64::MIN,
        ])],
        &[
            (0xc77b_3abb_6f87_acd9, 0x84b8daee8addcdfdfcbda853db6e261f),
            (0xc77b_3abb_6f87_acd9, 0xf1de4933cdf126aa3f251e01ea3a55d1),
            (0xc77b_3abb_6f87_acd9, 0x0a2cd4171a9d36399e69830dfc7294c3),
            (0x2fbc_5935_64db_792e, 0x150e86241e2f638959e025d9f9d53d9f),
            (0x5111_c7e4_7d78_4413, 0x438b1954ee0c3f248eab98ada9ba0eb6),
            (0x5111_c7e4_7d78_4413, 0x462d7afd0cae8e6e5e303b6bab005a62),
            (0x77f9_9232_1730_1859, 0x8a140083c8894ec96ab4e9a161a2904d),
            (0xc77b_3abb_6f87_acd9, 0xe27a8ab65c0b820338152bab08f26dd6),
            (0x7c21_4238_30c2_4a1b, 0x67f0e25d74dfd60bbaba120f89b51816),
            (0x3db2_a962_fcc3_4921, 0xc28496c9144a80a14365abe0f5338058),
        ],
    );
}

#[test]
fn integers_of_every_width_are_the_same_key() {
    let wide = CanonicalKeys::encode(&[longs(&[-3, 7])]).unwrap();
    let narrow: [ArrayRef; 4] = [
        Arc::new(Int8Array::from(vec![-3, 7])),
        Arc::new(Int16Array::from(vec![-3, 7])),
        Arc::new(Int32Array::from(vec![-3, 7])),
        Arc::new(Date32Array::from(vec![-3, 7])),
    ];
    for column in narrow {
        let keys = CanonicalKeys::encode(&[column]).unwrap();
        assert_eq!(keys.key_hashes(), wide.key_hashes());
        assert_eq!(keys.index_hashes(SEED), wide.index_hashes(SEED));
    }
}

#[test]
fn dates_and_timestamps_hash_as_integers() {
    assert_golden(
        &[Arc::new(Date32Array::from(vec![19000]))],
        &[(0x03ce_f47a_e07b_9395, 0x497d470dd9f4835f355079b8061532d9)],
    );
    let golden = [(0x68cb_de46_a766_4152, 0x9fa5e64f0eefd368599fe3b70e221e47)];
    let naive = TimestampMicrosecondArray::from(vec![1_700_000_000_123_456]);
    assert_golden(&[Arc::new(naive.clone())], &golden);
    assert_golden(&[Arc::new(naive.with_timezone("UTC"))], &golden);
}

#[test]
fn decimals_hash_their_unscaled_value() {
    let column = Decimal128Array::from(vec![12345, -1, -(10i128.pow(37))]);
    assert_golden(
        &[Arc::new(column.with_precision_and_scale(38, 2).unwrap())],
        &[
            (0x970d_cd37_b14d_e550, 0x834476ca152921d2748d50801cc9f09c),
            (0x722a_202f_07a4_b313, 0x76fc7d19663ed4b22b1a9eadbb5e7f9c),
            (0xef79_71dd_3c3a_2729, 0x45b9a8bfa6e719af10a6c5877abb1056),
        ],
    );
}

#[test]
fn floats_have_one_zero_and_one_nan() {
    let zero = (0xc77b_3abb_6f87_acd9, 0x84b8daee8addcdfdfcbda853db6e261f);
    let nan = (0x0aa6_1dcf_a381_c167, 0xd1115f04ee13c3e6fd497a62b6e84c0a);
    let some = (0x2561_a488_9ff6_3458, 0x1cb17f445607c9acf7810e0af1feb018);
    let other_nan = f64::from_bits(0xfff8_0000_0000_0001);
    assert_golden(
        &[Arc::new(Float64Array::from(vec![
            0.0,
            -0.0,
            f64::NAN,
            other_nan,
            1.5,
        ]))],
        &[zero, zero, nan, nan, some],
    );
    let narrow = Float32Array::from(vec![-0.0, -f32::NAN, 1.5]);
    assert_golden(&[Arc::new(narrow)], &[zero, nan, some]);
}

#[test]
fn booleans_strings_and_binaries_have_golden_hashes() {
    assert_golden(
        &[Arc::new(BooleanArray::from(vec![true, false]))],
        &[
            (0xe12e_f9d2_eb86_ceeb, 0x33149f1e7833b3fad2736045b9a2490d),
            (0xc44b_dff4_074e_ecdb, 0xcfeda14808382ad3d5dd68911c7f195d),
        ],
    );
    let long = "x".repeat(300);
    let texts = ["", "tide", "Größe", long.as_str()];
    let golden = [
        (0x48b2_c926_16fc_193d, 0xe63b433c3d408b299b48723a7ee07a9b),
        (0xfbe9_ea8f_ac91_527c, 0xbcfc3f574682cf66fb46902b60dc8386),
        (0x2f93_b9ee_ec4e_1277, 0x563f6fc98471b83ffc7f359a74b2321e),
        (0x06c3_12a5_b177_b361, 0x3ac3788431569fe354713ea2358f9c6d),
    ];
    assert_golden(&[strings(&texts)], &golden);
    assert_golden(&[Arc::new(StringViewArray::from(texts.to_vec()))], &golden);
    assert_golden(
        &[Arc::new(BinaryArray::from(vec![&[0u8, 255, 1][..]]))],
        &[(0xc5c5_b5b6_9518_9d57, 0xec2aceaafa350b8a3ef1d2c0b16ab33d)],
    );
}

#[test]
fn composite_keys_concatenate_without_blocks() {
    let golden = [(0xff39_97f7_550e_0995, 0x027fdf4bf16286c19e1830ab9e927c3a)];
    assert_golden(&[longs(&[7]), strings(&["eu"])], &golden);
    assert_golden(
        &[longs(&[7]), longs(&[8])],
        &[(0xdf36_c434_10b9_baa0, 0x867ebfbee066f9fd5d55079482242227)],
    );
}

fn members() -> Fields {
    vec![
        Field::new("n", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
    ]
    .into()
}

#[test]
fn null_members_of_a_struct_differ_from_zeros() {
    let column = StructArray::new(
        members(),
        vec![
            Arc::new(Int64Array::from(vec![Some(7), Some(7), None, None])),
            Arc::new(StringArray::from(vec![Some("eu"), None, Some(""), None])),
        ],
        None,
    );
    assert_golden(
        &[Arc::new(column)],
        &[
            (0xff39_97f7_550e_0995, 0x027fdf4bf16286c19e1830ab9e927c3a),
            (0x7e22_da33_7edf_b5bc, 0x80ed990dcbfe6255a0a520f34266cd5c),
            (0xfe4f_0ada_a7a6_6e93, 0xa8088d534010788a346116c788c044af),
            (0x7cd9_f7ac_ee6f_2af0, 0x9b3753f59cbeb06dbeb851cf6faa21aa),
        ],
    );
}

#[test]
fn what_lies_under_a_null_struct_does_not_count() {
    let inner = |n: i64| -> ArrayRef {
        let nulls = Some(NullBuffer::from(vec![false]));
        Arc::new(StructArray::new(
            members(),
            vec![longs(&[n]), strings(&["eu"])],
            nulls,
        ))
    };
    let outer = |n| -> ArrayRef {
        let field = Field::new("inner", DataType::Struct(members()), true);
        Arc::new(StructArray::new(vec![field].into(), vec![inner(n)], None))
    };
    let one = CanonicalKeys::encode(&[outer(1)]).unwrap();
    let two = CanonicalKeys::encode(&[outer(2)]).unwrap();
    assert_eq!(one.get(0), two.get(0));
    assert_eq!(one.get(0), [&[0; 12][..], &[1]].concat());
}

#[test]
fn a_struct_of_one_integer_is_not_blocked() {
    let field = Field::new("n", DataType::Int64, true);
    let column: ArrayRef = Arc::new(StructArray::new(
        vec![field].into(),
        vec![longs(&[1])],
        None,
    ));
    let keys = CanonicalKeys::encode(&[column]).unwrap();
    assert_eq!(keys.key_hash(0).0, xxh3_64(&1i64.to_le_bytes()));
}

#[test]
fn a_null_key_column_is_refused() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    assert_eq!(
        CanonicalKeys::encode(&[column]).unwrap_err().code(),
        Code::NullKey
    );
}

#[test]
fn slices_encode_their_own_rows() {
    let keys = CanonicalKeys::encode(&[strings(&["a", "bb", "ccc"]).slice(1, 2)]).unwrap();
    assert_eq!(
        keys.iter().collect::<Vec<_>>(),
        [&b"\x02\0\0\0bb"[..], b"\x03\0\0\0ccc"]
    );
    let keys = CanonicalKeys::encode(&[longs(&[1, 2, 3]).slice(2, 1)]).unwrap();
    assert_eq!(keys.get(0), 3i64.to_le_bytes());
}

#[test]
fn buckets_are_the_top_bits() {
    let hash = KeyHash(0xc77b_3abb_6f87_acd9);
    assert_eq!(hash.bucket(1), KeyBucket(0));
    assert_eq!(hash.bucket(16), KeyBucket(0xc));
    assert_eq!(hash.bucket(256), KeyBucket(0xc7));
}
