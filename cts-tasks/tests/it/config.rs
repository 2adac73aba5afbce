//! Configuration: every case of the specification, and bad input of every kind.

mod support;

mod loading;
