//! Instances that show what was found.
//!
//! | module | holds |
//! | --- | --- |
//! | `instance` | instances of the whole document, and whether one shows an incompatibility |
//! | `sampler`, `strings` | values that schemas accept |
//! | `boundary` | values just beyond a bound, and values that a schema refuses |
//! | `blame` | the keyword that refuses a value |

mod blame;
mod boundary;
mod instance;
mod sampler;
mod strings;

pub(super) use blame::{blame, blame_whole};
pub(super) use boundary::{
    anything, anything_but, around, lists_for_contains, lists_of_length, lists_with_twins, name_like,
    objects_of_size, texts_of_length,
};
pub(super) use instance::{InstanceFrame, InstanceStep, embed, shows};
pub(super) use sampler::{of_all, of_shape};
