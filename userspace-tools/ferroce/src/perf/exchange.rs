// SPDX-License-Identifier: GPL-2.0

//! What the two sides tell each other over TCP: a line of JSON a message.

use anyhow::Context;
use anyhow::bail;
use ferroce::Gid;
use serde::Deserialize;
use serde::Serialize;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// Grows when the messages change.
pub const PROTOCOL: u32 = 1;
/// Who says nothing for so long is taken for dead. The client reports progress
/// more often than that.
pub const SILENCE: Duration = Duration::from_secs(20);
/// No message is longer.
const MAX_LINE: u64 = 4096;

/// How to reach a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    pub qpn: u32,
    pub psn: u32,
    pub gid: Gid,
    /// The largest that its device can do.
    pub path_mtu: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Client: this I want to do, this is my end.
    Hello {
        protocol: u32,
        region: usize,
        endpoint: Endpoint,
    },
    /// Server: my end is ready, this memory is yours.
    Welcome {
        endpoint: Endpoint,
        address: u64,
        rkey: u32,
    },
    /// Client: so many writes are done; more will come.
    Progress { writes: u64 },
    /// Client: all is written, and these many bytes should be this pattern.
    Done { writes: u64, seed: u64, len: usize },
    /// Server: what I found; the place of the first wrong byte, if any.
    Verdict { wrong: Option<usize> },
    /// Either: I cannot go on.
    Failed { reason: String },
}

/// The TCP connection between the two.
#[derive(Debug)]
pub struct Channel(BufReader<TcpStream>);

impl Channel {
    pub fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        stream.set_nodelay(true)?;
        Ok(Channel(BufReader::new(stream)))
    }

    pub fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    pub fn send(&mut self, message: &Message) -> anyhow::Result<()> {
        let line = serde_json::to_string(message)? + "\n";
        self.0
            .get_mut()
            .write_all(line.as_bytes())
            .context("cannot send to the peer")
    }

    pub fn receive(&mut self) -> anyhow::Result<Message> {
        let message = parse(&mut self.0)?;
        if let Message::Failed { reason } = message {
            bail!("the peer gave up: {reason}");
        }
        Ok(message)
    }
}

fn parse(from: &mut impl BufRead) -> anyhow::Result<Message> {
    let mut line = Vec::new();
    from.take(MAX_LINE)
        .read_until(b'\n', &mut line)
        .context("the peer fell silent")?;
    if line.is_empty() {
        bail!("the peer closed the connection");
    }
    serde_json::from_slice(&line)
        .context("the peer does not speak our protocol: is it `ferroce perf` of the same version?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let endpoint = Endpoint {
            qpn: 17,
            psn: 0xff_ffff,
            gid: "fd00::1".parse().unwrap(),
            path_mtu: 4096,
        };
        let messages = [
            Message::Hello {
                protocol: PROTOCOL,
                region: 65536,
                endpoint,
            },
            Message::Welcome {
                endpoint,
                address: u64::MAX,
                rkey: 7,
            },
            Message::Progress { writes: 1 },
            Message::Done {
                writes: u64::MAX,
                seed: u64::MAX,
                len: 1,
            },
            Message::Verdict { wrong: None },
        ];
        let mut wire = Vec::new();
        for message in &messages {
            serde_json::to_writer(&mut wire, message).unwrap();
            wire.push(b'\n');
        }
        let mut wire = wire.as_slice();
        for message in messages {
            assert_eq!(parse(&mut wire).unwrap(), message);
        }
        assert!(parse(&mut wire).unwrap_err().to_string().contains("closed"));
    }

    #[test]
    fn noise_is_told_apart() {
        for noise in ["GET / HTTP/1.1\r\n", "{}\n", "{\"hello\":{}}\n", "\n"] {
            let error = parse(&mut noise.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("protocol"), "{noise}: {error}");
        }
        let endless = vec![b' '; 1 << 20];
        let mut rest = endless.as_slice();
        assert!(parse(&mut rest).is_err());
        assert_eq!(endless.len() - rest.len(), MAX_LINE as usize);
    }
}
