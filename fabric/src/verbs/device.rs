//! Chooses the adapter, port and address of a connection.
//!
//! Invariants
//! - An adapter is opened once per process and closed with the last connection or listener that
//!   uses it.
//! - A region is registered at most once per adapter at a time, however many connections use it.
//!   Whoever registers one region waits for no other: pinning a large one takes seconds on a slow
//!   host, and a connection that is being set up must register its ring in time.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, LazyLock, Weak},
};

use super::sys::{AdapterLimits, Context, MemoryRegion, Port, ProtectionDomain, device_names};
use crate::{error::DeviceError, guarded::Guarded, region::Region};

/// The environment variable that names the adapter for callers whose address names none.
pub(super) const DEVICE_VARIABLE: &str = "RACKSCAN_VERBS_DEVICE";

/// An open adapter, with the state that all connections over it share.
#[derive(Debug)]
pub(super) struct Device {
    name: String,
    limits: AdapterLimits,
    domain: Arc<ProtectionDomain>,
    registered: Guarded<HashMap<usize, Arc<Registration>>>,
}

/// The registration of one region while it is held. The lock is taken while it is made.
type Registration = Guarded<Weak<MemoryRegion>>;

/// The adapters that are open in this process.
static OPEN: LazyLock<Guarded<HashMap<String, Weak<Device>>>> = LazyLock::new(Guarded::default);

/// The port and address of an adapter that a connection uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint {
    /// Number of the port, from 1.
    pub(super) number: u8,
    /// Its state.
    pub(super) port: Port,
    /// Index and value of the address that packets carry. On InfiniBand without routers packets
    /// carry none.
    pub(super) gid: (u8, [u8; 16]),
}

/// The IP address that an entry of the address table represents.
fn ip_of(gid: [u8; 16]) -> IpAddr {
    let address = Ipv6Addr::from(gid);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl Device {
    /// Opens the adapter of that name, or returns it if it is open.
    pub(super) fn open(name: &str) -> Result<Arc<Self>, DeviceError> {
        let mut open = OPEN.lock();
        if let Some(device) = open.get(name).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let os = |action| move |source| DeviceError::Os { device: name.to_owned(), action, source };
        let Some(context) = Context::open(name).map_err(os("open"))? else {
            let existing = device_names().map_err(os("list"))?;
            return Err(match existing.as_slice() {
                [] => DeviceError::None,
                _ => DeviceError::Unknown { device: name.to_owned(), existing: existing.join(", ") },
            });
        };
        let limits = context.limits().map_err(os("ask for the limits of"))?;
        if !limits.has_windows {
            return Err(DeviceError::NoWindows { device: name.to_owned() });
        }
        let domain = ProtectionDomain::new(Arc::new(context)).map_err(os("make a protection domain on"))?;
        let registered = Guarded::default();
        let device = Arc::new(Self { name: name.to_owned(), limits, domain: Arc::new(domain), registered });
        open.retain(|_, device| device.strong_count() > 0);
        open.insert(name.to_owned(), Arc::downgrade(&device));
        Ok(device)
    }

    /// The adapter that has `local` as an address, or the only one.
    pub(super) fn with_address(local: IpAddr) -> Result<Arc<Self>, DeviceError> {
        let listed = |source| DeviceError::Os { device: "adapters".to_owned(), action: "list", source };
        let names = device_names().map_err(listed)?;
        for name in &names {
            // An adapter that cannot be used is skipped, unless it is the only one.
            let Ok(device) = Self::open(name) else { continue };
            if device.endpoints()?.iter().any(|endpoint| endpoint.gid.1 == gid_of(local)) {
                return Ok(device);
            }
        }
        match names.as_slice() {
            [] => Err(DeviceError::None),
            [only] => Self::open(only),
            _ => Err(DeviceError::Ambiguous { local, existing: names.join(", ") }),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn limits(&self) -> AdapterLimits {
        self.limits
    }

    pub(super) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> DeviceError {
        move |source| DeviceError::Os { device: self.name.clone(), action, source }
    }

    /// Every address of every port that a connection could use.
    fn endpoints(&self) -> Result<Vec<Endpoint>, DeviceError> {
        let context = self.domain.context();
        let mut endpoints = Vec::new();
        for number in 1..=self.limits.ports {
            let port = context.port(number).map_err(self.failed("ask for a port of"))?;
            // On InfiniBand the first entry is the port's own. On Ethernet each address of the
            // interface has entries.
            let indices = if port.is_ethernet { port.gids } else { port.gids.min(1) };
            for index in 0..indices.min(u32::from(u8::MAX)) {
                let gid = context.gid(number, index).map_err(self.failed("ask for an address of"))?;
                let index = u8::try_from(index).expect("the loop ends before u8::MAX");
                if gid != [0; 16] && (!port.is_ethernet || self.is_routable(number, index)) {
                    endpoints.push(Endpoint { number, port, gid: (index, gid) });
                }
            }
        }
        Ok(endpoints)
    }

    /// Whether packets from an entry travel as UDP (RoCE v2). Both ends of a connection must use
    /// the same kind.
    fn is_routable(&self, port: u8, index: u8) -> bool {
        let path = format!("/sys/class/infiniband/{}/ports/{port}/gid_attrs/types/{index}", self.name);
        // If the driver does not tell, the adapter has only one kind of entries.
        std::fs::read_to_string(path).map_or(true, |kind| !kind.starts_with("IB/RoCE v1"))
    }

    /// The endpoint of a connection whose TCP socket has the address `local`.
    pub(super) fn endpoint(&self, local: IpAddr) -> Result<Endpoint, DeviceError> {
        let endpoints = self.endpoints()?;
        let wanted = gid_of(local);
        let rank = |endpoint: &&Endpoint| {
            let is_ip = endpoint.gid.1 == wanted;
            (endpoint.port.is_active, is_ip, matches!(ip_of(endpoint.gid.1), IpAddr::V4(_)))
        };
        match endpoints.iter().rev().max_by_key(rank) {
            Some(endpoint) if endpoint.port.is_active => Ok(*endpoint),
            Some(endpoint) => Err(DeviceError::PortDown { device: self.name.clone(), port: endpoint.number }),
            None => Err(DeviceError::NoAddress { device: self.name.clone() }),
        }
    }

    /// The IPv4 address that the adapter's packets come from, if it has one.
    pub(super) fn ipv4_address(&self) -> Result<Option<Ipv4Addr>, DeviceError> {
        let endpoints = self.endpoints()?;
        Ok(endpoints.iter().find_map(|endpoint| match ip_of(endpoint.gid.1) {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }))
    }

    /// The registration of a region, made now if there is none.
    pub(super) fn register(&self, region: &Region) -> io::Result<Arc<MemoryRegion>> {
        let registration = self.registration(region);
        let mut registered = registration.lock();
        if let Some(memory) = registered.upgrade() {
            return Ok(memory);
        }
        // An adapter pins all of the region. Pages that it had to allocate would be small ones.
        region.populate(0, region.bytes()).map_err(io::Error::other)?;
        let memory = Arc::new(MemoryRegion::register(Arc::clone(&self.domain), region)?);
        *registered = Arc::downgrade(&memory);
        Ok(memory)
    }

    /// The entry of a region in the table of registrations.
    fn registration(&self, region: &Region) -> Arc<Registration> {
        let mut table = self.registered.lock();
        // Entries that nobody uses are removed when the table would grow.
        if table.len() == table.capacity() {
            table.retain(|_, entry| {
                Arc::strong_count(entry) > 1
                    || entry.try_lock().is_none_or(|memory| memory.strong_count() > 0)
            });
        }
        Arc::clone(table.entry(identity(region)).or_default())
    }
}

/// A number that identifies a region while it is held: the address of its mapping.
pub(super) fn identity(region: &Region) -> usize {
    std::ptr::from_ref(region.mapping()).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_and_its_ip_address_are_the_same_thing() {
        for text in ["10.2.0.1", "fe80::1", "2001:db8::7"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(ip_of(gid_of(address)), address);
        }
    }
}
