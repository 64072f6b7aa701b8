//! Where the configuration comes from: a file, then the environment, then flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate_change::{Code, Error, Result, yaml};

use super::{Bytes, Config, NodeRole};

/// Begins the names of all variables: `limits.put_bytes` is `TIDEGATE_LIMITS_PUT_BYTES`.
pub const VARIABLE_PREFIX: &str = "TIDEGATE";

/// What flags say.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--listen`
    pub listen: Option<SocketAddr>,
    /// `--advertise`
    pub advertise: Option<String>,
    /// `--local`
    pub data: Option<PathBuf>,
    /// `--lake`
    pub lake: Option<String>,
    /// `--peers`
    pub peers: Option<Vec<String>>,
    /// `--memory`
    pub memory: Option<Bytes>,
    /// `--roles`
    pub roles: Option<Vec<NodeRole>>,
    /// `--insecure-dev`
    pub insecure_dev: bool,
}

impl Config {
    /// Reads the file, if there is one, and lays the environment and the flags over it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what cannot be read, with file and line or the name of the variable; else as
    /// [`Self::validate`].
    pub fn load(
        file: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
        flags: Overrides,
    ) -> Result<Self> {
        let read = match file {
            Some(path) => read_file(path)?,
            None => Self::default(),
        };
        let mut config = with_environment(&read, environment)?;
        config.listen = flags.listen.unwrap_or(config.listen);
        config.advertise = flags.advertise.or(config.advertise);
        config.data = flags.data.unwrap_or(config.data);
        config.cluster.peers = flags.peers.unwrap_or(config.cluster.peers);
        config.roles = flags.roles.unwrap_or(config.roles);
        config.lake = flags.lake.or(config.lake);
        config.memory = flags.memory.or(config.memory);
        config.insecure_dev |= flags.insecure_dev;
        config.validate()?;
        Ok(config)
    }

    /// The names of all variables of the environment, with the values that they would override.
    ///
    /// # Errors
    /// `INTERNAL` when the configuration cannot be written.
    pub fn variables(&self) -> Result<Vec<(String, Value)>> {
        let named = leaves(&tree(self)?).into_iter();
        Ok(named.map(|leaf| (leaf.variable, leaf.value)).collect())
    }
}

/// A value that is no object, and where it stands.
struct Leaf {
    variable: String,
    pointer: String,
    value: Value,
}

fn read_file(path: &Path) -> Result<Config> {
    let what = format!("configuration {}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(Code::InvalidArgument, format!("{what}: cannot be opened")).with_source(e)
    })?;
    yaml::read(&what, Code::InvalidArgument, &text)
}

fn with_environment(
    config: &Config,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Config> {
    let mut config = config.clone();
    for leaf in leaves(&tree(&config)?) {
        let Some(text) = environment(&leaf.variable).filter(|text| !text.is_empty()) else {
            continue;
        };
        let mut values = tree(&config)?;
        if let Some(place) = values.pointer_mut(&leaf.pointer) {
            *place = parsed(&text, &leaf.value);
        }
        config = serde_json::from_value(values).map_err(|e| {
            let message = format!("variable {}: cannot be read", leaf.variable);
            Error::new(Code::InvalidArgument, message).with_source(e)
        })?;
    }
    Ok(config)
}

fn tree(config: &Config) -> Result<Value> {
    serde_json::to_value(config)
        .map_err(|e| Error::internal("the configuration cannot be written").with_source(e))
}

fn leaves(tree: &Value) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let mut open = vec![(VARIABLE_PREFIX.to_owned(), String::new(), tree)];
    while let Some((variable, pointer, value)) = open.pop() {
        match value {
            Value::Object(members) => open.extend(members.iter().map(|(name, value)| {
                let variable = format!("{variable}_{}", name.to_uppercase());
                (variable, format!("{pointer}/{name}"), value)
            })),
            value => leaves.push(Leaf {
                variable,
                pointer,
                value: value.clone(),
            }),
        }
    }
    leaves.sort_by(|a, b| a.variable.cmp(&b.variable));
    leaves
}

/// A text in the form of the value that it overrides; a list is separated by commas.
fn parsed(text: &str, now: &Value) -> Value {
    match now {
        Value::Bool(_) | Value::Number(_) => {
            serde_json::from_str(text.trim()).unwrap_or_else(|_| text.into())
        }
        Value::Array(_) => text.split(',').map(str::trim).map(Value::from).collect(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Span;
    use super::*;

    fn load(text: &str, variables: &[(&str, &str)], flags: Overrides) -> Result<Config> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let environment = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Config::load(Some(file.path()), environment, flags)
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let text = "listen: 127.0.0.1:1\ndrain: 3s\nlimits: {put_bytes: 1GiB, streams: 7}\n";
        let variables = [
            ("TIDEGATE_LISTEN", "127.0.0.1:2"),
            ("TIDEGATE_LIMITS_STREAMS", "8"),
            ("TIDEGATE_SOURCES_DIRECTORIES", "/a, /b"),
            ("TIDEGATE_INSECURE_DEV", "true"),
            ("TIDEGATE_TLS_KEY", ""),
        ];
        let flags = Overrides {
            listen: Some("127.0.0.1:3".parse().unwrap()),
            ..Overrides::default()
        };
        let config = load(text, &variables, flags).unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(
            (config.limits.streams, config.drain),
            (8, Span::from_ms(3_000))
        );
        assert_eq!(config.limits.put_bytes, Bytes(1 << 30));
        assert_eq!(
            config.sources.directories,
            [PathBuf::from("/a"), "/b".into()]
        );
        assert!(config.insecure_dev && config.tls.key.is_none());
    }

    #[test]
    fn a_misspelt_name_is_refused_with_the_nearest_one() {
        let error = load("limits: {stream: 7}\n", &[], Overrides::default()).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(error.hint(), Some("did you mean \"streams\"?"));
    }

    #[test]
    fn a_value_of_another_kind_is_refused() {
        for variable in [
            ("TIDEGATE_LIMITS_STREAMS", "many"),
            ("TIDEGATE_DRAIN", "soon"),
        ] {
            let error = load("{}", &[variable], Overrides::default()).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{variable:?}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        let config = Config::default();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(load(&text, &[], Overrides::default()).unwrap(), config);
        let names = config.variables().unwrap();
        assert!(
            names
                .iter()
                .any(|(name, _)| name == "TIDEGATE_TLS_CLIENT_AUTHORITY")
        );
    }
}
