//! Instances that show what was found.
//!
//! | module | holds |
//! | --- | --- |
//! | `instance` | instances of the whole document, whether one shows an incompatibility, and the keyword to blame |
//! | `sampler`, `strings` | values that schemas accept |
//! | `boundary` | values just beyond a bound, and values that a schema refuses |

mod boundary;
mod instance;
mod sampler;
mod strings;

pub(super) use boundary::{
    anything, anything_but, around, lists_for_contains, lists_of_length, lists_with_twins, name_like,
    objects_of_size, texts_of_length,
};
pub(super) use instance::{InstanceFrame, InstanceStep, blame, blame_whole, embed, shows};
pub(super) use sampler::{of_all, of_shape};
