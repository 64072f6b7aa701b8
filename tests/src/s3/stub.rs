//! A small S3 in this process, which goes wrong on demand.

mod http;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;

use self::http::{Answer, Request};
use super::BUCKET;

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Done, and answered with an error of the server, which the client takes for not done.
    DoneThenError,
    /// Not done, answered as a conflict.
    Conflict,
    /// Not done, "slow down".
    SlowDown,
    /// Not done, access denied.
    Denied,
    /// The body ends before its length.
    CutBody,
}

/// A fault, where it strikes, and how often it may.
#[derive(Debug)]
struct Dose {
    fault: Fault,
    method: &'static str,
    contains: &'static str,
    left: u64,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    doses: Vec<Dose>,
    hits: BTreeMap<Fault, u64>,
    ignores_conditions: bool,
    is_over: bool,
}

/// The server; it ends with this value.
#[derive(Debug)]
pub struct Stub {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        lock(&self.state).is_over = true;
        // Wakes the listener, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stub {
    /// Starts a server with an empty bucket.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stub = Self {
            address: listener.local_addr()?,
            state: Arc::default(),
        };
        let state = Arc::clone(&stub.state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if lock(&state).is_over {
                    return;
                }
                let state = Arc::clone(&state);
                if let Ok(stream) = stream {
                    std::thread::spawn(move || serve(stream, &state));
                }
            }
        });
        Ok(stub)
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes conditions for what they are not.
    pub fn ignore_conditions(&self) {
        lock(&self.state).ignores_conditions = true;
    }

    /// Lets a fault strike requests of a method whose key contains a text, that often.
    pub fn poison(&self, fault: Fault, method: &'static str, contains: &'static str, times: u64) {
        lock(&self.state).doses.push(Dose {
            fault,
            method,
            contains,
            left: times,
        });
    }

    /// Ends all faults.
    pub fn heal(&self) {
        lock(&self.state).doses.clear();
    }

    /// How often a fault struck.
    #[must_use]
    pub fn hits(&self, fault: Fault) -> u64 {
        lock(&self.state).hits.get(&fault).copied().unwrap_or(0)
    }

    /// Keys that contain a text.
    #[must_use]
    pub fn keys(&self, contains: &str) -> Vec<String> {
        let state = lock(&self.state);
        let keys = state.objects.keys().filter(|key| key.contains(contains));
        keys.cloned().collect()
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let Ok(mut connection) = http::Connection::new(stream) else {
        return;
    };
    while let Ok(Some(request)) = connection.next() {
        let (answer, cut) = lock(state).answer(&request);
        // A client that goes away is gone.
        if connection.send(&request, &answer, cut).is_err() || cut {
            return;
        }
    }
}

impl State {
    fn strike(&mut self, request: &Request) -> Option<Fault> {
        let dose = self.doses.iter_mut().find(|dose| {
            dose.left > 0 && dose.method == request.method && request.path.contains(dose.contains)
        })?;
        dose.left -= 1;
        let fault = dose.fault;
        *self.hits.entry(fault).or_default() += 1;
        Some(fault)
    }

    /// The answer, and whether its body is cut.
    fn answer(&mut self, request: &Request) -> (Answer, bool) {
        match self.strike(request) {
            None => (self.act(request), false),
            Some(Fault::CutBody) => (self.act(request), true),
            Some(Fault::DoneThenError) => {
                self.act(request);
                (Answer::error(500, "InternalError"), false)
            }
            Some(Fault::Conflict) => (Answer::error(409, "ConditionalRequestConflict"), false),
            Some(Fault::SlowDown) => (Answer::error(503, "SlowDown"), false),
            Some(Fault::Denied) => (Answer::error(403, "AccessDenied"), false),
        }
    }

    fn act(&mut self, request: &Request) -> Answer {
        let below = request.path.trim_start_matches('/');
        let key = below.strip_prefix(BUCKET).unwrap_or_default();
        let key = key.trim_start_matches('/').to_owned();
        match request.method.as_str() {
            "PUT" => self.put(request, key),
            "GET" if key.is_empty() => self.list(request),
            "GET" | "HEAD" => self.get(request, &key),
            "POST" if request.query.contains("delete") => self.delete_many(request),
            "DELETE" => {
                self.objects.remove(&key);
                Answer::empty(204)
            }
            _ => Answer::error(501, "NotImplemented"),
        }
    }

    fn put(&mut self, request: &Request, key: String) -> Answer {
        let is_create = request.header("if-none-match").is_some();
        if is_create && !self.ignores_conditions && self.objects.contains_key(&key) {
            return Answer::error(412, "PreconditionFailed");
        }
        self.objects.insert(key, request.body.clone());
        Answer::empty(200)
    }

    fn get(&self, request: &Request, key: &str) -> Answer {
        let Some(bytes) = self.objects.get(key) else {
            return Answer::error(404, "NoSuchKey");
        };
        let range = request.header("range").and_then(|text| {
            let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
            let last = bytes.len().checked_sub(1)?;
            Some(match from {
                "" => (bytes.len().saturating_sub(to.parse().ok()?), last),
                from => (from.parse().ok()?, to.parse().unwrap_or(last).min(last)),
            })
        });
        match range {
            None => Answer::object(200, bytes.clone(), None),
            Some((from, to)) => {
                let part = bytes.get(from..=to).unwrap_or_default().to_vec();
                let range = format!("bytes {from}-{to}/{}", bytes.len());
                Answer::object(206, part, Some(range))
            }
        }
    }

    fn list(&self, request: &Request) -> Answer {
        let prefix = request.parameter("prefix").unwrap_or_default();
        let after = request.parameter("start-after").unwrap_or_default();
        let objects = self.objects.iter();
        let contents: String = objects
            .filter(|(key, _)| key.starts_with(&prefix) && **key > after)
            .map(|(key, bytes)| {
                let size = bytes.len();
                format!("<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"e\"</ETag><Size>{size}</Size></Contents>")
            })
            .collect();
        Answer::xml(&format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
        ))
    }

    fn delete_many(&mut self, request: &Request) -> Answer {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        let mut deleted = String::new();
        for part in text.split("<Key>").skip(1) {
            let key = part.split("</Key>").next().unwrap_or_default();
            self.objects.remove(key);
            deleted.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
        }
        Answer::xml(&format!("<DeleteResult>{deleted}</DeleteResult>"))
    }
}
