//! Out of file descriptors, row 11 of the fault model: connections never take the descriptors that journal,
//! segments and state need, and the accept loop does not spin.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::running_server::RunningServer;
use super::until;

/// Descriptors of the server.
const LIMIT: usize = 256;
/// Far more connections than the server has descriptors.
const SOCKETS: usize = 400;
/// Together these fill several journal files of 32 MiB.
const PUBLISHES: usize = 75;
const PAYLOAD_BYTES: usize = 1_000_000;

/// Plain connections that never send a byte.
struct Crowd {
    address: String,
    sockets: Vec<TcpStream>,
}

impl Crowd {
    fn of(address: &str) -> Self {
        let mut crowd = Self { address: address.to_owned(), sockets: Vec::new() };
        crowd.refill();
        crowd
    }

    /// Opens a new connection for each one that the server has closed.
    fn refill(&mut self) {
        self.sockets.retain_mut(|socket| {
            socket.set_nonblocking(true).unwrap();
            matches!(socket.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        while self.sockets.len() < SOCKETS {
            self.sockets.push(TcpStream::connect(&self.address).unwrap());
        }
    }
}

fn open_descriptors(server: &RunningServer) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count()
}

/// Processor time of the server, in clock ticks.
fn ticks(server: &RunningServer) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures another process")]
fn publishing_goes_on_through_journal_rolls_while_plain_sockets_take_all_connections() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::limited(&format!("ulimit -n {LIMIT}"), dir.path(), &[]);
    let mut crowd = Crowd::of(server.address());
    let payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES));
    for n in 0..PUBLISHES {
        let topic = format!("/publish/topic-{}", n % 20);
        server.ask("POST", &topic, &payload);
        let asked = Instant::now();
        server.ask("GET", "/health", "");
        assert!(asked.elapsed() < Duration::from_secs(5), "health took {:?}", asked.elapsed());
        if n % 8 == 0 {
            crowd.refill();
        }
        let open = open_descriptors(&server);
        assert!(open < LIMIT, "{open} descriptors are open");
    }
    // A crowd that stands still costs nothing.
    let before = ticks(&server);
    let began = Instant::now();
    until("a second passes", || (began.elapsed() > Duration::from_secs(1)).then_some(()));
    let spent = ticks(&server) - before;
    assert!(spent < 50, "{spent} clock ticks in a second without requests");
    drop(crowd);
    server.stop();
}

#[test]
fn the_limit_of_open_files_is_raised_as_far_as_it_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let server = RunningServer::limited("ulimit -Sn 64 && ulimit -Hn 600", dir.path(), &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().nth(3), Some("600"), "{line}");
    let _crowd: Vec<_> = (0..200).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    until("more connections than the soft limit allowed", || (open_descriptors(&server) > 200).then_some(()));
    server.stop();
}
