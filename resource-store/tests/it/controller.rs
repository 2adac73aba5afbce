//! Controllers, over a service in the same process and a paused clock.

mod demo;
mod reaper;
mod running;
mod soak;
