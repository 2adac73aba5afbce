//! What tests of programs with this driver need: a tool that follows a script.

mod scripted;

pub use scripted::ScriptedTerraform;
