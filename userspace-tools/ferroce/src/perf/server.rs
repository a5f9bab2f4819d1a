// SPDX-License-Identifier: GPL-2.0

//! The server: lends memory to one client and checks what it has written.

use super::exchange::Channel;
use super::exchange::Message;
use super::exchange::PROTOCOL;
use super::pattern;
use super::port;
use super::port::Side;
use super::port::Wish;
use crate::cli::WriteArgs;
use anyhow::Context as _;
use anyhow::bail;
use ferroce::Access;
use ferroce::Context;
use std::net::Ipv6Addr;
use std::net::TcpListener;

/// More is lent to nobody.
const MAX_REGION: usize = 1 << 30;

pub fn run(args: &WriteArgs) -> anyhow::Result<()> {
    let context = Context::open()?;
    let listener = listen(args.port)?;
    eprintln!("waiting for a client on TCP port {}", args.port);
    let (stream, _) = listener.accept().context("cannot accept a client")?;
    drop(listener);
    let mut channel = Channel::new(stream)?;
    let result = serve(&mut channel, context, args);
    if let Err(error) = &result {
        // The client may be gone; then there is nobody to tell.
        let _ = channel.send(&Message::Failed {
            reason: format!("{error:#}"),
        });
    }
    result
}

/// On IPv4 and IPv6, or where there is no IPv6, on IPv4.
fn listen(port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => TcpListener::bind(("0.0.0.0", port)),
            _ => Err(error),
        })
        .with_context(|| format!("cannot listen on TCP port {port} (another: --port)"))
}

fn serve(channel: &mut Channel, context: Context, args: &WriteArgs) -> anyhow::Result<()> {
    let Message::Hello {
        protocol,
        region,
        endpoint: client,
    } = channel.receive()?
    else {
        bail!("the client did not introduce itself");
    };
    if protocol != PROTOCOL {
        bail!("the client speaks protocol {protocol}, this server {PROTOCOL}");
    }
    if !(1..=MAX_REGION).contains(&region) {
        bail!("the client asks for {region} bytes of memory; at most {MAX_REGION} are lent");
    }
    let local = channel.stream().local_addr()?.ip();
    let wish = Wish {
        device: args.device.as_deref(),
        gid_index: args.gid_index,
    };
    let port = port::choose(&context.devices()?, wish, local)?;
    let mut side = Side::new(context, port, region, Access::REMOTE_WRITE, 1)?;
    side.connect(&client, Access::REMOTE_WRITE)?;
    channel.send(&Message::Welcome {
        endpoint: side.endpoint(),
        address: side.mr.address(),
        rkey: side.mr.rkey(),
    })?;
    let (writes, wrong) = verify(channel, &side, region)?;
    channel.send(&Message::Verdict { wrong })?;
    match wrong {
        None => eprintln!("{writes} writes from {}, data verified", client.gid.ip()),
        Some(place) => bail!("wrong data after {writes} writes: byte {place} is the first"),
    }
    Ok(())
}

/// Waits for the client to finish, then looks at what is in the memory.
fn verify(
    channel: &mut Channel,
    side: &Side,
    region: usize,
) -> anyhow::Result<(u64, Option<usize>)> {
    loop {
        match channel.receive()? {
            Message::Progress { .. } => (),
            Message::Done { writes, seed, len } if len <= region => {
                return Ok((
                    writes,
                    pattern::first_difference(side.mr.buffer(), seed, len),
                ));
            }
            message => bail!("the client said something unexpected: {message:?}"),
        }
    }
}
