//! Values of the command line with a syntax of their own: durations, and addresses to listen on.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// An address to listen on: an IP address or a name, and a port. Without a host it is 127.0.0.1; of
/// the addresses of a name, the first with IPv4, or else the first.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = || format!("{text:?} is not an address; write it like 127.0.0.1:8080 or :8080");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    if host.is_empty() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| format!("{host} has no address: {error}"))?;
    let mut found: Vec<SocketAddr> = found.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found.first().copied().ok_or_else(|| format!("{host} has no address"))
}

/// A length of time: numbers with ms, s, m, h or d, like 500ms, 30s or 1h30m.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a length of time; write it like 500ms, 30s or 1h30m");
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..end].parse().map_err(|_| wrong())?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit_ms: u64 = match &rest[..end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let millis = number.checked_mul(unit_ms).ok_or_else(wrong)?;
        total = total.checked_add(Duration::from_millis(millis)).ok_or_else(wrong)?;
        rest = &rest[end..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_a_name_or_a_port_alone() {
        let loopback = |port| Ok((Ipv4Addr::LOCALHOST, port).into());
        assert_eq!(address("127.0.0.1:1"), loopback(1));
        assert_eq!(address("localhost:8080"), loopback(8080));
        assert_eq!(address(":0"), loopback(0));
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for text in ["", "8080", "localhost", "localhost:", ":http", "a b:1", ":70000"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_length_of_time_is_read_with_its_units() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1_500)));
        for text in
            ["", "30", "s", "3x", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
