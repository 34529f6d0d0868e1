//! What operators see of a partitioned group.

use promethean_model::MemberId;
use serde::Serialize;
use serde_json::Value;

/// A partitioned group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoordinatorView {
    /// How many partitions there are.
    pub partitions: u32,
    /// How often partitions changed hands.
    pub epoch: u64,
    /// When they last did, epoch ms.
    pub since: i64,
    /// The members, by name.
    pub members: Vec<MemberView>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemberView {
    /// Its name.
    pub member: MemberId,
    /// What it says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// The partitions it owns, ascending.
    pub partitions: Vec<u32>,
    /// When it joined, epoch ms.
    pub since: i64,
    /// How it shows that it lives: `socket` or `heartbeat`.
    pub liveness: &'static str,
}
