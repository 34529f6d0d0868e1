//! Pages over HTTP/1.0, where the body ends with the connection.

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const READ_BYTES: usize = 256 << 10;
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Whether a page answers with 200.
pub(crate) async fn is_there(authority: &str, path: &str) -> bool {
    lines(authority, path).await.is_ok()
}

/// The number of lines and bytes of a page.
pub(crate) async fn lines(authority: &str, path: &str) -> Result<(u64, u64)> {
    let mut stream = TcpStream::connect(authority).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {authority}\r\n\r\n").as_bytes()).await?;
    let mut buffer = vec![0; READ_BYTES];
    let mut read = 0;
    let head = loop {
        let more = stream.read(buffer.get_mut(read..).unwrap_or_default()).await?;
        read += more;
        let answer = buffer.get(..read).unwrap_or_default();
        if let Some(end) = memchr::memmem::find(answer, b"\r\n\r\n") {
            break end + 4;
        }
        ensure!(more > 0 && read < HEAD_BYTES_MAX, "{path}: no answer");
    };
    let answer = buffer.get(..read).unwrap_or_default();
    let status = String::from_utf8_lossy(answer.get(..12).unwrap_or_default());
    ensure!(status.ends_with(" 200"), "{path}: {status}");
    let count = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
    let mut lines = count(answer.get(head..).unwrap_or_default());
    let mut body = (read - head) as u64;
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok((lines, body));
        }
        lines += count(buffer.get(..read).unwrap_or_default());
        body += read as u64;
    }
}
