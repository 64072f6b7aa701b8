//! Where things lie: the repository, its packages, the binary, and the Python with the other readers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Names the Python interpreter whose environment holds the other readers.
pub const PYTHON_VARIABLE: &str = "TIDEGATE_TEST_PYTHON";

/// Names a `tidegate` binary to test instead of the one of this build.
pub const BINARY_VARIABLE: &str = "TIDEGATE_TEST_BINARY";

/// The root of the repository.
#[must_use]
pub fn root() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

/// A path below `tests/`.
#[must_use]
pub fn tests_dir(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

/// Cargo as a user starts it: what cargo tells a test of its package would make build scripts that look at
/// it run again, and everything behind them be built again.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if [
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CARGO_CRATE_",
            "CARGO_BIN_",
        ]
        .iter()
        .any(|prefix| text.starts_with(prefix))
        {
            command.env_remove(&name);
        }
    }
    command
}

/// Standard output of a command that must succeed.
///
/// # Errors
/// When it cannot be started or fails; with its standard error.
pub fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("{command:?} cannot be started"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// What `cargo metadata` says for this platform.
///
/// # Errors
/// When cargo fails.
pub fn cargo_metadata() -> Result<&'static Value> {
    static METADATA: OnceLock<Value> = OnceLock::new();
    if let Some(known) = METADATA.get() {
        return Ok(known);
    }
    let rustc = output_of(Command::new("rustc").arg("-vV").current_dir(root()))?;
    let host = rustc
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("no host")?;
    let text = output_of(cargo().args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
        host,
    ]))?;
    let parsed = serde_json::from_str(&text)?;
    Ok(METADATA.get_or_init(|| parsed))
}

/// Files that git tracks or would track, relative to the root.
///
/// # Errors
/// When git fails.
pub fn repository_files() -> Result<Vec<PathBuf>> {
    let list = output_of(
        Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root()),
    )?;
    let named = list
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from);
    Ok(named.filter(|path| root().join(path).is_file()).collect())
}

/// The `tidegate` binary of this build: named by [`BINARY_VARIABLE`], or built first if need be, with all
/// of the workspace, so that no dependency is built a second time with other features.
///
/// # Errors
/// When it does not build.
pub fn binary() -> Result<&'static Path> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    if let Some(known) = BINARY.get() {
        return Ok(known);
    }
    if let Some(named) = std::env::var_os(BINARY_VARIABLE) {
        return Ok(BINARY.get_or_init(|| named.into()));
    }
    let mut build = cargo();
    build.args(["test", "--workspace", "--no-run", "--quiet", "--locked"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    output_of(&mut build)?;
    // Tests lie one directory below the binaries of their build, other binaries beside them.
    let name = format!("tidegate{}", std::env::consts::EXE_SUFFIX);
    let own = std::env::current_exe()?;
    let mut places = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join(&name));
    let built = places
        .find(|place| place.is_file())
        .context("tidegate was not built")?;
    Ok(BINARY.get_or_init(|| built))
}

/// The Python that has the other readers: named by [`PYTHON_VARIABLE`], or in the `python` environment
/// that `tests/run` makes below the target directory.
///
/// # Errors
/// When there is none; a test that needs it fails then, it is never skipped.
pub fn python() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(PYTHON_VARIABLE) {
        return Ok(named.into());
    }
    let test = std::env::current_exe()?;
    for directory in test.ancestors() {
        let candidate = directory.join("python/bin/python");
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!("no Python with the other readers: run tests/run once, or set {PYTHON_VARIABLE}")
}
