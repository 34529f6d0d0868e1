//! The stored numbers of failures.

use promethean_delivery::Failure;

/// The stored number of a failure. A number is never changed or reused.
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
