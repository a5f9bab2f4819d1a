// SPDX-License-Identifier: GPL-2.0

//! The open device file: which RDMA devices there are, and one that is bound.

use crate::Error;
use crate::Gid;
use crate::Result;
use crate::abi;
use crate::objects::Cq;
use crate::objects::Pd;
use crate::qp::Qp;
use crate::sys::Door;
use std::sync::Arc;
use std::time::Duration;

/// An open `/dev/ferroce` that is not yet bound to an RDMA device.
#[derive(Debug)]
pub struct Context(Door);

/// What there is to know about an RDMA device.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DeviceInfo {
    /// Its name, as `rdma link` shows it.
    pub name: String,
    /// Its number, as `Context::bind` takes it.
    pub index: u32,
    /// The interface that it works over; empty when that is gone.
    pub netdev: String,
    /// The number of that interface.
    pub ifindex: u32,
    /// Whether the port carries traffic.
    pub active: bool,
    /// The interface's MTU in bytes.
    pub netdev_mtu: u32,
    /// The largest RoCE MTU that fits into it, in bytes.
    pub path_mtu: u32,
    /// Its addresses.
    pub gids: Vec<GidEntry>,
}

/// An entry of a device's GID table.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct GidEntry {
    /// Its place in the table.
    pub index: u32,
    /// The address.
    pub gid: Gid,
}

impl Context {
    /// Opens the device file and checks that the module speaks our ABI.
    pub fn open() -> Result<Self> {
        let door = Door::open(abi::DEVICE_PATH).map_err(Error::open)?;
        let query = door
            .query()
            .map_err(Error::kernel("ask the module for its ABI"))?;
        if query.abi_version != abi::ABI_VERSION {
            return Err(Error::Abi {
                found: query.abi_version,
            });
        }
        Ok(Context(door))
    }

    /// The devices of this network namespace.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let mut indices = vec![0; 64];
        let list = |room: &mut [u32]| {
            self.0
                .list_devices(room)
                .map_err(Error::kernel("list the RDMA devices"))
        };
        let mut count = list(&mut indices)?;
        if count > indices.len() {
            indices.resize(count, 0);
            count = list(&mut indices)?;
        }
        indices.truncate(count);

        let mut devices = Vec::new();
        for index in indices {
            match self.0.get_device(index) {
                Ok((device, gids)) => devices.push(DeviceInfo::new(&device, &gids)),
                // Deleted in the meantime.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => (),
                Err(error) => return Err(Error::kernel("ask about an RDMA device")(error)),
            }
        }
        Ok(devices)
    }

    /// Ties the context to a device.
    pub fn bind(self, device: &DeviceInfo) -> Result<Device> {
        self.0
            .bind(device.index)
            .map_err(Error::kernel("bind to the RDMA device"))?;
        Ok(Device {
            door: Arc::new(self.0),
        })
    }
}

impl DeviceInfo {
    fn new(device: &abi::GetDevice, gids: &[abi::Gid]) -> Self {
        DeviceInfo {
            name: text(&device.name),
            index: device.index,
            netdev: text(&device.netdev),
            ifindex: device.ifindex,
            active: device.port_state == abi::PORT_ACTIVE,
            netdev_mtu: device.netdev_mtu,
            path_mtu: device.path_mtu,
            gids: gids
                .iter()
                .map(|entry| GidEntry {
                    index: entry.index,
                    gid: Gid(entry.raw),
                })
                .collect(),
        }
    }
}

/// What stands before the NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A context that is bound to an RDMA device.
#[derive(Debug)]
pub struct Device {
    door: Arc<Door>,
}

impl Device {
    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Result<Pd> {
        Pd::new(&self.door)
    }

    /// Makes a completion queue that holds at least `entries` completions.
    pub fn create_cq(&self, entries: u32) -> Result<Cq> {
        Cq::new(&self.door, entries)
    }

    /// Submits what was posted to `qps`, then waits until the CQ holds so many
    /// completions, or no longer than `timeout` (`None`: for ever). Says how many
    /// are in the CQ.
    pub fn enter(
        &self,
        qps: &[&Qp],
        wait: Option<(&Cq, u32)>,
        timeout: Option<Duration>,
    ) -> Result<u32> {
        let qps: Vec<u32> = qps.iter().map(|qp| qp.handle()).collect();
        let timeout_ns = timeout.map_or(abi::WAIT_FOR_EVER, |timeout| {
            u64::try_from(timeout.as_nanos()).unwrap_or(abi::WAIT_FOR_EVER)
        });
        self.door
            .enter(&qps, wait.map(|(cq, min)| (cq.handle(), min)), timeout_ns)
            .map_err(Error::kernel("submit work"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    #[test]
    fn names_end_at_the_nul_or_the_field() {
        assert_eq!(text(b"fa\0junk"), "fa");
        assert_eq!(text(b"full"), "full");
        assert_eq!(text(b""), "");
    }

    #[test]
    fn a_device_is_told_in_json() {
        let mut device = abi::GetDevice::zeroed();
        device.name[..2].copy_from_slice(b"fa");
        device.port_state = abi::PORT_ACTIVE;
        device.path_mtu = 4096;
        let mut gid = abi::Gid::zeroed();
        gid.index = 1;
        gid.raw[15] = 1;
        let json = serde_json::to_value(DeviceInfo::new(&device, &[gid])).unwrap();
        assert_eq!(json["name"], "fa");
        assert_eq!(json["active"], true);
        assert_eq!(json["gids"][0]["gid"], "::1");
        assert_eq!(json["gids"][0]["index"], 1);
    }
}
