//! Where no request may go: link-local addresses, behind which clouds hand out a machine's credentials.
//!
//! Checked on the addresses a connection is really made to, after the name was resolved, so that neither a name nor
//! a change of the name's address between a check and the connection gets around it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Asks somebody for the addresses of a name.
pub(super) type Lookup =
    Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> + Send + Sync>;

pub(super) fn system_lookup() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Everywhere,
    NoLinkLocal,
}

/// A name or address that leads where no request may go.
#[derive(Debug)]
pub(super) struct Refused {
    address: IpAddr,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "requests to the link-local or metadata address {} are refused", self.address)
    }
}

impl std::error::Error for Refused {}

impl Reach {
    fn check(self, address: IpAddr) -> Result<(), Refused> {
        match self {
            Reach::Everywhere => Ok(()),
            Reach::NoLinkLocal if is_link_local_or_metadata(address) => Err(Refused { address }),
            Reach::NoLinkLocal => Ok(()),
        }
    }

    /// A host that is an address is never resolved, so it is looked at here. Parsing a URL has brought every spelling
    /// of it (`0xA9FEA9FE`, `0251.0376.43518`) to the usual one.
    pub(super) fn check_literal(self, url: &Url) -> Result<(), String> {
        let host = url.host_str().unwrap_or_default();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse() {
            Ok(address) => self.check(address).map_err(|refused| refused.to_string()),
            Err(_) => Ok(()),
        }
    }
}

pub(super) struct Resolver {
    reach: Reach,
    lookup: Lookup,
}

impl Resolver {
    pub(super) fn new(reach: Reach, lookup: Lookup) -> Self {
        Self { reach, lookup }
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, found) = (self.reach, (self.lookup)(name.as_str().to_owned()));
        Box::pin(async move {
            let (mut allowed, mut refused) = (Vec::new(), None);
            for address in found.await? {
                match reach.check(address) {
                    // Port 0 stands for the one of the URL.
                    Ok(()) => allowed.push(SocketAddr::new(address, 0)),
                    Err(error) => refused = Some(error),
                }
            }
            match refused {
                Some(refused) if allowed.is_empty() => Err(refused.into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

/// Metadata services that are not link-local: Alibaba, Azure, Oracle; then Amazon and Google over IPv6.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

fn is_link_local_or_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || METADATA_V4.contains(&address),
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || METADATA_V6.contains(&address)
                || embedded(address).is_some_and(|inner| is_link_local_or_metadata(inner.into()))
        }
    }
}

/// The IPv4 address that an IPv6 address stands for, where a host or a router would translate it.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let of = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match s {
        // Mapped, translated and the old compatible form.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => of(high, low),
        // NAT64: the well-known prefix and the one for local use.
        [0x64, 0xff9b, 0 | 1, _, _, _, high, low] => of(high, low),
        // 6to4.
        [0x2002, high, low, ..] => of(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_link_local_or_metadata_address_is_refused() {
        for host in [
            "169.254.169.254",
            "169.254.0.1",
            "169.254.169.254.",
            "0xA9FEA9FE",
            "2852039166",
            "0251.0376.0251.0376",
            "169.254.43518",
            "0xa9.254.0xa9.0376",
            "①⑥⑨.254.169.254",
            "%31%36%39.254.169.254",
            "[fe80::1]",
            "[febf::1]",
            "[fd00:ec2::254]",
            "[fd20:ce::254]",
            "[::ffff:169.254.169.254]",
            "[::ffff:a9fe:a9fe]",
            "[::ffff:0:169.254.169.254]",
            "[::169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "[64:ff9b:1::a9fe:a9fe]",
            "[2002:a9fe:a9fe::1]",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            let url = Url::parse(&format!("http://{host}:8080/latest/meta-data")).unwrap();
            assert!(Reach::NoLinkLocal.check_literal(&url).is_err(), "{host} as {url}");
            assert!(Reach::Everywhere.check_literal(&url).is_ok(), "{host}");
        }
    }

    #[test]
    fn loopback_private_and_public_addresses_are_allowed() {
        for host in [
            "127.0.0.1",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "10.0.0.1",
            "192.168.1.1",
            "8.8.8.8",
            "[fd00::1]",
            "a.b",
        ] {
            let url = Url::parse(&format!("http://{host}/")).unwrap();
            assert_eq!(Reach::NoLinkLocal.check_literal(&url), Ok(()), "{host}");
        }
    }
}
