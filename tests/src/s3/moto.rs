//! moto, an S3 in Python, as a process of the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::BUCKET;
use crate::workspace;

/// Looks for the server before giving up, and the pause between two.
const LOOKS: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// A server with an empty bucket; it ends with this value.
#[derive(Debug)]
pub struct Moto {
    server: Child,
    address: SocketAddr,
}

impl Drop for Moto {
    fn drop(&mut self) {
        // A server that has ended needs no end.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Moto {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When the Python of the tests lacks it, or it does not answer.
    pub fn start() -> Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let server = Command::new(workspace::python()?)
            .arg(workspace::tests_dir("interop/s3.py"))
            .arg(address.port().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut moto = Self { server, address };
        for _ in 0..LOOKS {
            if moto.put("", b"").is_ok() {
                return Ok(moto);
            }
            if let Some(status) = moto.server.try_wait()? {
                bail!("moto ended with {status}: is it in the Python of the tests?");
            }
            std::thread::sleep(PAUSE);
        }
        bail!("moto does not answer")
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts an object into the bucket, or makes the bucket where no key is given.
    ///
    /// # Errors
    /// What the server answers.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let mut stream = TcpStream::connect(self.address)?;
        let path = match key {
            "" => BUCKET.to_owned(),
            key => format!("{BUCKET}/{key}"),
        };
        write!(
            stream,
            "PUT /{path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            bytes.len()
        )?;
        stream.write_all(bytes)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).context("no answer")?;
        ensure!(status == "200", "{answer}");
        Ok(())
    }
}
