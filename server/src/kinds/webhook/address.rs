//! Addresses that a webhook may connect to. The resolved address is checked, so it does not matter
//! how it was written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Addresses that may be reached: public ones, and those allowed here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reach {
    /// All addresses may be reached, also those of this machine.
    pub(crate) everywhere: bool,
    /// Private blocks that are allowed.
    pub(crate) also: Vec<Block>,
}

impl Reach {
    pub(super) fn includes(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.everywhere || is_public(address) || self.also.iter().any(|block| block.holds(address))
    }
}

/// A block of addresses, like 10.0.0.0/8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    first: IpAddr,
    prefix: u8,
}

impl Block {
    fn holds(self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differs = first.to_bits() ^ address.to_bits();
                differs.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differs = first.to_bits() ^ address.to_bits();
                differs.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl FromStr for Block {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an address block (CIDR); write it like 10.0.0.0/8");
        let (first, prefix) = text.split_once('/').unwrap_or((text, ""));
        let first: IpAddr = first.parse().map_err(|_| wrong())?;
        let longest = if first.is_ipv4() { 32 } else { 128 };
        let prefix = if prefix.is_empty() && !text.contains('/') {
            longest
        } else {
            prefix.parse().map_err(|_| wrong())?
        };
        if prefix > longest {
            return Err(wrong());
        }
        Ok(Self { first, prefix })
    }
}

/// Whether an address is public by IANA's registries of special addresses.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Blocks of IPv4 that are not public: first address and prefix.
const SPECIAL_V4: [([u8; 4], u8); 15] = [
    // This network; on many systems the same as this machine.
    ([0, 0, 0, 0], 8),
    // Private.
    ([10, 0, 0, 0], 8),
    ([172, 16, 0, 0], 12),
    ([192, 168, 0, 0], 16),
    // Shared by the customers of a carrier.
    ([100, 64, 0, 0], 10),
    // This machine.
    ([127, 0, 0, 0], 8),
    // Link-local; in clouds the metadata service.
    ([169, 254, 0, 0], 16),
    // Protocols, documentation, relays of 6to4, benchmarks.
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    // Multicast; reserved, and broadcast.
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = |(first, prefix): &([u8; 4], u8)| {
        Block { first: Ipv4Addr::from(*first).into(), prefix: *prefix }.holds(address.into())
    };
    !SPECIAL_V4.iter().any(special)
}

/// Public addresses of IPv6 lie in `2000::/3`, but for these: protocols (Teredo among them),
/// documentation, 6to4.
const SPECIAL_V6: [(u16, u16, u8); 4] =
    [(0x2001, 0, 23), (0x2001, 0x0db8, 32), (0x2002, 0, 16), (0x3fff, 0, 20)];

fn is_public_v6(address: Ipv6Addr) -> bool {
    // NAT64: such an address is translated to the IPv4 address in it.
    if let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = address.segments() {
        return is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    }
    let within = |first: u16, second: u16, prefix: u8| {
        let first = Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0);
        Block { first: first.into(), prefix }.holds(address.into())
    };
    within(0x2000, 0, 3)
        && !SPECIAL_V6.iter().any(|(first, second, prefix)| within(*first, *second, *prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of this machine, of its network, or of none.
    pub(crate) const SPECIAL: [&str; 40] = [
        "127.0.0.1",
        "127.255.255.255",
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.255.255",
        "169.254.169.254",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001:0:1::1",
        "2001:db8::1",
        "3fff::1",
        "fc00::1",
        "fd00::1",
        "fe80::1",
        "ff02::1",
        "fec0::1",
    ];

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn special_addresses_are_out_of_reach_unless_they_are_let_in() {
        let public = Reach::default();
        let everywhere = Reach { everywhere: true, also: Vec::new() };
        for text in SPECIAL {
            assert!(!public.includes(address(text)), "{text}");
            assert!(everywhere.includes(address(text)), "{text}");
        }
    }

    #[test]
    fn public_addresses_are_within_reach() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "100.63.0.1",
            "100.128.0.1",
            "192.167.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00::1",
            "2001:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ] {
            assert!(Reach::default().includes(address(text)), "{text}");
        }
    }

    #[test]
    fn a_block_lets_in_what_it_holds_and_nothing_else() {
        let also = vec!["10.1.0.0/16".parse().unwrap(), "fd00::7".parse().unwrap()];
        let reach = Reach { everywhere: false, also };
        for (text, within) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.0", false),
            ("fd00::7", true),
            ("fd00::8", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(reach.includes(address(text)), within, "{text}");
        }
        assert!("0.0.0.0/0".parse::<Block>().unwrap().holds(address("127.0.0.1")));
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(text.parse::<Block>().is_err(), "{text}");
        }
    }
}
