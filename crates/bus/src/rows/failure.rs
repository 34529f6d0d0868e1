//! Failures as bytes and words.

use promethean_delivery::Failure;

/// The persisted number. Never change or reuse one.
pub(crate) const fn number(failure: Failure) -> u8 {
    match failure {
        Failure::Nack => 1,
        Failure::Expired => 2,
        Failure::MemberLost => 3,
        Failure::Projection => 4,
    }
}

pub(crate) const fn of_number(number: u8) -> Option<Failure> {
    match number {
        1 => Some(Failure::Nack),
        2 => Some(Failure::Expired),
        3 => Some(Failure::MemberLost),
        4 => Some(Failure::Projection),
        _ => None,
    }
}
