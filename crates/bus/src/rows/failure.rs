//! The stored numbers of failures.

use promethean_delivery::DeliveryFailure;

/// The stored number of a failure. A number is never changed or reused.
pub(crate) const fn number(failure: DeliveryFailure) -> u8 {
    match failure {
        DeliveryFailure::Nack => 1,
        DeliveryFailure::Expired => 2,
        DeliveryFailure::MemberLost => 3,
        DeliveryFailure::Projection => 4,
    }
}

pub(crate) const fn of_number(number: u8) -> Option<DeliveryFailure> {
    match number {
        1 => Some(DeliveryFailure::Nack),
        2 => Some(DeliveryFailure::Expired),
        3 => Some(DeliveryFailure::MemberLost),
        4 => Some(DeliveryFailure::Projection),
        _ => None,
    }
}
