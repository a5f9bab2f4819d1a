// SPDX-License-Identifier: GPL-2.0

//! Which device and address a side uses, and its queue pair there.

use super::exchange::Endpoint;
use anyhow::Context as _;
use anyhow::bail;
use ferroce::Access;
use ferroce::Buffer;
use ferroce::Context;
use ferroce::Cq;
use ferroce::Device;
use ferroce::DeviceInfo;
use ferroce::Gid;
use ferroce::Mr;
use ferroce::Peer;
use ferroce::Qp;
use ferroce::QpConfig;
use std::net::IpAddr;

/// What the user asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    pub device: Option<&'a str>,
    pub gid_index: Option<u8>,
}

/// An address of a device.
#[derive(Clone, Debug)]
pub struct Port {
    pub device: DeviceInfo,
    pub gid_index: u8,
    pub gid: Gid,
}

/// Chooses what was wished for, and where there is no wish, what has the
/// address that TCP uses.
pub fn choose(devices: &[DeviceInfo], wish: Wish<'_>, local: IpAddr) -> anyhow::Result<Port> {
    let local = Gid::from(local.to_canonical());
    let fits = |device: &&DeviceInfo| match wish.device {
        Some(name) => device.name == name,
        None => wish.gid_index.is_some() || device.gids.iter().any(|entry| entry.gid == local),
    };
    let candidates: Vec<_> = devices.iter().filter(fits).collect();
    let device = match (candidates.as_slice(), wish.device) {
        ([device], _) => *device,
        ([], Some(name)) => bail!("there is no ferroce device {name}: see `ferroce devices`"),
        ([], None) => bail!(
            "no ferroce device has the address {}: choose one with --device and --gid-index, \
             or make one with `rdma link add NAME type ferroce netdev DEV`",
            local.ip()
        ),
        (_, _) => bail!("several ferroce devices would do: choose one with --device"),
    };
    let wished = |index: u32| match wish.gid_index {
        Some(wish) => index == u32::from(wish),
        None => true,
    };
    let entry = device
        .gids
        .iter()
        .find(|entry| wished(entry.index) && (wish.gid_index.is_some() || entry.gid == local))
        .with_context(|| match wish.gid_index {
            Some(index) => format!("{} has no GID {index}: see `ferroce devices`", device.name),
            None => format!(
                "{} lacks the address {}: use --gid-index",
                device.name,
                local.ip()
            ),
        })?;
    if !device.active {
        bail!("{} is down: ip link set {} up", device.name, device.netdev);
    }
    Ok(Port {
        device: device.clone(),
        gid_index: u8::try_from(entry.index).context("GID index above 255")?,
        gid: entry.gid,
    })
}

/// A side's objects. The device comes last: it is dropped after the others.
#[derive(Debug)]
pub struct Side {
    pub qp: Qp,
    pub cq: Cq,
    pub mr: Mr,
    pub port: Port,
    pub psn: u32,
    pub device: Device,
}

impl Side {
    pub fn new(
        context: Context,
        port: Port,
        region: usize,
        access: Access,
        depth: u32,
    ) -> anyhow::Result<Self> {
        let device = context.bind(&port.device)?;
        let pd = device.alloc_pd()?;
        let mr = pd.register(Buffer::new(region)?, access)?;
        let cq = device.create_cq(depth)?;
        let qp = pd.create_qp(
            &cq,
            &cq,
            &QpConfig {
                send_slots: depth,
                recv_slots: 0,
            },
        )?;
        let psn = random()? as u32 & 0xff_ffff;
        Ok(Side {
            qp,
            cq,
            mr,
            port,
            psn,
            device,
        })
    }

    /// What the peer must know.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            qpn: self.qp.number(),
            psn: self.psn,
            gid: self.port.gid,
            path_mtu: self.port.device.path_mtu,
        }
    }

    /// The path MTU that both can do.
    pub fn path_mtu(&self, peer: &Endpoint) -> u32 {
        self.port.device.path_mtu.min(peer.path_mtu)
    }

    pub fn connect(&mut self, peer: &Endpoint, access: Access) -> anyhow::Result<()> {
        let peer = Peer {
            qpn: peer.qpn,
            gid: peer.gid,
            psn: peer.psn,
            own_psn: self.psn,
            sgid_index: self.port.gid_index,
            path_mtu: self.path_mtu(peer),
            access,
        };
        Ok(self.qp.connect(&peer)?)
    }
}

/// A number that is another one each time.
pub fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    let mut source = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    std::io::Read::read_exact(&mut source, &mut bytes).context("cannot read /dev/urandom")?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce::GidEntry;

    fn device(name: &str, gids: &[&str]) -> DeviceInfo {
        let gids = gids.iter().zip(0..);
        DeviceInfo {
            name: name.to_owned(),
            index: 0,
            netdev: "va".to_owned(),
            ifindex: 1,
            active: true,
            netdev_mtu: 4200,
            path_mtu: 4096,
            gids: gids
                .map(|(gid, index)| GidEntry {
                    index,
                    gid: gid.parse().unwrap(),
                })
                .collect(),
        }
    }

    fn pick(wish: Wish<'_>, local: &str) -> anyhow::Result<(String, u8)> {
        let devices = [
            device("fa", &["fe80::1", "::ffff:10.0.0.1", "fd00::1"]),
            device("fb", &["fe80::2", "::ffff:10.0.0.2"]),
        ];
        let port = choose(&devices, wish, local.parse().unwrap())?;
        Ok((port.device.name, port.gid_index))
    }

    const ANY: Wish<'_> = Wish {
        device: None,
        gid_index: None,
    };

    #[test]
    fn the_address_of_the_connection_decides() {
        assert_eq!(pick(ANY, "10.0.0.2").unwrap(), ("fb".to_owned(), 1));
        assert_eq!(pick(ANY, "::ffff:10.0.0.1").unwrap(), ("fa".to_owned(), 1));
        assert_eq!(pick(ANY, "fd00::1").unwrap(), ("fa".to_owned(), 2));
        let error = pick(ANY, "192.168.0.1").unwrap_err();
        assert!(error.to_string().contains("192.168.0.1"), "{error}");
    }

    #[test]
    fn wishes_decide_first() {
        let wish = Wish {
            device: Some("fb"),
            gid_index: Some(0),
        };
        assert_eq!(pick(wish, "10.0.0.1").unwrap(), ("fb".to_owned(), 0));
        let wish = Wish {
            device: Some("fb"),
            gid_index: None,
        };
        assert!(
            pick(wish, "10.0.0.1")
                .unwrap_err()
                .to_string()
                .contains("--gid-index")
        );
        let wish = Wish {
            device: Some("fa"),
            gid_index: Some(9),
        };
        assert!(
            pick(wish, "10.0.0.1")
                .unwrap_err()
                .to_string()
                .contains("no GID 9")
        );
        let wish = Wish {
            device: Some("fc"),
            gid_index: None,
        };
        assert!(
            pick(wish, "10.0.0.1")
                .unwrap_err()
                .to_string()
                .contains("fc")
        );
        let wish = Wish {
            device: None,
            gid_index: Some(0),
        };
        assert!(
            pick(wish, "10.0.0.1")
                .unwrap_err()
                .to_string()
                .contains("several")
        );
    }

    #[test]
    fn a_device_that_is_down_is_not_used() {
        let mut down = device("fa", &["::ffff:10.0.0.1"]);
        down.active = false;
        let error = choose(&[down], ANY, "10.0.0.1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("ip link set va up"), "{error}");
    }
}
