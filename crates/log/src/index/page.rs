//! A page of a run: items of one length, zero padding, their number, and a checksum.
//!
//! ```text
//! 0: items, zero padding | 4088 count u16 | 4090 zero u16 | 4092 crc u32
//! ```
//!
//! The checksum covers the numbers of run and page, and then the page: so a page that was written to another
//! place or belongs to another file fails its check, like a page with a flipped bit.

/// Bytes of a page.
pub(crate) const PAGE_LEN: usize = 4096;
/// Bytes of a page that hold items.
pub(crate) const BODY_LEN: usize = PAGE_LEN - 8;

/// The number of a page and of its run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageAt {
    /// The run's number.
    pub(crate) run: u64,
    /// The page's number in the file, counting data and fence pages.
    pub(crate) page: u64,
}

impl PageAt {
    /// The position of the page in the file.
    pub(crate) fn byte(self) -> u64 {
        self.page * PAGE_LEN as u64
    }
}

/// Completes a page whose items are at the end of `out`, after whole pages.
pub(crate) fn seal(out: &mut Vec<u8>, count: usize, at: PageAt) {
    let begin = out.len() - out.len() % PAGE_LEN;
    assert!(out.len() - begin <= BODY_LEN && count <= BODY_LEN, "page of {count} items overflows");
    out.resize(begin + BODY_LEN, 0);
    out.extend_from_slice(&(count as u32).to_le_bytes());
    let crc = checksum(out.get(begin..).unwrap_or_default(), at);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Checks a page. Returns its items, or what is wrong with it.
pub(crate) fn open(page: &[u8], at: PageAt, count: usize, item_len: usize) -> Result<&[u8], &'static str> {
    let (rest, crc) = page.split_last_chunk::<4>().ok_or("page is cut short")?;
    if u32::from_le_bytes(*crc) != checksum(rest, at) {
        return Err("page checksum");
    }
    let (body, counted) = rest.split_last_chunk::<4>().ok_or("page is cut short")?;
    if u32::from_le_bytes(*counted) as usize != count {
        return Err("page has another number of entries than the run needs");
    }
    body.get(..count * item_len).ok_or("page has more entries than fit")
}

fn checksum(page: &[u8], at: PageAt) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&at.run.to_le_bytes());
    place[8..].copy_from_slice(&at.page.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), page)
}
