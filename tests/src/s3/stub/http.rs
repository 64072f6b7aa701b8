//! As much of HTTP as an S3 client speaks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(known, _)| *known == name)
            .map(|(_, value)| decoded(value))
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    range: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    pub(super) fn empty(status: u16) -> Self {
        Self::object(status, Vec::new(), None)
    }

    pub(super) fn object(status: u16, body: Vec<u8>, range: Option<String>) -> Self {
        Self {
            status,
            range,
            body,
        }
    }

    pub(super) fn xml(text: &str) -> Self {
        Self::object(200, text.as_bytes().to_vec(), None)
    }

    pub(super) fn error(status: u16, code: &str) -> Self {
        let text = format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>");
        Self::object(status, text.into_bytes(), None)
    }
}

/// A connection that is kept open.
#[derive(Debug)]
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Result<Self> {
        Ok(Self {
            writer: stream.try_clone()?,
            reader: BufReader::new(stream),
        })
    }

    /// The next request; none when the client is done.
    pub(super) fn next(&mut self) -> Result<Option<Request>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let method = words.next().context("no method")?.to_owned();
        let target = words.next().context("no path")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (decoded(path), query.to_owned());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(':') else {
                break;
            };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let mut request = Request {
            method,
            path,
            query,
            headers,
            body: Vec::new(),
        };
        let length = request.header("content-length").unwrap_or("0").parse()?;
        request.body.resize(length, 0);
        self.reader.read_exact(&mut request.body)?;
        Ok(Some(request))
    }

    pub(super) fn send(&mut self, request: &Request, answer: &Answer, cut: bool) -> Result<()> {
        let range = answer.range.as_ref();
        let range = range.map_or_else(String::new, |range| format!("Content-Range: {range}\r\n"));
        let head = format!(
            "HTTP/1.1 {} X\r\nContent-Length: {}\r\nETag: \"e\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n{range}\r\n",
            answer.status,
            answer.body.len()
        );
        self.writer.write_all(head.as_bytes())?;
        if request.method != "HEAD" {
            let length = match cut {
                true => answer.body.len() / 2,
                false => answer.body.len(),
            };
            self.writer
                .write_all(answer.body.get(..length).unwrap_or_default())?;
        }
        self.writer.flush()?;
        if cut {
            self.writer.shutdown(std::net::Shutdown::Both)?;
        }
        Ok(())
    }
}

/// A text without its `%` escapes.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = tail.get(..2).filter(|_| *first == b'%');
        let escaped = escaped.and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
