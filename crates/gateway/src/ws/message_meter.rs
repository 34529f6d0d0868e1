//! Where the messages of a client end, by the bytes that pass.

/// Bytes of the longest frame header.
const HEADER_BYTES_MAX: usize = 14;

/// Follows the bytes of a client, without keeping them, to know how much of an unfinished message is here.
/// Bytes that break the protocol may confuse it; the connection then ends anyway.
#[derive(Debug, Default)]
pub(super) struct MessageMeter {
    header: [u8; HEADER_BYTES_MAX],
    /// Bytes of the header that have come.
    header_bytes: usize,
    /// Bytes of the frame's payload that are to come.
    payload_left: u64,
    /// Whether the frame is part of a message, and not a ping, a pong or a goodbye.
    is_data: bool,
    /// Whether the frame is the last one of its message.
    is_last: bool,
    /// Whether a message has begun and not ended.
    is_open: bool,
    unfinished_bytes: usize,
    finished: u64,
}

impl MessageMeter {
    /// Notes bytes that have come.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.payload_left == 0 {
                self.pass_header(*first);
                bytes = rest;
                continue;
            }
            let count = bytes.len().min(usize::try_from(self.payload_left).unwrap_or(usize::MAX));
            self.payload_left -= count as u64;
            if self.is_data {
                self.unfinished_bytes = self.unfinished_bytes.saturating_add(count);
            }
            if self.payload_left == 0 {
                self.end_frame();
            }
            bytes = bytes.get(count..).unwrap_or_default();
        }
    }

    fn pass_header(&mut self, byte: u8) {
        if let Some(place) = self.header.get_mut(self.header_bytes) {
            *place = byte;
        }
        self.header_bytes += 1;
        let [first, second, length @ ..] = self.header;
        let length_bytes = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if second & 0x80 == 0 { 0 } else { 4 };
        if self.header_bytes < 2 || self.header_bytes < 2 + length_bytes + mask_bytes {
            return;
        }
        self.header_bytes = 0;
        self.is_data = first & 0x0f < 8;
        self.is_last = first & 0x80 != 0;
        self.is_open |= self.is_data;
        self.payload_left = match length_bytes {
            0 => u64::from(second & 0x7f),
            count => length.iter().take(count).fold(0, |number, byte| number << 8 | u64::from(*byte)),
        };
        if self.payload_left == 0 {
            self.end_frame();
        }
    }

    fn end_frame(&mut self) {
        if self.is_data && self.is_last {
            self.is_open = false;
            self.unfinished_bytes = 0;
        }
        self.finished += u64::from(!self.is_open);
    }

    /// Bytes of a message that is not whole yet.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.unfinished_bytes
    }

    /// Whether all that came was whole messages.
    pub(super) fn is_at_rest(&self) -> bool {
        self.header_bytes == 0 && self.payload_left == 0 && !self.is_open
    }

    /// The number of the unfinished message, if there is one. Pings do not make it another one.
    pub(super) fn unfinished(&self) -> Option<u64> {
        (!self.is_at_rest()).then_some(self.finished)
    }
}

#[cfg(test)]
mod tests {
    use tungstenite::Message;
    use tungstenite::protocol::frame::Frame;
    use tungstenite::protocol::frame::coding::{Data, OpCode};
    use tungstenite::protocol::{Role, WebSocketContext};

    use super::*;

    fn bytes(messages: Vec<Message>) -> Vec<u8> {
        let mut out = std::io::Cursor::new(Vec::new());
        let mut client = WebSocketContext::new(Role::Client, None);
        messages.into_iter().for_each(|message| client.write(&mut out, message).unwrap());
        client.flush(&mut out).unwrap();
        out.into_inner()
    }

    fn fragment(bytes: usize, opcode: Data, is_last: bool) -> Message {
        Message::Frame(Frame::message(vec![b'x'; bytes], OpCode::Data(opcode), is_last))
    }

    #[test]
    fn whole_messages_leave_nothing_however_they_are_cut() {
        let sent = bytes(vec![
            Message::text(""),
            Message::text("x".repeat(125)),
            Message::Ping(vec![1; 125].into()),
            Message::text("x".repeat(126)),
            Message::Binary(vec![0; 70_000].into()),
            Message::Pong(vec![].into()),
        ]);
        for piece in [1, 2, 3, 7, 1000, sent.len()] {
            let mut meter = MessageMeter::default();
            sent.chunks(piece).for_each(|piece| meter.pass(piece));
            assert!(meter.is_at_rest() && meter.unfinished_bytes() == 0, "{meter:?}");
            assert_eq!((meter.unfinished(), meter.finished), (None, 6));
            meter.pass(&[0x81]);
            assert_eq!((meter.unfinished(), meter.unfinished_bytes()), (Some(6), 0));
        }
    }

    #[test]
    fn fragments_add_up_and_pings_between_them_do_not_count() {
        let sent = bytes(vec![
            Message::text("before"),
            fragment(1_000, Data::Text, false),
            Message::Ping(vec![1; 100].into()),
            fragment(70_000, Data::Continue, false),
            Message::Pong(vec![1; 100].into()),
        ]);
        let mut meter = MessageMeter::default();
        sent.chunks(13).for_each(|piece| meter.pass(piece));
        assert_eq!((meter.unfinished_bytes(), meter.unfinished()), (71_000, Some(1)));
        meter.pass(&bytes(vec![fragment(5, Data::Continue, true)]));
        assert_eq!((meter.unfinished_bytes(), meter.unfinished()), (0, None));
    }

    #[test]
    fn a_huge_length_is_not_believed_but_counted() {
        let mut meter = MessageMeter::default();
        meter.pass(&[0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]);
        meter.pass(&[0; 5_000]);
        assert_eq!((meter.unfinished_bytes(), meter.is_at_rest()), (5_000, false));
    }
}
