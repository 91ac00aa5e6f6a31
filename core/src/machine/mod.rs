//! The dispatcher as a state machine without I/O.
