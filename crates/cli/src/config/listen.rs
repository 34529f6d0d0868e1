//! Addresses to listen on, as people write them.

use std::net::{Ipv4Addr, SocketAddr};

use serde::Deserialize;

/// An address to listen on, read from the configuration.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_listen(&text).map(Self)
    }
}

/// Reads an address. Beside an address with a port it may be `localhost:PORT`, and `:PORT` for all IPv4 addresses of
/// the machine. Other names are refused, because a name can stand for several addresses and change.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').map_or((text, None), |(host, port)| (host, port.parse().ok()));
    let address = match (host, port) {
        ("localhost", Some(port)) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        ("", Some(port)) => Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        _ => None,
    };
    address.ok_or_else(|| {
        format!(
            "`{text}` is not an address to listen on; write 127.0.0.1:8090, [::1]:8090 or localhost:8090, or :8090 for \
             all addresses of this machine"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_addresses_in_several_ways() {
        for (text, expected) in [
            ("127.0.0.1:8090", "127.0.0.1:8090"),
            ("[::1]:1", "[::1]:1"),
            ("localhost:8090", "127.0.0.1:8090"),
            (":8090", "0.0.0.0:8090"),
        ] {
            assert_eq!(parse_listen(text).unwrap().to_string(), expected, "{text}");
        }
        for text in [
            "",
            ":",
            "localhost",
            "localhost:",
            "localhost:x",
            "localhost:70000",
            "8090",
            "example.com:1",
            "::1:8090",
        ] {
            let error = parse_listen(text).unwrap_err();
            assert!(error.contains(&format!("`{text}`")) && error.contains("localhost:8090"), "{error}");
        }
    }
}
