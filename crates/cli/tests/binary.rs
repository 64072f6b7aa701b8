//! The binary as a file. Its commands are tested with the whole product, in `tests/`; being here, this test
//! makes `cargo test` build it.

use std::process::Command;

#[test]
fn it_tells_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("--version")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.trim(), concat!("tidegate ", env!("CARGO_PKG_VERSION")));
}
