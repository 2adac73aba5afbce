//! The client, the driver and the double.
