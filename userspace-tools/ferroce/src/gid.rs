// SPDX-License-Identifier: GPL-2.0

//! The address of a port: an IPv6 address, or an IPv4 address mapped into one.

use std::fmt;
use std::net::AddrParseError;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A global identifier, as RoCE v2 has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that it stands for.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl FromStr for Gid {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Ipv6Addr>().map(|ip| Gid(ip.octets()))
    }
}

impl serde::Serialize for Gid {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Gid {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_mapped_and_back() {
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        let gid = Gid::from(ip);
        assert_eq!(gid.0[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(gid.to_string(), "::ffff:10.0.0.1");
        assert_eq!(gid.ip(), ip);
    }

    #[test]
    fn text_and_json_come_back_the_same() {
        for text in ["fe80::1", "fd00::2", "::ffff:192.168.1.7", "::"] {
            let gid: Gid = text.parse().unwrap();
            assert_eq!(gid.to_string(), text);
            let json = serde_json::to_string(&gid).unwrap();
            assert_eq!(serde_json::from_str::<Gid>(&json).unwrap(), gid);
        }
        assert!("10.0.0.1".parse::<Gid>().is_err());
        assert!(serde_json::from_str::<Gid>("7").is_err());
    }
}
